"""Imports at a start: a help, and a party that begins to serve, load a few libraries and no others.

Of both tiers: where a library is not installed, an import that fails quietly is not seen.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from treetap.party.server.main import OF_JOBS

ROOT = Path(__file__).parents[2]
#: Libraries that no list of commands needs.
NOT_FOR_HELP = {
    *("aiohttp", "asyncio", "cryptography", "google", "grpc", "jinja2", "multiprocessing", "nacl", "networkx", "numpy"),
    *("prometheus_client", "pyarrow", "pydantic", "scipy", "sklearn", "torch", "zstandard"),
}
#: Libraries that no party needs before its first job, and modules of its own that come with them.
NOT_TO_SERVE = {
    *("aiohttp", "jinja2", "nacl", "networkx", "numpy", "pyarrow", "ray", "rich", "scipy", "sklearn", "torch"),
    *(
        "treetap.attacks",
        "treetap.coordinator",
        "treetap.party.opening",
        "treetap.lab.api",
        "treetap.process.apart",
        "treetap.tables.opening",
    ),
    *("treetap.protocols.job_spec", "treetap.trees", "treetap.wire.relay"),
    *("treetap.party.approvals.overview", "treetap.ops.console", "treetap.wire.v2.overview_pb2"),
}
#: Libraries that the demo needs after its training alone.
NOT_TO_TRAIN = {
    "treetap.attacks.audit",
    "treetap.attacks.id2graph.grouping",
    "jinja2",
    "networkx",
    "pandas",
    "scipy",
    "sklearn",
}
#: Own modules, and of these generated ones, of a party that begins to serve: a figure may fall and not rise.
OWN, GENERATED = 130, 26
PRINTS = "print(*sorted(sys.modules))"


def loaded(code: str) -> set[str]:
    """The modules, and the packages that they are of, of a process that has executed the code."""
    ended = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\n{PRINTS}"],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return set(ended.stdout.splitlines()[-1].split())


@pytest.mark.second_tier(but=1)
def test_a_list_of_commands_imports_none_of_them() -> None:
    """`treetap --help` needs typer and what prints it, and of the commands their names and lines."""
    modules = loaded(
        "sys.argv = ['treetap', '--help']\nfrom treetap.commands.cli import main\ntry: main()\nexcept SystemExit: pass"
    )
    assert not modules & NOT_FOR_HELP
    own = {name for name in modules if name.startswith("treetap.commands.")}
    assert own == {f"treetap.commands.{name}" for name in ("cli", "lazy", "options")}


@pytest.mark.second_tier(but=1)
def test_a_party_serves_before_it_imports_what_jobs_need() -> None:
    """Tables and the opening of jobs are not loaded; both are once `OF_JOBS` are, as they are when a job comes."""
    modules = loaded("import treetap.commands.cli, treetap.party.server.main")
    assert not modules & NOT_TO_SERVE
    own = {name for name in modules if name.partition(".")[0] == "treetap"}
    made = {name for name in own if "_pb2" in name}
    assert len(own) <= OWN
    assert len(made) <= GENERATED
    more = loaded(f"import treetap.commands.cli, treetap.party.server.main\nimport {', '.join(OF_JOBS)}")
    assert {"pyarrow", "treetap.tables.opening"} <= more


@pytest.mark.second_tier(but=1)
def test_a_party_with_served_models_parses_no_http() -> None:
    """Its server for clients listens, with all that jobs need, and no library of HTTP is there; a gateway has it."""
    modules = loaded(
        "import asyncio, pathlib, tempfile, treetap.commands.cli, treetap.party.server.main as main\n"
        f"import {', '.join(OF_JOBS)}, treetap.party.prediction.records\n"
        "from treetap.party.config import PartyConfig, ServeConfig\n"
        "from treetap.party.runtime.metrics import PartyMetrics\n"
        "from treetap.party.serving.registry import ServedModels\n"
        "serve = ServeConfig(clients=['app'], listen='127.0.0.1:0', gateway='gateway')\n"
        "config = PartyConfig(name='bank', state=pathlib.Path('s'), insecure=True, serve=serve)\n"
        "models = ServedModels(config, PartyMetrics('bank'))\n"
        "async def listen():\n"
        "    server = main.ScoringServer()\n"
        "    await server.open(config, models)\n"
        "    await server.close(0)\n"
        "asyncio.run(listen())\n"
        "assert models.address"
    )
    assert not modules & {"aiohttp", "aiosignal", "multidict", "yarl", "treetap.ops"}
    assert "aiohttp" in loaded("import treetap.ops.gateway.http")


@pytest.mark.second_tier(but=1)
def test_a_gateway_holds_no_part_of_a_party() -> None:
    """It needs sockets, TLS, certificates and HTTP: no table, no arithmetic, no server of a party."""
    modules = loaded("import treetap.commands.cli, treetap.ops.gateway.http")
    assert not modules & (NOT_TO_SERVE - {"aiohttp"})
    assert not modules & {"treetap.party", "treetap.coordinator", "numpy"}


@pytest.mark.second_tier(but=1)
def test_a_relay_imports_no_arithmetic() -> None:
    """It needs sockets, TLS and certificates, and no part of a party's."""
    modules = loaded("import treetap.commands.cli, treetap.ops.relay.command")
    assert not modules & (NOT_TO_SERVE - {"treetap.wire.relay"})
    assert not modules & {"treetap.party", "treetap.coordinator", "numpy"}


@pytest.mark.second_tier(but=1)
def test_the_demo_trains_before_it_imports_attacks() -> None:
    """Its table is read, and its settings of attacks are checked, without what attacks and reports need."""
    modules = loaded(
        "import pathlib, tempfile, treetap.lab.demo as demo\n"
        "from treetap.process.limits import leave_out_pandas\n"
        "leave_out_pandas()\n"
        "with tempfile.TemporaryDirectory() as name:\n"
        "    folder = pathlib.Path(name)\n"
        "    names = demo.write_breast_cancer(folder / 'breast_cancer.parquet')\n"
        "    demo.read_table(demo.federation_of(folder, names, 'boosting', {}), folder)"
    )
    assert not modules & NOT_TO_TRAIN


@pytest.mark.second_tier(but=1)
def test_numpy_starts_no_thread_in_a_server() -> None:
    """Its linear algebra has one thread, and what is imported later finds the environment as it was."""
    code = (
        "import os\nos.environ.pop('OPENBLAS_NUM_THREADS', None)\n"
        "from treetap.process.limits import import_numpy\nimport_numpy()\n"
        "assert 'numpy' in sys.modules and 'OPENBLAS_NUM_THREADS' not in os.environ\n"
        "assert len(os.listdir('/proc/self/task')) == 1"
    )
    assert "numpy" in loaded(code)

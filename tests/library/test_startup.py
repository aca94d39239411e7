"""Imports at a start: a help, and a party that reads its file, load a few libraries and no others.

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
#: Libraries that no party needs to read its file, and modules of its own that come with them.
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
    *("treetap.protocols.job_spec", "treetap.trees", "treetap.wire.relay", "treetap.wire.secured"),
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
#: Libraries that take longer to import than the usual attacks to run.
HEAVY = {"networkx", "pandas", "scipy", "sklearn"}
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
def test_a_party_reads_its_file_before_it_imports_what_jobs_need() -> None:
    """Tables and the opening of jobs are not loaded; both are once `OF_JOBS` are, as they are when it serves."""
    modules = loaded("import treetap.commands.cli, treetap.party.server.main")
    assert not modules & NOT_TO_SERVE
    own = {name for name in modules if name.partition(".")[0] == "treetap"}
    made = {name for name in own if "_pb2" in name}
    assert len(own) <= OWN
    assert len(made) <= GENERATED
    more = loaded(f"import treetap.commands.cli, treetap.party.server.main\nimport {', '.join(OF_JOBS)}")
    assert {"pyarrow", "treetap.tables.opening"} <= more


SERVED = f"""
import asyncio, pathlib, treetap.commands.cli, treetap.party.server.main as main
import {", ".join(OF_JOBS)}, treetap.party.prediction.records
from treetap.party.config import PartyConfig, ServeConfig
from treetap.party.runtime.metrics import PartyMetrics
from treetap.party.serving.registry import ServedModels
serve = ServeConfig(clients=['app'], listen='127.0.0.1:0', gateway='gateway')
config = PartyConfig(name='bank', state=pathlib.Path('s'), insecure=True, serve=serve)
models = ServedModels(config, PartyMetrics('bank'))
async def listen():
    server = main.ScoringServer()
    await server.open(config, models)
    await server.close(0)
asyncio.run(listen())
assert models.address
"""
DEMO = """
import pathlib, tempfile, treetap.lab.demo as demo
from treetap.process.limits import leave_out_pandas
leave_out_pandas()
with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    names = demo.write_breast_cancer(folder / 'breast_cancer.parquet')
    demo.read_table(demo.federation_of(folder, names, 'boosting', {}), folder)
"""
#: What an experiment runs unless its file says otherwise; other attacks import their libraries where they run.
AUDIT = """
import treetap.lab.experiment.audited, treetap.lab.experiment.run, treetap.attacks.id2graph.grouping
import treetap.attacks.known_labels.naming, treetap.attacks.report, treetap.attacks.sums.attack
"""
NUMPY = """
import os
os.environ.pop('OPENBLAS_NUM_THREADS', None)
from treetap.process.limits import import_numpy
import_numpy()
assert 'OPENBLAS_NUM_THREADS' not in os.environ
assert len(os.listdir('/proc/self/task')) == 1
"""
OF_A_PARTY = {"treetap.party", "treetap.coordinator", "numpy"}


@pytest.mark.second_tier(but=5)
@pytest.mark.parametrize(
    ("code", "absent", "there"),
    [
        # a party's server for clients listens, with all that jobs need, and no library of HTTP is there
        pytest.param(SERVED, {"aiohttp", "aiosignal", "multidict", "yarl", "treetap.ops"}, set(), id="served models"),
        # a gateway needs sockets, TLS, certificates and HTTP: no table, no arithmetic, no server of a party
        pytest.param(
            "import treetap.commands.cli, treetap.ops.gateway.http",
            NOT_TO_SERVE - {"aiohttp"} | OF_A_PARTY,
            {"aiohttp"},
            id="gateway",
        ),
        # a relay needs sockets, TLS and certificates, and no part of a party's
        pytest.param(
            "import treetap.commands.cli, treetap.ops.relay.command",
            NOT_TO_SERVE - {"treetap.wire.relay"} | OF_A_PARTY,
            set(),
            id="relay",
        ),
        # the demo's table is read, and its settings of attacks checked, without what attacks and reports need
        pytest.param(DEMO, NOT_TO_TRAIN, set(), id="demo"),
        pytest.param(AUDIT, HEAVY, {"numpy"}, id="audit"),
        # numpy's linear algebra has one thread, and what is imported later finds the environment as it was
        pytest.param(NUMPY, set(), {"numpy"}, id="numpy"),
    ],
)
def test_what_a_process_loads(code: str, absent: set[str], there: set[str]) -> None:
    """None of what it has no use for."""
    modules = loaded(code)
    assert not modules & absent
    assert there <= modules

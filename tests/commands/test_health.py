"""`treetap health`: the question that container engines and systemd ask."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.certificates import role_of
from tests.commands.command import treetap_here
from treetap.commands.health import read
from treetap.lab.local_federation import LocalFederation, to_toml

#: Packages of others, and treetap's own, that no health check needs.
HEAVY = {"numpy", "pyarrow", "rich", "gmpy2", "sklearn", "networkx", "jinja2", "zstandard", "prometheus_client"}
OWN = {
    *(
        "party",
        "coordinator",
        "attacks",
        "treetap.trees",
        "treetap.tables",
        "treetap.additive.paillier",
        "treetap.models",
    ),
    *(
        "treetap.wire.rpc",
        "treetap.wire.v2",
        "treetap.workers.engines",
        "treetap.terminal",
        "treetap.commands.jobs.client",
    ),
}
LOADED = """
import json, sys
from treetap.commands.cli import main
try:
    main()
except SystemExit as ended:
    print(json.dumps([ended.code, sorted(sys.modules)]))
"""

pytestmark = pytest.mark.xdist_group("health")


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFederation]:
    """One party and a coordinator that serve."""
    with LocalFederation(tmp_path_factory.mktemp("federation"), {"bank": {"workers": 1}}) as running:
        yield running


def certs(federation: LocalFederation, name: str) -> list[str]:
    """The options that say with which certificate to ask."""
    folder = federation.folder / "certs"
    files = {"--ca": folder / "ca.crt", "--certificate": folder / f"{name}.crt", "--key": folder / f"{name}.key"}
    return [word for option, path in files.items() for word in (option, str(path))]


def health(*words: str) -> int:
    """The exit status of `treetap health` with these words."""
    return treetap_here("health", *words)


@pytest.mark.parametrize("name", ["bank", "coordinator"])
def test_a_process_that_serves_is_status_0(
    federation: LocalFederation, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """By its own file and by address and any certificate of the authority."""
    config = str(federation.folder / name / "config.toml")
    address = federation.addresses[name]
    assert health("--config", config, "--address", address) == 0
    given = ["--address", address, "--name", name, "--role", role_of(name)]
    assert health(*given, *certs(federation, "operator")) == 0
    assert capsys.readouterr().out == f"{name} serves at {address}\n" * 2


def test_a_process_that_is_somebody_else_is_status_1(
    federation: LocalFederation, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who answers with another name than expected does not count."""
    given = ["--address", federation.addresses["coordinator"], "--name", "bank", *certs(federation, "operator")]
    assert health(*given) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "that of 'coordinator', not of 'bank'" in said.err


@pytest.mark.second_tier
def test_nobody_there_is_status_1_within_the_timeout(
    federation: LocalFederation, capsys: pytest.CaptureFixture[str]
) -> None:
    """A port that takes connections and says nothing ends the question in time, as a closed one does."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        given = ["--address", address, "--name", "bank", *certs(federation, "operator"), "--timeout", "0.5"]
        assert health(*given) == 1
    assert health(*given) == 1
    assert capsys.readouterr().err.count("treetap: ") == 2


def test_listening_everywhere_is_asked_on_loopback(tmp_path: Path) -> None:
    """0.0.0.0 and [::] become the loopback address of their family; the certificate's paths are the file's folder's."""
    tls = {"ca": "ca.crt", "certificate": "bank.crt", "key": "bank.key"}
    for listen, asked in (("0.0.0.0:7101", "127.0.0.1:7101"), ("[::]:7101", "[::1]:7101"), ("h:7101", "h:7101")):
        (tmp_path / "party.toml").write_text(to_toml({"name": "bank", "listen": listen, "state": "s", "tls": tls}))
        to, files = read(tmp_path / "party.toml")
        assert (to.name, to.location) == ("bank", asked)
        assert files.key == tmp_path / "bank.key"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('listen = "127.0.0.1:0"\n[tls]\nca = "a"\ncertificate = "b"\nkey = "c"\n', "takes any free port"),
        ('listen = "127.0.0.1:7101"\n', "tls"),
        ("listen =", "is not TOML"),
    ],
)
def test_a_file_that_cannot_be_used_is_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, says: str
) -> None:
    """2 is reserved by container engines, so a wrong file is 1 too; the message names it."""
    (tmp_path / "party.toml").write_text(content)
    assert health("--config", str(tmp_path / "party.toml")) == 1
    said = capsys.readouterr().err
    assert str(tmp_path / "party.toml") in said
    assert says in said


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "say --config, or --address"),
        (["--name", "bank"], "say --config, or --address"),
        (["--config", "f", "--name", "b"], "the rest is in the file"),
        (["--config", "f", "--key", "f"], "the rest is in the file"),
        (["--address", "nowhere"], "an address is host:port, not 'nowhere'"),
        (["--name", "Bank"], "a name has lower-case letters"),
        (["--config", "f", "--timeout", "0"], "--timeout"),
    ],
)
def test_wrong_usage_is_status_2(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Too little, too much, no address, no name or no time: usage and the reason on standard error."""
    assert health(*words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "Usage: " in said.err
    assert says in " ".join(said.err.replace("│", " ").split())


def test_a_call_loads_little(federation: LocalFederation) -> None:
    """A container engine asks every few seconds: no tables, mathematics, applications or messages of the protocol."""
    config, address = str(federation.folder / "bank" / "config.toml"), federation.addresses["bank"]
    words = [sys.executable, "-c", LOADED, "health", "--config", config, "--address", address]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    said, loaded = ended.stdout.splitlines()
    assert said == f"bank serves at {address}"
    status, modules = json.loads(loaded)
    assert status == 0
    assert "treetap.wire.probe" in modules
    assert not OWN & set(modules)
    assert not HEAVY & {module.partition(".")[0] for module in modules}

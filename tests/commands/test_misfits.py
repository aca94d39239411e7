"""Processes that do not fit together: one line with cause and remedy, status 2, within ten seconds."""

from __future__ import annotations

import json
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import certified
from tests.commands.command import Outcome, end, refused, start, treetap, write
from tests.system.federations import settings, write_operator_file
from tests.worlds import PARTIES, world
from treetap import version
from treetap.commands.certs import authority
from treetap.commands.certs.authority import issue
from treetap.lab.local_federation import LocalFederation
from treetap.wire.certificates import fingerprint, read_certificates
from treetap.wire.ports import Role
from treetap.wire.tls import TlsFiles

pytestmark = pytest.mark.xdist_group("misfits")

#: Seconds that a command may take on a busy machine; alone it takes two or three.
MOST_S = 30.0
LABEL_HOLDER, FEATURE_B, FEATURE_C = PARTIES
OTHER_VERSION = (
    "from treetap import version; version.PROTOCOL_VERSION = 99; from treetap.commands.cli import main; main()"
)


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFederation]:
    """A federation whose feature-c is gone: each test puts somebody in its place."""
    folder = tmp_path_factory.mktemp("misfits")
    with LocalFederation(folder, settings(folder, {"train": world(20, (1, 1, 1))})) as running:
        write_operator_file(running)
        running.kill(FEATURE_C)
        yield running


@pytest.fixture
def certs(tmp_path: Path) -> Path:
    """An authority with certificates for a party and a coordinator."""
    folder = tmp_path / "certs"
    certified(folder, "bank", "coordinator")
    return folder


def _tls(files: TlsFiles) -> dict[str, str]:
    return {"ca": str(files.ca), "certificate": str(files.certificate), "key": str(files.key)}


def _own(certs: Path, name: str) -> TlsFiles:
    return TlsFiles(certs / "ca.crt", certs / f"{name}.crt", certs / f"{name}.key")


def _bank(folder: Path, certs: Path, **changes: Any) -> Path:
    return write(folder / "bank.toml", {"name": "bank", "state": "state", "tls": _tls(_own(certs, "bank"))} | changes)


def _soon(call: Callable[[], Outcome]) -> str:
    """The message of a command that failed with status 2 in time."""
    began = time.monotonic()
    message = refused(call())
    assert time.monotonic() - began < MOST_S
    return message


def _train(federation: LocalFederation, name: str) -> Outcome:
    job = {"label_holder": LABEL_HOLDER, "feature_parties": [FEATURE_B, FEATURE_C], "key_bits": 1024}
    content = {"name": name, "job": {**job, "n_estimators": 1, "max_depth": 1, "max_bin": 2}}
    outcome = treetap("train", write(federation.folder / f"{name}.toml", content), folder=federation.folder)
    said = outcome.err.splitlines(keepends=True)  # without the job, its states and its table
    return outcome._replace(out="", err="".join(it for it in said if not it.startswith((f"job {name}", f"{name}: "))))


def _in_place(federation: LocalFederation, folder: Path, tls: TlsFiles, name: str, *command: str) -> Iterator[None]:
    """Somebody called `name` serves at feature-c's address."""
    content = {"name": name, "listen": federation.addresses[FEATURE_C], "state": "state", "workers": 1}
    config = write(folder / "intruder.toml", {**content, "tls": _tls(tls)})
    words = ["party", "--config", str(config)]
    process = subprocess.Popen([sys.executable, *command, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["name"] == name
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=10)


@pytest.fixture
def of_another_name(federation: LocalFederation, tmp_path: Path) -> Iterator[str]:
    """A party `somebody` at feature-c's address."""
    files = issue(tmp_path, "somebody", Role.PARTY, ca_folder=federation.folder / "certs")
    yield from (
        "the certificate is that of 'somebody', not of 'feature-c'; correct the name, address or files"
        for _ in _in_place(federation, tmp_path, files, "somebody", "-m", "treetap")
    )


@pytest.fixture
def of_another_authority(federation: LocalFederation, tmp_path: Path) -> Iterator[str]:
    """feature-c with a certificate of its own authority."""
    files = certified(tmp_path / "own", FEATURE_C)[FEATURE_C]
    ours = fingerprint(read_certificates(federation.folder / "certs" / "ca.crt")[0])
    yield from (
        f"is not signed by the authority trusted here (SHA-256 {ours}, key "
        for _ in _in_place(federation, tmp_path, files, FEATURE_C, "-m", "treetap")
    )


@pytest.fixture
def of_another_version(federation: LocalFederation, tmp_path: Path) -> Iterator[str]:
    """feature-c of a release that speaks another version of the protocol."""
    files = _own(federation.folder / "certs", FEATURE_C)
    yield from (
        f"coordinator speaks version '{version.PROTOCOL_VERSION}' of the protocol, feature-c speaks version '99'"
        for _ in _in_place(federation, tmp_path, files, FEATURE_C, "-c", OTHER_VERSION)
    )


@pytest.mark.second_tier
@pytest.mark.parametrize("misfit", ["of_another_name", "of_another_authority", "of_another_version"])
def test_a_job_with_a_party_that_does_not_fit(
    misfit: str, federation: LocalFederation, request: pytest.FixtureRequest
) -> None:
    """The operator is told party, cause and remedy at once; the job waits for the mending instead of being lost."""
    expected = request.getfixturevalue(misfit)
    name = misfit.replace("_", "-")
    message = _soon(lambda: _train(federation, name))
    assert expected in message
    assert "feature-c" in message
    assert message.count("\n") == 1
    assert message.endswith(f"; then: treetap resume {name}\n")
    status = json.loads(treetap("status", name, "--json", folder=federation.folder).out)["jobs"][0]
    assert (status["state"], status["bad_input"]) == ("interrupted", True)


@pytest.mark.second_tier
def test_a_coordinator_that_does_not_fit(federation: LocalFederation, tmp_path: Path) -> None:
    """An operator of another authority, and one who asks for another name, are told so with status 2.

    The first in a process that is not forked: gRPC's own lines are off since it is imported late.
    """
    foreign = certified(tmp_path / "own", "operator")["operator"]
    address = federation.addresses["coordinator"]
    file = write(tmp_path / "operator.toml", {"coordinator": address, "tls": _tls(foreign)})
    message = _soon(lambda: end(start("status", folder=tmp_path)))
    assert "is not signed by the authority trusted here" in message
    assert fingerprint(read_certificates(foreign.ca)[0]) in message
    own = _own(federation.folder / "certs", "operator")
    write(file, {"coordinator": address, "coordinator_name": "chief", "tls": _tls(own)})
    assert "that of 'coordinator', not of 'chief'" in _soon(lambda: treetap("status", folder=tmp_path))


@pytest.mark.second_tier
def test_an_operator_of_another_version(federation: LocalFederation) -> None:
    """The coordinator answers with both versions and the remedy."""
    began = time.monotonic()
    words = ["-c", OTHER_VERSION, "status", "--operator", str(federation.folder / "operator.toml")]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=60, check=False)
    assert time.monotonic() - began < MOST_S
    assert done.returncode == 2
    both = f"operator speaks version '99' of the protocol, the coordinator speaks version '{version.PROTOCOL_VERSION}'"
    assert both in done.stderr
    assert "install the same release of treetap on both" in done.stderr


def test_certificates_at_the_start(tmp_path: Path, certs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate of another name, and one that an hour's error of the clock puts into the future, are told."""
    wrong = _bank(tmp_path, certs, tls=_tls(_own(certs, "coordinator")))
    message = _soon(lambda: treetap("party", "--config", wrong))
    assert "the certificate is that of 'coordinator', not of 'bank'; correct the name" in message
    monkeypatch.setattr(authority, "BACKDATED", timedelta(hours=-1))
    ahead = issue(tmp_path, "bank", Role.PARTY, ca_folder=certs)
    message = _soon(lambda: treetap("party", "--config", _bank(tmp_path, certs, tls=_tls(ahead))))
    assert "is not valid before" in message
    assert "check this host's clock" in message


@pytest.mark.second_tier
def test_a_key_that_others_can_read(tmp_path: Path, certs: Path) -> None:
    """It is a warning with its remedy, and the party serves."""
    key = certs / "bank.key"
    key.chmod(0o644)
    process = start("party", "--config", _bank(tmp_path, certs))
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["name"] == "bank"
    process.send_signal(signal.SIGTERM)
    outcome = end(process)
    assert outcome.status == 0
    assert f"{key}: others on this host can read this private key; run chmod 600 on it" in outcome.err
    assert stat.S_IMODE(key.stat().st_mode) == 0o644


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"data": "mnt"}, "data: {folder}/mnt: there is no such folder; mount it"),
        (
            {"tables": {"train": {"path": "mnt/t.csv", "id": "id"}}},
            "tables.train: path: {folder}/mnt: there is no such folder; mount it",
        ),
    ],
)
def test_folders_that_are_not_mounted(changes: dict[str, Any], expected: str, tmp_path: Path, certs: Path) -> None:
    """A party whose data are not mounted does not start; one file that is still to come is no fault."""
    message = _soon(lambda: treetap("party", "--config", _bank(tmp_path, certs, **changes)))
    assert message.startswith(expected.format(folder=tmp_path))


def test_two_parties_of_one_name(tmp_path: Path, certs: Path) -> None:
    """A name that stands twice, and a party of the coordinator's own name, end the coordinator at its start."""
    common = {"state": "state", "tls": _tls(_own(certs, "coordinator"))}
    file = write(tmp_path / "coordinator.toml", {**common, "parties": {"bank": "127.0.0.1:1"}})
    file.write_text(f'{file.read_text()}\n[parties]\nbank = "127.0.0.1:2"\n')
    message = _soon(lambda: treetap("coordinator", "--config", file))
    assert "a key or table is defined twice: use each name once" in message
    write(file, {**common, "parties": {"coordinator": "127.0.0.1:1"}})
    message = _soon(lambda: treetap("coordinator", "--config", file))
    assert "parties: 'coordinator' is the coordinator's own name; give the party another" in message


@pytest.mark.parametrize("kind", ["party", "coordinator"])
def test_a_port_for_metrics_that_is_taken(kind: str, tmp_path: Path, certs: Path) -> None:
    """The line names the key and the remedy; with --log-format json it is a JSON object like all others."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        metrics = f"127.0.0.1:{taken.getsockname()[1]}"
        if kind == "party":
            file = _bank(tmp_path, certs, metrics=metrics, workers=1)
        else:
            content = {"state": "state", "tls": _tls(_own(certs, "coordinator")), "parties": {"bank": "h:1"}}
            file = write(tmp_path / "coordinator.toml", {**content, "metrics": metrics})
        expected = f"metrics = '{metrics}': cannot listen there: Address already in use; choose a free port"
        assert expected in _soon(lambda: treetap(kind, "--config", file))
        outcome = treetap(kind, "--config", file, "--log-format", "json")
    assert outcome.status == 2
    lines = [json.loads(line) for line in outcome.err.splitlines()]
    assert lines[-1]["level"] == "critical"
    assert expected in lines[-1]["message"]


def test_a_format_that_is_none(tmp_path: Path, certs: Path) -> None:
    """Formats are text and json."""
    outcome = treetap("party", "--config", _bank(tmp_path, certs), "--log-format", "xml")
    assert "--log-format xml: must be one of text, json" in refused(outcome)

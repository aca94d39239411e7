"""`treetap doctor`: each fault is a line with its remedy, exit status 2, and never more than ten seconds."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import ExitStack, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.certificates import certified
from tests.commands.command import Outcome, files_in, refused, treetap, write
from tests.system.federations import settings, write_operator_file
from tests.system.namespaces import tls_of
from tests.worlds import PARTIES, world
from treetap import version
from treetap.commands.certs.authority import issue
from treetap.errors import BadInput
from treetap.lab.local_federation import LocalFederation
from treetap.lattice import histogram_scheme
from treetap.native import library
from treetap.ops.certs.requests import revoke
from treetap.ops.doctor import configuration, connections
from treetap.ops.doctor.connections import Finding
from treetap.party import config as party_config
from treetap.tables.config import TableConfig
from treetap.wire.ports import Address, Identity, Role
from treetap.wire.tls import TlsFiles

pytestmark = pytest.mark.xdist_group("doctor")

#: Seconds that a command may take on a busy machine; alone it takes two or three.
MOST_S = 30.0
TABLE = {"id": "id", "columns": ["x"]}
SAME = {"id": "id", "columns": ["x", "y", "z"]}


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFederation]:
    """Three parties and a coordinator that serve."""
    folder = tmp_path_factory.mktemp("doctor")
    with LocalFederation(folder, settings(folder, {"train": world(20, (1, 1, 1))})) as running:
        write_operator_file(running)
        yield running


def _doctor(file: Path, status: int) -> list[dict[str, Any]]:
    """The findings, once the command ended in time and with this status."""
    began = time.monotonic()
    outcome = treetap("doctor", "--config", file, "--json")
    assert time.monotonic() - began < MOST_S
    assert (outcome.status, outcome.err) == (status, ""), outcome
    report = json.loads(outcome.out)
    assert report["faults"] == sum(each["level"] == "fault" for each in report["findings"])
    return list(report["findings"])


def _of(findings: list[dict[str, Any]], level: str) -> dict[str, str]:
    return {each["subject"]: each["message"] for each in findings if each["level"] == level}


def _party(folder: Path, certs: Path, **changes: Any) -> Path:
    (folder / "table.csv").write_text("id,x\n1,2\n2,3\n")
    tables = {"train": {"path": "table.csv", **TABLE}}
    return write(
        folder / "bank.toml",
        {"name": "bank", "state": "state", "tls": tls_of(files_in(certs, "bank")), "tables": tables} | changes,
    )


def test_a_federation_in_order(federation: LocalFederation) -> None:
    """Every file of a running federation is without fault; the certificates of 30 days are soon over."""
    for name in PARTIES:
        own = federation.folder / name / "config.toml"
        own.write_text(own.read_text().replace("127.0.0.1:0", federation.addresses[name]))
        findings = _doctor(own, 0)
        assert set(_of(findings, "warning")) == {"certificate"}
        said = _of(findings, "ok")
        assert all(other in said["policy"] for other in PARTIES if other != name)
        assert said["table train"].startswith("20 records, 1 feature columns")
        assert any(line["message"] == f"{name} runs: it answers and serves" for line in findings)
    findings = _doctor(federation.folder / "coordinator" / "config.toml", 0)
    for name in PARTIES:
        said = [each["message"] for each in findings if each["subject"] == f"{name} at {federation.addresses[name]}"]
        assert said[0] == "answers and serves"
        assert said[1] == f"treetap {version.package_version()}, protocol version {version.PROTOCOL_VERSION}"
        clock = re.search(r"its clock is (\d+\.\d) s .* ours \(give or take (\d+\.\d) s\)", said[2])
        assert clock is not None
        assert float(clock[1]) <= float(clock[2]) + 0.1  # both are rounded; on a busy host an answer takes its time
    findings = _doctor(federation.folder / "operator.toml", 0)
    assert f"coordinator at {federation.addresses['coordinator']}" in _of(findings, "ok")


def test_lines_for_a_person(federation: LocalFederation) -> None:
    """Without --json each finding is a line that begins with its level."""
    outcome = treetap("doctor", "--config", federation.folder / "operator.toml")
    assert (outcome.status, outcome.err) == (0, "")
    lines = outcome.out.splitlines()
    assert len(lines) >= 4
    assert all(line.split()[0] in ("ok", "warning") for line in lines)


@pytest.mark.parametrize(
    ("receivers", "level", "says"),
    [
        (["parties", "clients"], "ok", "the policy lets each of them have predictions"),
        (["parties", "batch"], "warning", "bank's policy sends PREDICTION to all but app"),
        (["parties"], "fault", "bank's policy sends PREDICTION to none of serve.clients (app, batch)"),
    ],
)
def test_clients_and_the_policy(receivers: list[str], level: str, says: str, certs: Path, tmp_path: Path) -> None:
    """Clients whom the policy forbids to answer are found before they ask."""
    write(tmp_path / "policy.toml", {"emits": {"PREDICTION": receivers}})
    serve = {"clients": ["app", "batch"], "listen": "127.0.0.1:0"}
    file = _party(tmp_path, certs, serve=serve, policy="policy.toml", listen="127.0.0.1:0")
    assert _of(_doctor(file, 2 if level == "fault" else 0), level)["serve.clients"].startswith(says)


@pytest.mark.second_tier
def test_whatever_is_down(federation: LocalFederation, tmp_path: Path) -> None:
    """A stopped, a suspended, a wrongly named and thirty absent parties: each has its line, all within ten seconds."""
    with ExitStack() as stack:
        closed = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(15)]
        ports = [each.getsockname()[1] for each in closed]  # these accept, and never say a word
        parties = {f"absent-{i}": f"127.0.0.1:{port}" for i, port in enumerate(ports)}
        parties |= {f"lost-{i}": f"lost-{i}.invalid:7000" for i in range(15)}
        parties |= {"feature-b": federation.addresses["feature-b"], "feature-c": federation.addresses["label-holder"]}
        tls = federation._tls("coordinator")
        file = write(tmp_path / "coordinator.toml", {"state": "state", "tls": tls, "parties": parties})
        os.kill(federation.pid("feature-b"), signal.SIGSTOP)
        try:
            faults = _of(_doctor(file, 2), "fault")
        finally:
            os.kill(federation.pid("feature-b"), signal.SIGCONT)
    assert len(faults) == len(parties)
    assert "suspended" in faults[f"feature-b at {federation.addresses['feature-b']}"]
    assert (
        "that of 'label-holder', not of 'feature-c'" in faults[f"feature-c at {federation.addresses['label-holder']}"]
    )
    assert "looked up" in faults["lost-3 at lost-3.invalid:7000"].replace("looking", "looked")
    assert "does not shake hands" in faults[f"absent-3 at 127.0.0.1:{ports[3]}"]


@pytest.fixture
def serve(certs: Path) -> Iterator[Callable[[list[tuple[str, str]]], Address]]:
    """Starts a server for `telco` whose health check tells what it is given."""
    with ExitStack() as stack:

        def start(told: list[tuple[str, str]]) -> Address:
            class Told(health_pb2_grpc.HealthServicer):
                def Check(self, request: Any, context: grpc.ServicerContext) -> health_pb2.HealthCheckResponse:
                    context.send_initial_metadata(told)
                    return health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)

            ca, certificate, key = files_in(certs, "telco").read()
            server = grpc.server(futures.ThreadPoolExecutor(1))
            health_pb2_grpc.add_HealthServicer_to_server(Told(), server)
            credentials = grpc.ssl_server_credentials([(key, certificate)], ca, require_client_auth=True)
            port = server.add_secure_port("127.0.0.1:0", credentials)
            server.start()
            stack.callback(lambda: server.stop(None).wait())
            return Address("telco", f"127.0.0.1:{port}")

        yield start


def _told(skew: float = 0.0, protocol: str | None = None, release: str | None = None) -> list[tuple[str, str]]:
    return [
        ("treetap-time", f"{time.time() + skew:.6f}"),
        ("treetap-protocol", protocol or str(version.PROTOCOL_VERSION)),
        ("treetap-version", release or version.package_version()),
    ]


@pytest.mark.parametrize(
    ("skew", "level", "expected"),
    [
        (10.0, "ok", " s ahead of ours"),
        (-60.0, "warning", " s behind ours"),
        (3600.0, "fault", " s ahead of ours"),
        (-3600.0, "fault", "; synchronise both hosts' clocks"),
    ],
)
def test_clocks(
    skew: float, level: str, expected: str, serve: Callable[[list[tuple[str, str]]], Address], certs: Path
) -> None:
    """Half a minute is a warning, an hour a fault, and the line says which clock is ahead."""
    clock = connections.check_server(serve(_told(skew)), files_in(certs, "operator"))[-1]
    assert clock.level == level
    assert abs(abs(skew) - float(clock.message.split()[3])) < 2
    assert expected in clock.message


def test_versions(serve: Callable[[list[tuple[str, str]]], Address], certs: Path) -> None:
    """Another protocol version, and none, is a fault; another release of the same protocol a warning."""
    us = files_in(certs, "operator")
    assert _version(serve(_told(protocol="99")), us) == (
        "fault",
        f"speaks version '99' of the protocol, we speak '{version.PROTOCOL_VERSION}'; "
        "install the same release of treetap on both",
    )
    level, message = _version(serve([]), us)
    assert (level, message.partition(",")[0]) == ("fault", "sends no version of the protocol")
    level, message = _version(serve(_told(release="9.9.9")), us)
    assert (level, message.partition(",")[0]) == ("warning", "treetap 9.9.9")


def _version(to: Address, tls: TlsFiles) -> tuple[str, str]:
    found = connections.check_server(to, tls)
    return found[1].level, found[1].message


def test_authorities_that_differ(serve: Callable[[list[tuple[str, str]]], Address], tmp_path: Path) -> None:
    """The line has the key of the authority trusted here and of the one that signed, as their files have them."""
    found = connections.check_server(serve(_told()), certified(tmp_path, "operator")["operator"])
    assert [each.level for each in found] == ["fault"]
    keys = found[0].message.split("key ")
    assert "is not signed by the authority trusted here (SHA-256 " in found[0].message
    assert len({part.partition(")")[0] for part in keys[1:]}) == 2


@contextmanager
def _hanging_up() -> Iterator[str]:
    """The address of a server that ends every connection at once."""
    with socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def test_a_partys_own_faults(tmp_path: Path, certs: Path) -> None:
    """Tables, folders, state and port each have their line; what is in order stays in order."""
    (tmp_path / "twice.csv").write_text("id,x\n1,2\n1,3\n")
    (tmp_path / "words.csv").write_text("id,x\n1,two\n2,3\n")
    (tmp_path / "state").write_text("a file")
    tables = {
        **{"train": {"path": "table.csv", **TABLE}, "twice": {"path": "twice.csv", **TABLE}},
        **{"words": {"path": "words.csv", **TABLE}, "absent": {"path": "mnt/absent.csv", **TABLE}},
        "columns": {"path": "table.csv", "id": "id", "columns": ["X"]},
        **{"same": {"path": "same.csv", **SAME}, "dropped": {"path": "same.csv", **SAME, "drop_constant": True}},
    }
    (tmp_path / "same.csv").write_text("id,x,y,z\n1,2,,7\n2,2,,8\n")
    with _hanging_up() as listen, _hanging_up() as metrics:
        findings = _doctor(_party(tmp_path, certs, tables=tables, listen=listen, metrics=metrics), 2)
    faults = _of(findings, "fault")
    assert "line 3, column 'id': the id is there already" in faults["table twice"]
    assert "line 2, column 'x': the cell is not a number" in faults["table words"]
    assert "there is no such file" in faults["table absent"]
    assert "has no column 'X'" in faults["table columns"]
    assert "'id', 'x'; did you mean 'x'?" in faults["table columns"]
    assert "there is no such folder; mount it" in faults["folders"]
    assert "is a file; name a folder" in faults[f"state = {tmp_path / 'state'}"]
    assert "the process there is not bank" in faults[f"listen = {listen}"]
    assert "is not bank; choose a free port" in faults[f"metrics = {metrics}"]
    assert _of(findings, "ok")["table train"] == "2 records, 1 feature columns"
    assert _of(findings, "ok")["table dropped"] == "2 records, 1 feature columns, without the constant 'x', 'y'"
    constant = _of(findings, "warning")["table same"]
    assert constant.startswith("column 'x' is constant, column 'y' has no value at all: jobs that grow trees refuse")
    assert "two" not in json.dumps(list(faults.values()))


def test_listed_cuts_of_a_party_with_column_privacy(tmp_path: Path, certs: Path) -> None:
    """Columns without them are named, and such as cannot have any; with them a constant column is no fault."""
    (tmp_path / "t.csv").write_text("id,x,y,z\n1,2,5,a\n2,3,5,b\n")
    of = {"path": "t.csv", "id": "id", "columns": ["x", "y"]}
    tables = {
        "all": {**of, "cuts": {"x": [2.5], "y": [1, 2]}},
        "some": {**of, "cuts": {"y": [1, 2]}},
        "texts": {**of, "columns": ["z"], "encode": "ordinal", "cuts": {"z": [1]}},
    }
    privacy = {"column_privacy": {"epsilon": 4.0, "delta": 1e-6, "trees": 10}}
    findings = _doctor(_party(tmp_path, certs, tables=tables, defences=privacy), 2)
    assert _of(findings, "ok")["table all"] == "2 records, 2 feature columns"
    assert _of(findings, "ok")["table some"].endswith("and those of 'x' follow from cells: list their cuts")
    assert "cuts names column 'z', which is encoded as 'ordinal'" in _of(findings, "fault")["table texts"]


@pytest.mark.parametrize("everywhere", ["0.0.0.0", "[::]"])
def test_a_gateway_of_all_addresses_is_asked_by_the_one_in_its_file(everywhere: str) -> None:
    """It is called on loopback, for which its certificate need not be: under another name it answers 421."""

    class Gateway(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if f"{everywhere}:" in self.headers["Host"] else 421)
            self.end_headers()
            self.wfile.write(b'{"status": "idle"}')

    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if everywhere == "[::]" else socket.AF_INET

    with Server((everywhere.strip("[]"), 0), Gateway) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        listen = f"{everywhere}:{server.server_port}"
        (finding,) = connections.check_http(Identity("gateway", Role.GATEWAY), listen, None)
        server.shutdown()
    assert (finding.level, finding.message) == ("ok", "gateway runs: it is idle")


def test_an_address_of_another_host_is_a_fault(tmp_path: Path, certs: Path) -> None:
    """Nobody is asked there."""
    listen = "192.0.2.1:7101"
    fault = _of(_doctor(_party(tmp_path, certs, listen=listen), 2), "fault")[f"listen = {listen}"]
    assert fault.startswith("Cannot assign requested address; name an address of this host")


def test_a_full_disk_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file can be made there, and nothing written into it."""
    full = partial(open, "/dev/full", "wb")
    monkeypatch.setattr("tempfile.TemporaryFile", lambda dir: full())
    (finding,) = connections.check_state(tmp_path)
    assert (finding.level, finding.message.partition(";")[0]) == ("fault", "cannot be written: No space left on device")


def test_a_party_before_its_first_start(tmp_path: Path, certs: Path) -> None:
    """A state folder that is not there and a port that is free are well; nothing is made. The policy names no party."""
    findings = _doctor(_party(tmp_path, certs), 0)
    assert "names no label_holders and no peers, so that bank refuses every job" in _of(findings, "warning")["policy"]
    assert _of(findings, "ok")[f"state = {tmp_path / 'state'}"] == "is not there yet; it will be made"
    assert not (tmp_path / "state").exists()


def test_without_a_file() -> None:
    """The arithmetic and the kernels of this machine."""
    outcome = treetap("doctor", "--json")
    assert (outcome.status, outcome.err) == (0, "")
    report = json.loads(outcome.out)
    assert (report["kind"], report["faults"]) == ("machine", 0)
    said = _of(report["findings"], "ok")
    assert said["arithmetic"].startswith("auto: ")
    needing = "for jobs of protocol eini-lattice or scheme lattice"
    assert said["native kernels"].endswith(f"instructions for polynomials, {needing}")


@pytest.mark.parametrize(
    ("schemes", "level", "says"),
    [
        (["paillier"], "ok", "jobs of protocol eini-lattice or scheme lattice are refused, as the native kernels were"),
        (["paillier", "lattice"], "fault", "the policy names 'lattice' among its schemes, but the native kernels were"),
    ],
)
def test_kernels_that_were_not_compiled(
    schemes: list[str], level: str, says: str, tmp_path: Path, certs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line says which jobs are refused, and what to do; it is a fault if the policy names the scheme."""
    monkeypatch.setattr(library, "PATH", tmp_path / "kernels.so")
    write(tmp_path / "policy.toml", {"keys": {"schemes": schemes}})
    config = party_config.read(_party(tmp_path, certs, policy="policy.toml"))
    found = configuration.kernels(config.policy.keys.schemes)
    assert (found.level, found.message.startswith(f"{says} not compiled")) == (level, True), found.message
    assert "install a C compiler, or set TREETAP_NATIVE=1, and install treetap again" in found.message


def test_kernels_that_give_other_products_than_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    """This is a fault: the machine, or its compiler, cannot be trusted with any sum."""

    def wrong() -> None:
        raise BadInput("scheme = 'lattice' needs native kernels, but these give other products than integers")

    monkeypatch.setattr(histogram_scheme, "kernels", wrong)
    found = configuration.kernels(())
    assert (found.level, "other products than integers" in found.message) == ("fault", True)


def test_certificates(tmp_path: Path, certs: Path) -> None:
    """A certificate of another name is a fault; one that ends soon, and a key that others can read, are warnings."""
    findings = _doctor(_party(tmp_path, certs, name="telco"), 2)
    assert "that of 'bank', not of 'telco'" in _of(findings, "fault")["certificate"]
    soon = issue(tmp_path, "bank", Role.PARTY, days=3, ca_folder=certs)
    soon.key.chmod(0o644)
    tls = {"ca": str(soon.ca), "certificate": str(soon.certificate), "key": str(soon.key)}
    warnings = _of(_doctor(_party(tmp_path, certs, tls=tls), 0), "warning")
    assert "within 30 days" in warnings["certificate"]
    assert "run chmod 600" in warnings["key"]


def test_lists_of_revoked_certificates(tmp_path: Path) -> None:
    """One in order, one that ends soon, and one that names this very process's certificate."""
    tls = dataclasses.replace(certified(tmp_path, "bank")["bank"], revoked=revoke(tmp_path)[0])
    bank = Identity("bank", Role.PARTY)

    def found() -> Finding:
        return connections.check_certificate(tls, bank)[0]

    assert found().level == "ok"
    assert ": 0 revoked, holds until" in found().message
    revoke(tmp_path, days=3)
    assert found().level == "warning"
    assert "which is within 30 days: at the authority, treetap certs revoke" in found().message
    revoke(tmp_path, ["bank"])
    assert found().level == "fault"
    assert "is revoked by its authority" in found().message


def test_two_parties_at_one_address(tmp_path: Path, certs: Path) -> None:
    """One process has one name: the coordinator's file is suspected."""
    content = {
        "state": "state",
        "tls": tls_of(files_in(certs, "coordinator")),
        "parties": {"bank": "127.0.0.1:1", "telco": "127.0.0.1:1"},
    }
    warnings = _of(_doctor(write(tmp_path / "coordinator.toml", content), 2), "warning")
    assert warnings["addresses"].startswith("bank, telco have one address, 127.0.0.1:1")


def test_a_check_that_hangs() -> None:
    """What is not done in time becomes a warning, and a defect in a check a fault; the others are reported."""
    began = time.monotonic()
    well = Finding("ok", "well", "well")

    def defect() -> list[Finding]:
        raise RuntimeError("unforeseen")

    found = connections.run_all({"hangs": lambda: time.sleep(15) or [], "fails": defect, "well": lambda: [well]}, 0.3)
    assert time.monotonic() - began < 10
    assert [each.level for each in found] == ["warning", "fault", "ok"]
    assert "unforeseen" in found[1].message


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "there is no such file"),
        ("[job]\n", "is no file of a party (state, tables), a dealer (organisation), a coordinator (parties), an "),
        ('listen = "h:1"\n', "tls: is missing"),  # of a relay
        ("parties =", "is not TOML"),
        ('state = "s"\n', "name: is missing"),
        ('state = "s"\n[parties]\nbank = "h:1"\nbank = "h:2"\n', "is not TOML: Cannot overwrite a value"),
    ],
)
def test_files_that_cannot_be(content: str | None, expected: str, tmp_path: Path) -> None:
    """A file of another kind, and one that cannot be read, is one message and no report."""
    file = tmp_path / "some.toml"
    if content is not None:
        file.write_text(content)
    outcome: Outcome = treetap("doctor", "--config", file)
    assert expected in refused(outcome)


def test_a_party_that_attacks_others_is_named(tmp_path: Path) -> None:
    """A setting for audits that was left in the file; without one there is no such line."""
    plain = {"name": "bank", "state": "state", "insecure": True}
    assert "attacks" not in configuration._party(write(tmp_path / "bank.toml", plain))
    checks = configuration._party(write(tmp_path / "attacks.toml", plain | {"optimizer": "amplified"}))
    (line,) = checks["attacks"]()
    assert line.level == "warning"
    assert 'optimizer = "amplified": this party attacks the others' in line.message


@pytest.mark.parametrize(("label", "level"), [(None, "warning"), ("y", "ok")])
def test_a_table_without_columns(label: str | None, level: str, tmp_path: Path) -> None:
    """It contributes no feature: what it has is named; the label holder may have none."""
    path = tmp_path / "t.csv"
    path.write_text("id,x,y\n1,0.5,0\n2,1.5,1\n")
    (found,) = configuration._table("t", TableConfig(path=path, id="id", label=label))
    has = "'x'" if label else "'x', 'y'"
    assert found.level == level
    assert f"columns names none, so that the table contributes no feature: it has {has}" in found.message

"""Diagnoses after an UNAVAILABLE: each cause on a real socket, one line each, in bounded time."""

from __future__ import annotations

import gc
import socket
import ssl
import struct
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509

from tests.certificates import certified
from treetap.commands.certs import authority
from treetap.commands.certs.authority import issue
from treetap.wire import probe
from treetap.wire.certificates import fingerprint
from treetap.wire.ports import Address, Role
from treetap.wire.probe import examine
from treetap.wire.tls import TlsFiles


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ours")
    certified(folder, "us", "peer", hosts=["127.0.0.1"])
    return folder


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("foreign")
    certified(folder, "peer")
    return folder


@pytest.fixture
def us(folder: Path) -> TlsFiles:
    return _files(folder, "us")


@pytest.fixture
def serve() -> Iterator[Callable[[TlsFiles | None], str]]:
    """Starts a gRPC server, with mutual TLS if it gets files, and answers its address."""
    with ExitStack() as stack:

        def start(files: TlsFiles | None) -> str:
            server = grpc.server(futures.ThreadPoolExecutor(1))
            if files is None:
                port = server.add_insecure_port("127.0.0.1:0")
            else:
                ca, certificate, key = files.read()
                credentials = grpc.ssl_server_credentials([(key, certificate)], ca, require_client_auth=True)
                port = server.add_secure_port("127.0.0.1:0", credentials)
            server.start()
            stack.callback(lambda: server.stop(None).wait())
            return f"127.0.0.1:{port}"

        yield start


@pytest.fixture
def listen() -> Iterator[Callable[[Callable[[socket.socket], None]], str]]:
    """Starts a listener that hands each connection to a function, and answers its address."""
    with ExitStack() as stack:

        def start(handle: Callable[[socket.socket], None]) -> str:
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))

            def run() -> None:
                while True:
                    try:
                        connection, _ = listener.accept()
                        handle(connection)
                    except OSError:
                        if listener.fileno() < 0:
                            return

            threading.Thread(target=run, daemon=True).start()
            return f"127.0.0.1:{listener.getsockname()[1]}"

        yield start


def _files(folder: Path, name: str) -> TlsFiles:
    return TlsFiles(folder / "ca.crt", folder / f"{name}.crt", folder / f"{name}.key")


def _fingerprint(path: Path) -> str:
    return fingerprint(x509.load_pem_x509_certificate(path.read_bytes()))


def _diagnose(address: str, files: TlsFiles, timeout: float = 3.0, name: str = "peer") -> str:
    began = time.monotonic()
    line = examine(Address(name, address), files, timeout).line
    assert time.monotonic() - began < timeout + 5
    assert "\n" not in line
    return line


def test_a_server_that_shakes_hands_is_there(serve: Callable[[TlsFiles | None], str], folder: Path) -> None:
    """With everything in order the line says that the process is there but did not answer."""
    address = serve(_files(folder, "peer"))
    line = _diagnose(address, _files(folder, "us"))
    assert line.startswith(f"peer at {address}: the TLS handshake works: the process is there but did not answer")


def test_nobody_listens(us: TlsFiles) -> None:
    """A closed port is told as refused, also where a name has several addresses."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    for host in ("127.0.0.1", "localhost", "dns:///127.0.0.1"):
        assert ": connection refused: no process listens there" in _diagnose(f"{host}:{port}", us)


@pytest.mark.second_tier
def test_a_host_that_drops_packets(us: TlsFiles) -> None:
    """A connection attempt that gets no answer ends with the timeout and says so."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, ExitStack() as stack:
        for _ in range(8):  # a full backlog drops further attempts
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        line = _diagnose(f"127.0.0.1:{listener.getsockname()[1]}", us, timeout=0.4)
    assert "no answer to the connection attempt in time" in line


def test_no_route(us: TlsFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's answer that no route exists is told with the network as the place to look."""

    def unreachable(*_: object) -> socket.socket:
        raise OSError(113, "No route to host")

    monkeypatch.setattr(probe._Probe, "_connect", unreachable)
    assert ": no route to the host (No route to host); check" in _diagnose("127.0.0.1:1", us)


def test_a_name_that_does_not_exist(us: TlsFiles) -> None:
    """The reserved domain .invalid never resolves."""
    assert "the name 'party.invalid' cannot be looked up" in _diagnose("party.invalid:1", us)


@pytest.mark.second_tier
def test_a_name_service_that_hangs_does_not_hang_the_diagnosis(us: TlsFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """Look-ups have no timeout of their own; the diagnosis has, and names the phase."""
    release = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: release.wait(10) and [])
    line = _diagnose("host:1", us, timeout=0.1)
    release.set()
    assert "no answer within 0.1 s while looking up the name 'host'" in line


@pytest.mark.parametrize(
    "address", ["", "host", "host:", ":1", "host:99999", "host:0", "a:b:1", "unix:/tmp/x", "é\n:1x"]
)
def test_what_is_no_address_is_told(us: TlsFiles, address: str) -> None:
    """An address that cannot be one is not dialled."""
    assert "not an address of the form host:port" in _diagnose(address, us)


def test_a_certificate_of_another_name(serve: Callable[[TlsFiles | None], str], folder: Path, us: TlsFiles) -> None:
    """The line has the name that answered and the name that was wanted."""
    line = _diagnose(serve(_files(folder, "peer")), us, name="carol")
    assert "its certificate is refused: the certificate is that of 'peer', not of 'carol'" in line


def test_a_name_lent_by_another_certificate(
    serve: Callable[[TlsFiles | None], str], folder: Path, us: TlsFiles, tmp_path: Path
) -> None:
    """A certificate that has the wanted name as a further host name only is not that party's."""
    address = serve(issue(tmp_path, "mallory", Role.PARTY, ["peer.example.org"], ca_folder=folder))
    assert "the certificate is that of 'mallory', not of 'peer'" in _diagnose(address, us)


def test_an_expired_certificate(
    serve: Callable[[TlsFiles | None], str], folder: Path, us: TlsFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line has the date on which the peer's certificate ended."""
    past = datetime.now(UTC) - timedelta(minutes=1)
    monkeypatch.setattr(authority, "last_day", lambda days: past)
    address = serve(issue(tmp_path, "peer", Role.PARTY, ca_folder=folder))
    assert f"is refused: the certificate expired on {past:%Y-%m-%d %H:%M} UTC" in _diagnose(address, us)


def test_a_certificate_of_a_foreign_authority(
    serve: Callable[[TlsFiles | None], str], us: TlsFiles, foreign: Path
) -> None:
    """The line has the fingerprints of the peer's certificate and of the authority trusted here, and both keys.

    These are those of both authorities, as openssl prints subjectKeyIdentifier.
    """
    line = _diagnose(serve(_files(foreign, "peer")), us)
    assert "is not signed by the authority trusted here" in line
    assert _fingerprint(foreign / "peer.crt") in line
    assert _fingerprint(us.ca) in line
    for path in (us.ca, foreign / "ca.crt"):
        trusted = x509.load_pem_x509_certificate(path.read_bytes())
        own = trusted.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        assert f"key {own.digest.hex(':').upper()})" in line


def test_our_certificate_refused_by_grpc(
    serve: Callable[[TlsFiles | None], str], folder: Path, foreign: Path, us: TlsFiles
) -> None:
    """gRPC closes the connection without an alert when it does not trust the client: the line names our certificate."""
    line = _diagnose(serve(TlsFiles(foreign / "ca.crt", folder / "peer.crt", folder / "peer.key")), us)
    assert "seems to refuse our certificate, that of 'us'" in line
    assert _fingerprint(us.certificate) in line
    assert _fingerprint(us.ca) in line


def test_a_refusal_with_an_alert(
    listen: Callable[[Callable[[socket.socket], None]], str], folder: Path, foreign: Path, us: TlsFiles
) -> None:
    """A server that does say why has its alert quoted, also one that is not about our certificate: no common cipher."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "peer.crt", folder / "peer.key")
    context.load_verify_locations(foreign / "ca.crt")
    context.verify_mode = ssl.CERT_REQUIRED
    line = _diagnose(listen(lambda connection: context.wrap_socket(connection, server_side=True).close()), us)
    assert "TLS alert 'unknown ca': it seems to refuse our certificate, that of 'us'" in line
    context.load_verify_locations(folder / "ca.crt")
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("AES128-SHA")  # for RSA certificates
    line = _diagnose(listen(lambda connection: context.wrap_socket(connection, server_side=True).close()), us)
    assert "ended the handshake with the TLS alert 'handshake failure'; compare" in line


def test_plain_grpc_is_not_tls(serve: Callable[[TlsFiles | None], str], us: TlsFiles) -> None:
    """A gRPC server without TLS answers, but not in TLS."""
    assert "answers, but not in TLS" in _diagnose(serve(None), us)


def test_other_servers_that_do_not_speak_tls(
    listen: Callable[[Callable[[socket.socket], None]], str], us: TlsFiles
) -> None:
    """A web server, one that hangs up, and one that says nothing are told apart."""

    def web(connection: socket.socket) -> None:
        connection.recv(5)
        connection.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")
        connection.close()

    kept: list[socket.socket] = []
    assert "answers, but not in TLS" in _diagnose(listen(web), us)
    assert "closed the connection during the handshake" in _diagnose(listen(socket.socket.close), us)
    assert "accepts connections but does not shake hands" in _diagnose(listen(kept.append), us, timeout=0.3)


@pytest.mark.second_tier
def test_a_server_that_resets_the_connection_before_the_handshake(
    listen: Callable[[Callable[[socket.socket], None]], str], us: TlsFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that ends just then resets the connection; no socket is left for the garbage collector to close."""

    def reset(connection: socket.socket) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()

    connect = socket.socket.connect

    def connect_until_reset(self: socket.socket, place: Any) -> None:
        connect(self, place)
        with suppress(OSError):
            while True:
                self.getpeername()
                time.sleep(0.001)

    monkeypatch.setattr(socket.socket, "connect", connect_until_reset)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert "closed the connection during the handshake" in _diagnose(listen(reset), us)
        gc.collect()
    assert [str(each.message) for each in caught] == []


def test_a_trickle_of_bytes_does_not_hang_the_diagnosis(
    listen: Callable[[Callable[[socket.socket], None]], str], us: TlsFiles
) -> None:
    """A server that sends one byte of a long record at a time keeps no socket timeout from passing; the total holds."""

    def trickle(connection: socket.socket) -> None:
        connection.sendall(b"\x16\x03\x03\x3f\xff")
        for _ in range(40):
            time.sleep(0.05)
            connection.sendall(b"\x02")

    assert "does not shake hands" in _diagnose(listen(trickle), us, timeout=0.3)


def test_our_own_files_are_looked_at_first(us: TlsFiles, folder: Path) -> None:
    """With a wrong key of ours the line is about it, whatever the other side does."""
    line = _diagnose("127.0.0.1:1", TlsFiles(us.ca, us.certificate, folder / "peer.key"))
    assert line.startswith(f"our own TLS files cannot be used: {folder / 'peer.key'}: this key does not belong")


def test_an_unforeseen_failure_is_told_not_raised(us: TlsFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever goes wrong inside becomes a line."""

    def fail(*_: object) -> str:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr(probe._Probe, "_find", fail)
    assert _diagnose("127.0.0.1:1", us) == "peer at 127.0.0.1:1: RuntimeError while starting: two lines"


def test_what_lasts_and_who_is_there(
    serve: Callable[[TlsFiles | None], str],
    listen: Callable[[Callable[[socket.socket], None]], str],
    folder: Path,
    foreign: Path,
    us: TlsFiles,
) -> None:
    """Only certificates that do not fit, ours or theirs, are past repeating; a closed port or no TLS is not.

    A server in order and one too busy to shake hands are there and may answer a repeat; not who is absent, somebody
    else, or does not speak TLS.
    """
    address, kept = serve(_files(folder, "peer")), list[socket.socket]()
    mixed = TlsFiles(us.ca, us.certificate, folder / "peer.key")
    for name, at, tls, lasting, there in [
        ("carol", address, us, True, False),
        ("peer", serve(_files(foreign, "peer")), us, True, False),
        ("peer", address, mixed, True, False),
        ("peer", address, us, False, True),
        ("peer", listen(kept.append), us, False, True),
        ("peer", "127.0.0.1:1", us, False, False),
        ("peer", serve(None), us, False, False),
    ]:
        seen = examine(Address(name, at), tls, timeout=1.0)
        assert (seen.lasting, seen.there) == (lasting, there), at


def test_a_look_ends_with_the_handshake(
    listen: Callable[[Callable[[socket.socket], None]], str], us: TlsFiles, folder: Path, foreign: Path
) -> None:
    """One connection, of TCP and TLS alone: over a long line each further round trip would be missing to the call."""
    taken, shaken = [], []

    def accept(files: TlsFiles) -> Callable[[socket.socket], None]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(files.certificate, files.key)

        def shake(connection: socket.socket) -> None:
            taken.append(connection)
            shaken.append(context.wrap_socket(connection, server_side=True))  # kept open, and never a word

        return shake

    to = Address("peer", listen(accept(_files(folder, "peer"))))
    found = examine(to, us, further=False)
    assert (found.trusted, found.lasting) == (True, False)
    assert len(taken) == 1
    whole = examine(to, us, 0.3)
    assert (whole.trusted, whole.there) == (True, True)
    assert "did not answer" in whole.line
    assert len(taken) == 2
    strange = examine(Address("peer", listen(accept(_files(foreign, "peer")))), us, further=False)
    assert (strange.trusted, strange.lasting) == (False, True)
    assert "is not signed by the authority trusted here" in strange.line

"""The way to another host: direct on loopback and by default, through the environment's proxy where a file asks."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.certificates import certified
from tests.sockets import listening
from treetap.commands.jobs.client import OperatorConfig
from treetap.errors import ConfigError, Unreachable
from treetap.logs import pin_libraries
from treetap.ops.doctor.connections import check_proxy
from treetap.wire import rpc
from treetap.wire.callers import Callers
from treetap.wire.ports import Address
from treetap.wire.probe import examine, say_hello
from treetap.wire.proxies import EXCEPT, NAMED, proxy_to
from treetap.wire.tls import Insecure, TlsFiles

#: A host that no name service knows: it is reached through the proxy alone.
FAR = "party.invalid:7300"


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*NAMED, *EXCEPT]:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certs")
    certified(folder, "us", "peer")
    return folder


def _files(folder: Path, name: str, *, proxied: bool = False) -> TlsFiles:
    return TlsFiles(folder / "ca.crt", folder / f"{name}.crt", folder / f"{name}.key", proxied=proxied)


class Server:
    """A party's health service, in a thread with a loop of its own."""

    def __init__(self, transport: TlsFiles | Insecure) -> None:
        self._transport, self._ready, self.port = transport, threading.Event(), 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),))
        self._thread.start()
        self._ready.wait()

    async def _run(self) -> None:
        async with listening(Callers("peer", self._transport)) as address:
            self.port = int(address.rpartition(":")[2])
            self._over = asyncio.Event()
            self._ready.set()
            await self._over.wait()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()
        self._loop.close()


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    running = Server(_files(folder, "peer"))
    yield running
    running.stop()


@pytest.fixture
def proxy(server: Server) -> Iterator[Callable[[bytes], tuple[str, list[bytes]]]]:
    """Starts a proxy that answers CONNECT with a status and, of 200, connects to the server; yields what was asked."""
    listener, open_sockets = socket.create_server(("127.0.0.1", 0)), []

    def pump(one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while content := one.recv(65_536):
                other.sendall(content)
        with suppress(OSError):
            other.shutdown(socket.SHUT_RDWR)

    def start(status: bytes) -> tuple[str, list[bytes]]:
        heard: list[bytes] = []

        def run() -> None:
            with suppress(OSError):
                while True:
                    asking, _ = listener.accept()
                    open_sockets.append(asking)
                    asked = b""
                    while b"\r\n\r\n" not in asked:
                        asked += asking.recv(4096)
                    heard.append(asked)
                    asking.sendall(b"HTTP/1.1 " + status + b"\r\n\r\n")
                    if status.startswith(b"200"):
                        further = socket.create_connection(("127.0.0.1", server.port))
                        open_sockets.append(further)
                        for pair in ((asking, further), (further, asking)):
                            threading.Thread(target=pump, args=pair, daemon=True).start()
                    else:
                        asking.close()

        threading.Thread(target=run, daemon=True).start()
        return f"127.0.0.1:{listener.getsockname()[1]}", heard

    yield start
    for each in (listener, *open_sockets):
        each.close()


@pytest.mark.parametrize(
    ("location", "set_to", "found"),
    [
        (FAR, {"http_proxy": "http://proxy.example:3128"}, "proxy.example:3128"),
        (FAR, {"HTTPS_PROXY": "proxy.example:3128"}, "proxy.example:3128"),
        (FAR, {"https_proxy": "http://one:1", "grpc_proxy": "http://other:2"}, "other:2"),
        (FAR, {"http_proxy": "http://[::1]:1"}, "[::1]:1"),
        (FAR, {"http_proxy": ""}, None),
        (FAR, {}, None),
        ("127.0.0.1:1", {"http_proxy": "http://proxy.example:3128"}, None),
        ("localhost:1", {"http_proxy": "http://proxy.example:3128"}, None),
        ("[::1]:1", {"http_proxy": "http://proxy.example:3128"}, None),
        (FAR, {"http_proxy": "http://p:1", "no_proxy": ".invalid"}, None),
        (FAR, {"http_proxy": "http://p:1", "no_proxy": "a, party.invalid"}, None),
        (FAR, {"http_proxy": "http://p:1", "no_proxy": "arty.invalid"}, "p:1"),
        (FAR, {"http_proxy": "http://p:1", "NO_PROXY": "*"}, None),
        (FAR, {"http_proxy": "http://p:1", "no_proxy": "x", "no_grpc_proxy": "party.invalid"}, None),
        ("10.1.2.3:1", {"http_proxy": "http://p:1", "no_proxy": "10.0.0.0/8"}, None),
        ("11.1.2.3:1", {"http_proxy": "http://p:1", "no_proxy": "10.0.0.0/8"}, "p:1"),
    ],
)
def test_the_variable_that_counts(
    location: str, set_to: dict[str, str], found: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first variable that is set names the proxy; loopback and excepted hosts need none."""
    for name, value in set_to.items():
        monkeypatch.setenv(name, value)
    proxy = proxy_to(location)
    assert (proxy and proxy.location) == found


@pytest.mark.parametrize("value", ["https://secret:1", "socks5://secret:1", "http://:1", "http://secret:port"])
def test_what_is_no_proxy(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value of another form is refused by the variable's name, and the value is not shown."""
    monkeypatch.setenv("https_proxy", value)
    with pytest.raises(ConfigError, match="https_proxy must be http://HOST:PORT") as failure:
        proxy_to(FAR)
    assert "secret" not in str(failure.value)


def test_loopback_and_plain_text_go_directly(monkeypatch: pytest.MonkeyPatch, folder: Path, server: Server) -> None:
    """With a proxy in the environment, which nobody runs, calls on this host are answered, also in plain text."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = f"http://127.0.0.1:{closed.getsockname()[1]}"
    monkeypatch.setenv("http_proxy", nobody)
    monkeypatch.setenv("GRPC_ADDRESS_HTTP_PROXY", nobody.removeprefix("http://"))
    monkeypatch.setenv("GRPC_ADDRESS_HTTP_PROXY_ENABLED_ADDRESSES", "127.0.0.0/8")
    for proxied in (False, True):
        to = Address("peer", f"127.0.0.1:{server.port}")
        assert say_hello(to, _files(folder, "us", proxied=proxied), 5).serving
    plain = Server(Insecure("peer"))
    try:
        assert say_hello(Address("peer", f"127.0.0.1:{plain.port}"), Insecure("us"), 5).serving
    finally:
        plain.stop()


@pytest.mark.real_time
async def test_calls_and_the_diagnosis_go_one_way(
    monkeypatch: pytest.MonkeyPatch, folder: Path, proxy: Callable[[bytes], tuple[str, list[bytes]]]
) -> None:
    """Where the file asks, a call, an operator's or a party's, and the probe ask the proxy for the same host."""
    at, heard = proxy(b"200 Connection established")
    monkeypatch.setenv("https_proxy", f"http://us:secret@{at}")
    files, to = _files(folder, "us", proxied=True), Address("peer", FAR)
    assert say_hello(to, files, 5).serving

    dialer = rpc.GrpcDialer(files)
    await asyncio.wait_for(dialer.channels.channel(to).channel_ready(), 5)
    await dialer.close()
    line = examine(to, files, 3).line
    assert line.startswith(f"peer at {FAR} through the proxy {at} of https_proxy: the TLS handshake works")
    assert len(heard) == 3
    for asked in heard:
        assert asked.startswith(f"CONNECT {FAR} HTTP/1.1\r\n".encode())
        assert b"\r\nProxy-Authorization: Basic dXM6c2VjcmV0\r\n" in asked


def test_a_proxy_that_refuses(
    monkeypatch: pytest.MonkeyPatch, folder: Path, proxy: Callable[[bytes], tuple[str, list[bytes]]]
) -> None:
    """The message names the proxy, its variable and its answer, and no password."""
    at, _ = proxy(b"407 Proxy Authentication Required")
    monkeypatch.setenv("https_proxy", f"http://us:secret@{at}")
    to, files = Address("peer", FAR), _files(folder, "us", proxied=True)
    line = examine(to, files, 3).line
    assert f"through the proxy {at} of https_proxy" in line
    assert "'407 Proxy Authentication Required'" in line
    assert "no_proxy" in line
    assert "secret" not in line
    with pytest.raises(Unreachable):
        say_hello(to, files, 3)


def test_no_proxy_unasked(
    monkeypatch: pytest.MonkeyPatch, folder: Path, proxy: Callable[[bytes], tuple[str, list[bytes]]]
) -> None:
    """Without the key nothing goes to the proxy, and the diagnosis says which variable is not used."""
    at, heard = proxy(b"200 Connection established")
    monkeypatch.setenv("https_proxy", f"http://{at}")
    to, files = Address("peer", FAR), _files(folder, "us")
    with pytest.raises(Unreachable):
        say_hello(to, files, 3)
    line = examine(to, files).line
    assert 'https_proxy is set and not used, which proxy = "environment" in our file would change' in line
    assert not heard


def test_the_key_of_a_file() -> None:
    """`proxy` is off by default, has one value, and is refused where nothing is encrypted."""
    tls = {"ca": "a", "certificate": "b", "key": "c"}
    assert not _transport(tls=tls).proxied
    assert _transport(tls=tls, proxy="environment").proxied
    with pytest.raises(ValueError, match="'environment'"):
        _transport(tls=tls, proxy="http://proxy:1")
    with pytest.raises(ValueError, match=r"proxy goes with .tls. only"):
        OperatorConfig.model_validate({"coordinator": "127.0.0.1:1", "insecure": True, "proxy": "environment"})


def _transport(**keys: object) -> TlsFiles:
    transport = OperatorConfig.model_validate({"coordinator": "127.0.0.1:1", **keys}).transport()
    assert isinstance(transport, TlsFiles)
    return transport


def test_doctor_names_the_proxy_that_is_set(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """In effect or ignored, and never with its password; variables that steer libraries are taken away first."""
    steering = ("GRPC_SSL_CIPHER_SUITES", "PROMETHEUS_MULTIPROC_DIR")
    assert check_proxy(_files(folder, "us")) == []
    for name in ("http_proxy", *steering):
        monkeypatch.setenv(name, "http://one:secret@two:3")
    pin_libraries()
    assert not set(steering) & set(os.environ)
    (ignored,), (asked,) = (check_proxy(_files(folder, "us", proxied=proxied)) for proxied in (False, True))
    assert "http_proxy is set and ignored" in ignored.message
    assert "http_proxy is in effect" in asked.message
    assert "secret" not in ignored.message + asked.message
    monkeypatch.setenv("http_proxy", "https://two:3")
    (fault,) = check_proxy(_files(folder, "us", proxied=True))
    assert fault.level == "fault"

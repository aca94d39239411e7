"""A forwarder registers at its relay alone, does no more than fetch callers, and says why it is not registered."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.relay import hellos
from tests.relay.rig import RELAY, Certs, Rig, deliver, first_bytes, message, relaying, until
from treetap.coordinator.config import CoordinatorConfig
from treetap.errors import ConfigError
from treetap.lab.local_federation import to_toml
from treetap.ops.certs.requests import revoke
from treetap.ops.doctor.connections import check_relay
from treetap.party import config as party_config
from treetap.wire.ports import Address, Identity, Role
from treetap.wire.proxies import EXCEPT, NAMED
from treetap.wire.relay import forwarder
from treetap.wire.relay.control import GREETING, new_token
from treetap.wire.tls import TlsFiles

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(20)]

Answers = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def false_relay(rig: Rig, files: TlsFiles, answer: Answers) -> Address:
    """A server with a relay's certificate, or another, that answers as a test wants."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)

    async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            await answer(reader, writer)
        writer.close()

    server = await asyncio.start_server(answered, "127.0.0.1", 0, ssl=context)
    rig.stack.callback(server.close)
    return Address(RELAY.name, f"127.0.0.1:{server.sockets[0].getsockname()[1]}", Role.RELAY)


async def _nothing(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    await reader.read()


@pytest.mark.parametrize(
    ("shown", "says"),
    [
        (Identity("other", Role.RELAY), "its certificate is refused: Hostname mismatch"),
        (Identity("relay", Role.PARTY), "its certificate is refused: Hostname mismatch"),
        (Identity("bank", Role.PARTY), "its certificate is refused: Hostname mismatch"),
    ],
    ids=str,
)
async def test_another_process_is_no_relay(
    shown: Identity, says: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever answers at the relay's address needs its name and its role."""
    async with relaying(tmp_path) as rig:
        to = await false_relay(rig, rig.certs.files(shown.name, shown.role), _nothing)
        await rig.forward("bank", "127.0.0.1:9", to=to, wait=False)
        await until(lambda: says in caplog.text, says)
        assert f"relay relay at {to.location}" in caplog.text


async def test_a_revoked_relay_is_left(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its certificate is compared with the list, which Python's `ssl` is not given."""
    async with relaying(tmp_path) as rig:
        files = rig.certs.files("relay", Role.RELAY)
        revoke(rig.certs.authority, [str(files.certificate)])
        to = await false_relay(rig, files, _nothing)
        await rig.forward("bank", "127.0.0.1:9", to=to, wait=False)
        await until(lambda: "its certificate is refused: " in caplog.text, "a refusal")
    assert "revoked" in caplog.text


SAID: dict[str, tuple[bytes, str]] = {
    "another protocol": (b"HTTP/1.1 200 OK\n", "as no relay does"),
    "an endless line": (b"x" * 100_000, "too long"),
    "no text": (b"\xff\xfe\n", "too long, or no text"),
    "an unknown word": (b"ready\ndelete everything\n", "it says 'delete everything', as no relay does"),
    "an address in a token's place": (b"ready\nopen 10.0.0.1:22\n", "as no relay does"),
    "a refusal": (b"refused you are not welcome\n", "it refuses us: you are not welcome"),
    "a refusal of a registered one": (b"ready\nrefused it is revoked\n", "it refuses us: it is revoked"),
    "a hostile refusal": (b"refused \x1b[31mred\n", r"it refuses us: \x1b[31mred"),
    "an end": (b"", "has ended the control connection"),
}


@pytest.mark.second_tier(but=4)
@pytest.mark.parametrize(("said", "says"), SAID.values(), ids=SAID)
async def test_what_no_relay_says(said: bytes, says: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It ends the registration with an error by name, and nothing is dialled."""
    dialled: list[str] = []

    async with relaying(tmp_path) as rig:

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            assert await reader.readline() == f"{GREETING}\n".encode()
            writer.write(said)
            await writer.drain()

        async def listening(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            dialled.append("own port")
            writer.close()

        own = await asyncio.start_server(listening, "127.0.0.1", 0)
        rig.stack.callback(own.close)
        to = await false_relay(rig, rig.certs.files("relay", Role.RELAY), answer)
        port = f"127.0.0.1:{own.sockets[0].getsockname()[1]}"
        await rig.forward("bank", port, to=to, wait=False)
        await until(lambda: says in caplog.text, says)
    assert dialled == []


async def test_a_silent_relay_is_left(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One that shakes hands and says nothing, and one that asks for connections and never pings."""
    async with relaying(tmp_path) as rig:
        to = await false_relay(rig, rig.certs.files("relay", Role.RELAY), _nothing)
        await rig.forward("bank", "127.0.0.1:9", to=to, wait=False, dial_s=0.2)
        await until(lambda: "no answer within 0.2 s" in caplog.text, "the first")

        async def ready(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"ready\n")
            while not writer.is_closing():  # what it asks for is no sign that its certificate is still in order
                writer.write(f"open {new_token()}\n".encode())
                await asyncio.sleep(0.05)

        to = await false_relay(rig, rig.certs.files("relay", Role.RELAY), ready)
        await rig.forward("bank", "127.0.0.1:9", to=to, silent_s=0.3)
        await until(lambda: "no ping within 0.3 s" in caplog.text, "the second")


async def test_a_flood_of_callers_is_bounded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hostile relay that announces thousands has some fetched, and each goes to the process's own port."""
    monkeypatch.setattr(forwarder, "MOST_CONNECTIONS", 8)

    async with relaying(tmp_path) as rig:

        async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"ready\n" + b"".join(f"open {new_token()}\n".encode() for _ in range(2000)))
            await reader.read()

        to = await false_relay(rig, rig.certs.files("relay", Role.RELAY), flood)
        made = await rig.forward("bank", "127.0.0.1:9", to=to, longest_wait_s=60.0)
        await until(lambda: "8 connections are open, one more is not fetched" in caplog.text, "a bound")
        assert len(made._fetching) <= 8
        await until(lambda: not made._fetching, "the end of all dialling")
        assert caplog.text.count("not fetched") == 1  # a log that a relay can fill would end the process


async def test_a_registration_that_ends_at_once_is_no_fresh_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attempts come ever more rarely, and one reason is logged once: a relay cannot make a process dial without end."""
    waits: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        waits.append(seconds)
        await sleep(0)

    async with relaying(tmp_path) as rig:

        async def ready(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"ready\n")
            await writer.drain()

        to = await false_relay(rig, rig.certs.files("relay", Role.RELAY), ready)
        monkeypatch.setattr(asyncio, "sleep", noted)
        await rig.forward("bank", "127.0.0.1:9", to=to, first_wait_s=1.0, longest_wait_s=60.0)
        while len(waits) < 6:
            await sleep(0.01)
        monkeypatch.undo()
    assert all(2.0**power / 2 <= wait <= 2.0**power for power, wait in enumerate(waits[:6]))
    assert caplog.text.count("has ended the control connection") == 1


async def test_an_address_that_never_answers_leaves_time_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a name with two addresses the second is reached within the time for both."""
    with socket.create_server(("127.0.0.1", 0)) as there, socket.create_server(("127.0.0.2", 0), backlog=0) as full:
        loop, silent = asyncio.get_running_loop(), full.getsockname()
        filling = [socket.socket() for _ in range(4)]
        for one in filling:  # a queue that is full: further ones are not answered
            one.setblocking(False)
            one.connect_ex(silent)

        async def both(*_given: object, **_named: object) -> list[tuple[object, ...]]:
            return [(socket.AF_INET, 0, 0, "", place) for place in (silent, there.getsockname())]

        monkeypatch.setattr(loop, "getaddrinfo", both)
        (await forwarder.dial("relay.example.org:443", 0.9, proxied=False)).close()
        for one in filling:
            one.close()


async def test_the_last_answer_leaves_before_a_forwarder_closes(tmp_path: Path) -> None:
    """What a server has written when it stops reaches a caller behind the relay, however large it is."""
    async with relaying(tmp_path) as rig:
        written = asyncio.Event()

        async def answer(asked: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            assert await asked.read(100)
            writer.write(bytes(3_000_000))
            writer.close()
            written.set()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        rig.stack.callback(server.close)
        at = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        made = await rig.forward("bank", at, close_s=5.0)
        reader, writer = await first_bytes(rig.at, hellos.real("bank.party.treetap.internal"))
        await written.wait()
        closing = asyncio.ensure_future(made.close())
        assert len(await reader.read()) == 3_000_000
        writer.close()
        await closing


@pytest.mark.parametrize(
    ("at", "says"),
    [
        ("127.0.0.1:9", "relay relay at 127.0.0.1:9: connection refused: no process listens there; start the process"),
        ("nowhere.invalid:443", "at nowhere.invalid:443: the name 'nowhere.invalid' cannot be looked up"),
    ],
    ids=["nothing there", "no such name"],
)
async def test_a_relay_that_is_away(at: str, says: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The log names the relay, its address, the cause and the remedy."""
    async with relaying(tmp_path) as rig:
        await rig.forward("bank", "127.0.0.1:9", to=Address(RELAY.name, at, Role.RELAY), wait=False)
        await until(lambda: says in caplog.text, says)


@pytest.fixture
def _bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*NAMED, *EXCEPT]:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.usefixtures("_bare")
async def test_it_dials_through_the_environments_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the file asks for it, for registration and data connections; a proxy that refuses is named."""
    asked: list[bytes] = []

    async with relaying(tmp_path) as rig:
        allow = asyncio.Event()

        async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked.append((await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")[0])
            if not allow.is_set():
                writer.write(b"HTTP/1.1 403 Forbidden\r\n\r\n")
                writer.close()
                return
            host, _, port = rig.at.rpartition(":")
            there, further = await asyncio.open_connection(host, int(port))
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            with suppress(ConnectionError):
                await asyncio.gather(_pump(reader, further), _pump(there, writer))

        proxy = await asyncio.start_server(connect, "127.0.0.1", 0)
        rig.stack.callback(proxy.close)
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}")
        bank, files = await rig.served("bank"), rig.certs.files("bank")
        proxied = TlsFiles(files.ca, files.certificate, files.key, files.revoked, proxied=True)
        to = Address(RELAY.name, "relay.invalid:443", Role.RELAY)
        made = await rig.forward("bank", bank.address, proxied, to=to, wait=False)
        await until(lambda: "it answers '403 Forbidden' to CONNECT" in caplog.text, "a refusal")
        allow.set()
        await asyncio.wait_for(made.registered.wait(), 5)
        registered = len(asked)
        await deliver(rig.certs.files("telco"), rig.address("bank"), message())
        assert len(bank.got) == 1
        assert len(asked) > registered
    assert set(asked) == {b"CONNECT relay.invalid:443 HTTP/1.1"}


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while content := await reader.read(65_536):
        writer.write(content)
        await writer.drain()
    writer.close()


async def test_doctor_tells_the_relay_from_the_registration(tmp_path: Path) -> None:
    """No relay, or another process there: a fault; a relay where the process is not registered: a warning."""
    async with relaying(tmp_path) as rig:
        bank, files = Identity("bank", Role.PARTY), rig.certs.files("bank")

        async def levels(name: str, at: str) -> list[str]:
            findings = await asyncio.to_thread(check_relay, Address(name, at, Role.RELAY), bank, files)
            assert all(finding.subject == f"relay = {at}" for finding in findings)
            return [finding.level for finding in findings]

        assert await levels("relay", "127.0.0.1:9") == ["fault"]
        assert await levels("hub", rig.at) == ["fault"]
        assert await levels("relay", rig.at) == ["warning"]
        await rig.behind("bank")
        assert await levels("relay", rig.at) == ["ok"]


@pytest.mark.parametrize("kind", ["party", "coordinator"])
def test_no_relay_without_certificates(kind: str, tmp_path: Path) -> None:
    """`insecure = true` trusts whoever connects on loopback, where relayed callers come from: the file is refused."""
    read = {"party": party_config.read, "coordinator": CoordinatorConfig.from_file}[kind]
    more = {"parties": {"bank": "127.0.0.1:7101"}} if kind == "coordinator" else {}
    path = tmp_path / f"{kind}.toml"
    path.write_text(to_toml({"name": kind, "state": "s", "relay": "127.0.0.1:443", "insecure": True, **more}))
    with pytest.raises(ConfigError, match=r"relay goes with \[tls\] only"):
        read(path)


def test_a_file_names_its_relay(tmp_path: Path) -> None:
    """Its address and the name in its certificate, which is `relay` unless it says otherwise; none by default."""
    made = Certs(tmp_path).files("bank")
    tls = {"ca": str(made.ca), "certificate": str(made.certificate), "key": str(made.key)}
    path = tmp_path / "party.toml"
    for more, expected in (
        ({}, None),
        ({"relay": "r.example.org:443"}, Address("relay", "r.example.org:443", Role.RELAY)),
        ({"relay": "10.0.0.9:7", "relay_name": "hub"}, Address("hub", "10.0.0.9:7", Role.RELAY)),
    ):
        path.write_text(to_toml({"name": "bank", "state": "s", **more, "tls": tls}))
        assert party_config.read(path).relay_address == expected

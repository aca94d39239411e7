"""A relay leads each caller to the process that its hello names, within bounds, and nobody else anywhere."""

from __future__ import annotations

import asyncio
import gc
import logging
import ssl
import weakref
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.relay import hellos
from tests.relay.rig import Rig, deliver, first_bytes, made_relay, message, relaying, until
from treetap.errors import Unreachable
from treetap.ops.certs.requests import revoke
from treetap.ops.relay import meeting
from treetap.ops.relay.meeting import Bounds
from treetap.wire.ports import Identity, Role
from treetap.wire.probe import examine, refusal, say_hello
from treetap.wire.relay.control import DATA_LINE, data_line, new_token
from treetap.wire.relay.splicing import BUFFER
from treetap.wire.rpc import GrpcDialer
from treetap.wire.v2 import exchange_pb2

pytestmark = pytest.mark.real_time

B = Identity("bank", Role.PARTY)


async def test_two_processes_at_one_address(tmp_path: Path) -> None:
    """Each gets its own messages, with the caller's name from the certificate; a look before a call comes through."""
    async with relaying(tmp_path) as rig:
        bank, shop = await rig.behind("bank"), await rig.behind("shop")
        telco = rig.certs.files("telco")
        assert telco.revoked is not None  # so that each call is preceded by a look, through the relay too
        await deliver(telco, rig.address("bank"), message(1))
        await deliver(telco, rig.address("shop"), message(2))
        assert (bank.got, shop.got) == ([("telco", message(1))], [("telco", message(2))])
        heard = await asyncio.to_thread(say_hello, rig.address("bank"), telco, 5)
        assert heard.serving
        assert await asyncio.to_thread(refusal, rig.address("shop"), telco, 5) is None


async def test_a_caller_by_the_relay_needs_a_certificate(tmp_path: Path) -> None:
    """A connection that comes from loopback, by the forwarder, is worth no more than another: TLS decides."""
    async with relaying(tmp_path) as rig:
        await rig.behind("bank")
        ca = (rig.certs.authority / "ca.crt").read_bytes()
        named = (("grpc.ssl_target_name_override", B.dns),)
        bare = grpc.aio.secure_channel(rig.at, grpc.ssl_channel_credentials(ca), named)
        async with bare:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await health_pb2_grpc.HealthStub(bare).Check(health_pb2.HealthCheckRequest(), timeout=5)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        client = rig.certs.files("telco", Role.CLIENT)
        with pytest.raises(Exception, match="telco is not a party by its certificate"):
            await deliver(client, rig.address("bank"), message())


async def test_a_name_that_is_not_registered(tmp_path: Path) -> None:
    """The caller's error names the relay's address and the cause, which may pass: no certificate is at fault."""
    async with relaying(tmp_path) as rig:
        telco, to = rig.certs.files("telco"), rig.address("bank")
        diagnosis = await asyncio.to_thread(examine, to, telco, 3)
        assert f"bank at {rig.at}: TLS alert 'unrecognized name', as a relay there gives it" in diagnosis.line
        assert not diagnosis.lasting
        with pytest.raises(Unreachable, match="no process of this name is registered"):
            await deliver(telco, to, message())
        assert rig.relay.turned_away["unknown name"] > 0


async def test_nobody_takes_another_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A registration is for the name in the certificate, and the relay's file may leave a name out."""
    async with relaying(tmp_path, Bounds(names=frozenset({"bank"}))) as rig:
        bank = await rig.behind("bank")
        eve = rig.certs.files("eve")
        await rig.forward("bank", "127.0.0.1:9", eve, wait=False)
        await until(lambda: "party 'eve' is not among the names of this relay" in caplog.text, "a refusal")
        await deliver(rig.certs.files("telco"), rig.address("bank"), message())
        assert len(bank.got) == 1
        assert list(rig.relay.names) == [B.dns]


async def test_a_revoked_certificate_registers_no_longer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it stay registered: the relay looks again at each ping."""
    monkeypatch.setattr(meeting, "PING_S", 0.05)

    async with relaying(tmp_path) as rig:
        files = rig.certs.files("bank")
        forwarder = await rig.forward("bank", "127.0.0.1:9", files)
        revoke(rig.certs.authority, [str(files.certificate)])
        await until(lambda: not forwarder.registered.is_set(), "the end of the registration")
        await until(lambda: "party 'bank': the certificate" in caplog.text, "the reason")
        names = rig.relay.names
        await until(lambda: all(name.control is None for name in names.values()), "no registration")
    assert "revoked" in caplog.text


async def test_the_newer_registration_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A process whose connection has died silently gets in again; one that is replaced says so, and waits long."""
    async with relaying(tmp_path) as rig:
        old, new = await rig.served("bank"), await rig.served("bank")
        first = await rig.forward("bank", old.address, longest_wait_s=60.0)
        second = await rig.forward("bank", new.address)
        await until(lambda: "another process has registered with a certificate of this name" in caplog.text, "it")
        await asyncio.sleep(0.3)
        assert (first.registered.is_set(), second.registered.is_set()) == (False, True)
        await deliver(rig.certs.files("telco"), rig.address("bank"), message())
        assert (len(old.got), len(new.got)) == (0, 1)


async def test_a_registration_is_renewed(tmp_path: Path) -> None:
    """After the relay has been away, at the same address."""
    async with relaying(tmp_path) as rig:
        bank = await rig.behind("bank")
        await rig.relay.close()
        await until(lambda: not rig.forwarders["bank"].registered.is_set(), "the end of the registration")
        again = made_relay(rig.certs.files("relay", Role.RELAY))
        await again.start(rig.at)
        rig.stack.push_async_callback(again.close)
        await asyncio.wait_for(rig.forwarders["bank"].registered.wait(), 5)
        await deliver(rig.certs.files("telco"), rig.address("bank"), message())
        assert len(bank.got) == 1


async def _closed(reader: asyncio.StreamReader, seconds: float = 3.0) -> bytes:
    """What a connection still said before its end, which must come in time."""
    try:
        return await asyncio.wait_for(reader.read(), seconds)
    except ConnectionError:
        return b""


@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01\x02\x00", b"treetap-relay", b"GET / HTTP/1.1\r\n\r\n", bytes(99)])
async def test_a_connection_says_a_hello_in_time(said: bytes, tmp_path: Path) -> None:
    """Else it is closed, after its deadline or at once, and is counted no longer."""
    async with relaying(tmp_path, Bounds(hello_s=0.1)) as rig:
        reader, writer = await first_bytes(rig.at, said)
        assert await _closed(reader) == b""
        writer.close()
        assert rig.relay.turned_away == {"no hello": 1}
        assert rig.relay._arriving.total() == 0
        assert rig.relay._ends == set()


async def test_who_says_nothing_keeps_nobody_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of silent connections one address has half of the places, and the oldest of all leaves for a new one."""
    monkeypatch.setattr(meeting, "MOST_WAITING", 4)

    async with relaying(tmp_path) as rig:
        bank = await rig.behind("bank")
        host, _, port = rig.at.rpartition(":")
        silent = [
            await asyncio.open_connection(host, int(port), local_addr=(address, 0))
            for address in ("127.0.0.2", "127.0.0.2", "127.0.0.2", "127.0.0.3", "127.0.0.3")
        ]
        assert await _closed(silent[2][0]) == b""
        assert rig.relay.turned_away == {"no hello": 1}
        assert len(rig.relay._unsettled) == 4
        await first_bytes(rig.at, hellos.real(B.dns))
        assert await _closed(silent[0][0]) == b""
        await deliver(rig.certs.files("telco"), rig.address("bank"), message())
        assert len(bank.got) == 1
        for _, writer in silent:
            writer.close()
        await until(lambda: not rig.relay._unsettled, "no place that is taken")


async def test_a_registration_is_said_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who shakes hands for the relay's own name and then is silent is closed."""
    monkeypatch.setattr(meeting, "LINGER_S", 0.1)
    async with relaying(tmp_path, Bounds(hello_s=0.2)) as rig:
        reader, writer = await first_bytes(rig.at, hellos.real("relay.relay.treetap.internal"))
        await _closed(reader)
        writer.close()
        assert rig.relay.names == {}
        await until(lambda: rig.relay._arriving.total() == 0, "nothing waits")


@pytest.mark.parametrize(
    ("said", "says"),
    [
        (b"GET / HTTP/1.1\n", "says 'GET / HTTP/1.1', not 'treetap-relay 1'"),
        (b"treetap-relay 2\n", "says 'treetap-relay 2', not 'treetap-relay 1': install one release"),
        (b"x" * 4096, "too long, or no text"),
        (b"\xff\n", "too long, or no text"),
        (b"treetap-relay 1\nopen the gates\n", "says 'open the gates' on its control connection"),
        (b"treetap-relay 1\npong\n", "says 'pong' on its control connection"),
    ],
    ids=["HTTP", "another version", "an endless line", "no text", "a word of the relay's", "an answer unasked"],
)
async def test_what_no_process_says(said: bytes, says: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A registration with a good certificate and other words is refused by name, and does not stay."""
    async with relaying(tmp_path) as rig:
        files = rig.certs.files("bank")
        context = ssl.create_default_context(cafile=str(files.ca))
        context.load_cert_chain(files.certificate, files.key)
        host, _, port = rig.at.rpartition(":")
        name = "relay.relay.treetap.internal"
        reader, writer = await asyncio.open_connection(host, int(port), ssl=context, server_hostname=name)
        writer.write(said)
        heard = (await _closed(reader)).decode()
        assert heard.splitlines()[-1].startswith("refused ")
        assert says in heard
        writer.close()
        assert says in caplog.text
        assert [name.control for name in rig.relay.names.values()] in ([], [None])


async def _silent_end(rig: Rig, name: str) -> list[asyncio.StreamWriter]:
    """A server that accepts and reads nothing, registered under a name."""
    kept: list[asyncio.StreamWriter] = []

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        kept.append(writer)

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    rig.stack.callback(server.close)

    async def leave() -> None:
        for writer in kept:
            writer.close()

    rig.stack.push_async_callback(leave)
    await rig.forward(name, f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    return kept


async def test_who_does_not_read_is_not_written_to(tmp_path: Path) -> None:
    """Back-pressure from end to end: what lies between a caller and a process that does not read is bounded."""
    async with relaying(tmp_path) as rig:
        await _silent_end(rig, "bank")
        _, writer = await first_bytes(rig.at, hellos.real(B.dns))
        writer.transport.set_write_buffer_limits(high=1)
        sent = 0
        try:
            while True:
                writer.write(bytes(1 << 16))
                async with asyncio.timeout(0.5):
                    await writer.drain()
                sent += 1 << 16
        except TimeoutError:
            pass
        held = [end.transport.get_write_buffer_size() for end in rig.relay._ends if end.transport is not None]
        assert max(held) <= 2 * BUFFER
        assert sent < 64 << 20  # the rest is buffers of sockets
        writer.transport.abort()


async def test_an_idle_connection_is_closed(tmp_path: Path) -> None:
    """When no byte has come at either end for `idle_s`; it is no longer counted in the name's share."""
    async with relaying(tmp_path, Bounds(idle_s=0.3)) as rig:
        await _silent_end(rig, "bank")
        reader, writer = await first_bytes(rig.at, hellos.real(B.dns))
        await until(lambda: rig.relay.names[B.dns].open.total() == 1, "a connection")
        await _closed(reader)
        writer.close()
        await until(lambda: rig.relay.names[B.dns].open.total() == 0, "no connection")


async def test_a_connection_outlasts_the_deadlines_of_its_beginning(tmp_path: Path) -> None:
    """Once both ends are joined neither the hello's deadline nor that of fetching ends them."""
    async with relaying(tmp_path, Bounds(hello_s=0.2)) as rig:
        await _silent_end(rig, "bank")
        reader, writer = await first_bytes(rig.at, hellos.real(B.dns))
        await until(lambda: rig.relay.names[B.dns].open.total() == 1, "a connection")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(), 0.6)
        assert rig.relay.turned_away == {}
        writer.close()


async def test_nothing_is_kept_of_a_connection_that_has_ended(tmp_path: Path) -> None:
    """Neither the relay nor the forwarder holds it until it would have been idle: their memory does not grow."""
    async with relaying(tmp_path) as rig:
        await rig.behind("bank")
        reader, writer = await first_bytes(rig.at, hellos.real(B.dns))
        assert await reader.read(100)
        ends = [weakref.ref(end) for end in (*rig.relay._ends, *rig.forwarders["bank"]._ends)]
        assert len(ends) == 5  # the caller's, the fetched one, the registration's; and two of the forwarder
        writer.close()

        def kept() -> int:
            gc.collect()
            return sum(end() is not None for end in ends)

        await until(lambda: kept() == 1, "the registration's alone")


async def test_who_shows_no_certificate_keeps_nobody_from_a_name(tmp_path: Path) -> None:
    """Of a name whose places are taken the oldest silent caller of the address with most leaves; no proven one does."""
    async with relaying(tmp_path, Bounds(connections=6)) as rig:
        bank = await rig.behind("bank")
        known, (host, _, port) = rig.relay.names[B.dns], rig.at.rpartition(":")
        dialer = GrpcDialer(rig.certs.files("telco"))
        rig.stack.push_async_callback(dialer.close)
        await dialer.deliver(rig.address("bank"), message())
        await until(lambda: not known.unproven, "a caller that has shown its certificate")
        silent = []
        for address in ("127.0.0.2", "127.0.0.2", "127.0.0.3", "127.0.0.3", "127.0.0.3"):
            reader, writer = await asyncio.open_connection(host, int(port), local_addr=(address, 0))
            writer.write(hellos.real(B.dns))
            assert await reader.read(100)
            silent.append((reader, writer))
        silent[2][1].write(b"\x17\x03\x03\x40\x00")  # a record whose content never comes
        assert (known.open.total(), len(known.unproven)) == (6, 5)
        await deliver(rig.certs.files("shop"), rig.address("bank"), message())
        await _closed(silent[2][0])
        await dialer.deliver(rig.address("bank"), message())
        assert [who for who, _ in bank.got] == ["telco", "shop", "telco"]
        assert rig.relay.turned_away.keys() == {"share"}
        assert len(known.unproven) >= 3  # a caller has two connections, of which the first only looks
        for _, writer in silent:
            writer.close()
        await until(lambda: not known.unproven, "no place that is taken")


async def test_a_name_is_full_of_callers_that_have_shown_certificates(tmp_path: Path) -> None:
    """Then a new one hears an alert, and they stay."""
    async with relaying(tmp_path, Bounds(connections=2)) as rig:
        bank = await rig.behind("bank")
        known, (host, _, port) = rig.relay.names[B.dns], rig.at.rpartition(":")
        context = ssl.create_default_context(cafile=str(rig.certs.files("telco").ca))
        context.set_alpn_protocols(["h2"])
        kept = []
        for address in ("127.0.0.2", "127.0.0.3"):
            files = rig.certs.files("telco")
            context.load_cert_chain(files.certificate, files.key)
            reader, writer = await asyncio.open_connection(
                host, int(port), ssl=context, server_hostname=B.dns, local_addr=(address, 0)
            )
            writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
            for _ in range(2):  # each ping of HTTP/2 is answered, and many end the connection
                assert await reader.read(1000)
                writer.write(bytes([0, 0, 8, 6, 0, 0, 0, 0, 0]) + bytes(8))
            kept.append((reader, writer))
        await until(lambda: not known.unproven, "callers that have shown certificates")
        reader, writer = await first_bytes(rig.at, hellos.real(B.dns))
        assert await _closed(reader) == b"\x15\x03\x03\x00\x02\x02\x50"
        assert (known.open.total(), bank.got) == (2, [])
        writer.close()
        for _, each in kept:
            each.close()


async def test_each_name_has_a_share_of_connections(tmp_path: Path) -> None:
    """One address has half of a name's, further ones hear an alert; another name has its own share."""
    async with relaying(tmp_path, Bounds(connections=4)) as rig:
        silent = await _silent_end(rig, "bank")
        shop = await rig.behind("shop")
        made = [await first_bytes(rig.at, hellos.real(B.dns)) for _ in range(3)]
        ends = [asyncio.ensure_future(_closed(reader)) for reader, _ in made]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        (turned_away,) = [end for end in ends if end.done()]
        assert turned_away.result() == b"\x15\x03\x03\x00\x02\x02\x50"
        await deliver(rig.certs.files("telco"), rig.address("shop"), message())
        assert len(shop.got) == 1
        for writer in (*silent, *(writer for _, writer in made)):
            writer.close()
        await asyncio.gather(*ends)
        await until(lambda: rig.relay.names[B.dns].open.total() == 0, "no connection")


async def test_a_name_has_a_share_of_bytes(tmp_path: Path) -> None:
    """Two megabytes at one a second take their time, after the burst of one; none is lost."""
    async with relaying(tmp_path, Bounds(bytes_s=1_000_000)) as rig:
        bank = await rig.behind("bank")
        loop = asyncio.get_running_loop()
        began = loop.time()
        for _ in range(2):
            await deliver(rig.certs.files("telco"), rig.address("bank"), message(1_000_000))
        assert loop.time() - began > 0.5
        assert [len(content) > 1_000_000 for _, content in bank.got] == [True, True]


async def test_a_process_that_does_not_fetch(tmp_path: Path) -> None:
    """Its callers hear an alert after `hello_s`, and what it fetches later is closed."""
    async with relaying(tmp_path, Bounds(hello_s=0.3)) as rig:
        await rig.forward("bank", "127.0.0.1:9")  # where nothing listens
        reader, writer = await first_bytes(rig.at, hellos.real(B.dns))
        assert await _closed(reader) == b"\x15\x03\x03\x00\x02\x02\x50"
        writer.close()
        assert rig.relay.turned_away == {"not fetched": 1}
        assert rig.relay._unfetched == {}


async def test_a_token_is_of_one_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second connection with it, one with another and one with none are closed."""
    used: list[str] = []

    def noting() -> str:
        used.append(new_token())
        return used[-1]

    monkeypatch.setattr(meeting, "new_token", noting)

    async with relaying(tmp_path) as rig:
        await rig.behind("bank")
        await deliver(rig.certs.files("telco"), rig.address("bank"), message())
        assert len(set(used)) == len(used)
        for token in (used[0], new_token()):
            reader, writer = await first_bytes(rig.at, data_line(token))
            assert await _closed(reader) == b""
            writer.close()
        assert rig.relay.turned_away == {"unknown token": 2}
        reader, writer = await first_bytes(rig.at, b"treetap-relay-data " + b"z" * DATA_LINE)
        assert await _closed(reader) == b""
        writer.close()


async def test_a_half_that_is_closed_leaves_the_other_open(tmp_path: Path) -> None:
    """The end of a caller's bytes reaches the process, whose answer still comes back whole."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard = await reader.read()
        writer.write(len(heard).to_bytes(8) + bytes(3_000_000))
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with relaying(tmp_path) as rig:
        rig.stack.callback(server.close)
        await rig.forward("bank", f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
        hello = hellos.real(B.dns)
        reader, writer = await first_bytes(rig.at, hello)
        writer.write(bytes(2_000_000))
        writer.write_eof()
        heard = await asyncio.wait_for(reader.read(), 5)
        assert (int.from_bytes(heard[:8]), len(heard)) == (len(hello) + 2_000_000, 3_000_008)
        writer.close()
        await until(lambda: len(rig.relay._ends) == 1, "the registration alone")


async def test_logs_have_names_and_no_content(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What the relay logs at its most talkative is who registers and who is called."""
    canary = "canary-7f3a"

    with caplog.at_level(logging.DEBUG, logger="treetap.ops.relay"):
        async with relaying(tmp_path) as rig:
            bank = await rig.behind("bank")
            content = exchange_pb2.PeerMessage(job=canary).SerializeToString()
            await deliver(rig.certs.files("telco"), rig.address("bank"), content)
            assert bank.got == [("telco", content)]
    assert "party 'bank': a connection of 127.0.0.1 begins" in caplog.text
    assert canary not in caplog.text

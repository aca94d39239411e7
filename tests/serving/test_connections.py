"""Connections to a served model's two places: none stays open for nothing, and there are not more than allowed."""

from __future__ import annotations

import asyncio
import re
import socket
from pathlib import Path

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.names import stands_for
from treetap.errors import BadInput
from treetap.native import arithmetic
from treetap.party.config import PartyConfig
from treetap.party.runtime.metrics import PartyMetrics
from treetap.party.runtime.workers import PartyWorkers
from treetap.party.server import main as party_main
from treetap.party.serving.registry import ServedModels
from treetap.wire import rpc
from treetap.wire.rpc import listening_fault
from treetap.workers.engines import Engine

pytest.importorskip("aiohttp", reason="the HTTP endpoint needs the extra serve")
from tests.serving.gateways import behind_gateway, clear, in_the_clear
from treetap.ops.gateway import http_connections
from treetap.party.server import services

pytestmark = pytest.mark.real_time

HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
SLOWEST_S, IDLE_S = 0.4, 2.0


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits of a test."""
    monkeypatch.setattr(http_connections, "SLOWEST_S", SLOWEST_S)
    monkeypatch.setattr(rpc, "HANDSHAKE_S", SLOWEST_S)
    for module in (http_connections, services):
        monkeypatch.setattr(module, "IDLE_S", IDLE_S)


async def _seconds_open(reader: asyncio.StreamReader) -> float:
    """How long a connection stays open; what comes is thrown away."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.timeout(5):
        try:
            while await reader.read(1000):
                pass
        except ConnectionError:
            pass
    return loop.time() - began


@pytest.mark.second_tier
@pytest.mark.usefixtures("hasty")
async def test_who_sends_no_request_is_hung_up_on(tmp_path: Path) -> None:
    """Nothing, half a head, a head that comes byte by byte, half of a second one, and idling: all have an end."""

    async with in_the_clear(tmp_path) as port:

        async def probe(first: bytes, drip: bytes = b"") -> float:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(first)

            async def dripping() -> None:
                for byte in drip:
                    await asyncio.sleep(0.05)
                    writer.write(bytes([byte]))

            task = asyncio.ensure_future(dripping())
            found = await _seconds_open(reader)
            task.cancel()
            writer.close()
            return found

        whole = HEAD + b"\r\n"
        nothing, half, drop_by_drop, idle, second = await asyncio.gather(
            probe(b""), probe(HEAD), probe(HEAD, b"X: " + b"x" * 500), probe(whole), probe(whole, HEAD * 10)
        )
        for found in (nothing, half, drop_by_drop):
            assert 0.9 * SLOWEST_S < found < SLOWEST_S + 1 < IDLE_S
        for found in (idle, second):
            assert 0.9 * IDLE_S < found < IDLE_S + 1


@pytest.mark.second_tier
@pytest.mark.usefixtures("hasty")
async def test_a_connection_that_is_used_stays(tmp_path: Path) -> None:
    """Requests one after the other go over one connection for longer than it might be idle."""

    async with in_the_clear(tmp_path) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(6):
            writer.write(HEAD + b"\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 503")
            while await reader.readline() != b"\r\n":
                pass
            assert await reader.readexactly(len(b'{"status":"idle"}')) == b'{"status":"idle"}'
            await asyncio.sleep(IDLE_S / 4)
        writer.close()


async def test_http_at_every_address_of_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients are answered whichever address of the host's name they take, and at none of them after the end."""
    stands_for(monkeypatch, "localhost", "127.0.0.1", "127.0.0.2")
    async with behind_gateway(clear(tmp_path), listen="localhost:0") as address:
        port = int(address.removeprefix("localhost:"))
        for host in ("127.0.0.1", "127.0.0.2"):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(HEAD + b"\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 503")
            writer.close()
    for host in ("127.0.0.1", "127.0.0.2"):
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(host, port)


async def test_http_where_one_address_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The field and the address are named, and nothing stays open at the other one."""
    stands_for(monkeypatch, "localhost", "127.0.0.1", "127.0.0.2")
    with socket.create_server(("127.0.0.2", 0)) as taken:
        port = taken.getsockname()[1]
        fault = f"listen = 'localhost:{port}': cannot listen there: Address already in use at 127.0.0.2, port {port}"
        with pytest.raises(BadInput, match=re.escape(fault)):
            await behind_gateway(clear(tmp_path), listen=f"localhost:{port}").__aenter__()
        socket.create_server(("127.0.0.1", port)).close()


@pytest.mark.second_tier
@pytest.mark.usefixtures("hasty")
async def test_grpc_hangs_up_too(tmp_path: Path) -> None:
    """A connection that never speaks HTTP/2, and one without a call, are closed by the server."""
    config = clear(tmp_path)
    clients, served_models = services.ScoringServer(), ServedModels(config, PartyMetrics(config.name))
    await clients.open(config, served_models)
    host, _, port = served_models.address.rpartition(":")
    settings = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
    for first, limit in ((b"", SLOWEST_S), (settings, IDLE_S)):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(first)
        assert await _seconds_open(reader) < limit + 2
        writer.close()
    await clients.close(0)


async def test_grpc_has_a_most_of_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One too many is closed at once, and has room when another has ended."""
    monkeypatch.setattr(rpc, "MOST_CONNECTIONS", 3)

    config = clear(tmp_path)
    clients, served_models = services.ScoringServer(), ServedModels(config, PartyMetrics(config.name))
    await clients.open(config, served_models)
    host, _, port = served_models.address.rpartition(":")
    held = [await asyncio.open_connection(host, int(port)) for _ in range(3)]
    for reader, _ in held:
        assert await reader.read(1)  # the server's settings: it has taken the connection
    reader, writer = await asyncio.open_connection(host, int(port))
    assert await _seconds_open(reader) < 2
    held[0][1].close()
    async with asyncio.timeout(5):
        while not await _taken(host, int(port)):
            await asyncio.sleep(0.02)
    for _, each in [*held, (reader, writer)]:
        each.close()
    await clients.close(0)


async def _taken(host: str, port: int) -> bool:
    """True if a server that speaks first takes a connection."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        return bool(await reader.read(1))
    except ConnectionError:
        return False
    finally:
        writer.close()


def test_where_clients_ask_is_known_before_jobs_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A party answers its coordinator only when its places for clients are open: a job that goes on tells where."""
    listen = next(f"127.0.0.1:{port}" for port in range(42100, 42200) if not listening_fault(f"127.0.0.1:{port}"))
    config = clear(tmp_path).model_copy(update={"listen": listen})
    answers: list[str] = []

    async def ask(within_s: float) -> None:
        async with grpc.aio.insecure_channel(listen) as channel:
            try:
                found = await health_pb2_grpc.HealthStub(channel).Check(
                    health_pb2.HealthCheckRequest(), timeout=within_s
                )
                answers.append(health_pb2.HealthCheckResponse.ServingStatus.Name(found.status))
            except grpc.aio.AioRpcError:
                answers.append("nobody")

    opens = services.ScoringServer.open

    async def slowly(self: services.ScoringServer, config: PartyConfig, served_models: ServedModels) -> None:
        await ask(0.5)
        await opens(self, config, served_models)

    async def served(kind: str, where: dict[str, str], **_: object) -> None:
        assert where["predict_grpc"]
        await ask(10)

    monkeypatch.setattr(services.ScoringServer, "open", slowly)
    monkeypatch.setattr(party_main, "serve_until_stopped", served)
    asyncio.run(
        party_main._serve(
            config,
            PartyWorkers(Engine()),
            arithmetic.choose("auto"),
            Path(),
            until_stdin_closes=False,
            in_terminal=False,
        )
    )
    assert answers == ["nobody", "SERVING"]

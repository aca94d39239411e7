"""All deadlines follow from the longest silence of a peer; a handshake over a slow line is no failure.

Processes of other versions: each side learns that of the other. The services of version 1 have other names.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.certificates import certified
from tests.sockets import dialling, listening
from tests.virtual_time import run
from treetap import version
from treetap.coordinator import server as jobs_service
from treetap.coordinator.jobs import Jobs
from treetap.errors import Incompatible, ProtocolError, TreetapError
from treetap.party.server import services
from treetap.party.serving.registry import ServedModels
from treetap.wire import rpc
from treetap.wire.callers import Callers, error_of
from treetap.wire.ports import Address, Reconnects, Timeouts
from treetap.wire.probe import serve_health
from treetap.wire.rpc import IDLE_S, channel_options
from treetap.wire.tls import Insecure, Transport
from treetap.wire.v2 import control_pb2, exchange_pb2, jobs_pb2, jobs_pb2_grpc


@pytest.mark.parametrize(
    ("silence_s", "connect_s", "retry_s", "diagnosis_s"),
    [(1, 3, 1, 1), (5, 5, 5, 5), (10, 10, 10, 5), (30, 20, 10, 5), (600, 20, 10, 5)],
)
def test_deadlines_follow_from_the_silence(
    silence_s: float, connect_s: float, retry_s: float, diagnosis_s: float
) -> None:
    """An attempt to connect has at least 3 s, and at most 20; no other deadline exceeds the silence."""
    found = Timeouts(silence_s)
    assert (found.connect_s, found.retry_s, found.diagnosis_s) == (connect_s, retry_s, diagnosis_s)
    options = dict(channel_options(found))
    assert options["grpc.min_reconnect_backoff_ms"] == 1000 * connect_s  # gRPC's own deadline of an attempt
    assert int(options["grpc.keepalive_time_ms"]) >= 10_000  # servers refuse more frequent ones
    assert int(options["grpc.client_idle_timeout_ms"]) <= 1000 * (IDLE_S - 0.5)  # before the server


async def _repeats(timeouts: Timeouts, answers: int) -> tuple[int, float]:
    """Repeats of a call that always breaks after `answers` answers, and the virtual seconds that they took."""
    loop = asyncio.get_running_loop()
    reconnects, began, count = Reconnects(timeouts), loop.time(), 0
    while await reconnects.again():
        count += 1
        if count <= answers:
            reconnects.heard()
    return count, loop.time() - began


@pytest.mark.parametrize(("silence_s", "longest"), [(3, 3), (60, 10)])
def test_a_broken_call_is_repeated_for_a_bounded_time(silence_s: float, longest: float) -> None:
    """For 10 s and never beyond the silence; each answer begins the time anew."""
    count, took = run(_repeats(Timeouts(silence_s), 0))
    assert count >= 4
    assert longest - 1.1 <= took <= longest
    more, later = run(_repeats(Timeouts(silence_s), 20))
    assert more == count + 20
    assert later == pytest.approx(took + 20 * 0.1)


# ---- Connections over a slow line, or to a busy host: a handshake that takes its time is no failure


DELAY_S = 0.15


class _Jobs(jobs_pb2_grpc.JobsServicer):
    async def Status(self, request: jobs_pb2.StatusRequest, context: object) -> AsyncIterator[jobs_pb2.StatusReply]:
        yield jobs_pb2.StatusReply(jobs=[jobs_pb2.JobStatus(job=request.job)])


async def _slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while block := await reader.read(65536):
        await asyncio.sleep(DELAY_S)
        writer.write(block)
    writer.close()


async def _main() -> str:
    server = grpc.aio.server()
    jobs_pb2_grpc.add_JobsServicer_to_server(_Jobs(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    lines: list[asyncio.Task[None]] = []

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        lines.extend(asyncio.ensure_future(_slow(*way)) for way in ((reader, far_writer), (far_reader, writer)))

    listener = await asyncio.start_server(relay, "127.0.0.1", 0)
    dialer = rpc.GrpcDialer(Insecure("operator"))
    to = Address("coordinator", f"127.0.0.1:{listener.sockets[0].getsockname()[1]}")
    try:
        async with dialer.jobs(to) as stub:
            pages = [page async for page in stub.Status(jobs_pb2.StatusRequest(job="slow"), timeout=20)]
            return pages[0].jobs[0].job
    finally:
        await dialer.close()
        listener.close()
        await asyncio.wait_for(asyncio.gather(*lines), 10)
        await server.stop(None)


@pytest.mark.second_tier
def test_the_first_call_over_a_slow_line_is_answered() -> None:
    """Each way takes 0.15 s: gRPC's first frame comes later than the first pause between attempts (0.1 s) would end."""
    assert asyncio.run(_main()) == "slow"


PARTY, CALLER = "feature-b", "coordinator"
NOW = version.PROTOCOL_VERSION
#: A call of version 1, and whether its answer is a stream.
CALLS = {
    "Control/Step": True,
    "Exchange/Deliver": False,
    "Jobs/Status": False,
    "Jobs/Watch": True,
    "Serving/Predict": False,
}
Register = Callable[[grpc.aio.Server, Callers], None]


@pytest.fixture(params=["certificates", "insecure"])
def transports(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Transport]:
    """How the party and its caller speak."""
    if request.param == "insecure":
        return {name: Insecure(name) for name in (PARTY, CALLER)}
    return {**certified(tmp_path, PARTY, CALLER)}


class _HealthOfVersion1(health_pb2_grpc.HealthServicer):  # type: ignore[misc] # the package has no types
    """The answers of a server of version 1."""

    async def Check(self, request: Any, context: Any) -> Any:
        await context.send_initial_metadata(((version.PROTOCOL_KEY, "1"),))
        return health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)


class _Called:
    """In place of a party, a coordinator and served models: none of them is asked anything."""

    def __getattr__(self, name: str) -> Any:
        def ask(*_: Any) -> Any:
            raise AssertionError(f"{name} was asked for")

        return ask


def _version_1(server: grpc.aio.Server, _callers: Callers) -> None:
    """The services of a party and of a coordinator of version 1."""

    async def answer(_request: bytes, _context: Any) -> bytes:
        return b""

    handler = grpc.unary_unary_rpc_method_handler(answer)
    services = {"Control": "Step", "Exchange": "Deliver", "Jobs": "Status"}
    for name, method in services.items():
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(f"treetap.wire.v1.{name}", {method: handler}),)
        )
    health_pb2_grpc.add_HealthServicer_to_server(_HealthOfVersion1(), server)


def _today(server: grpc.aio.Server, callers: Callers) -> None:
    """All services of today under one roof."""
    nothing: Any = _Called()
    services.register(server, callers, cast(Any, nothing))
    services.register_for_clients(server, callers, cast(ServedModels, nothing))
    jobs_service.register(server, callers, cast(Jobs, nothing))
    serve_health(server)


@asynccontextmanager
async def _serving(transports: dict[str, Transport], register: Register) -> AsyncIterator[Address]:
    """A server of the party."""
    async with listening(Callers(PARTY, transports[PARTY]), register, health=False) as address:
        yield Address(PARTY, address)


async def _error(dialer: rpc.GrpcDialer, to: Address, what: str) -> Exception:
    """The error of one call of today."""
    try:
        if what == "step":
            async for _ in dialer.step(to, control_pb2.StepRequest(job="j")):
                pass
        elif what == "deliver":
            await dialer.deliver(to, exchange_pb2.PeerMessage(job="j").SerializeToString())
        else:
            async with dialer.jobs(to) as stub:
                _ = [page async for page in stub.Status(jobs_pb2.StatusRequest(), timeout=10)]
    except TreetapError as error:
        return error
    raise AssertionError("the call was answered")


def _ask(transports: dict[str, Transport], register: Register, what: str) -> Exception:
    """The error with which a server answers our call."""

    async def main() -> Exception:
        async with _serving(transports, register) as to, dialling(transports[CALLER]) as dialer:
            return await _error(dialer, to, what)

    return asyncio.run(main())


@pytest.mark.parametrize("what", ["step", "deliver", "jobs"])
def test_a_server_of_version_1_is_named(what: str, transports: dict[str, Transport]) -> None:
    """Its services are not found; its health tells why, and that is what the caller hears."""
    error = _ask(transports, _version_1, what)
    assert isinstance(error, Incompatible)
    assert str(error) == (
        f"feature-b speaks version '1' of the protocol, its caller speaks version '{NOW}': install the same release of "
        "treetap on both"
    )


@pytest.mark.parametrize("register", [serve_health, lambda _server, _callers: None], ids=["same version", "no health"])
def test_a_service_that_is_elsewhere_is_no_other_version(register: Register, transports: dict[str, Transport]) -> None:
    """A server of today that lacks the service, and one that tells nothing of itself, are told as before."""
    error = _ask(transports, register, "step")
    assert type(error) is ProtocolError
    assert "feature-b failed: UNIMPLEMENTED" in str(error)


def _call(transports: dict[str, Transport], method: str, streams: bool, *told: tuple[str, str]) -> TreetapError:
    """The error with which a server of today answers a call that is made by hand."""

    async def main() -> TreetapError:
        async with _serving(transports, _today) as to, dialling(transports[CALLER]) as dialer:
            channel = dialer.channels.channel(to)
            plain = transports[CALLER]
            metadata = (*told, *(plain.told() if isinstance(plain, Insecure) else ()))
            try:
                if streams:
                    async for _ in channel.unary_stream(method)(b"", metadata=metadata, timeout=10):
                        pass
                else:
                    await cast(Awaitable[Any], channel.unary_unary(method)(b"", metadata=metadata, timeout=10))
            except grpc.aio.AioRpcError as failure:
                return error_of(failure, PARTY)
        raise AssertionError("the call was answered")

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("service", "method", "told"),
    [
        *((1, method, "1") for method in CALLS),
        *((2, method, told) for method in list(CALLS)[:3] for told in ("1", "2", str(NOW - 1), str(NOW + 1))),
        (3, "Control/Step", str(NOW + 1)),
    ],
)
def test_a_caller_of_another_version_is_told(
    service: int, method: str, told: str, transports: dict[str, Transport]
) -> None:
    """The answer is an error that version 1 has, too: who speaks which version, by the certificate's name.

    The version that each call tells is named, not the number of its services, and is checked before anything is done:
    version 2 had services of the names of today.
    """
    error = _call(transports, f"/treetap.wire.v{service}.{method}", CALLS[method], (version.PROTOCOL_KEY, told))
    assert isinstance(error, Incompatible)
    assert str(error) == (
        f"coordinator speaks version '{told}' of the protocol, feature-b speaks version '{NOW}': install the same "
        "release of treetap on both"
    )


@pytest.mark.parametrize(
    "method", ["/treetap.wire.v2.Control/Jump", "/treetap.wire.v1x.Control/Step", "/other.Service/Do"]
)
def test_what_is_no_service_of_another_version_is_unimplemented(method: str, transports: dict[str, Transport]) -> None:
    """Unknown methods of today, and services of others."""
    error = _call(transports, method, False, *version.told())
    assert type(error) is ProtocolError
    assert "UNIMPLEMENTED" in str(error)

"""Processes of other versions: each side learns that of the other. The services of version 1 have other names."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.certificates import role_of
from treetap import version
from treetap.commands.certs.authority import create_authority, issue
from treetap.coordinator import server as jobs_service
from treetap.coordinator.jobs import Jobs
from treetap.errors import Incompatible, ProtocolError, TreetapError
from treetap.party.server import services
from treetap.party.serving.registry import ServedModels
from treetap.wire import rpc
from treetap.wire.callers import Callers, error_of
from treetap.wire.ports import Address
from treetap.wire.probe import serve_health
from treetap.wire.tls import Insecure, Transport
from treetap.wire.v2 import control_pb2, exchange_pb2, jobs_pb2

pytestmark = pytest.mark.real_time
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
    create_authority(tmp_path)
    return {name: issue(tmp_path, name, role_of(name)) for name in (PARTY, CALLER)}


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
    jobs_service.register(server, callers, cast(Jobs, nothing), [])
    serve_health(server, callers)


@asynccontextmanager
async def _serving(
    transports: dict[str, Transport], register: Register
) -> AsyncIterator[tuple[rpc.GrpcDialer, Address]]:
    """A server of the party, and its caller's dialer."""
    callers = Callers(PARTY, transports[PARTY])
    server, credentials = rpc.server(callers)
    register(server, callers)
    port = rpc.bind(server, credentials, "127.0.0.1:0")
    await server.start()
    dialer = rpc.GrpcDialer(transports[CALLER])
    try:
        yield dialer, Address(PARTY, f"127.0.0.1:{port}")
    finally:
        await dialer.close()
        await server.stop(None)


async def _ask(dialer: rpc.GrpcDialer, to: Address, what: str) -> None:
    """One call of today."""
    if what == "step":
        _ = [event async for event in dialer.step(to, control_pb2.StepRequest(job="j"))]
    elif what == "deliver":
        await dialer.deliver(to, exchange_pb2.PeerMessage(job="j").SerializeToString())
    else:
        async with dialer.jobs(to) as stub:
            _ = [page async for page in stub.Status(jobs_pb2.StatusRequest(), timeout=10)]


async def _error(transports: dict[str, Transport], register: Register, what: str) -> Exception:
    """The error with which a server answers our call."""
    async with _serving(transports, register) as (dialer, to):
        with pytest.raises(TreetapError) as error:
            await _ask(dialer, to, what)
    return error.value


@pytest.mark.parametrize("what", ["step", "deliver", "jobs"])
async def test_a_server_of_version_1_is_named(what: str, transports: dict[str, Transport]) -> None:
    """Its services are not found; its health tells why, and that is what the caller hears."""
    error = await _error(transports, _version_1, what)
    assert isinstance(error, Incompatible)
    assert str(error) == (
        f"feature-b speaks version '1' of the protocol, its caller speaks version '{NOW}': install the same release of "
        "treetap on both"
    )


@pytest.mark.parametrize("register", [serve_health, lambda _server, _callers: None], ids=["same version", "no health"])
async def test_a_service_that_is_elsewhere_is_no_other_version(
    register: Register, transports: dict[str, Transport]
) -> None:
    """A server of today that lacks the service, and one that tells nothing of itself, are told as before."""
    error = await _error(transports, register, "step")
    assert type(error) is ProtocolError
    assert "feature-b failed: UNIMPLEMENTED" in str(error)


async def _call(transports: dict[str, Transport], method: str, streams: bool, *told: tuple[str, str]) -> TreetapError:
    """The error with which a server of today answers a call that is made by hand."""
    plain = transports[CALLER]
    metadata = (*told, *(plain.told() if isinstance(plain, Insecure) else ()))
    async with _serving(transports, _today) as (dialer, to):
        channel = dialer.channel(to)
        kind: Any = channel.unary_stream(method) if streams else channel.unary_unary(method)
        call = kind(b"", metadata=metadata, timeout=10)
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await (call.read() if streams else call)
    return error_of(failure.value, PARTY)


@pytest.mark.parametrize("method", CALLS)
async def test_a_caller_of_version_1_is_told(method: str, transports: dict[str, Transport]) -> None:
    """The answer is an error that version 1 has, too: who speaks which version, by the certificate's name."""
    error = await _call(transports, f"/treetap.wire.v1.{method}", CALLS[method], (version.PROTOCOL_KEY, "1"))
    assert isinstance(error, Incompatible)
    assert str(error) == (
        f"coordinator speaks version '1' of the protocol, feature-b speaks version '{NOW}': install the same release "
        "of treetap on both"
    )


@pytest.mark.parametrize("method", ["Control/Step", "Exchange/Deliver", "Jobs/Status"])
@pytest.mark.parametrize("told", ["1", "2", str(NOW - 1), str(NOW + 1)])
async def test_a_caller_that_tells_another_version_is_refused_at_the_services_of_today(
    method: str, told: str, transports: dict[str, Transport]
) -> None:
    """The version that each call tells is checked before anything is done; version 2 had services of the same names."""
    error = await _call(transports, f"/treetap.wire.v2.{method}", CALLS[method], (version.PROTOCOL_KEY, told))
    assert isinstance(error, Incompatible)
    assert f"coordinator speaks version '{told}' of the protocol" in str(error)


async def test_a_caller_of_later_services_is_told(transports: dict[str, Transport]) -> None:
    """Its own version, not the number of its services, is named."""
    error = await _call(transports, "/treetap.wire.v3.Control/Step", True, (version.PROTOCOL_KEY, str(NOW + 1)))
    assert isinstance(error, Incompatible)
    assert f"coordinator speaks version '{NOW + 1}' of the protocol, feature-b speaks version '{NOW}'" in str(error)


@pytest.mark.parametrize(
    "method", ["/treetap.wire.v2.Control/Jump", "/treetap.wire.v1x.Control/Step", "/other.Service/Do"]
)
async def test_what_is_no_service_of_another_version_is_unimplemented(
    method: str, transports: dict[str, Transport]
) -> None:
    """Unknown methods of today, and services of others."""
    error = await _call(transports, method, False, *version.told())
    assert type(error) is ProtocolError
    assert "UNIMPLEMENTED" in str(error)

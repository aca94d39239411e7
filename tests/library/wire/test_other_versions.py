"""Processes of other versions: each side learns that of the other. The services of version 1 have other names."""

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
async def _serving(transports: dict[str, Transport], register: Register) -> AsyncIterator[Address]:
    """A server of the party."""
    callers = Callers(PARTY, transports[PARTY])
    server, credentials = rpc.server(callers)
    register(server, callers)
    port = rpc.bind(server, credentials, "127.0.0.1:0")
    await server.start()
    try:
        yield Address(PARTY, f"127.0.0.1:{port}")
    finally:
        await server.stop(None)


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
        async with _serving(transports, register) as to:
            dialer = rpc.GrpcDialer(transports[CALLER])
            try:
                return await _error(dialer, to, what)
            finally:
                await dialer.close()

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
        async with _serving(transports, _today) as to:
            dialer = rpc.GrpcDialer(transports[CALLER])
            channel = dialer.channel(to)
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
            finally:
                await dialer.close()
        raise AssertionError("the call was answered")

    return asyncio.run(main())


@pytest.mark.parametrize("method", CALLS)
def test_a_caller_of_version_1_is_told(method: str, transports: dict[str, Transport]) -> None:
    """The answer is an error that version 1 has, too: who speaks which version, by the certificate's name."""
    error = _call(transports, f"/treetap.wire.v1.{method}", CALLS[method], (version.PROTOCOL_KEY, "1"))
    assert isinstance(error, Incompatible)
    assert str(error) == (
        f"coordinator speaks version '1' of the protocol, feature-b speaks version '{NOW}': install the same release "
        "of treetap on both"
    )


@pytest.mark.parametrize("method", ["Control/Step", "Exchange/Deliver", "Jobs/Status"])
@pytest.mark.parametrize("told", ["1", "2", str(NOW - 1), str(NOW + 1)])
def test_a_caller_that_tells_another_version_is_refused_at_the_services_of_today(
    method: str, told: str, transports: dict[str, Transport]
) -> None:
    """The version that each call tells is checked before anything is done; version 2 had services of the same names."""
    error = _call(transports, f"/treetap.wire.v2.{method}", CALLS[method], (version.PROTOCOL_KEY, told))
    assert isinstance(error, Incompatible)
    assert f"coordinator speaks version '{told}' of the protocol" in str(error)


def test_a_caller_of_later_services_is_told(transports: dict[str, Transport]) -> None:
    """Its own version, not the number of its services, is named."""
    error = _call(transports, "/treetap.wire.v3.Control/Step", True, (version.PROTOCOL_KEY, str(NOW + 1)))
    assert isinstance(error, Incompatible)
    assert f"coordinator speaks version '{NOW + 1}' of the protocol, feature-b speaks version '{NOW}'" in str(error)


@pytest.mark.parametrize(
    "method", ["/treetap.wire.v2.Control/Jump", "/treetap.wire.v1x.Control/Step", "/other.Service/Do"]
)
def test_what_is_no_service_of_another_version_is_unimplemented(method: str, transports: dict[str, Transport]) -> None:
    """Unknown methods of today, and services of others."""
    error = _call(transports, method, False, *version.told())
    assert type(error) is ProtocolError
    assert "UNIMPLEMENTED" in str(error)

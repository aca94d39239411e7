"""Health check of a server: gRPC's health service, whose answer also contains versions and the server's clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from treetap import version
from treetap.errors import Refused, Silent, TreetapError, Unreachable
from treetap.names import visible
from treetap.wire.callers import Callers, answering
from treetap.wire.ports import Address
from treetap.wire.probe import refusal
from treetap.wire.proxies import way
from treetap.wire.tls import Insecure, Transport, check_near

RELEASE_KEY = "treetap-version"
TIME_KEY = "treetap-time"
#: The service whose health is whether a party serves a model to clients.
SERVING = "treetap.wire.v2.Serving"
Context = grpc.aio.ServicerContext[object, object]


@dataclass(frozen=True)
class Hello:
    """A server's answer: its release, protocol version and clock, None where they are absent.

    `skew_s`: how far its clock is ahead of ours, give or take `within_s`, half of the call's time.
    """

    serving: bool
    release: str | None
    protocol: str | None
    skew_s: float | None
    within_s: float


class Health(health.aio.HealthServicer):  # type: ignore[misc] # the package has no types
    """gRPC's health service; the initial metadata of each check contains versions and time.

    Every holder of a certificate with a role may ask. `serves`: tells the health of `SERVING`, where that is known.
    """

    def __init__(self, callers: Callers, serves: Callable[[], bool] | None = None) -> None:
        super().__init__()
        self._callers, self._serves = callers, serves

    async def Check(self, request: health_pb2.HealthCheckRequest, context: Context) -> health_pb2.HealthCheckResponse:
        async with answering(context, self._callers):
            self._callers.anybody(context)
        await context.send_initial_metadata(
            (*version.told(), (RELEASE_KEY, version.package_version()), (TIME_KEY, f"{time.time():.6f}"))
        )
        if request.service == SERVING and self._serves is not None:
            answer = health_pb2.HealthCheckResponse
            return answer(status=answer.SERVING if self._serves() else answer.NOT_SERVING)
        return await super().Check(request, context)

    async def Watch(self, _request: health_pb2.HealthCheckRequest, context: Context) -> None:
        """Refuse: a watch would outlast its caller's certificate, and nothing here needs one."""
        async with answering(context, self._callers):
            self._callers.anybody(context)
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "health is checked call by call: use Check")


def serve_health(server: grpc.aio.Server, callers: Callers, serves: Callable[[], bool] | None = None) -> Health:
    """Let a server answer health checks. `serves`: see `Health`."""
    service = Health(callers, serves)
    health_pb2_grpc.add_HealthServicer_to_server(service, server)
    return service


def say_hello(to: Address, transport: Transport, timeout: float) -> Hello:
    """Make one check, for `timeout` seconds at most. Blocks; without an answer `Silent`, `Unreachable` or `Refused`."""
    if not isinstance(transport, Insecure) and (fault := refusal(to, transport, timeout)):
        raise Unreachable(fault.line)
    with _channel(to, transport) as channel:
        began, began_at = time.monotonic(), time.time()
        try:
            answer, call = health_pb2_grpc.HealthStub(channel).Check.with_call(
                health_pb2.HealthCheckRequest(), timeout=timeout
            )
        except grpc.RpcError as failure:
            raise _error(failure, to.name, timeout) from None
        took = time.monotonic() - began
        metadata = dict(call.initial_metadata())
    return Hello(
        serving=answer.status == health_pb2.HealthCheckResponse.SERVING,
        release=_text(metadata.get(RELEASE_KEY)),
        protocol=_text(metadata.get(version.PROTOCOL_KEY)),
        skew_s=_skew(_text(metadata.get(TIME_KEY)), began_at + took / 2),
        within_s=took / 2,
    )


def _channel(to: Address, transport: Transport) -> grpc.Channel:
    proxied = not isinstance(transport, Insecure) and transport.proxied
    target, options = way(to.location, proxied=proxied)
    options.append(("grpc.enable_retries", 0))
    if isinstance(transport, Insecure):
        check_near(f"{to.name} at", to.location)
        return grpc.insecure_channel(target, options)
    ca, certificate, key = transport.read()
    options.append(("grpc.ssl_target_name_override", to.dns))
    return grpc.secure_channel(target, grpc.ssl_channel_credentials(ca, key, certificate), options)


def _error(failure: grpc.RpcError, name: str, timeout: float) -> TreetapError:
    code = failure.code() if isinstance(failure, grpc.Call) else None
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return Silent(f"{name} did not answer within {timeout:g} s")
    if code is grpc.StatusCode.PERMISSION_DENIED and isinstance(failure, grpc.Call):
        return Refused(f"{name} refuses our health check: {visible(failure.details() or '')}")
    return Unreachable(f"{name} does not answer a health check ({code.name if code else failure})")


def _text(value: str | bytes | None) -> str | None:
    return visible(value) if isinstance(value, str) else None


def _skew(sent: str | None, now: float) -> float | None:
    try:
        return None if sent is None else float(sent) - now
    except ValueError:
        return None

"""Servers and callers over real sockets, as long as a block lasts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import grpc.aio
from grpc_health.v1 import health_pb2

from treetap.wire import rpc
from treetap.wire.callers import Callers
from treetap.wire.probe import serve_health
from treetap.wire.tls import TlsFiles, Transport

T = TypeVar("T")


@asynccontextmanager
async def listening(
    callers: Callers,
    *services: Callable[[grpc.aio.Server, Callers], object],
    health: bool = True,
    port: int = 0,
    **options: Any,
) -> AsyncIterator[str]:
    """The address of a server with these services, and with a health service that says that it serves.

    `options`: those of `rpc.server`.
    """
    server, credentials = rpc.server(callers, **options)
    for register in services:
        register(server, callers)
    status = serve_health(server) if health else None
    address = rpc.bind(server, credentials, f"127.0.0.1:{port}")
    await server.start()
    if status is not None:
        await status.set("", health_pb2.HealthCheckResponse.SERVING)
    try:
        yield address
    finally:
        await server.stop(None)


@asynccontextmanager
async def dialling(transport: Transport) -> AsyncIterator[rpc.GrpcDialer]:
    """A process's dialer."""
    dialer = rpc.GrpcDialer(transport)
    try:
        yield dialer
    finally:
        await dialer.close()


def with_dialer(tls: TlsFiles, call: Callable[[rpc.GrpcDialer], Awaitable[T]]) -> T:
    """What a call gives, by a dialer of these certificates."""

    async def main() -> T:
        dialer = rpc.GrpcDialer(tls)
        try:
            return await call(dialer)
        finally:
            await dialer.close()

    return asyncio.run(main())

"""The party's gRPC face: decode, call, encode, map errors. No mathematics, no state."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import NoReturn

import grpc
import grpc.aio

from treetap.errors import TreetapError
from treetap.wire.ports import PartyPort
from treetap.wire.rpc import caller_name
from treetap.wire.status import ERROR_KEY, code_of, details_of
from treetap.wire.v1 import control_pb2, control_pb2_grpc, exchange_pb2, exchange_pb2_grpc

log = logging.getLogger(__name__)
Context = grpc.aio.ServicerContext[object, object]


class ControlService(control_pb2_grpc.ControlServicer):
    """Coordinator to party."""

    def __init__(self, port: PartyPort) -> None:
        self._port = port

    async def Step(self, request: control_pb2.StepRequest, context: Context) -> AsyncIterator[control_pb2.StepEvent]:
        """See control.proto."""
        try:
            async for event in self._port.step(caller_name(context), request):
                yield event
        except TreetapError as error:
            await refuse(context, error)


class ExchangeService(exchange_pb2_grpc.ExchangeServicer):
    """Party to party."""

    def __init__(self, port: PartyPort) -> None:
        self._port = port

    async def Deliver(self, request: exchange_pb2.Parcel, context: Context) -> exchange_pb2.Receipt:
        """See exchange.proto."""
        try:
            return await self._port.deliver(caller_name(context), request)
        except TreetapError as error:
            await refuse(context, error)


def register(server: grpc.aio.Server, port: PartyPort) -> None:
    """Let a server answer for a party."""
    control_pb2_grpc.add_ControlServicer_to_server(ControlService(port), server)
    exchange_pb2_grpc.add_ExchangeServicer_to_server(ExchangeService(port), server)


async def refuse(context: Context, error: TreetapError) -> NoReturn:
    """End a call with the status of an error; its class travels along, so that the caller raises the same."""
    log.warning("refused: %s: %s", type(error).__name__, error)
    await context.abort(code_of(error), details_of(error), trailing_metadata=((ERROR_KEY, type(error).__name__),))
    raise AssertionError("abort raises") from error

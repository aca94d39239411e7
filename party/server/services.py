"""The party's gRPC services, for the coordinator, other parties and clients: decode, call, encode, map errors."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc
import grpc.aio

from party.serving.registry import ServedModels
from treetap.wire.callers import Callers
from treetap.wire.ports import PartyPort
from treetap.wire.roles import Role
from treetap.wire.status import answering, refuse_other_versions
from treetap.wire.v2 import (
    control_pb2,
    control_pb2_grpc,
    exchange_pb2,
    exchange_pb2_grpc,
    serving_pb2,
    serving_pb2_grpc,
)

Context = grpc.aio.ServicerContext[object, object]


class ControlService(control_pb2_grpc.ControlServicer):
    """The service for the coordinator."""

    def __init__(self, callers: Callers, port: PartyPort) -> None:
        self._callers, self._port = callers, port

    async def Step(self, request: control_pb2.StepRequest, context: Context) -> AsyncIterator[control_pb2.StepEvent]:
        """See control.proto."""
        async with answering(context, self._callers):
            async for event in self._port.step(self._callers.named(context, Role.COORDINATOR), request):
                self._callers.named(context, Role.COORDINATOR)  # a step may outlast its caller's certificate
                yield event


class ExchangeService(exchange_pb2_grpc.ExchangeServicer):
    """The service for other parties."""

    def __init__(self, callers: Callers, port: PartyPort) -> None:
        self._callers, self._port = callers, port

    async def Deliver(self, request: exchange_pb2.PeerMessage, context: Context) -> exchange_pb2.Receipt:
        """See exchange.proto."""
        async with answering(context, self._callers):
            return await self._port.deliver(self._callers.named(context, Role.PARTY), request)


class ServingService(serving_pb2_grpc.ServingServicer):
    """The label holder's service for clients."""

    def __init__(self, callers: Callers, served_models: ServedModels) -> None:
        self._callers, self._served_models = callers, served_models

    async def Predict(self, request: serving_pb2.PredictRecords, context: Context) -> serving_pb2.PredictedRecords:
        """See serving.proto; the shorter of the call's deadline and the party's applies."""
        async with answering(context, self._callers):
            client = self._callers.certified(context, Role.CLIENT)
            return await self._served_models.predict(client, request, context.time_remaining())

    async def Describe(self, request: serving_pb2.DescribeModel, context: Context) -> serving_pb2.ModelDescription:
        """See serving.proto."""
        async with answering(context, self._callers):
            return self._served_models.describe(self._callers.certified(context, Role.CLIENT), request.model)


def register(server: grpc.aio.Server, callers: Callers, port: PartyPort) -> None:
    """Add the services of a party to a server."""
    control_pb2_grpc.add_ControlServicer_to_server(ControlService(callers, port), server)
    exchange_pb2_grpc.add_ExchangeServicer_to_server(ExchangeService(callers, port), server)
    refuse_other_versions(server, callers)


def register_for_clients(server: grpc.aio.Server, callers: Callers, served_models: ServedModels) -> None:
    """Add the service for clients of a party to a server."""
    serving_pb2_grpc.add_ServingServicer_to_server(ServingService(callers, served_models), server)
    refuse_other_versions(server, callers)

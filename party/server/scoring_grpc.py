"""The gRPC service for clients: decode, call the registry of served models, encode, map errors. No state."""

from __future__ import annotations

import grpc
import grpc.aio

from party.serving.registry import ServedModels
from treetap.wire.callers import Callers
from treetap.wire.other_versions import refuse_other_versions
from treetap.wire.roles import Role
from treetap.wire.status import answering
from treetap.wire.v2 import serving_pb2, serving_pb2_grpc

Context = grpc.aio.ServicerContext[object, object]


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


def register(server: grpc.aio.Server, callers: Callers, served_models: ServedModels) -> None:
    """Add the service for clients of a party to a server."""
    serving_pb2_grpc.add_ServingServicer_to_server(ServingService(callers, served_models), server)
    refuse_other_versions(server, callers)

"""Calls of a gateway to its party: each for one client, by name, with a deadline."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from treetap.errors import Incompatible, NotServed, TreetapError, Unreachable
from treetap.wire.ports import Address
from treetap.wire.rpc import GrpcDialer
from treetap.wire.tls import Transport
from treetap.wire.v2 import serving_pb2

if TYPE_CHECKING:
    from treetap.wire.rpc import ServingStub

log = logging.getLogger(__name__)
#: Seconds that a prediction may take: no party lets a client wait longer than 600.
LONGEST_S = 610.0
#: Seconds that a party may take to describe a model, and to say whether it serves one.
SOON_S = 10.0
#: Seconds after which a connection without a call is given up, before the party does so.
GIVE_UP_S = 50.0


class PartyCalls:
    """Asks one party.

    Args:
        transport: the gateway's own credentials.
        to: the party's address for clients.
    """

    def __init__(self, transport: Transport, to: Address) -> None:
        self._to, self._dialer = to, GrpcDialer(transport, give_up_s=GIVE_UP_S)

    async def predict(
        self, client: str, request: serving_pb2.PredictRecords, within_s: float | None = None
    ) -> serving_pb2.PredictedRecords:
        """Predictions for a client, within `within_s` seconds or what the party allows.

        Raises:
            BadInput, Refused, UnknownJob: the party's answer.
            NotServed, Overloaded, Silent: the client may ask again; also where the party is not reached.
        """
        async with self._asking(client) as stub:
            return await stub.Predict(request, timeout=min(LONGEST_S, within_s or LONGEST_S))

    async def describe(self, client: str, model: str) -> serving_pb2.ModelDescription:
        """The description of a served model for a client. Raises as `predict` does."""
        async with self._asking(client) as stub:
            return await stub.Describe(serving_pb2.DescribeModel(model=model), timeout=SOON_S)

    async def serves(self) -> bool:
        """True if the party is reached and serves a model."""
        try:
            return await self._dialer.serves(self._to, SOON_S)
        except TreetapError as fault:
            log.warning("%s does not say whether it serves: %s", self._to.name, fault)
            return False

    async def close(self) -> None:
        await self._dialer.close()

    @asynccontextmanager
    async def _asking(self, client: str) -> AsyncIterator[ServingStub]:
        """The stub for one call; why the party is not reached is for the log alone."""
        try:
            async with self._dialer.serving(self._to, client) as stub:
                yield stub
        except (Unreachable, Incompatible) as fault:
            log.warning("%s is not reached: %s", self._to.name, fault)
            raise NotServed(f"{self._to.name} cannot be asked now; ask again later") from None

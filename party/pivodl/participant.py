"""One party of a PIVODL job: its part in the job as the specification gives it, and how it sends to the others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

from treetap.party.runtime.context import Body, StepContext
from treetap.trees.pivodl_params import PivodlParams
from treetap.wire.frame import content_of
from treetap.wire.v2 import setup_pb2


class Participant:
    """One party in one attempt at a job; nothing here changes while the job runs.

    Attributes:
        name: of the party.
        parties: all parties, in the order of the job, which is the order of ties.
        others: all but this one.
    """

    def __init__(self, context: StepContext, spec: setup_pb2.JobSpec, params: PivodlParams) -> None:
        self.context, self.spec, self.params = context, spec, params
        self.name = context.party
        self.parties = [spec.aggregator, *spec.feature_parties]
        self.others = [party for party in self.parties if party != self.name]

    async def broadcast(self, kind: str, bodies: Iterable[Body], t: int = 0, stage: int = 0) -> None:
        """Send the same series to every other party."""
        await self.context.outbox.send_each(kind, dict.fromkeys(self.others, tuple(bodies)), t, stage)

    async def received(self, sender: str, kind: str, t: int = 0, stage: int = 0) -> AsyncIterator[Any]:
        """The contents of a series, in order."""
        async for message in self.context.mailbox.series(sender, kind, t, stage):
            yield content_of(message, kind)

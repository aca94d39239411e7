"""A party of a masked prediction that is not its recipient: passes records on, and sends a masked share of each score.

The share of a record that reaches no leaf of this party is zero, and looks like any other.
"""

from __future__ import annotations

from collections.abc import Iterator

from treetap.arrays import Words
from treetap.party.masked.passing import LAST_LEVEL, MORE_LEVELS, Passing, masked_sizes
from treetap.party.prediction.opened_model import OpenedModel, PredictionJob
from treetap.party.prediction.steps import TakenBlocks
from treetap.party.runtime.context import MESSAGE_BYTES
from treetap.party.runtime.step_order import (
    ALIGNMENT,
    NEXT_ROUND,
    NEXT_STAGE,
    OPENING,
    THIS_ROUND,
    Next,
    Outcome,
    role,
    step,
    steps_of,
)
from treetap.wire.v2 import control_pb2, masked_pb2


@role({OPENING: (Next("open_model"),), ALIGNMENT: (Next("exchange_mask_keys"),)}, OpenedModel, Passing)
class Member:
    """A party that sends shares."""

    def __init__(self, job: PredictionJob) -> None:
        """Raises BadInput: see `OpenedModel` and `Passing`."""
        self._context, self._opening = job.context, job.opening
        self.sizes = masked_sizes(job)
        self._opened = OpenedModel(job, self.sizes)
        self._passing = Passing(job, self._opened, self.sizes)
        self._blocks = TakenBlocks(job.context, job.opening)
        self.steps = steps_of(self, self._opened, self._passing, phases={ALIGNMENT: self._opened.alignment})

    @step(Next("pass_records", NEXT_STAGE, MORE_LEVELS), Next("send_shares", THIS_ROUND, LAST_LEVEL))
    async def pass_records(self, request: control_pb2.StepRequest) -> Outcome:
        """Pass the records at the own nodes of a level on; on the first level take the records of the block before."""
        block, level = request.round, request.stage
        if level == 0:
            taken = await self._blocks.take(block, self._opened.aligned.ids)
            self._passing.begin(taken.rows)
        return Outcome(await self._passing.pass_on(block, level))

    @step(Next("pass_records", NEXT_ROUND))
    async def send_shares(self, request: control_pb2.StepRequest) -> None:
        """Send the own share of every record's score, masked."""
        block = request.round
        share = await self._context.offload(lambda: self._passing.share(block))
        await self._context.outbox.send(self._opening.recipient, "score_shares", _bodies(share), round=block)
        self._passing.end(block)


def _bodies(share: Words) -> Iterator[masked_pb2.ScoreShares]:
    """A share (n, outputs) in messages of about one message's size."""
    content = share.astype("<u8").tobytes()
    return (
        masked_pb2.ScoreShares(values=content[start : start + MESSAGE_BYTES])
        for start in range(0, len(content), MESSAGE_BYTES)
    )

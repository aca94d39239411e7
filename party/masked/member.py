"""A party of a masked prediction that is not its recipient: passes records on, and sends a masked share of each score.

The share of a record that reaches no leaf of this party is zero, and looks like any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from party.alignment.steps import ALIGNMENT
from party.config import PartyConfig
from party.masked.passing import Passing
from party.prediction.chain import take_block
from party.prediction.expected import block_records
from party.prediction.opened_model import OpenedModel
from party.prediction.step_rows import OPENING_ROWS
from party.runtime.context import StepContext, empty_result
from party.runtime.expected import Receives
from party.runtime.job_store import Store
from party.runtime.messages import Rows
from party.runtime.outbox import MESSAGE_BYTES
from party.runtime.step_order import NEXT_ROUND, NEXT_STAGE, THIS_ROUND, Next, StepTable
from party.runtime.steps import Step
from treetap.errors import Malformed
from treetap.privacy.ring import Ring
from treetap.wire.v2 import control_pb2, masked_pb2, prediction_pb2

#: Outcomes of `pass_records`.
MORE_LEVELS = "some tree has splits on the next level"
LAST_LEVEL = "every record has reached its leaves"

STEPS: StepTable = {
    **OPENING_ROWS,
    ALIGNMENT: (Next("exchange_mask_keys"),),  # no names: there are no explanations
    "exchange_mask_keys": (Next("pass_records"),),
    "pass_records": (Next("pass_records", NEXT_STAGE, MORE_LEVELS), Next("send_shares", THIS_ROUND, LAST_LEVEL)),
    "send_shares": (Next("pass_records", NEXT_ROUND),),
}


class Member:
    """A party that sends shares."""

    def __init__(
        self, config: PartyConfig, store: Store, context: StepContext, opening: prediction_pb2.OpenModel
    ) -> None:
        """Raises BadInput: see `OpenedModel` and `Passing`."""
        self._context, self._opening = context, opening
        self._opened = OpenedModel(config, store, context, opening, STEPS)
        self._passing = Passing(context, opening, self._opened)
        self.steps: Mapping[str, Step] = {
            "open_model": self._opened.open_model,
            **self._opened.steps,
            "exchange_mask_keys": self.exchange_mask_keys,
            "pass_records": self.pass_records,
            "send_shares": self.send_shares,
        }

    @property
    def receives(self) -> Receives:
        """See `Role.receives`."""
        blocks = block_records(self._opening.recipient, self._opened.records)
        return {**self._opened.receives, **self._passing.receives(), **blocks}

    async def exchange_mask_keys(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Check the common records against the own policy; exchange keys with every other party."""
        self._opened.order.check(request)
        await self._passing.exchange_keys()
        self._opened.order.done(request)
        return empty_result()

    async def pass_records(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Pass the records at the own nodes of a level on; on the first level take the records of the block before."""
        self._opened.order.check(request)
        block, level = request.round, request.stage
        if level == 0:
            self._passing.begin(await self._block(block))
        await self._passing.pass_on(block, level)
        self._opened.order.done(request, MORE_LEVELS if level + 1 < self._passing.routes.levels else LAST_LEVEL)
        return empty_result()

    async def send_shares(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Send the own share of every record's score, masked."""
        self._opened.order.check(request)
        block = request.round
        share = await self._context.offload(lambda: self._passing.share(block))
        await self._context.outbox.send(self._opening.recipient, "score_shares", _bodies(share), round=block)
        self._passing.end(block)
        self._opened.order.done(request)
        return empty_result()

    async def close(self) -> None:
        """Do nothing: this role has no workers' state."""

    async def _block(self, number: int) -> Rows:
        """The records of a block; `Malformed` if they are more than the prediction says."""
        recipient = self._opening.recipient
        rows = await take_block(self._context, recipient, number, len(self._opened.aligned.ids))
        if len(rows) > self._opening.block:
            raise Malformed(f"{recipient}, block {number}: has {len(rows)} records, blocks have {self._opening.block}")
        return rows


def _bodies(share: Ring) -> Iterator[masked_pb2.ScoreShares]:
    """A share (n, outputs) in messages of about one message's size."""
    content = share.astype("<u8").tobytes()
    return (
        masked_pb2.ScoreShares(values=content[start : start + MESSAGE_BYTES])
        for start in range(0, len(content), MESSAGE_BYTES)
    )

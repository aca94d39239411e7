"""A feature party in a prediction of a split network: embeddings of the records that the label holder names."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from party.alignment.steps import ALIGNMENT
from party.config import PartyConfig
from party.prediction.chain import take_block
from party.prediction.expected import block_records
from party.prediction.opened_model import OpenedModel
from party.runtime.context import Step, StepContext, empty_result
from party.runtime.expected import Receives
from party.runtime.job_store import Store
from party.runtime.messages import Rows
from party.runtime.outbox import MESSAGE_BYTES
from party.runtime.step_order import NEXT_ROUND, OPENING, Next, StepTable
from party.splitnn.bodies import EMBEDDINGS, bodies
from party.splitnn.published import trained_bottom
from treetap.neural.numbers import to_bytes
from treetap.neural.trained import pieces
from treetap.wire.v2 import control_pb2, prediction_pb2

#: Seconds after which embeddings are sent although there are few.
LONGEST_S = 2.0

STEPS: StepTable = {
    OPENING: (Next("open_model"),),
    "open_model": (Next(ALIGNMENT),),
    ALIGNMENT: (Next("embed_block"),),
    "embed_block": (Next("embed_block", NEXT_ROUND),),
}


class FeatureParty:
    """A feature party: sends the embedding of each record of a block."""

    def __init__(
        self, config: PartyConfig, store: Store, context: StepContext, opening: prediction_pb2.OpenModel
    ) -> None:
        """Raises BadInput: see `OpenedModel`; or the weights do not fit the manifest."""
        self._context, self._opening = context, opening
        self._opened = OpenedModel(config, store, context, opening, STEPS)
        self._network = trained_bottom(self._opened)
        self._wire_type = str(self._opened.manifest["wire_type"])
        self._taken = False
        self.steps: Mapping[str, Step] = {
            "open_model": self._opened.open_model,
            **self._opened.steps,
            "embed_block": self.embed_block,
        }

    @property
    def receives(self) -> Receives:
        """See `Role.receives`."""
        return {**self._opened.receives, **block_records(self._opening.recipient, self._opened.records)}

    async def embed_block(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Send the embeddings of a block of records.

        1. Take the records from the label holder,
        2. compute their embeddings piece after piece, and send them.
        """
        self._opened.order.check(request)
        number, context, opened = request.round, self._context, self._opened
        rows = await take_block(context, self._opening.recipient, number, len(opened.aligned.ids))
        if not self._taken:
            await context.offload(lambda: self._network.take(opened.aligned))
            self._taken = True
        await self._send(rows, number)
        context.mailbox.forget(number)
        opened.order.done(request)
        return empty_result()

    async def close(self) -> None:
        """Do nothing: this role has no workers' state."""

    async def _send(self, rows: Rows, number: int) -> None:
        """Send embeddings in messages of about the usual size, or sooner, so that the label holder hears of them."""
        context, now = self._context, asyncio.get_running_loop().time
        series = context.outbox.open(self._opening.recipient, EMBEDDINGS, round=number)
        waiting, since = bytearray(), now()
        for piece in pieces(rows):
            waiting += await context.offload(lambda piece=piece: self._embedded(piece))  # type: ignore[misc]
            context.progress.done += len(piece)
            if len(waiting) >= MESSAGE_BYTES or now() - since > LONGEST_S or context.progress.done == len(rows):
                for body in bodies(EMBEDDINGS, bytes(waiting), self._network.width, self._wire_type):
                    await series.put(body)
                waiting, since = bytearray(), now()
        await series.close()

    def _embedded(self, rows: Rows) -> bytes:
        """The embeddings of some records, as they are sent."""
        return to_bytes(self._network.embed(rows, self._wire_type), self._wire_type)

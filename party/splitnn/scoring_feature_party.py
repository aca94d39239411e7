"""A feature party in a prediction of a split network: embeddings of the records that the label holder names."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping

import torch

from party.alignment.steps import ALIGNMENT
from party.config import PartyConfig
from party.prediction.chain import take_block
from party.prediction.expected import block_records
from party.prediction.opened_model import OpenedModel
from party.runtime.context import StepContext, empty_result
from party.runtime.expected import Receives
from party.runtime.job_store import Store
from party.runtime.messages import Rows
from party.runtime.step_order import NEXT_ROUND, OPENING, Next, StepTable
from party.runtime.steps import Step
from party.splitnn.bodies import EMBEDDINGS
from party.splitnn.numbers import send_blocks
from party.splitnn.published import trained_bottom
from treetap.neural.trained import pieces
from treetap.wire.v2 import control_pb2, prediction_pb2

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
        blocks = self._embeddings(rows)
        await send_blocks(context, self._opening.recipient, EMBEDDINGS, blocks, self._wire_type, number)
        context.mailbox.forget(number)
        opened.order.done(request)
        return empty_result()

    async def close(self) -> None:
        """Do nothing: this role has no workers' state."""

    async def _embeddings(self, rows: Rows) -> AsyncGenerator[torch.Tensor, None]:
        """The embeddings (n, width) of records, piece after piece."""
        for piece in pieces(rows):
            yield await self._context.offload(
                lambda piece=piece: self._network.embed(piece, self._wire_type)  # type: ignore[misc]
            )
            self._context.progress.done += len(piece)

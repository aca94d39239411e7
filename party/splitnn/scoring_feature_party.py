"""A feature party in a prediction of a split network: embeddings of the records that the label holder names."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import torch

from treetap.arrays import Bools
from treetap.neural.sides import pieces
from treetap.party.prediction.opened_model import OpenedModel, PredictionJob
from treetap.party.prediction.steps import TakenBlocks
from treetap.party.runtime.context import Rows
from treetap.party.runtime.step_order import ALIGNMENT, NEXT_ROUND, OPENING, Next, role, step, steps_of
from treetap.party.splitnn.bodies import EMBEDDINGS
from treetap.party.splitnn.numbers import send_blocks
from treetap.party.splitnn.published import trained_bottom
from treetap.protocols.messages import ScoringSizes
from treetap.wire.v2 import control_pb2


@role({OPENING: (Next("open_model"),), ALIGNMENT: (Next("embed_block"),)}, OpenedModel)
class FeatureParty:
    """A feature party: sends the embedding of each record of a block."""

    def __init__(self, job: PredictionJob) -> None:
        """Raises BadInput: see `OpenedModel`; or the weights do not fit the manifest."""
        self._context, self._opening = job.context, job.opening
        self.sizes = ScoringSizes(members=job.members, block=job.opening.block)
        self._opened = OpenedModel(job, self.sizes)
        self._network = trained_bottom(self._opened)
        self._wire_type = str(self._opened.manifest["wire_type"])
        self._taken, self._blocks = False, TakenBlocks(job.context, job.opening)
        self.steps = steps_of(self, self._opened, phases={ALIGNMENT: self._opened.alignment})

    @step(Next("embed_block", NEXT_ROUND))
    async def embed_block(self, request: control_pb2.StepRequest) -> None:
        """Send the embeddings of a block of records.

        1. Take the records from the label holder,
        2. compute their embeddings piece after piece, and send them.
        """
        number, context, opened = request.round, self._context, self._opened
        block = await self._blocks.take(number, opened.aligned.ids)
        if not self._taken:
            await context.offload(lambda: self._network.take(opened.aligned))
            self._taken = True
        blocks = self._embeddings(block.rows, block.spent)
        await send_blocks(context, self._opening.recipient, EMBEDDINGS, blocks, self._wire_type, number)
        context.mailbox.forget(number)

    async def _embeddings(self, rows: Rows, spent: Bools) -> AsyncGenerator[torch.Tensor, None]:
        """The embeddings (n, width) of records, piece after piece; zeros where no query is left of a record."""
        done = 0
        for piece in pieces(rows):
            made = await self._context.offload(
                lambda piece=piece: self._network.embed(piece, self._wire_type)  # type: ignore[misc]
            )
            if (none := spent[done : done + len(piece)]).any():
                made[torch.from_numpy(none)] = 0
            yield made
            done += len(piece)
            self._context.progress.done += len(piece)

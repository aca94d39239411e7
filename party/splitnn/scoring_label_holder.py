"""The label holder in a prediction of a split network: joins the embeddings of all parties and computes the scores.

A party that is away counts with zeros, as one that sat out a batch of the training did (Party-wise Dropout).
"""

from __future__ import annotations

import numpy as np
import torch

from treetap.party.prediction.batch import BatchPrediction
from treetap.party.prediction.opened_model import OpenedModel, PredictionJob
from treetap.party.prediction.records import record_source
from treetap.party.prediction.steps import (
    after_block,
    conditions_of,
    first_block,
    requested_block,
    scored_block,
    send_block,
    take_spent,
)
from treetap.party.runtime.context import Rows
from treetap.party.runtime.step_order import ALIGNMENT, OPENING, Next, Outcome, role, step, steps_of
from treetap.party.splitnn.bodies import EMBEDDINGS
from treetap.party.splitnn.numbers import take
from treetap.party.splitnn.published import trained_top
from treetap.process.together import together
from treetap.protocols.splitnn_prediction import NetworkSizes
from treetap.wire.v2 import control_pb2

#: Most bytes of the embeddings of a block, of all parties together, as the label holder holds them.
BLOCK_BYTES = 64 * 1024 * 1024


@role(
    {
        OPENING: (Next("open_model"),),
        ALIGNMENT: first_block("embed_block"),
        "await_requests": requested_block("embed_block"),
    },
    OpenedModel,
    BatchPrediction,
)
class LabelHolder:
    """The label holder: names the records of a block, and scores them."""

    def __init__(self, job: PredictionJob) -> None:
        """Raises BadInput: see `OpenedModel`; or the weights do not fit the manifest."""
        self._context, self._opening, self._present = job.context, job.opening, job.chain
        self.sizes = NetworkSizes(members=job.members, rounds=1 << 62, widths={}, wire_type="", rows=0)
        self._opened = OpenedModel(job, self.sizes)
        self._network = trained_top(self._opened)
        self._records = record_source(job, self._opened)
        together_bytes = 4 * sum(self._network.widths.values())
        self._records.size = max(1, min(self._records.size, BLOCK_BYTES // together_bytes))
        self._wire_type = self.sizes.wire_type = str(self._opened.manifest["wire_type"])
        self.sizes.widths, self.sizes.rows = self._network.widths, self._records.size
        self._taken = False
        phases, conditions = {ALIGNMENT: self._opened.alignment}, conditions_of(job.opening)
        self.steps = steps_of(self, self._opened, self._records, phases=phases, conditions=conditions)

    @step(*after_block("embed_block"))
    async def embed_block(self, request: control_pb2.StepRequest) -> Outcome:
        """Score a block of records.

        1. Send them to every feature party that is present,
        2. compute the own embeddings, and take those of the others,
        3. join all in the order of the training, zeros for who is away, and compute the scores,
        4. keep the scores, with the share of feature parties that are away.
        """
        number, context, opened = request.round, self._context, self._opened
        rows, blocks = self._records.block(number)
        await send_block(context, opened.common, number, rows)
        wire, widths = self._wire_type, self._network.widths
        own, *taken = await together(
            self._own(rows),
            *(
                take(context, party, EMBEDDINGS, (len(rows), widths[party]), wire, number, place=f"block {number}")
                for party in self._present
            ),
        )
        spent = await take_spent(context, opened.common, number, rows, serve=self._opening.serve)
        self._records.leave_out(spent)
        embeddings = dict(zip(self._present, taken, strict=True))
        scores = await context.offload(lambda: self._network.scores(own, embeddings))
        away = len(self._opening.away) / len(self._opening.feature_parties)
        self._records.keep(rows, scores, np.full(len(rows), away), {})
        context.mailbox.forget(number)
        return Outcome(self._records.after_block(number), answer=scored_block(context, blocks))

    async def _own(self, rows: Rows) -> torch.Tensor:
        if not self._taken:
            await self._context.offload(lambda: self._network.take(self._opened.aligned))
            self._taken = True
        return await self._context.offload(lambda: self._network.embed(rows))

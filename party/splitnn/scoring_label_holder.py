"""The label holder in a prediction of a split network: joins the embeddings of all parties and computes the scores.

A party that is away counts with zeros, as one that sat out a batch of the training did (Party-wise Dropout).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from party.alignment.steps import ALIGNMENT
from party.config import PartyConfig
from party.prediction.chain import scored_block, send_block
from party.prediction.opened_model import OpenedModel
from party.prediction.records import record_source
from party.prediction.step_rows import after_block, first_block, record_rows
from party.runtime.context import StepContext
from party.runtime.expected import Receives, expected_of
from party.runtime.job_store import Store
from party.runtime.messages import Rows
from party.runtime.step_order import OPENING, Next, StepTable
from party.runtime.steps import Step
from party.serving.registry import ServedModels
from party.splitnn.bodies import EMBEDDINGS
from party.splitnn.numbers import take
from party.splitnn.published import trained_top
from treetap.process.together import together
from treetap.protocols.prediction import present
from treetap.protocols.splitnn_prediction import PROTOCOL, NetworkSizes
from treetap.wire.v2 import control_pb2, prediction_pb2

#: Most bytes of the embeddings of a block, of all parties together, as the label holder holds them.
BLOCK_BYTES = 64 * 1024 * 1024

STEPS: StepTable = {
    OPENING: (Next("open_model"),),
    "open_model": (Next(ALIGNMENT),),
    ALIGNMENT: first_block("embed_block"),
    "embed_block": after_block("embed_block"),
    **record_rows("embed_block"),
}


class LabelHolder:
    """The label holder: names the records of a block, and scores them."""

    def __init__(
        self,
        config: PartyConfig,
        store: Store,
        context: StepContext,
        opening: prediction_pb2.OpenModel,
        served_models: ServedModels,
    ) -> None:
        """`served_models`: the registry that clients ask. Raises BadInput: see `OpenedModel`; or weights do not fit."""
        self._context, self._opening = context, opening
        self._opened = OpenedModel(config, store, context, opening, STEPS)
        self._network = trained_top(self._opened)
        self._wire_type = str(self._opened.manifest["wire_type"])
        self._present = present(opening)
        self._records = record_source(config, store, context, opening, self._opened, served_models, [])
        together_bytes = 4 * sum(self._network.widths.values())
        self._records.size = max(1, min(self._records.size, BLOCK_BYTES // together_bytes))
        self._taken = False
        self.steps: Mapping[str, Step] = {
            "open_model": self.open_model,
            **self._opened.steps,
            "embed_block": self.embed_block,
            **self._records.steps,
        }

    @property
    def receives(self) -> Receives:
        """See `Role.receives`: a row of each party for each record of a block."""
        sizes = NetworkSizes(
            members=self._opened.sizes.members,
            rounds=1 << 62,
            widths=self._network.widths,
            wire_type=self._wire_type,
            rows=self._records.size,
        )
        return {**self._opened.receives, **expected_of(PROTOCOL.sends, self._context.party, sizes)}

    async def open_model(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Load the table and begin to align it."""
        self._opened.order.check(request)
        table = await self._opened.load()
        await self._records.open(table)
        await self._opened.align(table, request)
        return self._opened.opened(table)

    async def embed_block(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Score a block of records.

        1. Send them to every feature party that is present,
        2. compute the own embeddings, and take those of the others,
        3. join all in the order of the training, zeros for who is away, and compute the scores,
        4. keep the scores, with the share of feature parties that are away.
        """
        self._opened.order.check(request)
        number, context, opened = request.round, self._context, self._opened
        rows, blocks = self._records.block(number)
        await send_block(context, self._present, number, rows, len(opened.aligned.ids))
        own, *taken = await together(
            self._own(rows), *(self._take(party, number, len(rows)) for party in self._present)
        )
        embeddings = dict(zip(self._present, taken, strict=True))
        scores = await context.offload(lambda: self._network.scores(own, embeddings))
        away = len(self._opening.away) / len(self._opening.feature_parties)
        self._records.keep(rows, scores, np.full(len(rows), away), {})
        context.mailbox.forget(number)
        opened.order.done(request, self._records.after_block(number))
        return scored_block(context, blocks)

    async def close(self) -> None:
        """Do nothing: this role has no workers' state."""

    async def _own(self, rows: Rows) -> torch.Tensor:
        """The own embeddings (n, width)."""
        if not self._taken:
            await self._context.offload(lambda: self._network.take(self._opened.aligned))
            self._taken = True
        return await self._context.offload(lambda: self._network.embed(rows))

    async def _take(self, party: str, number: int, rows: int) -> torch.Tensor:
        """The embeddings (n, width) of a feature party for a block."""
        shape = rows, self._network.widths[party]
        return await take(self._context, party, EMBEDDINGS, shape, self._wire_type, number, place=f"block {number}")

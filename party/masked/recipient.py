"""The recipient of a masked prediction: names the records, adds up all parties' masked shares, and gets the scores.

It has nodes and leaves of its own like every other party, and learns no other party's share.
"""

from __future__ import annotations

import numpy as np

from treetap.errors import Malformed
from treetap.party.masked.passing import FRACTION, LAST_LEVEL, MORE_LEVELS, Passing, masked_sizes
from treetap.party.prediction.batch import BatchPrediction
from treetap.party.prediction.opened_model import OpenedModel, PredictionJob
from treetap.party.prediction.records import record_source
from treetap.party.prediction.steps import after_batch_block, scored_block, send_block
from treetap.party.runtime.context import Rows
from treetap.party.runtime.step_order import (
    ALIGNMENT,
    NEXT_STAGE,
    OPENING,
    THIS_ROUND,
    Next,
    Outcome,
    role,
    step,
    steps_of,
)
from treetap.privacy.masks import decode
from treetap.tables.reading import Floats
from treetap.trees.job_params import REGRESSIONS
from treetap.wire.v2 import control_pb2


@role({OPENING: (Next("open_model"),), ALIGNMENT: (Next("exchange_mask_keys"),)}, OpenedModel, Passing, BatchPrediction)
class Recipient:
    """The party that gets the scores."""

    def __init__(self, job: PredictionJob) -> None:
        """Raises BadInput: see `OpenedModel` and `Passing`."""
        self._context, self._members = job.context, list(job.opening.feature_parties)
        self.sizes = masked_sizes(job)
        self._opened = OpenedModel(job, self.sizes)
        self._passing = Passing(job, self._opened, self.sizes)
        self._margin = np.array(self._opened.manifest["base_margin"])
        # unit and zero of scores: a regression's label_scale and base_score
        scaled = self._opened.objective in REGRESSIONS
        manifest = self._opened.manifest
        self._unit = (float(manifest["label_scale"]), float(manifest["base_score"])) if scaled else (1.0, 0.0)
        self._opened.shape = {"trees": self._passing.routes.trees, "levels": self._passing.routes.levels}
        self._records = record_source(job, self._opened)
        self._rows: Rows = np.zeros(0, dtype=np.int64)
        self.steps = steps_of(
            self, self._opened, self._passing, self._records, phases={ALIGNMENT: self._opened.alignment}
        )

    @step(Next("pass_records", NEXT_STAGE, MORE_LEVELS), Next("add_shares", THIS_ROUND, LAST_LEVEL))
    async def pass_records(self, request: control_pb2.StepRequest) -> Outcome:
        """Pass the records at the own nodes of a level on; on the first level send the records of the block before."""
        block, level = request.round, request.stage
        if level == 0:
            self._rows, _ = self._records.block(block)
            await send_block(self._context, self._opened.common, block, self._rows)
            self._passing.begin(self._rows)
        return Outcome(await self._passing.pass_on(block, level))

    @step(*after_batch_block("pass_records"))
    async def add_shares(self, request: control_pb2.StepRequest) -> Outcome:
        """Add up the shares of all parties, in which the masks cancel; keep the scores."""
        block = request.round
        rows, blocks = self._records.block(block)
        sums = await self._context.offload(lambda: self._passing.share(block))
        for party in self._members:
            # A party's share of the scores of a block, (n, outputs).
            parts = []
            async for message in self._context.mailbox.series(party, "score_shares", block, 0):
                parts.append(message.protocol.masked.score_shares.values)
            content, wanted = b"".join(parts), len(self._rows) * self._passing.outputs
            if len(content) != 8 * wanted:
                raise Malformed(f"{party} sent {len(content)} bytes of shares, {wanted} outputs have {8 * wanted}")
            sums = sums + np.frombuffer(content, dtype="<u8").reshape(-1, self._passing.outputs)
        self._passing.end(block)
        scale, base = self._unit
        scores: Floats = (self._margin + decode(sums, FRACTION)) * scale + base
        self._records.keep(rows, scores, np.zeros(len(rows)), {})
        return Outcome(self._records.after_block(block), answer=scored_block(self._context, blocks))

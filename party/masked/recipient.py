"""The recipient of a masked prediction: names the records, adds up all parties' masked shares, and gets the scores.

It has nodes and leaves of its own like every other party, and learns no other party's share.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from party.alignment.steps import ALIGNMENT
from party.config import PartyConfig
from party.masked.member import LAST_LEVEL, MORE_LEVELS
from party.masked.passing import FRACTION, Passing
from party.prediction.chain import scored_block, send_block
from party.prediction.opened_model import OpenedModel
from party.prediction.records import record_source
from party.prediction.step_rows import OPENING_ROWS, after_batch_block
from party.runtime.context import StepContext, empty_result
from party.runtime.expected import BLOCKS, Expected, Receives
from party.runtime.job_store import Store
from party.runtime.messages import Rows
from party.runtime.step_order import NEXT_STAGE, THIS_ROUND, Next, StepTable
from party.runtime.steps import Step
from party.serving.registry import ServedModels
from treetap.errors import DataError, Malformed
from treetap.privacy.ring import Ring, decode
from treetap.tables.reading import Floats
from treetap.trees.job_params import REGRESSIONS
from treetap.wire.v2 import control_pb2, prediction_pb2

STEPS: StepTable = {
    **OPENING_ROWS,
    ALIGNMENT: (Next("exchange_mask_keys"),),  # no names: there are no explanations
    "exchange_mask_keys": (Next("pass_records"),),
    "pass_records": (Next("pass_records", NEXT_STAGE, MORE_LEVELS), Next("add_shares", THIS_ROUND, LAST_LEVEL)),
    "add_shares": after_batch_block("pass_records"),
    "write_predictions": (),
}


class Recipient:
    """The party that gets the scores."""

    def __init__(
        self,
        config: PartyConfig,
        store: Store,
        context: StepContext,
        opening: prediction_pb2.OpenModel,
        served_models: ServedModels,
    ) -> None:
        """`served_models`: as every role that gets scores takes it.

        Raises:
            DataError: this party does not know the unit of a regression's label.
            BadInput: see `OpenedModel` and `Passing`.
        """
        self._context, self._opening = context, opening
        self._opened = OpenedModel(config, store, context, opening, STEPS)
        self._passing = Passing(context, opening, self._opened)
        self._members = list(opening.feature_parties)
        self._margin = np.array(self._opened.manifest["base_margin"])
        self._unit = _unit_of(self._opened, context.party)
        self._records = record_source(config, store, context, opening, self._opened, served_models, [])
        self._rows: Rows = np.zeros(0, dtype=np.int64)
        self.steps: Mapping[str, Step] = {
            "open_model": self.open_model,
            **self._opened.steps,
            "exchange_mask_keys": self.exchange_mask_keys,
            "pass_records": self.pass_records,
            "add_shares": self.add_shares,
            **self._records.steps,
        }

    @property
    def receives(self) -> Receives:
        """See `Role.receives`: 8 bytes for each output of each record."""
        shares = Expected(self._members, lambda: 8 * self._records.size * self._passing.outputs, BLOCKS)
        return {**self._opened.receives, **self._passing.receives(), "score_shares": shares}

    async def open_model(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Load the table and begin to align it; report the number of trees and their levels."""
        self._opened.order.check(request)
        table = await self._opened.load()
        await self._records.open(table)
        await self._opened.align(table, request)
        routes = self._passing.routes
        return self._opened.opened(table, trees=routes.trees, levels=routes.levels)

    async def exchange_mask_keys(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Check the common records against the own policy; exchange keys with every other party."""
        self._opened.order.check(request)
        await self._passing.exchange_keys()
        self._opened.order.done(request)
        return empty_result()

    async def pass_records(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Pass the records at the own nodes of a level on; on the first level send the records of the block before."""
        self._opened.order.check(request)
        block, level = request.round, request.stage
        if level == 0:
            self._rows, _ = self._records.block(block)
            await send_block(self._context, self._members, block, self._rows, len(self._opened.aligned.ids))
            self._passing.begin(self._rows)
        await self._passing.pass_on(block, level)
        self._opened.order.done(request, MORE_LEVELS if level + 1 < self._passing.routes.levels else LAST_LEVEL)
        return empty_result()

    async def add_shares(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Add up the shares of all parties, in which the masks cancel; keep the scores."""
        self._opened.order.check(request)
        block = request.round
        rows, blocks = self._records.block(block)
        sums = await self._context.offload(lambda: self._passing.share(block))
        for party in self._members:
            sums = sums + await self._share_of(party, block)
        self._passing.end(block)
        self._records.keep(rows, self._scores(sums), np.zeros(len(rows)), {})
        self._opened.order.done(request, self._records.after_block(block))
        return scored_block(self._context, blocks)

    async def close(self) -> None:
        """Do nothing: this role has no workers' state."""

    async def _share_of(self, party: str, block: int) -> Ring:
        """A party's share of the scores of a block, (n, outputs)."""
        parts = []
        async for message in self._context.mailbox.series(party, "score_shares", block, 0):
            parts.append(message.protocol.masked.score_shares.values)
        content, wanted = b"".join(parts), len(self._rows) * self._passing.outputs
        if len(content) != 8 * wanted:
            raise Malformed(f"{party} sent {len(content)} bytes of shares, {wanted} outputs have {8 * wanted}")
        return np.frombuffer(content, dtype="<u8").reshape(-1, self._passing.outputs)

    def _scores(self, sums: Ring) -> Floats:
        """Scores (n, outputs) of sums in the ring; those of a regression in the unit of its label."""
        scale, base = self._unit
        scores: Floats = (self._margin + decode(sums, FRACTION)) * scale + base
        return scores


def _unit_of(opened: OpenedModel, party: str) -> tuple[float, float]:
    """Unit and zero of scores: a regression's label_scale and base_score, else 1 and 0."""
    if opened.objective not in REGRESSIONS:
        return 1.0, 0.0
    scale, base = opened.manifest["label_scale"], opened.manifest["base_score"]
    if scale is None or base is None:
        raise DataError(
            f"recipient = {party!r}: the unit of the labels of model {opened.name} is known to the party that has them "
            "alone; make that one the recipient"
        ).at(party)
    return float(scale), float(base)

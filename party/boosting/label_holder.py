"""Boosting at the label holder: gradients out, candidate sums in, splits picked, leaves weighed.

after                may come
prepare              the steps of the alignment, bin if aligned already
alignment            bin
bin                  make_keys, publish
make_keys            begin_tree(t) for the next tree t, publish
begin_tree(t)        choose_splits(t, 0)
choose_splits(t, l)  apply_splits(t, l) if it won any, relay_children(t, l), finish_tree(t) if nothing split
apply_splits(t, l)   relay_children(t, l)
relay_children(t, l) choose_splits(t, l+1), finish_tree(t)
finish_tree(t)       store_tree(t)
store_tree(t)        begin_tree(t+1), publish
"""

from __future__ import annotations

import asyncio

import numpy as np

from party.boosting.gradients import Scorebook
from party.config import PartyConfig
from party.growth.label_holder import GrowingLabelHolder
from party.runtime.context import Tools, done, have
from party.runtime.messages import Rows, sampled_parcels
from party.runtime.steps import StepId
from treetap.paillier.slots import Slots, width_for
from treetap.protocols.job_spec import params_as, taking_part
from treetap.tables.labels import Labels
from treetap.trees.boosting_criterion import BoostingRule
from treetap.trees.growing_tree import Ints
from treetap.trees.loss import Loss, loss_for
from treetap.trees.params import BoostingParams
from treetap.wire.v2 import boosting_pb2, control_pb2, setup_pb2


class LabelHolder(GrowingLabelHolder):
    """Fresh gradients of the sampled records for every tree."""

    def __init__(self, config: PartyConfig, tools: Tools, spec: setup_pb2.JobSpec) -> None:
        self._boosting = params_as(spec, BoostingParams)
        self._scores: Scorebook | None = None
        super().__init__(config, tools, spec, self._boosting)

    async def begin_tree(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Step 1 of a tree: g, h of the sampled records, packed, encrypted, streamed to whoever takes part."""
        t = request.round
        self._order.check(("begin_tree", t, request.stage))
        columns = self._columns(t).columns_of_tree(t, self._params, permuted=False)
        values, scale, sampled = have(self._scores).derivatives(t)
        rows = np.flatnonzero(sampled)
        if parties := taking_part(self._spec, t):
            await self._stream(t, parties, values, rows)
        self._grow(t, values, BoostingRule(scale, self._boosting), columns, subtract=True)
        return done()

    async def _stream(self, t: int, parties: list[str], values: Ints, rows: Rows) -> None:
        """The records of a tree and their ciphertexts, encrypted once for all who take part."""
        owner, outbox = have(self._owner), self._tools.outbox
        for party in parties:
            await outbox.send(party, "sampled_records", sampled_parcels(rows, len(values)), round=t)
        streams = [outbox.open(party, "gradients", t) for party in parties]
        meter = self._tools.meter
        meter.done, meter.total = 0, len(rows)
        width = have(self._secret).public.ciphertext_bytes
        slots = [np.ascontiguousarray(values[rows, slot]) for slot in range(values.shape[1])]
        async for first, ciphertexts in owner.encrypt_blocks(slots):
            count = len(ciphertexts) // width
            block = boosting_pb2.Gradients(first=first, count=count, ciphertexts=ciphertexts)
            await asyncio.gather(*(stream.put(block) for stream in streams))
            meter.done = first + count
            self._tools.ledger.operations["encryptions"] += count
            self._tools.ledger.ciphertexts["gradients"] += count * len(streams)
        await asyncio.gather(*(stream.close() for stream in streams))

    def _check_labels(self, labels: Labels) -> None:
        self._loss(labels).check(labels.values)

    def _open_book(self, labels: Labels) -> Scorebook:
        self._scores = Scorebook(self._boosting, self._loss(labels), labels, self._tools.store)
        return self._scores

    def _after_keys(self) -> StepId:
        return "begin_tree", have(self._book).trees, 0

    def _slots(self, labels: Labels) -> Slots:
        """g_0.., h_0.., 1."""
        records, outputs = len(labels.values), self._boosting.outputs_per_tree(len(labels.classes))
        g_max, h_max = self._loss(labels).bounds()
        widths = [width_for(records, g_max)] * outputs + [width_for(records, h_max)] * outputs + [width_for(records, 1)]
        return Slots(tuple(widths))

    def _too_wide(self, labels: Labels, bits: int) -> str:
        return (
            f"{len(labels.classes)} classes of {len(labels.values)} records need {bits} bits in one plaintext, a key "
            f"of {self._spec.key_bits} bits has fewer: use multi_strategy = 'one_output_per_tree' or a longer key"
        )

    def _loss(self, labels: Labels) -> Loss:
        return loss_for(self._boosting.objective, len(labels.classes))

"""A random forest at the label holder: labels out once, candidate sums in, splits picked, leaves filled.

after                may come
prepare              the steps of the alignment, bin if aligned already
alignment            bin
bin                  make_keys, publish
make_keys            share_labels, publish
share_labels         begin_tree(t) for the next tree t
begin_tree(t)        choose_splits(t, 0)
choose_splits(t, l)  apply_splits(t, l) if it won any, relay_children(t, l), finish_tree(t) if nothing split
apply_splits(t, l)   relay_children(t, l)
relay_children(t, l) choose_splits(t, l+1), finish_tree(t)
finish_tree(t)       store_tree(t)
store_tree(t)        begin_tree(t+1), publish
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import numpy as np

from party.config import PartyConfig
from party.forest.out_of_bag import Tally
from party.growth.label_holder import GrowingLabelHolder
from party.runtime.context import Step, Tools, done, have
from party.runtime.messages import drawn_parcels
from party.runtime.steps import StepId
from treetap.paillier.slots import Slots, width_for
from treetap.protocols.job_spec import params_as, taking_part
from treetap.tables.labels import Labels
from treetap.trees import sampling
from treetap.trees.forest_criterion import ForestRule, Targets, check_labels, targets
from treetap.trees.growing_tree import Ints
from treetap.trees.params import ForestParams
from treetap.wire.v2 import control_pb2, forest_pb2, setup_pb2


class LabelHolder(GrowingLabelHolder):
    """The label of every record encrypted once per attempt; per tree only the draw travels."""

    def __init__(self, config: PartyConfig, tools: Tools, spec: setup_pb2.JobSpec) -> None:
        self._forest = params_as(spec, ForestParams)
        self._found: Targets | None = None
        super().__init__(config, tools, spec, self._forest)
        self.steps: Mapping[str, Step] = {**self.steps, "share_labels": self.share_labels}

    async def share_labels(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Once per attempt: the one-hot label, or the target in fixed point, of every record to every feature party."""
        self._order.check(("share_labels", request.round, request.stage))
        owner, plain = have(self._owner), self._plain()
        streams = [self._tools.outbox.open(party, "encrypted_labels", 0) for party in self._feature_parties]
        meter = self._tools.meter
        meter.done, meter.total = 0, len(plain)
        width = have(self._secret).public.ciphertext_bytes
        slots = [np.ascontiguousarray(plain[:, slot]) for slot in range(plain.shape[1])]
        async for first, ciphertexts in owner.encrypt_blocks(slots):
            count = len(ciphertexts) // width
            block = forest_pb2.EncryptedLabels(first=first, count=count, ciphertexts=ciphertexts)
            await asyncio.gather(*(stream.put(block) for stream in streams))
            meter.done = first + count
            self._tools.ledger.operations["encryptions"] += count
            self._tools.ledger.ciphertexts["encrypted_labels"] += count * len(streams)
        await asyncio.gather(*(stream.close() for stream in streams))
        self._order.then(("begin_tree", have(self._book).trees, 0))
        return done()

    async def begin_tree(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Step 1 of a tree: draw its records, tell every feature party that takes part which."""
        t = request.round
        self._order.check(("begin_tree", t, request.stage))
        found = have(self._found)
        params, total = self._forest, len(found.values)
        drawn = sampling.drawn(params.seed, t, total, params.subsample, bootstrap=params.bootstrap)
        vault = self._columns(t)
        if params.binning == "per-node":
            features = self._alignment.aligned.features
            columns = vault.fresh_columns_of_tree(t, params, features, drawn, permuted=False)
        else:
            columns = vault.columns_of_tree(t, params, permuted=False)
        for party in taking_part(self._spec, t):
            await self._tools.outbox.send(party, "sampled_records", drawn_parcels(drawn, total), round=t)
        one = np.ones((total, 1), dtype=np.int64)
        values = np.concatenate([found.values, one], axis=1) * drawn[:, None]
        self._grow(t, values, ForestRule(found, params), columns, subtract=params.binning == "global")
        return done()

    def _check_labels(self, labels: Labels) -> None:
        check_labels(labels.values, self._forest.criterion, len(labels.classes))

    def _open_book(self, labels: Labels) -> Tally:
        self._found = targets(labels.values, self._forest.criterion, len(labels.classes))
        return Tally(self._forest, labels, self._tools.store)

    def _after_keys(self) -> StepId:
        return "share_labels", 0, 0

    def _slots(self, labels: Labels) -> Slots:
        """One slot per class, which count; or the target and 1. A tree draws no more records than there are."""
        records = len(labels.values)
        found = targets(labels.values, self._forest.criterion, len(labels.classes))
        widths = [width_for(records, found.largest)] * found.values.shape[1]
        return Slots(tuple(widths if self._counts else [*widths, width_for(records, 1)]))

    def _too_wide(self, labels: Labels, bits: int) -> str:
        return (
            f"{len(labels.classes)} classes of {len(labels.values)} records need {bits} bits in one plaintext, a key "
            f"of {self._spec.key_bits} bits has fewer: use a longer key"
        )

    def _complete(self, sums: Ints) -> Ints:
        """Counts of the classes add up to the number of records, which is therefore not sent."""
        return np.concatenate([sums, sums.sum(axis=-1, keepdims=True)], axis=-1) if self._counts else sums

    @property
    def _counts(self) -> bool:
        return self._forest.criterion == "gini"

    def _plain(self) -> Ints:
        """The slots of every record (N, S)."""
        values = have(self._found).values
        one = np.ones((len(values), 1), dtype=np.int64)
        return values if self._counts else np.concatenate([values, one], axis=1)

"""A random forest at a feature party: one set of encrypted labels serves all trees."""

from __future__ import annotations

from functools import partial

import numpy as np

from treetap.errors import Malformed
from treetap.party.config import PartyConfig
from treetap.party.defences.checks import refuse_classes
from treetap.party.forest.ciphers import ForestLayout, SumsOfShared
from treetap.party.growth.ciphers import summed_values
from treetap.party.growth.feature_party import SITS_OUT, TAKES_PART, FeaturePartyGrowth, OwnTree
from treetap.party.growth.feature_party_job import FeaturePartyJob, TreeFeatureParty
from treetap.party.growth.messages import take_drawn
from treetap.party.runtime.context import Rows, StepContext
from treetap.party.runtime.step_order import ALIGNMENT, OPENING, RESUMED, Next, role, step
from treetap.party.setup.labelled_table import check_drawn
from treetap.protocols.exclusions import Feature
from treetap.protocols.growth import sums_shared
from treetap.protocols.job_spec import params_as
from treetap.protocols.key_options import KeyKind
from treetap.trees.params import ForestParams
from treetap.wire.v2 import setup_pb2


@role(
    {OPENING: (Next("prepare"),), ALIGNMENT: (Next("bin"),), "take_key": (Next("take_labels"), Next("publish"))},
    FeaturePartyJob,
    FeaturePartyGrowth,
)
class FeatureParty(TreeFeatureParty):
    """Sums over the records that a tree draws, with their multiplicities: the same ciphertexts for every tree."""

    def __init__(self, config: PartyConfig, context: StepContext, spec: setup_pb2.JobSpec) -> None:
        params = self._params = params_as(spec, ForestParams)
        layout = ForestLayout(params, KeyKind.of(spec).on_lattice, sums_shared(spec))
        super().__init__(config, context, spec, params, params.n_estimators, layout)
        self._drawn: Rows  # how often the current tree draws each record
        self._sums_of_all = False  # whether it asks for sums over all records
        of_shared = partial(SumsOfShared, draw=lambda: (self._drawn, self._sums_of_all))
        once = not params.bootstrap
        self._sums = summed_values(of_shared, context, spec, self._job, self._noise, once=once)

    @step(Next("build_histograms", RESUMED, TAKES_PART), Next("store_tree", RESUMED, SITS_OUT))
    async def take_labels(self) -> None:
        """Receive what serves all trees: a ciphertext of the label of each of the training's records, or its words."""
        await self._sums.take_shared()

    def _check_noised(self, t: int) -> None:
        """Refuse a tree beyond those of the job, or with sums of classes: noise has no bound for it."""
        if self._sums_of_all:
            self._noise.refuse_classes()
        if t >= self._params.n_estimators:
            raise Malformed(
                f"{self._spec.aggregator} sent a draw of tree {t}, and the job has {self._params.n_estimators}, by "
                "which column_privacy counts"
            )

    async def _begin_tree(self, t: int) -> OwnTree:
        table, split_table = self._job.table, self._job.split_table
        total = len(table.ids)
        expected = await self._job.expected(t)
        drawn, self._sums_of_all = np.ones(total, dtype=np.int64), False  # plaintexts have the draw's multiplicities
        if not self._params.withheld:
            series = self._context.mailbox.series(self._spec.aggregator, "sampled_records", t, 0)
            drawn, self._sums_of_all = await take_drawn(series, total)
            if self._sums_of_all and self._job.split_table.min_cell_records:
                refuse_classes(self._spec.aggregator, Feature.MIN_CELL_RECORDS)
            if self._noise.privacy is not None:
                self._check_noised(t)
            check_drawn(self._spec.aggregator, t, draws_evaluated=bool(drawn[split_table.training :].any()))
            expected.check_draw(drawn)
        self._drawn = drawn
        split_table.next_handle_is(self._job.stored.first_handle(t))
        if self._params.binning == "per-node":
            columns = split_table.fresh_columns_of_tree(t, self._params, table.features, drawn, permuted=True)
        else:
            columns = split_table.columns_of_tree(t, self._params, permuted=not sums_shared(self._spec))
        await self._sums.begin(t, columns, np.flatnonzero(drawn))
        summed = np.arange(total) < split_table.training if self._sums_of_all else drawn > 0
        return self._growth.plant(t, columns, summed, expected)

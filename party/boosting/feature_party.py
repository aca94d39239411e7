"""Boosting at a feature party: fresh ciphertexts of gradients for every tree."""

from __future__ import annotations

import numpy as np

from treetap.party.boosting.ciphers import BoostingLayout, SumsOfCiphertexts
from treetap.party.config import PartyConfig
from treetap.party.growth.ciphers import summed_values
from treetap.party.growth.feature_party import SITS_OUT, TAKES_PART, FeaturePartyGrowth, OwnTree
from treetap.party.growth.feature_party_job import FeaturePartyJob, TreeFeatureParty
from treetap.party.growth.messages import take_sampled
from treetap.party.runtime.context import StepContext
from treetap.party.runtime.step_order import ALIGNMENT, OPENING, RESUMED, Next, role
from treetap.party.setup.labelled_table import check_drawn
from treetap.protocols.growth import MOST_CLASSES, sums_shared
from treetap.protocols.job_spec import params_as
from treetap.trees.ensemble import ROOT
from treetap.trees.params import BoostingParams
from treetap.wire.v2 import setup_pb2


@role(
    {
        OPENING: (Next("prepare"),),
        ALIGNMENT: (Next("bin"),),
        "take_key": (
            Next("build_histograms", RESUMED, TAKES_PART),
            Next("store_tree", RESUMED, SITS_OUT),
            Next("publish"),
        ),
    },
    FeaturePartyJob,
    FeaturePartyGrowth,
)
class FeatureParty(TreeFeatureParty):
    """Sums the ciphertexts of each tree's gradients while they arrive."""

    def __init__(self, config: PartyConfig, context: StepContext, spec: setup_pb2.JobSpec) -> None:
        params = self._params = params_as(spec, BoostingParams)
        trees = params.n_estimators * params.trees_per_round(MOST_CLASSES)
        super().__init__(config, context, spec, params, trees, BoostingLayout(params, sums_shared(spec)))
        self._sums = summed_values(SumsOfCiphertexts, context, spec, self._job, self._noise)
        context.held.push_async_callback(self._sums.drop)

    async def _begin_tree(self, t: int) -> OwnTree:
        split_table, mailbox, sender = self._job.split_table, self._context.mailbox, self._spec.aggregator
        split_table.next_handle_is(self._job.stored.first_handle(t))
        columns = split_table.columns_of_tree(
            t, self._params, permuted=not (sums_shared(self._spec) or self._spec.screen)
        )
        total, expected = len(self._job.table.ids), await self._job.expected(t)
        sampled = np.arange(total)  # words of records that are not drawn are of zeros
        if not self._params.withheld:
            sampled = await take_sampled(mailbox.series(sender, "sampled_records", t, 0), total)
            check_drawn(sender, t, draws_evaluated=bool((sampled >= split_table.training).any()))
        summed = np.zeros(total, dtype=bool)
        summed[sampled] = True
        if not self._params.withheld:
            expected.check_draw(summed, training=split_table.training if self._job.key.said.label_slots else None)
        columns.bins.see(ROOT, sampled)
        await self._sums.begin(t, columns, sampled)
        return self._growth.plant(t, columns, summed, expected)

"""Boosting at a feature party: fresh ciphertexts of gradients for every tree."""

from __future__ import annotations

import numpy as np

from treetap.party.boosting.ciphers import BoostingLayout, summed_values
from treetap.party.config import PartyConfig
from treetap.party.growth.column_noise import ColumnNoise
from treetap.party.growth.feature_party import (
    AFTER_HISTOGRAMS,
    AFTER_STORING,
    SITS_OUT,
    TAKES_PART,
    FeaturePartyGrowth,
    OwnTree,
    nodes_of,
)
from treetap.party.growth.feature_party_job import FeaturePartyJob
from treetap.party.growth.messages import take_sampled
from treetap.party.runtime.context import StepContext
from treetap.party.runtime.step_order import ALIGNMENT, OPENING, RESUMED, Next, Outcome, role, step, steps_of
from treetap.party.setup.labelled_table import check_drawn
from treetap.protocols.growth import MOST_CLASSES
from treetap.protocols.job_spec import params_as
from treetap.trees.ensemble import ROOT
from treetap.trees.params import BoostingParams
from treetap.wire.v2 import control_pb2, setup_pb2


@role({OPENING: (Next("prepare"),), ALIGNMENT: (Next("bin"),)}, FeaturePartyJob, FeaturePartyGrowth)
class FeatureParty:
    """Sums the ciphertexts of each tree's gradients while they arrive."""

    def __init__(self, config: PartyConfig, context: StepContext, spec: setup_pb2.JobSpec) -> None:
        self._context, self._spec = context, spec
        self._params = params_as(spec, BoostingParams)
        trees = self._params.n_estimators * self._params.trees_per_round(MOST_CLASSES)
        noise = self._noise = ColumnNoise(context, config, spec, self._params, BoostingLayout(self._params))
        job = self._job = FeaturePartyJob(config, context, spec, self._params, trees, noise.implied, noise)
        growth = self._growth = FeaturePartyGrowth(context, spec.aggregator, job.stored, job.kind)
        self._sums = summed_values(context, spec, job, noise)
        self.sizes = job.sizes
        self.steps = steps_of(self, job, growth, phases={ALIGNMENT: job.alignment}, conditions=job.conditions)

    @step(Next("take_key"), Next("publish"))
    async def bin(self) -> Outcome:
        """Select the common records, and bin their columns; tell of the noise on their sums, if there is any."""
        outcome = await self._job.bin()
        await self._noise.announce(self._job.shapes)
        return outcome

    @step(Next("build_histograms", RESUMED, TAKES_PART), Next("store_tree", RESUMED, SITS_OUT), Next("publish"))
    async def take_key(self) -> None:
        """Receive the public key of the label holder."""
        await self._noise.take_others(self._job.split_table.training)
        await self._sums.take_key()

    @step(*AFTER_HISTOGRAMS)
    async def build_histograms(self, request: control_pb2.StepRequest) -> None:
        """Step 2 of a tree.

        1. At the root: multiply the tree's ciphertexts into histogram cells while they arrive. Below: receive the
           instance spaces that the label holder relayed.
        2. Compute the left sums of every candidate, in this party's secret order; pack and re-randomise them.
        3. Send them to the label holder.
        """
        t, stage = request.round, request.stage
        nodes = nodes_of(request)
        tree = await self._growth.take_spaces(t, stage) if stage else await self._begin_tree(t)
        await self._growth.send_sums(tree, stage, nodes, await self._sums.sum(tree, stage, nodes))

    @step(*AFTER_STORING)
    async def store_tree(self, request: control_pb2.StepRequest) -> None:
        """Step 7 of a tree: store this party's part of it before answering, and release the tree's ciphertexts."""
        await self._growth.store(request.round, self._job.kept(), takes_part=self._job.takes_part(request.round))
        self._growth.forget()
        await self._sums.drop()

    async def close(self) -> None:
        """Release the ciphertexts in the workers."""
        self._growth.forget()
        await self._sums.close()

    async def _begin_tree(self, t: int) -> OwnTree:
        split_table, mailbox, sender = self._job.split_table, self._context.mailbox, self._spec.aggregator
        split_table.next_handle_is(self._job.stored.first_handle(t))
        columns = split_table.columns_of_tree(t, self._params, permuted=True)
        total, expected = len(self._job.table.ids), await self._job.expected(t)
        sampled = np.arange(total)  # words of records that are not drawn are of zeros
        if not self._params.withheld:
            sampled = await take_sampled(mailbox.series(sender, "sampled_records", t, 0), total)
            check_drawn(sender, t, draws_evaluated=bool((sampled >= split_table.training).any()))
        summed = np.zeros(total, dtype=bool)
        summed[sampled] = True
        if not self._params.withheld:
            expected.check_draw(summed, training=split_table.training if self._job.sums_classes else None)
        columns.bins.see(ROOT, sampled)
        await self._sums.begin(t, columns, sampled)
        return self._growth.plant(t, columns, summed, expected)

"""A random forest at a feature party: one set of encrypted labels serves all trees."""

from __future__ import annotations

import numpy as np

from treetap.errors import Malformed
from treetap.party.config import PartyConfig
from treetap.party.defences.checks import refuse_classes
from treetap.party.forest.ciphers import ForestLayout, summed_labels
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
from treetap.party.growth.messages import take_drawn
from treetap.party.runtime.context import Rows, StepContext, required
from treetap.party.runtime.step_order import ALIGNMENT, OPENING, RESUMED, Next, Outcome, role, step, steps_of
from treetap.party.setup.labelled_table import check_drawn
from treetap.protocols.exclusions import Feature
from treetap.protocols.job_spec import params_as
from treetap.protocols.key_options import KeyKind
from treetap.trees.params import ForestParams
from treetap.wire.v2 import control_pb2, setup_pb2


@role({OPENING: (Next("prepare"),), ALIGNMENT: (Next("bin"),)}, FeaturePartyJob, FeaturePartyGrowth)
class FeatureParty:
    """Sums over the records that a tree draws, with their multiplicities: the same ciphertexts for every tree."""

    def __init__(self, config: PartyConfig, context: StepContext, spec: setup_pb2.JobSpec) -> None:
        self._context, self._spec = context, spec
        self._params = params_as(spec, ForestParams)
        trees = self._params.n_estimators
        layout = ForestLayout(self._params, KeyKind.of(spec).on_lattice)
        noise = self._noise = ColumnNoise(context, config, spec, self._params, layout)
        job = self._job = FeaturePartyJob(config, context, spec, self._params, trees, noise.implied, noise)
        growth = self._growth = FeaturePartyGrowth(context, spec.aggregator, job.stored, job.kind)
        self._drawn: Rows | None = None
        self._sums_of_all = False  # of the current tree
        self._sums = summed_labels(context, spec, job, self._params, noise, self._draw)
        self.sizes = job.sizes
        self.steps = steps_of(self, job, growth, phases={ALIGNMENT: job.alignment}, conditions=job.conditions)

    @step(Next("take_key"), Next("publish"))
    async def bin(self) -> Outcome:
        """Select the common records, and bin their columns; tell of the noise on their sums, if there is any."""
        outcome = await self._job.bin()
        await self._noise.announce(self._job.shapes)
        return outcome

    @step(Next("take_labels"), Next("publish"))
    async def take_key(self) -> None:
        """Receive the public key of the label holder."""
        await self._noise.take_others(self._job.split_table.training)
        await self._sums.take_key()

    @step(Next("build_histograms", RESUMED, TAKES_PART), Next("store_tree", RESUMED, SITS_OUT))
    async def take_labels(self) -> None:
        """Receive what serves all trees: a ciphertext of the label of each of the training's records, or its words."""
        await self._sums.take_shared()

    @step(*AFTER_HISTOGRAMS)
    async def build_histograms(self, request: control_pb2.StepRequest) -> None:
        """Step 2 of a tree.

        1. At the root: receive the draw. Below: receive the instance spaces that the label holder relayed.
        2. Take the drawn records of every node, each as often as it was drawn, in the bins of the job or of the node.
        3. Compute the left sums of every candidate, in this party's secret order; pack and re-randomise them. Behind
           them, if the draw asks for these, the sums over all records of the nodes.
        4. Send them to the label holder.
        """
        t, stage = request.round, request.stage
        nodes = nodes_of(request)
        tree = await self._growth.take_spaces(t, stage) if stage else await self._begin_tree(t)
        await self._growth.send_sums(tree, stage, nodes, await self._sums.sum(tree, stage, nodes))

    @step(*AFTER_STORING)
    async def store_tree(self, request: control_pb2.StepRequest) -> None:
        """Step 7 of a tree: store this party's part of it before answering."""
        await self._growth.store(request.round, self._job.kept(), takes_part=self._job.takes_part(request.round))
        await self._sums.drop()
        self._drawn = None

    async def close(self) -> None:
        """Release what the workers hold."""
        self._growth.forget()
        await self._sums.close()

    def _draw(self) -> tuple[Rows, bool]:
        """How often the current tree draws each record, and True if sums over all records are asked for."""
        return required(self._drawn), self._sums_of_all

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
            columns = split_table.columns_of_tree(t, self._params, permuted=True)
        await self._sums.begin(t, columns, np.flatnonzero(drawn))
        summed = np.arange(total) < split_table.training if self._sums_of_all else drawn > 0
        return self._growth.plant(t, columns, summed, expected)

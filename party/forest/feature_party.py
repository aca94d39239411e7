"""A random forest at a feature party: one set of encrypted labels serves all trees."""

from __future__ import annotations

from functools import partial

import numpy as np

from party.alignment.steps import ALIGNMENT
from party.config import PartyConfig
from party.defences.checks import refuse_cells
from party.forest.layout import implied
from party.growth.feature_party import (
    AFTER_HISTOGRAMS,
    AFTER_STORING,
    SITS_OUT,
    TAKES_PART,
    FeaturePartyGrowth,
    OwnTree,
    Sums,
    nodes_of,
    since,
)
from party.growth.feature_party_job import FeaturePartyJob
from party.growth.messages import take_drawn
from party.runtime.context import StepContext, required
from party.runtime.messages import Rows
from party.runtime.step_order import OPENING, RESUMED, Next, Outcome, role, step, steps_of
from party.setup.evaluated import check_drawn
from treetap.additive.sums.tree_sums import NodeTask, PooledSums
from treetap.errors import Malformed
from treetap.protocols.job_spec import params_as
from treetap.trees.params import ForestParams
from treetap.wire.v2 import control_pb2, setup_pb2


@role({OPENING: (Next("prepare"),), ALIGNMENT: (Next("bin"),)}, FeaturePartyJob, FeaturePartyGrowth)
class FeatureParty:
    """Sums the same ciphertexts for every tree, over the records that the tree draws, with their multiplicities."""

    def __init__(self, config: PartyConfig, context: StepContext, spec: setup_pb2.JobSpec) -> None:
        self._context, self._spec = context, spec
        self._params = params_as(spec, ForestParams)
        trees = self._params.n_estimators
        job = self._job = FeaturePartyJob(config, context, spec, self._params, trees, partial(implied, self._params))
        growth = self._growth = FeaturePartyGrowth(context, spec.aggregator, job.stored, job.account, job.kind)
        self._pool: PooledSums | None = None
        self._drawn: Rows | None = None
        self._sums_of_all = False  # of the current tree
        self.sizes = job.sizes
        self.steps = steps_of(self, job, growth, phases={ALIGNMENT: job.alignment}, conditions=job.conditions)

    @step(Next("take_key"), Next("publish"))
    async def bin(self) -> Outcome:
        """Select the common records, and bin their columns."""
        return await self._job.bin()

    @step(Next("take_labels"), Next("publish"))
    async def take_key(self) -> None:
        """Receive the public key of the label holder."""
        await self._job.receive_key()

    @step(Next("build_histograms", RESUMED, TAKES_PART), Next("store_tree", RESUMED, SITS_OUT))
    async def take_labels(self) -> None:
        """Receive the ciphertext of the label of each of the training's records into the workers, for the attempt."""
        public, slots = self._job.key
        total, sender = self._job.split_table.training, self._spec.aggregator
        token = f"{self._context.job}/{self._context.attempt}"
        pool = self._pool = PooledSums(self._context.engine, public, slots, total, token)
        self._context.progress.done, self._context.progress.total = 0, total
        async for message in self._context.mailbox.series(sender, "encrypted_labels", 0, 0):
            block = message.protocol.forest.encrypted_labels
            if block.count * public.ciphertext_bytes != len(block.ciphertexts) or block.first != pool.received:
                raise Malformed(f"{sender} sent encrypted labels out of place")
            await pool.add_block(block.first, block.ciphertexts)
            self._context.progress.done = pool.received
        if pool.received != total:
            raise Malformed(f"{sender} sent encrypted labels of {pool.received} of {total} records")

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
        pool = required(self._pool)
        before = dict(pool.operations)
        tasks = await self._context.offload(lambda: [self._task(tree, node) for node in nodes])
        summed = int(required(self._drawn).sum())
        if self._sums_of_all:
            tasks += await self._context.offload(lambda: [self._task_of_all(tree, node) for node in nodes])
            summed += tree.columns.training
        packed = await pool.candidates(tasks, tree.columns.candidates.shapes, summed)
        self._context.costs.operations.update(since(before, pool.operations))
        public, _ = self._job.key
        await self._growth.send_sums(tree, stage, nodes, Sums(packed, len(packed) // public.ciphertext_bytes))

    @step(*AFTER_STORING)
    async def store_tree(self, request: control_pb2.StepRequest) -> None:
        """Step 7 of a tree: store this party's part of it before answering."""
        await self._growth.store(request.round, takes_part=self._job.takes_part(request.round))
        self._drawn = None

    async def close(self) -> None:
        """Release the ciphertexts in the workers."""
        self._growth.forget()
        await self._drop_pool()

    async def _begin_tree(self, t: int) -> OwnTree:
        table, split_table = self._job.table, self._job.split_table
        total = len(table.ids)
        series = self._context.mailbox.series(self._spec.aggregator, "sampled_records", t, 0)
        drawn, self._sums_of_all = await take_drawn(series, total)
        if self._sums_of_all and self._job.min_cell_records:
            refuse_cells(self._spec.aggregator)
        check_drawn(self._spec.aggregator, t, draws_evaluated=bool(drawn[split_table.training :].any()))
        self._drawn = drawn
        split_table.next_handle_is(self._job.stored.first_handle(t))
        if self._params.binning == "per-node":
            columns = split_table.fresh_columns_of_tree(t, self._params, table.features, drawn, permuted=True)
        else:
            columns = split_table.columns_of_tree(
                t, self._params, permuted=True, min_cell_records=self._job.min_cell_records
            )
        summed = np.arange(total) < split_table.training if self._sums_of_all else drawn > 0
        return self._growth.plant(t, columns, summed)

    def _task(self, tree: OwnTree, node: int) -> NodeTask:
        """The drawn records of a node, each as often as it was drawn, in the bins of the job or of the node."""
        drawn, bins, rows = required(self._drawn), tree.columns.bins, tree.rows_of(node)
        bins.see(node, rows[drawn[rows] > 0])
        rows = np.repeat(rows, drawn[rows])
        return NodeTask(rows, bins.codes(node, rows), tree.columns.order(node))

    def _task_of_all(self, tree: OwnTree, node: int) -> NodeTask:
        """All records of a node whose bins are known, each once, but for those of an eval table."""
        rows = tree.rows_of(node)
        rows = rows[rows < tree.columns.training]
        return NodeTask(rows, tree.columns.bins.codes(node, rows), tree.columns.order(node))

    async def _drop_pool(self) -> None:
        if self._pool is not None:
            pool, self._pool = self._pool, None
            await pool.close()

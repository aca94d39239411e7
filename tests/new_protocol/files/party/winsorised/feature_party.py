"""Trees of winsorised labels at a feature party: the encrypted labels kept for all trees."""

from __future__ import annotations

import numpy as np

from treetap.additive.sums.tree_sums import NodeTask, PooledSums
from treetap.errors import Malformed
from treetap.party.config import PartyConfig
from treetap.party.growth.feature_party import (
    AFTER_HISTOGRAMS,
    AFTER_STORING,
    SITS_OUT,
    TAKES_PART,
    FeaturePartyGrowth,
    OwnTree,
    Sums,
    since,
)
from treetap.party.growth.feature_party_job import FeaturePartyJob
from treetap.party.growth.messages import take_drawn
from treetap.party.runtime.context import Rows, StepContext, required
from treetap.party.runtime.step_order import ALIGNMENT, OPENING, RESUMED, Next, Outcome, role, step, steps_of
from treetap.party.winsorised.layout import implied
from treetap.protocols.job_spec import params_as
from treetap.protocols.winsorised import WinsorisedParams
from treetap.wire.v2 import control_pb2, setup_pb2


@role({OPENING: (Next("prepare"),), ALIGNMENT: (Next("bin"),)}, FeaturePartyJob, FeaturePartyGrowth)
class FeatureParty:
    """Sums the same ciphertexts for every tree, of the records that the tree draws."""

    def __init__(self, config: PartyConfig, context: StepContext, spec: setup_pb2.JobSpec) -> None:
        self._context, self._spec = context, spec
        self._params = params_as(spec, WinsorisedParams)
        job = self._job = FeaturePartyJob(config, context, spec, self._params, self._params.n_estimators, implied)
        growth = self._growth = FeaturePartyGrowth(context, spec.aggregator, job.stored)
        self._pool: PooledSums | None = None
        self._drawn: Rows | None = None
        self.sizes = job.sizes
        self.steps = steps_of(self, job, growth, phases={ALIGNMENT: job.alignment}, conditions=job.conditions)

    @step(Next("take_targets"), Next("publish"))
    async def bin(self) -> Outcome:
        """Select the common records, and bin their columns."""
        return await self._job.bin()

    @step(Next("build_histograms", RESUMED, TAKES_PART), Next("store_tree", RESUMED, SITS_OUT))
    async def take_targets(self) -> None:
        """Take the public key, and keep the ciphertext of every record's target in the workers."""
        total, sender = len(self._job.table.ids), self._spec.aggregator
        await self._job.receive_key()
        public, slots = self._job.key.public, self._job.key.slots
        pool = self._pool = PooledSums(self._context.engine, public, slots, total)
        self._context.held.push_async_callback(pool.close)
        async for parcel in self._context.mailbox.series(sender, "encrypted_targets", 0, 0):
            block = parcel.protocol.winsorised.encrypted_targets
            if block.count * public.ciphertext_bytes != len(block.ciphertexts) or block.first != pool.received:
                raise Malformed(f"{sender} sent encrypted targets out of place")
            await pool.add_block(block.first, block.ciphertexts)
        if pool.received != total:
            raise Malformed(f"{sender} sent encrypted targets of {pool.received} of {total} records")

    @step(*AFTER_HISTOGRAMS)
    async def build_histograms(self, request: control_pb2.StepRequest) -> None:
        """Step 2 of a tree: of every node sum the drawn records by candidate, and send the sums."""
        t, level = request.round, request.stage
        nodes, pool = list(request.growth.build_histograms.nodes), required(self._pool)
        tree = await self._growth.take_spaces(t, level) if level else await self._begin_tree(t)
        before = dict(pool.operations)
        tasks, drawn = [self._task(tree, node) for node in nodes], int(required(self._drawn).sum())
        packed = await pool.candidates(tasks, tree.columns.candidates.shapes, drawn)
        self._context.costs.operations.update(since(before, pool.operations))
        sums = Sums(packed, len(packed) // self._job.key.public.ciphertext_bytes)
        await self._growth.send_sums(tree, level, nodes, sums)

    @step(*AFTER_STORING)
    async def store_tree(self, request: control_pb2.StepRequest) -> None:
        """Put this party's part of the tree on disk."""
        await self._growth.store(request.round, self._job.kept(), takes_part=self._job.takes_part(request.round))

    async def _begin_tree(self, t: int) -> OwnTree:
        split_table, total = self._job.split_table, len(self._job.table.ids)
        series = self._context.mailbox.series(self._spec.aggregator, "sampled_records", t, 0)
        self._drawn = drawn = (await take_drawn(series, total))[0]
        expected = await self._job.expected(t)
        expected.check_draw(drawn)
        split_table.next_handle_is(self._job.stored.first_handle(t))
        return self._growth.plant(t, split_table.columns_of_tree(t, self._params, permuted=True), drawn > 0, expected)

    def _task(self, tree: OwnTree, node: int) -> NodeTask:
        rows, drawn = tree.rows_of(node), required(self._drawn)
        rows = np.repeat(rows, drawn[rows])
        return NodeTask(rows, tree.columns.bins.codes(node, rows), tree.columns.order(node))

"""Trees of winsorised labels at a feature party: the encrypted labels kept for all trees."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from party.alignment.steps import ALIGNED, ALIGNMENT
from party.config import PartyConfig
from party.growth.expected import of_ciphertexts
from party.growth.feature_party import SITS_OUT, TAKES_PART, TREE_STEPS, FeaturePartyGrowth, OwnTree, since
from party.growth.feature_party_job import FeaturePartyJob
from party.runtime.context import StepContext, empty_result, required
from party.runtime.steps import Step
from party.runtime.expected import Receives
from party.runtime.messages import Rows, take_drawn
from party.runtime.step_order import OPENING, RESUMED, Next, StepTable
from party.setup.steps import PUBLISHED, UNPUBLISHED
from party.winsorised.layout import implied
from treetap.additive.sums.forest_sums import ForestSums, NodeTask
from treetap.errors import Malformed
from treetap.protocols.job_spec import params_as
from treetap.protocols.winsorised import WinsorisedParams
from treetap.wire.v2 import control_pb2, setup_pb2

STEPS: StepTable = {
    OPENING: (Next("prepare"),),
    "prepare": (Next(ALIGNMENT, when=UNPUBLISHED), Next("bin", when=ALIGNED), Next("publish", when=PUBLISHED)),
    ALIGNMENT: (Next("bin"),),
    "bin": (Next("take_targets"), Next("publish")),
    "take_targets": (Next("build_histograms", RESUMED, TAKES_PART), Next("store_tree", RESUMED, SITS_OUT)),
    **TREE_STEPS,
}


class FeatureParty:
    """Sums the same ciphertexts for every tree, of the records that the tree draws."""

    def __init__(self, config: PartyConfig, context: StepContext, spec: setup_pb2.JobSpec) -> None:
        self._context, self._spec = context, spec
        self._params = params_as(spec, WinsorisedParams)
        job = self._job = FeaturePartyJob(config, context, spec, self._params, STEPS, implied)
        self._growth = FeaturePartyGrowth(context, spec.aggregator, job.order, job.stored)
        self._pool: ForestSums | None = None
        self._ciphertext_bytes = 0
        self._drawn: Rows | None = None
        self.steps: Mapping[str, Step] = {
            "prepare": job.prepare,
            **job.alignment.steps,
            "bin": job.bin,
            "take_targets": self.take_targets,
            "build_histograms": self.build_histograms,
            "apply_splits": self._growth.apply_splits,
            "store_tree": self.store_tree,
            "publish": job.publish,
        }

    @property
    def receives(self) -> Receives:
        """See `Role.receives`."""
        values = of_ciphertexts(self._spec, self._job.records)
        return {**self._job.received(self._params.n_estimators), "encrypted_targets": values}

    async def take_targets(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Take the public key, and keep the ciphertext of every record's target in the workers."""
        self._job.order.check(request)
        total, sender = len(self._job.table.ids), self._spec.aggregator
        public, slots = await self._job.receive_key()
        self._ciphertext_bytes = public.ciphertext_bytes
        token = f"{self._context.job}/{self._context.attempt}"
        pool = self._pool = ForestSums(self._context.engine, public, slots, total, token)
        async for parcel in self._context.mailbox.series(sender, "encrypted_targets", 0, 0):
            block = parcel.protocol.winsorised.encrypted_targets
            if block.count * public.ciphertext_bytes != len(block.ciphertexts) or block.first != pool.received:
                raise Malformed(f"{sender} sent encrypted targets out of place")
            await pool.add_block(block.first, block.ciphertexts)
        if pool.received != total:
            raise Malformed(f"{sender} sent encrypted targets of {pool.received} of {total} records")
        self._job.order.done(request)
        return empty_result()

    async def build_histograms(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Step 2 of a tree: of every node sum the drawn records by candidate, and send the sums."""
        t, level = request.round, request.stage
        self._job.order.check(request)
        nodes, pool = list(request.growth.build_histograms.nodes), required(self._pool)
        tree = await self._growth.take_spaces(t, level) if level else await self._begin_tree(t)
        before = dict(pool.operations)
        tasks, drawn = [self._task(tree, node) for node in nodes], int(required(self._drawn).sum())
        packed = await pool.candidates(tasks, tree.columns.candidates.shapes, drawn)
        self._context.costs.operations.update(since(before, pool.operations))
        await self._growth.send_sums(tree, level, nodes, packed, self._ciphertext_bytes)
        self._job.order.done(request)
        return empty_result()

    async def store_tree(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Put this party's part of the tree on disk."""
        self._job.order.check(request)
        await self._growth.store(request.round, takes_part=self._job.takes_part(request.round))
        self._job.order.done(request)
        return empty_result()

    async def close(self) -> None:
        """Release the ciphertexts in the workers."""
        self._growth.forget()
        await self._drop_pool()

    async def _begin_tree(self, t: int) -> OwnTree:
        split_table, total = self._job.split_table, len(self._job.table.ids)
        series = self._context.mailbox.series(self._spec.aggregator, "sampled_records", t, 0)
        self._drawn, _ = await take_drawn(series, total)
        split_table.next_handle_is(self._job.stored.first_handle(t))
        return self._growth.plant(t, split_table.columns_of_tree(t, self._params, permuted=True), total)

    def _task(self, tree: OwnTree, node: int) -> NodeTask:
        rows, drawn = tree.rows_of(node), required(self._drawn)
        rows = np.repeat(rows, drawn[rows])
        return NodeTask(rows, tree.columns.bins.codes(node, rows), tree.columns.order(node))

    async def _drop_pool(self) -> None:
        if self._pool is not None:
            pool, self._pool = self._pool, None
            await pool.close()

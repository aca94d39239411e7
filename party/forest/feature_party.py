"""A random forest at a feature party: the label holder's encrypted labels kept for all trees.

after            may come
prepare          the steps of the alignment, bin if aligned already, publish if published already
alignment        bin
bin              take_key, publish
take_key         take_labels, publish
take_labels      build_histograms(t, 0) for the next tree t
build(t, l)      apply_splits(t, l), build_histograms(t, l+1), store_tree(t)
apply(t, l)      build_histograms(t, l+1), store_tree(t)
store_tree(t)    build_histograms(t+1, 0), publish

Of a tree that the party sits out there is store_tree(t) alone.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from party.config import PartyConfig
from party.growth.feature_party import GrowingFeatureParty, OwnTree, since
from party.runtime.context import Step, Tools, done, have
from party.runtime.messages import Rows, take_drawn
from party.runtime.steps import StepId
from treetap.errors import Malformed
from treetap.paillier.forest_sums import CiphertextPool, NodeTask
from treetap.protocols.job_spec import params_as
from treetap.trees.params import ForestParams
from treetap.trees.tree_bins import NodeBins
from treetap.wire.v2 import control_pb2, setup_pb2


class FeatureParty(GrowingFeatureParty):
    """Sums the same ciphertexts for every tree, of the records that the tree draws and as often."""

    def __init__(self, config: PartyConfig, tools: Tools, spec: setup_pb2.JobSpec) -> None:
        self._forest = params_as(spec, ForestParams)
        super().__init__(config, tools, spec, self._forest)
        self._pool: CiphertextPool | None = None
        self._drawn: Rows | None = None
        self.steps: Mapping[str, Step] = {**self.steps, "take_labels": self.take_labels}

    async def take_labels(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Keep the ciphertext of every record's label in the lanes, as long as this attempt lasts."""
        self._order.check(("take_labels", request.round, request.stage))
        await self._drop_pool()  # of a try that failed
        public, slots = have(self._key)
        total = len(self._alignment.aligned.ids)
        token = f"{self._tools.job}/{self._tools.attempt}"
        pool = self._pool = CiphertextPool(self._tools.engine, public, slots, total, token)
        self._tools.meter.done, self._tools.meter.total = 0, total
        async for parcel in self._tools.mailbox.series(self._label_holder, "encrypted_labels", 0, 0):
            block = parcel.protocol.forest.encrypted_labels
            if block.count * public.ciphertext_bytes != len(block.ciphertexts) or block.first != pool.received:
                raise Malformed(f"{self._label_holder} sent encrypted labels out of place")
            await pool.add_block(block.first, block.ciphertexts)
            self._tools.meter.done = pool.received
        if pool.received != total:
            raise Malformed(f"{self._label_holder} sent encrypted labels of {pool.received} of {total} records")
        self._order.then(*super()._after_key())
        return done()

    async def close(self) -> None:
        """Let go of the ciphertexts in the workers."""
        await super().close()
        await self._drop_pool()

    def _after_key(self) -> list[StepId]:
        return [("take_labels", 0, 0)]

    async def _begin(self, t: int) -> OwnTree:
        """Columns and draw of the tree."""
        table = self._alignment.aligned
        total = len(table.ids)
        series = self._tools.mailbox.series(self._label_holder, "sampled_records", t, 0)
        drawn = self._drawn = await take_drawn(series, total)
        vault = self._columns(t)
        if self._forest.binning == "per-node":
            columns = vault.fresh_columns_of_tree(t, self._forest, table.features, drawn, permuted=True)
        else:
            columns = vault.columns_of_tree(t, self._forest, permuted=True)
        return OwnTree(t, columns, total)

    async def _sum(self, tree: OwnTree, level: int, nodes: list[int]) -> tuple[bytes, Mapping[str, int]]:  # noqa: ARG002
        pool, columns = have(self._pool), tree.columns
        before = dict(pool.operations)
        tasks = await self._tools.offload(lambda: [self._task(tree, node) for node in nodes])
        packed = await pool.candidates(tasks, columns.candidates.shapes)
        return packed, since(before, pool.operations)

    def _task(self, tree: OwnTree, node: int) -> NodeTask:
        """The drawn records of a node, each as often as it was drawn, in the bins of the job or of the node."""
        drawn, bins, rows = have(self._drawn), tree.columns.bins, tree.rows_of(node)
        if isinstance(bins, NodeBins):
            bins.see(node, rows)
        rows = np.repeat(rows, drawn[rows])
        return NodeTask(rows, bins.codes(node, rows), tree.columns.order(node))

    async def _drop_tree(self) -> None:
        self._tree = self._drawn = None

    async def _drop_pool(self) -> None:
        if self._pool is not None:
            pool, self._pool = self._pool, None
            await pool.close()

"""A random forest at a feature party: one set of encrypted labels serves all trees."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from party.alignment.steps import ALIGNED, ALIGNMENT, Alignment, alignment_steps
from party.config import PartyConfig
from party.growth.feature_party import SITS_OUT, TAKES_PART, TREE_STEPS, FeaturePartyGrowth, OwnTree, since
from party.growth.split_table import SplitTable
from party.growth.stored_trees import StoredTrees
from party.runtime.context import Step, StepContext, empty_result, required
from party.runtime.messages import Rows, take_drawn
from party.runtime.step_order import OPENING, RESUMED, Next, StepOrder, StepTable
from party.setup.steps import PUBLISHED, UNPUBLISHED, bin_features, load_job_table, manifest_of, take_key
from treetap.errors import Malformed
from treetap.models.store import TREES
from treetap.paillier.forest_sums import ForestSums, NodeTask
from treetap.paillier.public_key import PublicKey
from treetap.paillier.slots import Slots
from treetap.protocols.job_spec import params_as
from treetap.tables.reading import Table
from treetap.trees.params import ForestParams
from treetap.trees.tree_bins import NodeBins
from treetap.wire.frame import result
from treetap.wire.v2 import control_pb2, setup_pb2

STEPS: StepTable = {
    OPENING: (Next("prepare"),),
    "prepare": (
        Next(ALIGNMENT, when=UNPUBLISHED),
        Next("bin", when=ALIGNED),
        Next("publish", when=PUBLISHED),
    ),
    ALIGNMENT: (Next("bin"),),
    "bin": (Next("take_key"), Next("publish")),
    "take_key": (Next("take_labels"), Next("publish")),
    "take_labels": (
        Next("build_histograms", RESUMED, TAKES_PART),
        Next("store_tree", RESUMED, SITS_OUT),
    ),
    **TREE_STEPS,
}


class FeatureParty:
    """Sums the same ciphertexts for every tree, over the records that the tree draws, with their multiplicities."""

    def __init__(self, config: PartyConfig, context: StepContext, spec: setup_pb2.JobSpec) -> None:
        self._config, self._context, self._spec = config, context, spec
        self._params = params_as(spec, ForestParams)
        members = [spec.label_holder, *spec.feature_parties]
        self._order = StepOrder(
            STEPS,
            {ALIGNMENT: alignment_steps(members, spec.alignment, context.party)},
            {TAKES_PART: self._takes_part, SITS_OUT: lambda t: not self._takes_part(t)},
        )
        self._alignment = Alignment(context, members, spec.alignment, self._order)
        self._stored = StoredTrees(context, "splits")
        self._growth = FeaturePartyGrowth(context, spec.label_holder, self._order, self._stored)
        self._table: Table | None = None
        self._split_table: SplitTable | None = None
        self._key: tuple[PublicKey, Slots] | None = None
        self._pool: ForestSums | None = None
        self._drawn: Rows | None = None
        self.steps: Mapping[str, Step] = {
            "prepare": self.prepare,
            **self._alignment.steps,
            "bin": self.bin,
            "take_key": self.take_key,
            "take_labels": self.take_labels,
            "build_histograms": self.build_histograms,
            "apply_splits": self._growth.apply_splits,
            "store_tree": self.store_tree,
            "publish": self.publish,
        }

    async def prepare(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Report the progress of the job at this party.

        1. Read the table.
        2. Look up the records that an earlier attempt aligned, and the stored trees.
        """
        self._order.check(request)
        table = self._table = await load_job_table(
            self._context, self._config, self._spec, with_label=False, missing=self._params.missing
        )
        aligned = self._alignment.begin(table.ids, table.rows, table.path, keep=True)
        await self._stored.read()
        self._order.first_rounds = range(self._stored.count + 1)  # the label holder may have stored fewer
        published = self._context.store.published
        self._order.done(request, PUBLISHED if published else UNPUBLISHED, *([ALIGNED] if aligned else []))
        return result(
            setup_pb2.Prepared(stored_rounds=self._stored.count, published=published, aligned_attempt=aligned)
        )

    async def bin(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Select the common records, and bin their columns once for the job."""
        self._order.check(request)
        table = self._table = required(self._table).take(self._alignment.records)
        binned = await bin_features(self._context, table, self._params.max_bin)
        self._split_table = SplitTable(self._context.party, table.columns, binned)
        self._order.done(request)
        return empty_result()

    async def take_key(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Receive the public key of the label holder."""
        self._order.check(request)
        self._key = await take_key(self._context, self._spec.label_holder, self._spec.key_bits)
        self._order.done(request)
        return empty_result()

    async def take_labels(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Receive the ciphertext of every record's label into the workers, for the whole attempt."""
        self._order.check(request)
        await self._drop_pool()  # of an earlier failed step
        public, slots = required(self._key)
        total, sender = len(required(self._table).ids), self._spec.label_holder
        token = f"{self._context.job}/{self._context.attempt}"
        pool = self._pool = ForestSums(self._context.engine, public, slots, total, token)
        self._context.progress.done, self._context.progress.total = 0, total
        async for message in self._context.mailbox.series(sender, "encrypted_labels", 0, 0):
            block = message.protocol.forest.encrypted_labels
            if block.count * public.ciphertext_bytes != len(block.ciphertexts) or block.first != pool.received:
                raise Malformed(f"{sender} sent encrypted labels out of place")
            await pool.add_block(block.first, block.ciphertexts)
            self._context.progress.done = pool.received
        if pool.received != total:
            raise Malformed(f"{sender} sent encrypted labels of {pool.received} of {total} records")
        self._order.done(request)
        return empty_result()

    async def build_histograms(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Step 2 of a tree.

        1. At the root: receive the draw. Below: receive the instance spaces that the label holder relayed.
        2. Take the drawn records of every node, each as often as it was drawn, in the bins of the job or of the node.
        3. Compute the left sums of every candidate, in this party's secret order; pack and re-randomise them.
        4. Send them to the label holder.
        """
        t, level = request.round, request.stage
        self._order.check(request)
        nodes = list(request.growth.build_histograms.nodes)
        tree = await self._growth.take_spaces(t, level) if level else await self._begin_tree(t)
        pool = required(self._pool)
        before = dict(pool.operations)
        tasks = await self._context.offload(lambda: [self._task(tree, node) for node in nodes])
        packed = await pool.candidates(tasks, tree.columns.candidates.shapes)
        self._context.costs.operations.update(since(before, pool.operations))
        public, _ = required(self._key)
        await self._growth.send_sums(tree, level, nodes, packed, public.ciphertext_bytes)
        self._order.done(request)
        return empty_result()

    async def store_tree(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Store this party's part of a tree before answering."""
        self._order.check(request)
        await self._growth.store(request.round, takes_part=self._takes_part(request.round))
        self._drawn = None
        self._order.done(request)
        return empty_result()

    async def publish(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Publish the stored trees as a model."""
        self._order.check(request)
        if not self._context.store.published:
            manifest = {
                "role": "feature_party",
                "label_holder": self._spec.label_holder,
                "trees": self._stored.count,
                **manifest_of(self._context, self._spec, required(self._table), self._params.missing),
            }
            self._context.store.publish(manifest, (TREES,))
        self._order.done(request)
        return empty_result()

    async def close(self) -> None:
        """Release the ciphertexts in the workers."""
        self._growth.forget()
        await self._drop_pool()

    async def _begin_tree(self, t: int) -> OwnTree:
        """Receive the draw of a tree and select its columns; replaces an unfinished tree."""
        self._growth.forget()
        table, split_table = required(self._table), required(self._split_table)
        total = len(table.ids)
        series = self._context.mailbox.series(self._spec.label_holder, "sampled_records", t, 0)
        drawn = self._drawn = await take_drawn(series, total)
        split_table.next_handle_is(self._stored.first_handle(t))
        if self._params.binning == "per-node":
            columns = split_table.fresh_columns_of_tree(t, self._params, table.features, drawn, permuted=True)
        else:
            columns = split_table.columns_of_tree(t, self._params, permuted=True)
        return self._growth.plant(t, columns, total)

    def _task(self, tree: OwnTree, node: int) -> NodeTask:
        """The drawn records of a node, each as often as it was drawn, in the bins of the job or of the node."""
        drawn, bins, rows = required(self._drawn), tree.columns.bins, tree.rows_of(node)
        if isinstance(bins, NodeBins):
            bins.see(node, rows)
        rows = np.repeat(rows, drawn[rows])
        return NodeTask(rows, bins.codes(node, rows), tree.columns.order(node))

    async def _drop_pool(self) -> None:
        if self._pool is not None:
            pool, self._pool = self._pool, None
            await pool.close()

    def _takes_part(self, t: int) -> bool:
        return self._params.takes_part(t, self._context.party)

"""Trees of winsorised labels at a feature party: the encrypted labels kept for all trees."""

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
from treetap.protocols.job_spec import params_as
from treetap.protocols.winsorised import WinsorisedParams
from treetap.tables.reading import Table
from treetap.wire.frame import result
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
        self._config, self._context, self._spec = config, context, spec
        self._params = params_as(spec, WinsorisedParams)
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
        self._pool: ForestSums | None = None
        self._ciphertext_bytes = 0
        self._drawn: Rows | None = None
        self.steps: Mapping[str, Step] = {
            "prepare": self.prepare,
            **self._alignment.steps,
            "bin": self.bin,
            "take_targets": self.take_targets,
            "build_histograms": self.build_histograms,
            "apply_splits": self._growth.apply_splits,
            "store_tree": self.store_tree,
            "publish": self.publish,
        }

    async def prepare(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Read the table, and look for the records and trees of an earlier attempt."""
        self._order.check(request)
        table = self._table = await load_job_table(
            self._context, self._config, self._spec, with_label=False, missing=self._params.missing
        )
        aligned = self._alignment.begin(table.ids, table.rows, table.path, keep=True)
        await self._stored.read()
        count, published = self._stored.count, self._context.store.published
        self._order.first_rounds = range(count + 1)  # the label holder may have stored fewer
        self._order.done(request, PUBLISHED if published else UNPUBLISHED, *([ALIGNED] if aligned else []))
        return result(setup_pb2.Prepared(stored_rounds=count, published=published, aligned_attempt=aligned))

    async def bin(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Take the common records, and bin their columns."""
        self._order.check(request)
        table = self._table = required(self._table).take(self._alignment.records)
        binned = await bin_features(self._context, table, self._params.max_bin)
        self._split_table = SplitTable(self._context.party, table.columns, binned)
        self._order.done(request)
        return empty_result()

    async def take_targets(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Take the public key, and keep the ciphertext of every record's target in the workers."""
        self._order.check(request)
        await self._drop_pool()
        total, sender = len(required(self._table).ids), self._spec.label_holder
        public, slots = await take_key(self._context, sender, self._spec.key_bits)
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
        self._order.done(request)
        return empty_result()

    async def build_histograms(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Step 2 of a tree: of every node sum the drawn records by candidate, and send the sums."""
        t, level = request.round, request.stage
        self._order.check(request)
        nodes, pool = list(request.growth.build_histograms.nodes), required(self._pool)
        tree = await self._growth.take_spaces(t, level) if level else await self._begin_tree(t)
        before = dict(pool.operations)
        packed = await pool.candidates([self._task(tree, node) for node in nodes], tree.columns.candidates.shapes)
        self._context.costs.operations.update(since(before, pool.operations))
        await self._growth.send_sums(tree, level, nodes, packed, self._ciphertext_bytes)
        self._order.done(request)
        return empty_result()

    async def store_tree(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Put this party's part of the tree on disk."""
        self._order.check(request)
        await self._growth.store(request.round, takes_part=self._takes_part(request.round))
        self._order.done(request)
        return empty_result()

    async def publish(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Make a model of the stored trees."""
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
        split_table, total = required(self._split_table), len(required(self._table).ids)
        series = self._context.mailbox.series(self._spec.label_holder, "sampled_records", t, 0)
        self._drawn = await take_drawn(series, total)
        split_table.next_handle_is(self._stored.first_handle(t))
        return self._growth.plant(t, split_table.columns_of_tree(t, self._params, permuted=True), total)

    def _task(self, tree: OwnTree, node: int) -> NodeTask:
        rows, drawn = tree.rows_of(node), required(self._drawn)
        rows = np.repeat(rows, drawn[rows])
        return NodeTask(rows, tree.columns.bins.codes(node, rows), tree.columns.order(node))

    async def _drop_pool(self) -> None:
        if self._pool is not None:
            pool, self._pool = self._pool, None
            await pool.close()

    def _takes_part(self, t: int) -> bool:
        return self._params.takes_part(t, self._context.party)

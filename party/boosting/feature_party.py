"""Boosting at a feature party: fresh ciphertexts of gradients for every tree."""

from __future__ import annotations

from collections.abc import Mapping

from party.alignment.steps import ALIGNED, ALIGNMENT, Alignment, alignment_steps
from party.config import PartyConfig
from party.growth.feature_party import SITS_OUT, TAKES_PART, TREE_STEPS, FeaturePartyGrowth, OwnTree, since
from party.growth.split_table import SplitTable
from party.growth.stored_trees import StoredTrees
from party.runtime.context import Step, StepContext, empty_result, required
from party.runtime.messages import take_sampled
from party.runtime.step_order import OPENING, RESUMED, Next, StepOrder, StepTable
from party.setup.steps import PUBLISHED, UNPUBLISHED, bin_features, load_job_table, manifest_of, take_key
from treetap.errors import Malformed
from treetap.models.store import TREES
from treetap.paillier.public_key import PublicKey
from treetap.paillier.slots import Slots
from treetap.paillier.tree_sums import EncryptedSums
from treetap.protocols.job_spec import params_as
from treetap.tables.reading import Table
from treetap.trees.params import BoostingParams
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
    "take_key": (
        Next("build_histograms", RESUMED, TAKES_PART),
        Next("store_tree", RESUMED, SITS_OUT),
        Next("publish"),
    ),
    **TREE_STEPS,
}


class FeatureParty:
    """Sums the ciphertexts of each tree's gradients while they arrive."""

    def __init__(self, config: PartyConfig, context: StepContext, spec: setup_pb2.JobSpec) -> None:
        self._config, self._context, self._spec = config, context, spec
        self._params = params_as(spec, BoostingParams)
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
        self._sums: EncryptedSums | None = None
        self.steps: Mapping[str, Step] = {
            "prepare": self.prepare,
            **self._alignment.steps,
            "bin": self.bin,
            "take_key": self.take_key,
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

    async def build_histograms(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Step 2 of a tree.

        1. At the root: multiply the tree's ciphertexts into histogram cells while they arrive. Below: receive the
           instance spaces that the label holder relayed.
        2. Compute the left sums of every candidate, in this party's secret order; pack and re-randomise them.
        3. Send them to the label holder.
        """
        t, level = request.round, request.stage
        self._order.check(request)
        nodes = list(request.growth.build_histograms.nodes)
        tree = await self._growth.take_spaces(t, level) if level else await self._begin_tree(t)
        sums = required(self._sums)
        before = dict(sums.operations) if level else {}  # at the root, operations began with the first block
        spaces = [tree.rows_of(node) for node in nodes] if level else None
        packed = await sums.candidates(spaces, tree.columns.order(nodes[0]))
        self._context.costs.operations.update(since(before, sums.operations))
        public, _ = required(self._key)
        await self._growth.send_sums(tree, level, nodes, packed, public.ciphertext_bytes)
        self._order.done(request)
        return empty_result()

    async def store_tree(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Store this party's part of a tree before answering, and release the tree's ciphertexts."""
        self._order.check(request)
        await self._growth.store(request.round, takes_part=self._takes_part(request.round))
        await self._drop_tree()
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
        await self._drop_tree()

    async def _begin_tree(self, t: int) -> OwnTree:
        """Receive the sampled records, and their ciphertexts into the workers; replaces an unfinished tree."""
        await self._drop_tree()
        public, slots = required(self._key)
        split_table, mailbox, sender = required(self._split_table), self._context.mailbox, self._spec.label_holder
        split_table.next_handle_is(self._stored.first_handle(t))
        columns = split_table.columns_of_tree(t, self._params, permuted=True)
        codes = columns.codes
        sampled = await take_sampled(mailbox.series(sender, "sampled_records", t, 0), len(codes))
        token = f"{self._context.job}/{self._context.attempt}/{t}"
        sums = self._sums = EncryptedSums(self._context.engine, public, slots, codes, columns.candidates.shapes, token)
        self._context.progress.done, self._context.progress.total = 0, len(sampled)
        received = 0
        async for message in mailbox.series(sender, "gradients", t, 0):
            block = message.protocol.boosting.gradients
            if block.first != received or received + block.count > len(sampled):
                raise Malformed(f"{sender} sent ciphertexts out of place in tree {t}")
            await sums.add_block(sampled[received : received + block.count], block.ciphertexts)
            received += block.count
            self._context.progress.done = received
        if received != len(sampled):
            raise Malformed(f"{sender} sent {received} ciphertexts for {len(sampled)} records in tree {t}")
        return self._growth.plant(t, columns, len(codes))

    async def _drop_tree(self) -> None:
        """Release the tree under construction and its ciphertexts, if there is one."""
        self._growth.forget()
        if self._sums is not None:
            sums, self._sums = self._sums, None
            await sums.close()

    def _takes_part(self, t: int) -> bool:
        return self._params.takes_part(t, self._context.party)

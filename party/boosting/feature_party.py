"""Boosting at a feature party: columns in, encrypted candidate sums out, no label ever.

after            may come
prepare          the steps of the alignment, bin if aligned already, publish if published already
alignment        bin
bin              take_key, publish
take_key         build_histograms(t, 0) for the next tree t, publish
build(t, l)      apply_splits(t, l), build_histograms(t, l+1), store_tree(t)
apply(t, l)      build_histograms(t, l+1), store_tree(t)
store_tree(t)    build_histograms(t+1, 0), publish
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from party.alignment import Alignment
from party.config import PartyConfig
from party.parcels import Rows, child_parcels, chunks_of, take_sampled, take_spaces
from party.session import Step, Tools, done, have
from party.setup import bin_features, bind_table, load_table, table_config, take_key
from party.steps import Order
from party.vault import OwnSplit, TreeColumns, Vault
from treetap.errors import Malformed, OutOfOrder
from treetap.he.packing import Slots
from treetap.he.public import PublicKey
from treetap.he.sums import EncryptedSums
from treetap.wire.jobspec import params_from_wire
from treetap.wire.v1 import boosting_pb2, control_pb2, own_pb2, setup_pb2

#: Most bytes of packed ciphertexts in one parcel of candidate sums.
SUMS_BYTES = 1024 * 1024
ROOT = 1


class FeatureParty:
    """Answers the steps of a feature party for one attempt at a job."""

    def __init__(self, config: PartyConfig, tools: Tools, spec: setup_pb2.JobSpec) -> None:
        self._config, self._tools, self._spec = config, tools, spec
        self._params = params_from_wire(spec.boosting)
        self._label_holder = spec.label_holder
        self._vault: Vault | None = None
        self._key: tuple[PublicKey, Slots] | None = None
        self._tree: _Tree | None = None
        self._order = Order(("prepare", 0, 0))
        members = [spec.label_holder, *spec.feature_parties]
        self._alignment = Alignment(tools, members, spec.alignment, self._order, then=("bin", 0, 0))
        self.steps: Mapping[str, Step] = {
            "prepare": self.prepare,
            **self._alignment.steps,
            "bin": self.bin,
            "take_key": self.take_key,
            "build_histograms": self.build_histograms,
            "apply_splits": self.apply_splits,
            "store_tree": self.store_tree,
            "publish": self.publish,
        }

    async def prepare(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Read the table; say how many trees of the job are on disk."""
        self._order.check(("prepare", request.tree, request.level))
        config = table_config(self._config, self._spec.table)
        table = await load_table(self._tools, config, with_label=False, missing=self._params.missing)
        await bind_table(self._tools, table)
        aligned = self._alignment.begin(table, keep=True)
        if self._tools.store.published:
            self._order.then(("publish", 0, 0))
        return control_pb2.StepResult(
            prepared=setup_pb2.Prepared(
                stored_trees=len(self._tools.store.trees()),
                published=self._tools.store.published,
                aligned_attempt=aligned,
            )
        )

    async def bin(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Bin the columns of the aligned records, once for the job."""
        self._order.check(("bin", request.tree, request.level))
        table = self._alignment.aligned
        binned = await bin_features(self._tools, table, self._params.max_bin)
        self._vault = Vault(self._tools.party, table.columns, binned)
        self._order.then(("take_key", 0, 0), ("publish", 0, 0))
        return done()

    async def take_key(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Wait for the public key of the label holder."""
        self._order.check(("take_key", request.tree, request.level))
        self._key = await take_key(self._tools, self._label_holder, self._spec.key_bits)
        stored = len(self._tools.store.trees())
        self._order.then(("publish", 0, 0), *(("build_histograms", tree, 0) for tree in range(stored + 1)))
        return done()

    async def build_histograms(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Step 2 of a tree: sum, cumulate, permute, pack, re-randomise, send.

        1. Root: take the sampled records and sum their ciphertexts while they arrive. Below: take the
           instance spaces that the label holder relayed; a node that was not relayed is what its parent
           holds and its sibling does not.
        2. Every candidate of every node leaves, the empty ones too, in the order of the tree's permutation.
        """
        t, level = request.tree, request.level
        self._order.check(("build_histograms", t, level))
        nodes = list(request.build_histograms.nodes)
        if level == 0:
            self._tree = await self._begin(t)
            spaces = None
        else:
            tree = self._growing(t)
            relayed = self._tools.mailbox.series(self._label_holder, "instance_spaces", t, level)
            tree.rows.update(await take_spaces(relayed, tree.total))
            spaces = [tree.rows_of(node) for node in nodes]
        await self._send_sums(self._growing(t), level, nodes, spaces)
        self._order.then(("apply_splits", t, level), ("build_histograms", t, level + 1), ("store_tree", t, 0))
        return done()

    async def apply_splits(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Step 4 of a tree: keep the splits won, send the children's instance spaces to the label holder."""
        t, level = request.tree, request.level
        self._order.check(("apply_splits", t, level))
        tree = self._growing(t)
        children = []
        for decision in request.apply_splits.decisions:
            rows = tree.rows_of(decision.node)
            split, left = tree.columns.split(decision.node, rows, list(decision.candidates))
            tree.splits.append(split)
            tree.rows[2 * decision.node] = left
            tree.rows[2 * decision.node + 1] = np.setdiff1d(rows, left, assume_unique=True)
            for child in (2 * decision.node, 2 * decision.node + 1):
                self._tools.law.check_space(self._tools.party, self._label_holder, child, len(tree.rows[child]))
            children.append((decision.node, split.handle, left))
            self._log(t, level, tree, split)
        await self._tools.outbox.send(
            self._label_holder, "children", child_parcels(children, tree.total), tree=t, level=level
        )
        self._order.then(("build_histograms", t, level + 1), ("store_tree", t, 0))
        return done()

    async def store_tree(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """End of a tree: this party's shard of the tree is on disk before the answer."""
        t = request.tree
        self._order.check(("store_tree", t, request.level))
        tree = self._growing(t)
        leaves: list[list[list[int]]] = []
        async for parcel in self._tools.mailbox.series(self._label_holder, "leaf_paths", t, 0):
            leaves += [[[turn.handle, int(turn.left)] for turn in leaf.turns] for leaf in parcel.leaf_paths.leaves]
        shard: dict[str, Any] = {"tree": t, "splits": [split.to_dict() for split in tree.splits], "leaves": leaves}
        self._tools.store.add_tree(shard, t)
        await self._drop_tree()
        self._tools.mailbox.forget(t)
        self._order.then(("build_histograms", t + 1, 0), ("publish", 0, 0))
        return done()

    async def publish(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Progress becomes a model."""
        self._order.check(("publish", request.tree, request.level))
        if not self._tools.store.published:
            table = self._alignment.aligned
            manifest = {
                "role": "feature_party",
                "job": self._tools.job,
                "party": self._tools.party,
                "protocol": self._spec.protocol,
                "label_holder": self._label_holder,
                "columns": table.columns,
                "missing": None if np.isnan(self._params.missing) else self._params.missing,
                "trees": len(self._tools.store.trees()),
            }
            self._tools.store.publish(manifest)
        self._order.then()
        return done()

    async def close(self) -> None:
        """Let go of the ciphertexts in the workers."""
        await self._drop_tree()

    async def _begin(self, t: int) -> _Tree:
        """A new tree: its columns, its permutation, its ciphertexts as they arrive."""
        await self._drop_tree()
        public, slots = have(self._key)
        vault = have(self._vault)
        stored = self._tools.store.trees()[:t]
        vault.next_handle_is(sum(len(tree["splits"]) for tree in stored))
        columns = vault.columns_of_tree(t, self._params, permuted=True)
        total = len(columns.codes)
        mailbox = self._tools.mailbox
        sampled = await take_sampled(mailbox.series(self._label_holder, "sampled_records", t, 0), total)
        token = f"{self._tools.job}/{self._tools.attempt}/{t}"
        sums = EncryptedSums(self._tools.engine, public, slots, columns.codes, columns.candidates.shapes, token)
        tree = _Tree(t, columns, sums, total)
        self._tools.meter.done, self._tools.meter.total = 0, len(sampled)
        received = 0
        async for parcel in mailbox.series(self._label_holder, "gradients", t, 0):
            block = parcel.gradients
            if block.first != received or received + block.count > len(sampled):
                raise Malformed(f"{self._label_holder} sent ciphertexts out of place in tree {t}")
            await sums.add_block(sampled[received : received + block.count], block.ciphertexts)
            received += block.count
            self._tools.meter.done = received
        if received != len(sampled):
            raise Malformed(f"{self._label_holder} sent {received} ciphertexts for {len(sampled)} records in tree {t}")
        return tree

    async def _send_sums(self, tree: _Tree, level: int, nodes: list[int], spaces: list[Rows] | None) -> None:
        public, _ = have(self._key)
        before = dict(tree.sums.operations)
        packed = await tree.sums.candidates(spaces, tree.columns.permutation)
        ledger = self._tools.ledger
        for name, count in tree.sums.operations.items():
            ledger.operations[name] += count - (before.get(name, 0) if level else 0)
        ledger.ciphertexts["candidate_sums"] += len(packed) // public.ciphertext_bytes
        step = SUMS_BYTES // public.ciphertext_bytes * public.ciphertext_bytes
        bodies = [
            boosting_pb2.CandidateSums(
                nodes=nodes if start == 0 else [],
                candidates=len(tree.columns.permutation),
                ciphertexts=packed[start : start + step],
            )
            for start in range(0, max(len(packed), 1), step)
        ]
        await self._tools.outbox.send(self._label_holder, "candidate_sums", bodies, tree=tree.index, level=level)

    def _log(self, t: int, level: int, tree: _Tree, split: OwnSplit) -> None:
        """The party's own knowledge goes into its own transcript, if it keeps one."""
        if not self._tools.recorder.on:
            return
        entry = own_pb2.OwnSplit(
            handle=split.handle,
            node=split.node,
            feature=split.feature,
            feature_name=have(self._vault).columns[split.feature],
            bin=split.bin,
            threshold=split.threshold,
            missing_left=split.missing_left,
            left=list(chunks_of(tree.rows[2 * split.node], tree.total)),
            right=list(chunks_of(tree.rows[2 * split.node + 1], tree.total)),
        )
        self._tools.recorder.own(t, level, self._tools.attempt, entry)

    def _growing(self, t: int) -> _Tree:
        if self._tree is None or self._tree.index != t:
            raise OutOfOrder(f"tree {t} is not being grown at {self._tools.party}")
        return self._tree

    async def _drop_tree(self) -> None:
        if self._tree is not None:
            tree, self._tree = self._tree, None
            await tree.sums.close()


class _Tree:
    """A tree under construction: the instance spaces that this party knows, its splits, its ciphertexts."""

    def __init__(self, index: int, columns: TreeColumns, sums: EncryptedSums, total: int) -> None:
        self.index, self.columns, self.sums, self.total = index, columns, sums, total
        self.rows: dict[int, Rows] = {ROOT: np.arange(total, dtype=np.int64)}
        self.splits: list[OwnSplit] = []

    def rows_of(self, node: int) -> Rows:
        """The records of a node: known, or what the parent holds and the sibling does not."""
        if node not in self.rows:
            if node >> 1 not in self.rows or node ^ 1 not in self.rows:
                raise OutOfOrder(f"the records of node {node} of tree {self.index} are not known here")
            self.rows[node] = np.setdiff1d(self.rows[node >> 1], self.rows[node ^ 1], assume_unique=True)
        return self.rows[node]

"""Trees grown at a feature party, whatever they are for: columns in, encrypted candidate sums out, no label ever.

Where the ciphertexts come from and when is the protocols' own: `party.boosting`, `party.forest`. Their tables say which
step may follow which; from `build_histograms(t, 0)` on they have these lines in common, except that in a tree that the
party sits out `store_tree(t)` comes at once:

after            may come
build(t, l)      apply_splits(t, l), build_histograms(t, l+1), store_tree(t)
apply(t, l)      build_histograms(t, l+1), store_tree(t)
store_tree(t)    build_histograms(t+1, 0), publish
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from party.alignment.steps import Alignment
from party.config import PartyConfig
from party.growth.handles import Handles
from party.growth.split_table import TreeColumns, Vault
from party.runtime.context import Step, Tools, done, have
from party.runtime.messages import Rows, child_parcels, take_spaces
from party.runtime.steps import Order, StepId
from party.setup.steps import bin_features, bind_table, load_table, table_config, take_key
from treetap.errors import OutOfOrder
from treetap.models.own_split import OwnSplit
from treetap.paillier.public_key import PublicKey
from treetap.paillier.slots import Slots
from treetap.protocols.registry import training_name
from treetap.trees.ensemble import ROOT
from treetap.trees.params import TreeParams
from treetap.wire.frame import result
from treetap.wire.records import chunks_of
from treetap.wire.v2 import control_pb2, growth_pb2, setup_pb2, transcript_pb2

#: Most bytes of packed ciphertexts in one parcel of candidate sums.
SUMS_BYTES = 1024 * 1024


class OwnTree:
    """A tree under construction: the instance spaces that this party knows, and its splits."""

    def __init__(self, index: int, columns: TreeColumns, total: int) -> None:
        self.index, self.columns, self.total = index, columns, total
        self.rows: dict[int, Rows] = {ROOT: np.arange(total, dtype=np.int64)}
        self.splits: list[OwnSplit] = []

    def rows_of(self, node: int) -> Rows:
        """The records of a node: known, or what the parent holds and the sibling does not."""
        if node not in self.rows:
            if node >> 1 not in self.rows or node ^ 1 not in self.rows:
                raise OutOfOrder(f"the records of node {node} of tree {self.index} are not known here")
            self.rows[node] = np.setdiff1d(self.rows[node >> 1], self.rows[node ^ 1], assume_unique=True)
        return self.rows[node]


class GrowingFeatureParty(ABC):
    """Answers the steps of a feature party for one attempt at a job."""

    def __init__(self, config: PartyConfig, tools: Tools, spec: setup_pb2.JobSpec, params: TreeParams) -> None:
        self._config, self._tools, self._spec, self._params = config, tools, spec, params
        self._label_holder = spec.label_holder
        self._vault: Vault | None = None
        self._key: tuple[PublicKey, Slots] | None = None
        self._tree: OwnTree | None = None
        self._handles = Handles()
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

    # --- what each protocol says for itself

    @abstractmethod
    async def _begin(self, t: int) -> OwnTree:
        """A new tree: its columns and its sampled records, with their ciphertexts in the lanes."""

    @abstractmethod
    async def _sum(self, tree: OwnTree, level: int, nodes: list[int]) -> tuple[bytes, Mapping[str, int]]:
        """Packed candidates of these nodes, node by node, and the operations that they took."""

    @abstractmethod
    async def _drop_tree(self) -> None:
        """Forget the tree under construction, if there is one."""

    def _after_key(self) -> list[StepId]:
        """What may come next when the key is there and trees are to be grown: the first tree that is not stored.

        The label holder may have stored fewer trees than this party.
        """
        return [self._first_step(tree) for tree in range(self._tools.store.count() + 1)]

    def _first_step(self, t: int) -> StepId:
        """What a tree begins with here: a party that sits it out only stores that it was there."""
        return ("build_histograms" if self._takes_part(t) else "store_tree"), t, 0

    async def close(self) -> None:
        """Let go of the ciphertexts in the workers."""
        await self._drop_tree()

    # --- steps

    async def prepare(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Read the table; say how many trees of the job are on disk."""
        self._order.check(("prepare", request.round, request.stage))
        config = table_config(self._config, self._spec.table)
        table = await load_table(self._tools, config, with_label=False, missing=self._params.missing)
        await bind_table(self._tools, table)
        aligned = self._alignment.begin(table, keep=True)
        trees = await self._tools.offload(self._tools.store.trees)
        self._handles = Handles(len(tree["splits"]) for tree in trees)
        if self._tools.store.published:
            self._order.then(("publish", 0, 0))
        return result(
            setup_pb2.Prepared(
                stored_rounds=len(trees),
                published=self._tools.store.published,
                aligned_attempt=aligned,
            )
        )

    async def bin(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Bin the columns of the aligned records, once for the job."""
        self._order.check(("bin", request.round, request.stage))
        table = self._alignment.aligned
        binned = await bin_features(self._tools, table, self._params.max_bin)
        self._vault = Vault(self._tools.party, table.columns, binned)
        self._order.then(("take_key", 0, 0), ("publish", 0, 0))
        return done()

    async def take_key(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Wait for the public key of the label holder."""
        self._order.check(("take_key", request.round, request.stage))
        self._key = await take_key(self._tools, self._label_holder, self._spec.key_bits)
        self._order.then(("publish", 0, 0), *self._after_key())
        return done()

    async def build_histograms(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Step 2 of a tree: sum, cumulate, permute, pack, re-randomise, send.

        1. Root: take the sampled records. Below: take the instance spaces that the label holder relayed; a node that
           was not relayed is what its parent holds and its sibling does not.
        2. Every candidate of every node leaves, the empty ones too, in an order of this party's own.
        """
        t, level = request.round, request.stage
        self._order.check(("build_histograms", t, level))
        nodes = list(request.growth.build_histograms.nodes)
        if level == 0:
            await self._drop_tree()
            self._tree = await self._begin(t)
        else:
            tree = self._growing(t)
            relayed = self._tools.mailbox.series(self._label_holder, "instance_spaces", t, level)
            tree.rows.update(await take_spaces(relayed, tree.total))
        await self._send_sums(self._growing(t), level, nodes)
        self._order.then(("apply_splits", t, level), ("build_histograms", t, level + 1), ("store_tree", t, 0))
        return done()

    async def apply_splits(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Step 4 of a tree: keep the splits won, send the children's instance spaces to the label holder."""
        t, level = request.round, request.stage
        self._order.check(("apply_splits", t, level))
        tree = self._growing(t)
        children = []
        for decision in request.growth.apply_splits.decisions:
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
            self._label_holder, "children", child_parcels(children, tree.total), round=t, stage=level
        )
        self._order.then(("build_histograms", t, level + 1), ("store_tree", t, 0))
        return done()

    async def store_tree(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """End of a tree: this party's shard of the tree is on disk before the answer."""
        t = request.round
        self._order.check(("store_tree", t, request.stage))
        splits = self._growing(t).splits if self._takes_part(t) else []
        leaves: list[list[list[int]]] = []
        async for parcel in self._tools.mailbox.series(self._label_holder, "leaf_paths", t, 0):
            leaves += [
                [[turn.handle, int(turn.left)] for turn in leaf.branches] for leaf in parcel.growth.leaf_paths.leaves
            ]
        shard: dict[str, Any] = {"tree": t, "splits": [split.to_dict() for split in splits], "leaves": leaves}
        self._tools.store.add_tree(shard, t)
        self._handles.stored(t, len(splits))
        await self._drop_tree()
        self._tools.mailbox.forget(t)
        self._order.then(self._first_step(t + 1), ("publish", 0, 0))
        return done()

    async def publish(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Progress becomes a model."""
        self._order.check(("publish", request.round, request.stage))
        if not self._tools.store.published:
            table = self._alignment.aligned
            manifest = {
                "role": "feature_party",
                "job": self._tools.job,
                "party": self._tools.party,
                "protocol": training_name(self._spec),
                "label_holder": self._label_holder,
                "missing": None if np.isnan(self._params.missing) else self._params.missing,
                **table.described(),
                "trees": self._tools.store.count(),
            }
            self._tools.store.publish(manifest)
        self._order.then()
        return done()

    def _takes_part(self, t: int) -> bool:
        return self._params.takes_part(t, self._tools.party)

    def _columns(self, t: int) -> Vault:
        """The vault, which numbers the handles of this tree on from those of the stored ones."""
        vault = have(self._vault)
        vault.next_handle_is(self._handles.first_of(t))
        return vault

    async def _send_sums(self, tree: OwnTree, level: int, nodes: list[int]) -> None:
        public, _ = have(self._key)
        packed, operations = await self._sum(tree, level, nodes)
        ledger = self._tools.ledger
        ledger.operations.update(operations)
        ledger.ciphertexts["candidate_sums"] += len(packed) // public.ciphertext_bytes
        step = SUMS_BYTES // public.ciphertext_bytes * public.ciphertext_bytes
        bodies = [
            growth_pb2.CandidateSums(
                nodes=nodes if start == 0 else [],
                candidates=len(tree.columns.candidates),
                ciphertexts=packed[start : start + step],
            )
            for start in range(0, max(len(packed), 1), step)
        ]
        await self._tools.outbox.send(self._label_holder, "candidate_sums", bodies, round=tree.index, stage=level)

    def _log(self, t: int, level: int, tree: OwnTree, split: OwnSplit) -> None:
        """The party's own knowledge goes into its own transcript, if it keeps one."""
        if not self._tools.recorder.on:
            return
        entry = transcript_pb2.OwnSplit(
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

    def _growing(self, t: int) -> OwnTree:
        if self._tree is None or self._tree.index != t:
            raise OutOfOrder(f"tree {t} is not being grown at {self._tools.party}")
        return self._tree


def since(before: Mapping[str, int], now: Mapping[str, int]) -> Mapping[str, int]:
    """Operations since an earlier count."""
    return Counter({name: count - before.get(name, 0) for name, count in now.items()})

"""Trees grown at a feature party, whatever they are for: columns in, encrypted candidate sums out, no label ever.

A word's feature party has this part. Its own are the columns of a tree, the ciphertexts that it sums, and what it
forgets after a tree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from party.growth.split_table import TreeColumns
from party.growth.stored_trees import StoredTrees
from party.runtime.context import StepContext, empty_result
from party.runtime.messages import Rows, child_parcels, take_spaces
from party.runtime.step_order import NEXT_ROUND, NEXT_STAGE, SAME, THIS_ROUND, Next, StepOrder, StepTable
from treetap.errors import OutOfOrder
from treetap.models.own_split import OwnSplit
from treetap.trees.ensemble import ROOT
from treetap.wire.records import chunks_of
from treetap.wire.v2 import control_pb2, growth_pb2, transcript_pb2

#: Most bytes of packed ciphertexts in one parcel of candidate sums.
SUMS_BYTES = 1024 * 1024

#: Conditions on a tree, which a role's order asks for (`TreeParams.takes_part`).
TAKES_PART = "the party takes part in that tree"
SITS_OUT = "the party sits that tree out"

#: From a tree's first step to the next tree's. Of a tree that the party sits out there is `store_tree` alone.
TREE_STEPS: StepTable = {
    "build_histograms": (
        Next("apply_splits", SAME),
        Next("build_histograms", NEXT_STAGE),
        Next("store_tree", THIS_ROUND),
    ),
    "apply_splits": (Next("build_histograms", NEXT_STAGE), Next("store_tree", THIS_ROUND)),
    "store_tree": (
        Next("build_histograms", NEXT_ROUND, TAKES_PART),
        Next("store_tree", NEXT_ROUND, SITS_OUT),
        Next("publish"),
    ),
    "publish": (),
}


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


class FeaturePartyGrowth:
    """A growing tree at a feature party, from its root's columns to its line on disk."""

    def __init__(self, context: StepContext, label_holder: str, order: StepOrder, stored: StoredTrees) -> None:
        self._context, self._label_holder, self._order, self._stored = context, label_holder, order, stored
        self._tree: OwnTree | None = None

    def plant(self, t: int, columns: TreeColumns, total: int) -> OwnTree:
        """Begin a tree of `total` records, in the place of one that was not finished."""
        self._tree = OwnTree(t, columns, total)
        return self._tree

    def forget(self) -> None:
        """Forget the tree under construction, if there is one."""
        self._tree = None

    async def take_spaces(self, t: int, level: int) -> OwnTree:
        """Take the instance spaces that the label holder relayed.

        A node that was not relayed is what its parent holds and its sibling does not.
        """
        tree = self._growing(t)
        relayed = self._context.mailbox.series(self._label_holder, "instance_spaces", t, level)
        tree.rows.update(await take_spaces(relayed, tree.total))
        return tree

    async def send_sums(
        self, tree: OwnTree, level: int, nodes: list[int], packed: bytes, ciphertext_bytes: int
    ) -> None:
        """Send the packed candidates of these nodes, node by node: every candidate, the empty ones too."""
        self._context.costs.ciphertexts["candidate_sums"] += len(packed) // ciphertext_bytes
        step = SUMS_BYTES // ciphertext_bytes * ciphertext_bytes
        bodies = [
            growth_pb2.CandidateSums(
                nodes=nodes if start == 0 else [],
                candidates=len(tree.columns.candidates),
                ciphertexts=packed[start : start + step],
            )
            for start in range(0, max(len(packed), 1), step)
        ]
        await self._context.outbox.send(self._label_holder, "candidate_sums", bodies, round=tree.index, stage=level)

    async def apply_splits(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Step 4 of a tree, for the nodes that this party won.

        1. Take the lowest of the tied candidates and enter the split under the next handle.
        2. Send handle and left records of each node to the label holder.
        """
        t, level = request.round, request.stage
        self._order.check(request)
        tree = self._growing(t)
        children: list[tuple[int, int, Rows]] = []
        for decision in request.growth.apply_splits.decisions:
            rows = tree.rows_of(decision.node)
            split, left = tree.columns.split(decision.node, rows, list(decision.candidates))
            tree.splits.append(split)
            tree.rows[2 * decision.node] = left
            tree.rows[2 * decision.node + 1] = np.setdiff1d(rows, left, assume_unique=True)
            for child in (2 * decision.node, 2 * decision.node + 1):
                self._context.policy.check_space(self._context.party, self._label_holder, child, len(tree.rows[child]))
            children.append((decision.node, split.handle, left))
            self._record(t, level, tree, split)
        await self._context.outbox.send(
            self._label_holder, "children", child_parcels(children, tree.total), round=t, stage=level
        )
        self._order.done(request)
        return empty_result()

    async def store(self, t: int, *, takes_part: bool) -> None:
        """Put this party's part of a tree on disk: its splits, and its turns on the way to each leaf."""
        splits = self._growing(t).splits if takes_part else []
        leaves: list[list[list[int]]] = []
        async for parcel in self._context.mailbox.series(self._label_holder, "leaf_paths", t, 0):
            leaves += [
                [[turn.handle, int(turn.left)] for turn in leaf.branches] for leaf in parcel.growth.leaf_paths.leaves
            ]
        line: dict[str, Any] = {"tree": t, "splits": [split.to_dict() for split in splits], "leaves": leaves}
        self._stored.add(t, line)
        self.forget()
        self._context.mailbox.forget(t)

    def _record(self, t: int, level: int, tree: OwnTree, split: OwnSplit) -> None:
        """The party's own knowledge goes into its own transcript, if it keeps one."""
        if not self._context.recorder.on:
            return
        entry = transcript_pb2.OwnSplit(
            handle=split.handle,
            node=split.node,
            feature=split.feature,
            feature_name=tree.columns.name_of(split),
            bin=split.bin,
            threshold=split.threshold,
            missing_left=split.missing_left,
            left=list(chunks_of(tree.rows[2 * split.node], tree.total)),
            right=list(chunks_of(tree.rows[2 * split.node + 1], tree.total)),
        )
        self._context.recorder.own(t, level, self._context.attempt, entry)

    def _growing(self, t: int) -> OwnTree:
        if self._tree is None or self._tree.index != t:
            raise OutOfOrder(f"tree {t} is not being grown at {self._context.party}")
        return self._tree


def since(before: Mapping[str, int], now: Mapping[str, int]) -> Mapping[str, int]:
    """Operations since an earlier count."""
    return Counter({name: count - before.get(name, 0) for name, count in now.items()})

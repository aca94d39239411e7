"""One tree of PIVODL as a party knows it while it grows, and the line of its shard that the party stores.

All parties know the tree's shape: the source and handle of every split, the party that opened it, and the leaves. Each
knows besides what its roles brought it: its own splits as a source, weights of leaves that it keeps.

A stored line:

    tree      its number
    splits    the own splits (`OwnSplit`)
    nodes     of every split, of all parties: node, source, handle, opener (the split party that opened it)
    leaves    of every leaf: node, keeper (the party that keeps its weight: the opener of the split above; of a tree
              without splits the encryption party)
    weights   received look-up table: of every leaf that this party keeps: node, source and handle of the split above
              (of a tree without splits "" and 0), left (which side), weight (exact), and, where the job has epsilon,
              released: the weight with the noise with which its source got it
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from treetap.arrays import Floats, Ints, Rows
from treetap.models.own_split import OwnSplit
from treetap.trees.ensemble import ROOT
from treetap.trees.pivodl_rules import RoleDraws, barred


@dataclass(frozen=True)
class Division:
    """A split that all parties know: its source and handle, and the split party that opened it."""

    source: str
    handle: int
    opener: str


class GrowingTree:
    """The tree under construction at one party.

    Args:
        total: the number of common records.
        draws: those of the job's parties.
        guarded: bar parties that could compute a leaf's weight from draws beside that leaf.

    Attributes:
        rows: node → its records, of nodes that may be split; of leaves those that this party labels.
        sums: node → (2K,) its sums, where this party received or opened them.
        divisions: node → its split, of every node that was split.
        leaves: leaf → the party that keeps its weight.
        open: the nodes of the current level that may be split.
        splits: the own splits.
        weights: leaf → (K,) exact weight, of leaves that this party keeps.
        released: leaf → (K,) the same with the noise with which its source got it.
    """

    def __init__(self, index: int, total: int, draws: RoleDraws, *, guarded: bool) -> None:
        self.index, self._draws, self._guarded = index, draws, guarded
        self.rows: dict[int, Rows] = {ROOT: np.arange(total, dtype=np.int64)}
        self.sums: dict[int, Ints] = {}
        self.divisions: dict[int, Division] = {}
        self.leaves: dict[int, str] = {}
        self.open: list[int] = [ROOT]
        self.splits: list[OwnSplit] = []
        self.weights: dict[int, Floats] = {}
        self.released: dict[int, Floats] = {}

    def split_party(self, node: int, source: str) -> str | None:
        """The party that opens a source's candidates at a node; None if no party may."""
        out = frozenset[str]()
        if self._guarded:
            sources = {split: division.source for split, division in self.divisions.items()}
            out = barred(node, sources, self.leaves)
        return self._draws.split_party(self.index, node, source, out)

    def split_parties(self, node: int) -> list[str]:
        """All parties that open candidates of some source at a node, in the order of the job."""
        drawn = {self.split_party(node, source) for source in self._draws.parties}
        return [party for party in self._draws.parties if party in drawn]

    def keeper(self, leaf: int) -> str:
        return self._draws.encryption_party(self.index) if leaf == ROOT else self.divisions[leaf >> 1].opener

    def source_above(self, leaf: int) -> str | None:
        """The source that split a leaf's parent, which gets its weight with noise; None at the root."""
        return None if leaf == ROOT else self.divisions[leaf >> 1].source

    def end(self, leaf: int) -> None:
        self.leaves[leaf] = self.keeper(leaf)

    def line(self) -> dict[str, Any]:
        """The tree as it is stored: see the head of this module."""
        return {
            "tree": self.index,
            "splits": [split.to_dict() for split in self.splits],
            "nodes": [
                {"node": node, "source": split.source, "handle": split.handle, "opener": split.opener}
                for node, split in sorted(self.divisions.items())
            ],
            "leaves": [{"node": leaf, "keeper": keeper} for leaf, keeper in sorted(self.leaves.items())],
            "weights": [self._weight(leaf) for leaf in sorted(self.weights)],
        }

    def _weight(self, leaf: int) -> dict[str, Any]:
        above = self.divisions.get(leaf >> 1)
        released = self.released.get(leaf)
        return {
            "node": leaf,
            "source": above.source if above else "",
            "handle": above.handle if above else 0,
            "left": leaf % 2 == 0,
            "weight": [float(number) for number in self.weights[leaf]],
            **({} if released is None else {"released": [float(number) for number in released]}),
        }

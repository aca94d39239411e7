"""Predictions while the owners of some splits are away: at their splits a record goes both ways, by the covers.

Each side gets the share that its cover has of the two: Σ h in boosting, drawn records in a forest, which the label
holder knows for every node. It is the value v(S) of path-dependent TreeSHAP (Lundberg et al. 2020, Algorithm 1) for the
set S of owners that are present. The share of a record that reaches a node is a product over the splits of the absent
above it, the same for every record, and 1 if no owner is away.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import numpy as np
import numpy.typing as npt

from treetap.arrays import Bools, Floats
from treetap.trees.ensemble import ROOT, Split, Tree, cover_shares, route, weights_at
from treetap.trees.paths import Decide, among, covering

#: Places of records in a block of n, 0..n-1.
Places = npt.NDArray[np.int32]
#: The mask of some of the records that go left at a split: (split, places) → (len(places),).
PlacesLeft = Callable[[Split, Places], Bools]
_NONE: Places = np.zeros(0, dtype=np.int32)


class Guesses:
    """The guessed part of the path of each of n records, over all trees that they walk."""

    def __init__(self, n: int) -> None:
        self.passed: Floats = np.zeros(n)
        self.guessed: Floats = np.zeros(n)

    def share(self) -> Floats:
        """Of the splits on each record's path, the share whose owner was away (n,).

        A split that only a part of the record reaches counts by that part; 0 where no tree has a split.
        """
        return np.divide(self.guessed, self.passed, out=np.zeros_like(self.passed), where=self.passed > 0)


class Walk:
    """n records on their way down one tree; `standing`: heap number → places of the records at that node.

    Raises DataError where an absent owner's split has no cover to share by.
    """

    def __init__(self, tree: Tree, n: int, guesses: Guesses, away: Collection[str] = ()) -> None:
        self._tree, self._n, self._guesses, self._away = tree, n, guesses, away
        self._splits = {split.node: split for split in tree.splits}
        self._shares = reaching(tree, away)
        self.standing: dict[int, Places] = {}
        self._arrive(ROOT, np.arange(n, dtype=np.int32))

    def waiting(self) -> list[tuple[Split, Places]]:
        """The splits at which records are, by node; none if all are at leaves."""
        return [(self._splits[node], self.standing[node]) for node in sorted(self.standing) if node in self._splits]

    def at(self, node: int) -> Places:
        """The places of the records at a node, (m,)."""
        return self.standing.get(node, _NONE)

    def move(self, node: int, left: Bools) -> None:
        """Move the records at a split to its children: `left` (m,) marks those that go left."""
        places = self.standing.pop(node, _NONE)
        if not len(places):
            return
        self._arrive(2 * node, places[left])
        self._arrive(2 * node + 1, places[~left])

    def values(self, goes_left: PlacesLeft) -> Floats:
        """The tree's part of the score, (n, outputs of the tree), of records that are all at leaves.

        `goes_left` answers for the splits of local subtrees.
        """
        sums = np.zeros((self._n, len(self._tree.outputs)))
        covered = covering(self._tree)
        for leaf in self._tree.leaves:
            if leaf.node in self.standing and leaf.node not in covered:
                sums[self.standing[leaf.node]] += self._shares[leaf.node] * np.array(leaf.weights)
        for subtree in self._tree.local:
            nodes = [node for node, root in covered.items() if root is subtree and node in self.standing]
            at = [self.standing[node] for node in nodes]
            places = np.unique(np.concatenate([_NONE, *at]))  # below splits of the absent one is at several leaves
            reached = route(subtree.splits, len(places), among(goes_left, places), subtree.root)
            values = weights_at(subtree.leaves, reached)
            for node, here in zip(nodes, at, strict=True):
                sums[here] += self._shares[node] * values[np.searchsorted(places, here)]
        return sums

    def open_leaves(self) -> Bools:
        """The leaves at which the records are (n, leaves), once all are at leaves: one each if no owner is away."""
        mask = np.zeros((self._n, len(self._tree.leaves)), dtype=bool)
        for column, leaf in enumerate(self._tree.leaves):
            if leaf.node in self.standing:
                mask[self.standing[leaf.node], column] = True
        return mask

    def _arrive(self, node: int, places: Places) -> None:
        if not len(places):
            return
        split = self._splits.get(node)
        if split is not None:
            self._guesses.passed[places] += self._shares[node]
            if split.owner in self._away:
                self._guesses.guessed[places] += self._shares[node]
                self._arrive(2 * node, places)
                self._arrive(2 * node + 1, places)
                return
        self.standing[node] = places


def reaching(tree: Tree, away: Collection[str]) -> dict[int, float]:
    """Node → the share of a record that comes there if it does at all."""
    shares, covers = {ROOT: 1.0}, cover_shares(tree) if away else {}
    for split in sorted(tree.splits, key=lambda split: split.node):
        left, right = covers[split.node] if split.owner in away else (1.0, 1.0)
        shares[2 * split.node], shares[2 * split.node + 1] = shares[split.node] * left, shares[split.node] * right
    return shares


def expected_guesses(trees: Iterable[Tree], n: int, decide: Decide, away: Collection[str]) -> Floats:
    """The expected guessed share of each of n records, for a party that sees no path of theirs.

    `decide` answers for splits that the party knows; all others count with both sides, by the covers. Of the expected
    splits on a record's path the share whose owner is away (n,); 0 where no tree has a split.
    """
    guesses = Guesses(n)
    for tree in trees:
        splits, shares = {split.node: split for split in tree.splits}, cover_shares(tree)
        waiting = [(ROOT, np.ones(n))]
        while waiting:
            node, part = waiting.pop()
            if (split := splits.get(node)) is None:
                continue
            guesses.passed += part
            if split.owner in away:
                guesses.guessed += part
            left = decide(split)
            ways = shares[node] if left is None else (left, ~left)
            waiting += [(2 * node, part * ways[0]), (2 * node + 1, part * ways[1])]
    return guesses.share()


def open_ways(tree: Tree, n: int, decide: Decide, away: Collection[str]) -> Floats:
    """The number of ways in which the other present parties may send each of n records down a tree (n,).

    `decide` answers for the caller's own splits. If no owner is away these are the candidate leaves. Below a split of
    the absent both sides are taken, so that the ways of one combine with those of the other.
    """
    splits = {split.node: split for split in tree.splits}

    def ways(node: int) -> Floats:
        if (split := splits.get(node)) is None:
            return np.ones(n)
        left, right = ways(2 * node), ways(2 * node + 1)
        if split.owner in away:
            return left * right
        goes_left = decide(split)
        return left + right if goes_left is None else np.where(goes_left, left, right)

    return ways(ROOT)

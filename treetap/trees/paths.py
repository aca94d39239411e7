"""Candidate leaves: the leaves that a record may still reach when only some splits are decided.

Fed-EINI (Chen et al. 2021, section III) calls f_k^m(x) the candidate set of party m: every leaf of tree k that x can
reach when the splits of other parties may go either way. The leaf that x does reach is the one in the intersection of
all parties' sets (Proposition 1). In this module a leaf is a column, in the order of `Tree.leaves`.

How much a score hides. The label holder knows the weights, its own candidate sets and the score, so the score is one
equation about which leaf of each candidate set was reached. It has about 2^(candidate bits − output bits) solutions.
If that number is small, the equation can be solved, which reveals the other parties' decisions.

Values of leaves that differ from record to record: those at or below the roots of a tree's local subtrees.

Other parties know a tree's shape without these subtrees. A record that reaches such a leaf in that shape gets the value
that the label holder's own columns give it in the subtree.

Predictions while the owners of some splits are away: at their splits a record goes both ways, by the covers.

Each side gets the share that its cover has of the two: Σ h in boosting, drawn records in a forest, which the label
holder knows for every node. It is the value v(S) of path-dependent TreeSHAP (Lundberg et al. 2020, Algorithm 1) for the
set S of owners that are present. The share of a record that reaches a node is a product over the splits of the absent
above it, the same for every record, and 1 if no owner is away.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from treetap.arrays import Array, Bools, Floats, Ints
from treetap.trees.ensemble import ROOT, Ensemble, Split, Subtree, Tree, cover_shares, deciding_tree, route, weights_at

#: The mask of some records (rows) that go left at a split: (split, rows) → (len(rows),).
RowsLeft = Callable[[Split, Ints], Bools]
#: For a party's own handle, the records that go left (n,).
GoesLeft = Callable[[int], Bools]


def covering(tree: Tree) -> dict[int, Subtree]:
    """Heap number of each leaf that a local subtree replaces → this subtree."""
    roots = {subtree.root: subtree for subtree in tree.local}
    covered = {}
    for leaf in tree.leaves:
        node = leaf.node
        while node and node not in roots:
            node >>= 1
        if node:
            covered[leaf.node] = roots[node]
    return covered


class ValueTable:
    """All values that a tree gives to records, each a row, and which row a record has at a leaf.

    Rows are the leaves in order, without those that a local subtree replaces; then the leaves of the local subtrees.

    Attributes:
        weights: (rows, outputs).
        leaves: the leaves to which the rows belong, of the tree or of a subtree.
    """

    def __init__(self, tree: Tree) -> None:
        self._tree, self.leaves = tree, list(deciding_tree(tree).leaves)
        self.weights: Floats = np.array([leaf.weights for leaf in self.leaves], dtype=np.float64)

    def rows(self, n: int, goes_left: GoesLeft) -> list[int | Ints]:
        """Of each leaf of the tree, in order, the row of all records that reach it, or those of n records (n,)."""
        covered, of_local = covering(self._tree), dict[int, Ints]()
        nodes = np.array([leaf.node for leaf in self.leaves])
        order = np.argsort(nodes)
        for subtree in self._tree.local:
            reached = route(subtree.splits, n, lambda split, rows: goes_left(split.handle)[rows], subtree.root)
            of_local[subtree.root] = order[np.searchsorted(nodes[order], reached)]
        own = {leaf.node: row for row, leaf in enumerate(self.leaves)}
        above = (covered.get(leaf.node) for leaf in self._tree.leaves)
        pairs = zip(self._tree.leaves, above, strict=True)
        return [own[leaf.node] if subtree is None else of_local[subtree.root] for leaf, subtree in pairs]


def leaf_decided(tree: Tree, reached: Ints, goes_left: RowsLeft) -> Ints:
    """The leaf (N,) of the deciding tree of records that reached these leaves (N,) of the shape that all parties know.

    `goes_left` answers for the label holder's own splits, with rows from 0 to N − 1.
    """
    by_leaf, decided = covering(tree), np.array(reached, dtype=np.int64)
    for subtree in tree.local:
        rows = np.flatnonzero(np.isin(reached, [leaf for leaf, root in by_leaf.items() if root is subtree]))
        decided[rows] = route(subtree.splits, len(rows), among(goes_left, rows), subtree.root)
    return decided


def reached_values(tree: Tree, reached: Ints, goes_left: RowsLeft) -> Floats:
    """The values (N, outputs) of records that reached these leaves (N,): see `leaf_decided`."""
    return deciding_tree(tree).values(leaf_decided(tree, reached, goes_left))


def among(goes_left: Callable[[Split, Any], Bools], rows: Array) -> RowsLeft:
    """The same answers for places in `rows` in the place of rows."""
    return lambda split, places: goes_left(split, rows[places])


#: The mask (n,) of records that go left at a split; None: not known here, they may go either way.
Decide = Callable[[Split], Bools | None]
#: A split's key: the split, or its handle at its owner.
Name = TypeVar("Name", bound=Hashable)


def deciding(party: str, goes_left: GoesLeft) -> Decide:
    """A party's answers: of its own splits alone."""
    return lambda split: goes_left(split.handle) if split.owner == party else None


def paths(tree: Tree) -> dict[int, tuple[tuple[Split, bool], ...]]:
    """Leaf (heap number) → its splits from the root down, each with True if the path goes left there."""
    splits = {split.node: split for split in tree.splits}
    ways_to = {}
    for leaf in tree.leaves:
        depth = leaf.node.bit_length() - 1
        ways = ((leaf.node >> up, leaf.node >> (up - 1)) for up in range(depth, 0, -1))
        ways_to[leaf.node] = tuple((splits[parent], child % 2 == 0) for parent, child in ways)
    return ways_to


def candidate_leaves(tree: Tree, n: int, decide: Decide) -> Bools:
    """f_k(x) of n records under the splits that `decide` answers: (n, leaves)."""
    return reachable(list(paths(tree).values()), n, decide)


def reachable(ways: Sequence[Sequence[tuple[Name, bool]]], n: int, decide: Callable[[Name], Bools | None]) -> Bools:
    """The ways that n records can go to the end, (n, ways); a way is its splits, each with True if it goes left."""
    decided = {name: decide(name) for name in dict.fromkeys(name for way in ways for name, _ in way)}
    mask = np.ones((n, len(ways)), dtype=bool)
    for column, way in enumerate(ways):
        for name, left in way:
            goes_left = decided[name]
            if goes_left is not None:
                mask[:, column] &= goes_left if left else ~goes_left
    return mask


def condition(
    name: str,
    threshold: float,
    missing_left: bool,
    left: bool,
    categories: Sequence[str] | None = None,
    shown: Callable[[float], str] = "{:.6g}".format,
) -> str:
    """The condition on a feature for taking a side. An infinite threshold separates missing values from all others.

    `categories`: those that go right, where the split is one of categories. `shown`: a threshold as text.
    """
    if categories is not None:
        side = f"{name} {'not in' if left else 'in'} {{{', '.join(categories)}}}"
        return f"{side} or missing" if left == missing_left else side
    if math.isinf(threshold):
        return f"{name} is missing" if left == missing_left else f"{name} is present"
    side = f"{name} {'<' if left else '≥'} {shown(threshold)}"
    return f"{side} or missing" if left == missing_left else side


def candidate_bits(masks: Iterable[Bools]) -> Floats:
    """log2 Π_k |f_k(x)| of n records over trees with candidate masks (n, leaves): (n,)."""
    bits: Floats = np.sum([np.log2(mask.sum(axis=1)) for mask in masks], axis=0, dtype=np.float64)
    return bits


def output_bits(trees: Iterable[Tree], fraction_bits: int) -> float:
    """log2 of the number of sums that trees of the same outputs can have, in units of 2^−fraction_bits.

    Every output counts by the distance from its least to its greatest sum, so this is never too low.
    """
    low: defaultdict[int, float] = defaultdict(float)
    high: defaultdict[int, float] = defaultdict(float)
    for tree in trees:
        weights = ValueTable(tree).weights
        for column, output in enumerate(tree.outputs):
            low[output] += float(weights[:, column].min())
            high[output] += float(weights[:, column].max())
    return math.fsum(math.log2(math.ldexp(high[k] - low[k], fraction_bits) + 1.0) for k in low)


def spare_bits(ensemble: Ensemble, bits: Sequence[Floats], fraction_bits: int) -> Floats:
    """Candidate bits beyond the output's of n records, (n,); `bits` (n,) of each used tree, in order."""
    return least_spare(ensemble, bits, lambda trees: output_bits(trees, fraction_bits))


def least_spare(ensemble: Ensemble, bits: Sequence[Floats], known: Callable[[list[Tree]], float]) -> Floats:
    """Candidate bits of n records, of each used tree, beyond those that are `known` of trees of the same outputs: (n,).

    Trees that add to different outputs are different equations, each with its own unknowns: the least of them counts.
    That is about scores alone: attributions are further equations, some over few trees.
    """
    groups: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
    trees = ensemble.used_trees
    for k, tree in enumerate(trees):
        groups[tree.outputs].append(k)
    spare = [np.sum([bits[k] for k in group], axis=0) - known([trees[k] for k in group]) for group in groups.values()]
    return np.min(spare, axis=0) if spare else np.zeros(len(bits[0]) if bits else 0)


def least_candidate_bits(own_nodes: Iterable[Iterable[int]]) -> float:
    """A lower bound of every record's candidate bits, from one party's splits (heap numbers) in each tree alone."""
    return math.fsum(math.log2(least_candidates(nodes)) for nodes in own_nodes)


def least_candidates(own_nodes: Iterable[int]) -> int:
    """The least number of candidate leaves of a tree for a party that decides all splits but these heap numbers.

    A feature party can compute this bound without other parties' splits: at each node that is not its own it takes the
    side with fewer of its own splits. A record whose path meets none of them has one candidate leaf.
    """
    own = frozenset(own_nodes)
    inside = {node >> up for node in own for up in range(node.bit_length())}

    def least(node: int) -> int:
        if node not in inside:
            return 1
        left, right = least(2 * node), least(2 * node + 1)
        return left + right if node in own else min(left, right)

    return least(ROOT)


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

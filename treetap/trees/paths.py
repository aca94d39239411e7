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
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from treetap.arrays import Array, Bools, Floats, Ints
from treetap.trees.ensemble import ROOT, Ensemble, Split, Subtree, Tree, deciding_tree, route

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

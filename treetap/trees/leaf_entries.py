"""The entries of candidate sets of leaves on the chain (Fed-EINI, Chen et al. 2021); see `treetap.trees.paths`.

The decision vector passes along a chain: the label holder, then the other parties in a stated order. On its way to
member h of the chain the leaves of a tree that agree in all branches at splits of members h, h+1, … are one *entry*: no
member from there on could keep one and drop the other. Only their sum matters, and at most one of them is not zero at
the label holder, whose own split separates them. Entry 0 holds the leaves without such branches, of all trees together;
after the last member only this entry remains, the sum of equation 14 (of equation 10 with one feature party).

Where owners are away a record goes both ways at their splits, by the covers (`treetap.trees.paths`): each
leaf's weight is multiplied with the share that reaches it, and leaves that only the absent separate add up.

Leaves that a local subtree replaces (`treetap.trees.paths`) have a value per record. Entries, their numbers and
the margin follow from the trees that all parties know, and no entry is constant then.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from treetap.arrays import Floats, Ints
from treetap.trees.ensemble import Ensemble, Tree
from treetap.trees.paths import (
    Decide,
    GoesLeft,
    ValueTable,
    candidate_leaves,
    deciding,
    open_ways,
    paths,
    reaching,
    spare_bits,
)

#: Every sum of leaf weights lies below 2^SUM_BITS in fixed point, whatever the model.
SUM_BITS = 57
#: log2 of how far a score may be from the exact one: 4.7e-10, for scores below 1 that share of the largest.
ERROR_BITS = -31


def entries_along(trees: Sequence[Tree], chain: Sequence[str]) -> list[list[Ints]]:
    """For each hop h of the chain and one more, for each tree, the entry of each leaf (leaves,) on the way to member h.

    Entries are numbered from 0 for each hop, in the order of trees and leaves.
    """
    ways = [list(paths(tree).values()) for tree in trees]
    hops = []
    for hop in range(len(chain) + 1):
        further = frozenset(chain[hop:])
        numbers: dict[object, int] = {(): 0}
        of_hop = []
        for tree, leaves in zip(trees, ways, strict=True):
            keys = [tuple((split.node, left) for split, left in way if split.owner in further) for way in leaves]
            entries = [numbers.setdefault((tree.index, key) if key else (), len(numbers)) for key in keys]
            of_hop.append(np.array(entries, dtype=np.int64))
        hops.append(of_hop)
    return hops


@dataclass(frozen=True)
class TreeHop:
    """One tree on one hop: its number, its columns of the score, its leaves' entries as they come and as they go on."""

    tree: int
    outputs: tuple[int, ...]
    incoming: Ints
    outgoing: Ints


class LeafEntries:
    """The label holder's side of equation 8: W_k for each tree, its leaves in entries, in fixed point.

    The scale is private. It is as coarse as 2^ERROR_BITS allows, because every bit of a sum helps an attacker that
    searches for its paths, and such that no sum of leaf weights reaches 2^SUM_BITS: where that is less, for scores from
    about 10^6 on, they are exact to 57 bits.

    Args:
        ensemble: the model.
        party: the label holder.
        chain: the other parties that are there, in the order in which the entries travel.
        away: the others.
        public: the model as all parties know it, by which the margin counts, if `ensemble` has other values.
        hides_constants: no entry counts as constant, so that which ones are does not tell where local subtrees are.

    Raises:
        ValueError: an owner is away, and a tree has local subtrees.

    Attributes:
        constant: entries that are the same for every record: no split of the label holder lies on the way.
        varying: the others, ascending; entry 0 is always one of them.
        fraction_bits: binary places of the leaf weights as they travel.
    """

    def __init__(
        self,
        ensemble: Ensemble,
        party: str,
        chain: Sequence[str],
        away: Collection[str] = (),
        *,
        public: Ensemble | None = None,
        hides_constants: bool = False,
    ) -> None:
        self._ensemble, self._party, self._away = ensemble, party, frozenset(away)
        self._public = ensemble if public is None else public
        self._trees, self._outputs = ensemble.used_trees, len(ensemble.base_margin)
        hides = hides_constants or any(tree.local for tree in self._trees)
        if away and any(tree.local for tree in self._trees):
            raise ValueError("trees with local subtrees need all parties")
        self._hops = entries_along(self._trees, chain)
        # One leaf below a split of the label holder makes the whole entry vary.
        fixed: dict[int, bool] = {0: False}
        for entries, tree in zip(self._hops[0], self._trees, strict=True):
            for entry, way in zip(entries.tolist(), paths(tree).values(), strict=True):
                same = not hides and all(split.owner != party for split, _ in way)
                fixed[entry] = fixed.get(entry, True) and same
        self.constant = np.array([entry for entry in sorted(fixed) if fixed[entry]], dtype=np.int64)
        self.varying = np.array([entry for entry in sorted(fixed) if not fixed[entry]], dtype=np.int64)
        self._place = np.zeros(len(fixed), dtype=np.int64)
        self._place[self.constant] = np.arange(len(self.constant))
        self._place[self.varying] = np.arange(len(self.varying))
        self._fixed = np.zeros(len(fixed), dtype=bool)
        self._fixed[self.constant] = True
        self.fraction_bits = _fraction_bits(ensemble, self._away)
        self._tables = [ValueTable(tree) for tree in self._trees]
        weights = (_weights(tree, table, self._away) for tree, table in zip(self._trees, self._tables, strict=True))
        #: Of each tree its values (rows, outputs), as `ValueTable` has them.
        self._weights = [np.rint(np.ldexp(of_tree, self.fraction_bits)).astype(np.int64) for of_tree in weights]

    def hops(self) -> list[list[TreeHop]]:
        """The plan for each member of the chain."""
        return [
            [
                TreeHop(tree.index, tree.outputs, *(entries[tree.shown_leaves] for entries in both))
                for tree, *both in zip(self._trees, here, there, strict=True)
            ]
            for here, there in zip(self._hops, self._hops[1:], strict=False)
        ]

    def constants(self) -> Ints:
        """Values of the constant entries (entries, outputs)."""
        sums = np.zeros((len(self.constant), self._outputs), dtype=np.int64)
        if not len(self.constant):  # as always where a table has rows of local subtrees, fewer or more than leaves
            return sums
        for tree, entries, weights in zip(self._trees, self._hops[0], self._weights, strict=True):
            for entry, weight in zip(entries.tolist(), weights, strict=True):
                if self._fixed[entry]:
                    sums[self._place[entry], list(tree.outputs)] += weight
        return sums

    def values(self, goes_left: GoesLeft, n: int) -> Ints:
        """Values of the varying entries of n records (n, entries, outputs): those of their candidate leaves."""
        sums = np.zeros((n, len(self.varying), self._outputs), dtype=np.int64)
        parts = zip(self._trees, self._hops[0], self._tables, self._weights, strict=True)
        for tree, entries, table, weights in parts:
            outputs = np.array(tree.outputs)
            sets = candidate_leaves(tree, n, deciding(self._party, goes_left))
            rows = table.rows(n, goes_left)
            for place in np.flatnonzero(~self._fixed[entries]):
                kept = np.flatnonzero(sets[:, place])
                row = rows[place]
                value = weights[row if isinstance(row, int) else row[kept]]
                sums[kept[:, np.newaxis], self._place[entries[place]], outputs] += value
        return sums

    def spare(self, decide: Decide, n: int) -> Floats:
        """Bits by which the candidate leaves of n records exceed the possible sums, (n,): see `paths.spare_bits`."""
        bits = [np.log2(open_ways(tree, n, decide, self._away)) for tree in self._public.used_trees]
        return spare_bits(self._public, bits, _fraction_bits(self._public, self._away))

    def weights(self, sums: Ints) -> Floats:
        """Sums (n, outputs) in fixed point as leaf weights."""
        return np.ldexp(sums.astype(np.float64), -self.fraction_bits)


def _weights(tree: Tree, table: ValueTable, away: Collection[str]) -> Floats:
    """The addend of each row of a tree's table to the tree's columns of the score (rows, outputs)."""
    if not away:
        return table.weights
    shares = reaching(tree, away)
    return np.array([shares[leaf.node] for leaf in table.leaves])[:, np.newaxis] * table.weights


def _fraction_bits(ensemble: Ensemble, away: Collection[str]) -> int:
    """The fewest binary places that keep every score within 2^ERROR_BITS, and every sum below 2^SUM_BITS."""
    leaves: Counter[int] = Counter()
    largest = np.zeros(len(ensemble.base_margin))
    for tree in ensemble.used_trees:
        together = len(tree.leaves) if any(split.owner in away for split in tree.splits) else 1
        leaves.update(dict.fromkeys(tree.outputs, together))
        largest[list(tree.outputs)] += np.abs(ValueTable(tree).weights).max(axis=0)
    sums = float(largest.max(initial=0.0))
    # Rounding moves the sum of K weights by K·2^-(places+1) at most, and the mean over trees by their part of that.
    terms, trees = max(leaves.values(), default=1), max(1, len(ensemble.used_trees)) if ensemble.averaged else 1
    return binary_places(sums / trees, terms / trees, sums)


def binary_places(score: float, added: float, sums: float) -> int:
    """The fewest binary places for scores up to `score`, found by `added` rounded numbers, within 2^ERROR_BITS.

    `sums`: the largest possible sum of such numbers; it stays below 2^SUM_BITS, which may cost places.
    """
    exact = math.ceil(math.log2(added)) - 1 - ERROR_BITS - min(0, _exponent(score) - 1)
    # S = m·2^e, ½ ≤ m < 1, is below 2^(SUM_BITS-1) with SUM_BITS-1-e places; rounding takes less than the rest.
    return min(exact, SUM_BITS - 1 - _exponent(sums))


def _exponent(value: float) -> int:
    """e of value = m·2^e, ½ ≤ m < 1; of zero 0."""
    return math.frexp(value)[1]

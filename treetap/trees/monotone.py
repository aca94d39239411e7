"""Monotone constraints while a tree grows, as in XGBoost: marks of candidates, and bounds of the weights of nodes.

A candidate of an increasing column is refused if its left weight exceeds its right one, of a decreasing column if it is
below it; both weights lie within the bounds of the node. A split by such a column bounds the weights of all nodes below
it: on one side from above, on the other from below, by the mean of the children's weights. All weights are those before
the learning rate. Once any column of a tree is constrained, all of its gains are those of bounded weights.

So constraints hold: two records that differ in a constrained column part at a split by it, and all leaves on either
side of that lie within bounds that meet at its middle.

Where the present values of a constrained column go left and the missing ones right, the two sides may be admissible the
other way round only. XGBoost tries that too. Such mirror images are candidates beyond the n of their party: n + k is
that of candidate k, and has its right sums as left ones.

The party that chooses splits does not know which of several tied candidates their owner takes, and has to know its
direction. So of tied candidates those of increasing columns come first, then those of decreasing ones; XGBoost takes
the lowest column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from treetap.arrays import Bools, Floats, Ints
from treetap.trees.boosting_criterion import BoostingCriterion, Within, leaf_weights, loss_changes, node_weights
from treetap.trees.candidates import DECREASING, INCREASING, MIRRORED, NodeCandidates, Partition
from treetap.trees.ensemble import ROOT


class MarkedCandidates:
    """A party's candidates of one node, and behind them as many mirror images if the party has constraints.

    Attributes:
        lefts: (candidates, S) left sums.
    """

    def __init__(self, candidates: NodeCandidates, marks: Ints | None, total: Ints) -> None:
        """`marks` (n,) of the party's n places; None: it has no constraints. `total` (S,) the node's own sums."""
        self._candidates, self._marks, self.lefts = candidates, marks, candidates.lefts
        self._directions = np.zeros(len(self.lefts), dtype=np.int64)
        self._offered = np.ones(len(self.lefts), dtype=bool)
        if marks is not None:
            places = candidates.places
            own = np.where(places < 0, 0, marks[places])  # partitions have no constraint
            self.lefts = np.concatenate([self.lefts, total - self.lefts])
            self._directions = np.sign(np.tile(own, 2))
            self._offered = np.concatenate([self._offered, np.abs(own) == MIRRORED])

    def place(self, k: int) -> int | Partition:
        """The place of candidate number k, beyond the party's n that of a mirror image; or the partition that it is."""
        count = len(self._candidates.lefts)
        place = self._candidates.place(k % count)
        if k < count or isinstance(place, Partition) or self._marks is None:
            return place
        return place + len(self._marks)

    def direction(self, k: int) -> int:
        """1 or -1 by the constraint of the column of candidate number k, or 0."""
        return int(self._directions[k])

    def refused(self, left_weight: Floats, right_weight: Floats) -> Bools:
        """The candidates whose sides violate their direction, or that are no mirror images: (candidates,)."""
        against: Bools = (self._directions == INCREASING) & (left_weight > right_weight)
        against |= (self._directions == DECREASING) & (left_weight < right_weight)
        return np.logical_or(against, ~self._offered)

    def first_of(self, tied: Ints) -> Ints:
        """Of tied candidates those that come first: all of one direction."""
        directions = self._directions[tied]
        first: Ints = tied[directions == min(directions.tolist(), key=(INCREASING, DECREASING, 0).index)]
        return first


@dataclass
class Monotone:
    """The constraints of one tree of one output.

    Attributes:
        criterion: the tree's.
        marks: by party the mark of each candidate, (n,); None: the party has no constraints, and no mirror images.
    """

    criterion: BoostingCriterion
    marks: Sequence[Ints | None]
    _within: dict[int, Within] = field(default_factory=lambda: {ROOT: Within()})

    def of_first(self) -> Monotone:
        """The same constraints, of the first party's candidates alone."""
        return Monotone(self.criterion, self.marks[:1], self._within)

    def gains(self, node: int, candidates: MarkedCandidates, whole: Ints) -> Floats:
        """Gain of every candidate at a node, −∞ where it is not allowed: whole (3,) the node's sums."""
        scale, params, within = self.criterion.scale, self.criterion.params, self._within[node]
        left = candidates.lefts[:, : len(whole)]
        changes = loss_changes(left[np.newaxis], whole[np.newaxis], scale, params, within)[0]
        left_weight = node_weights(left, scale, params, within)[:, 0]
        right_weight = node_weights(whole - left, scale, params, within)[:, 0]
        return np.where(candidates.refused(left_weight, right_weight), -np.inf, changes)

    def divide(self, node: int, direction: int, left: Ints, whole: Ints) -> None:
        """Bound the children of a node that is split: its direction, and sums of the left one and of the node, (3,)."""
        scale, params, within = self.criterion.scale, self.criterion.params, self._within[node]
        weights = [float(node_weights(sums, scale, params, within)[0]) for sums in (left, whole - left)]
        middle = (weights[0] + weights[1]) / 2.0
        below, above = Within(within.low, middle), Within(middle, within.high)
        children = {INCREASING: (below, above), DECREASING: (above, below), 0: (within, within)}[direction]
        self._within[2 * node], self._within[2 * node + 1] = children

    def leaf(self, node: int, sums: Ints) -> Floats:
        """The weight (1,) of a leaf with these sums (3,)."""
        return leaf_weights(sums, self.criterion.scale, self.criterion.params, self._within[node])

"""Split candidates: the sums that a party makes of a column, their canonical order, and partitions of categories.

A column's *shape* says which sums a party makes of it in every node, in number and order; plaintext and encrypted sums
share this order, feature by feature. A feature without missing values offers v = 0..n_bins−2: left are the bins ≤ v,
and a missing value met later goes right, as in XGBoost. One with missing values offers, for v = 0..n_bins−1,
(v, missing right) and then, if v < n_bins−1, (v, missing left).

Categories, one against the rest: category c goes right, all others go left, so does one that training has not seen.
For c = 0..n_bins−1 first (c, missing left), which XGBoost has also where no value is missing, then, with missing
values, (c, missing right).

Partitions of a column's categories into two sets, as XGBoost's `hist` finds them in a node. The column's places hold
the sums over each category instead, of which the label holder makes the candidates of a node: sums over categories add
up over children, the candidates' do not, because every node has an order of its own.

1. Order the categories by the weight −G/(H+λ) that a leaf of each would have, ascending and stable: those of equal
   weight, absent ones among them, stay in the order of their codes.
2. Forward: the first k categories go right, k = 1, 2, …; all others and missing values go left.
3. Backward: the last k categories go left, k = 1, 2, …; all others and missing values go right.

k is less than the number of categories and than `max_cat_threshold`. Candidates have this order, of equal ones the
first counts: where no value is missing in a node, the forward one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np

from treetap.arrays import Array, Bools, Floats, Ints

# Marks of candidates by the monotone constraints of their columns, see `treetap.trees.boosting_criterion`.
INCREASING, DECREASING = 1, -1
#: The mark of a candidate of an increasing column that has a mirror image; of a decreasing column it is negative.
MIRRORED = 2
#: All marks of a candidate; 0: its column has no constraint.
MARKS = (-MIRRORED, DECREASING, 0, INCREASING, MIRRORED)


class Kind(Enum):
    """The splits of a column."""

    NUMBERS = 0
    ONE_HOT = 1
    PARTITIONS = 2


class Shape(NamedTuple):
    """`n_bins` bins of present values, a bin for missing ones if training `has_missing`, and the splits."""

    n_bins: int
    has_missing: bool
    kind: Kind = Kind.NUMBERS

    @property
    def sums(self) -> int:
        """The number of sums of a node."""
        if self.kind is Kind.NUMBERS:
            return 2 * self.n_bins - 1 if self.has_missing else self.n_bins - 1
        return 2 * self.n_bins if self.kind is Kind.ONE_HOT and self.has_missing else self.n_bins

    @property
    def products(self) -> int:
        """The most products of ciphertexts that turn a node's bins into these sums.

        One against the rest takes the products of the categories before and behind each, and the product of both.
        """
        if self.kind is Kind.PARTITIONS:
            return 0
        return self.sums if self.kind is Kind.NUMBERS else self.sums + 2 * self.n_bins


@dataclass(frozen=True)
class Candidate:
    """A possible split: bins ≤ `bin` of column `feature` go left; missing values go left if `missing_left`.

    A split of categories has `right`: the codes of the categories that go right, ascending; all others go left, those
    that training has not seen too. `bin` is then the first of them. These are XGBoost's `categories` of a node, and
    `missing_left` is its `default_left`.
    """

    feature: int
    bin: int
    missing_left: bool
    right: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Partition:
    """A candidate of group number `group`: the categories that go right, ascending, and the side of missing values."""

    group: int
    right: tuple[int, ...]
    missing_left: bool


class CandidateList:
    """All candidates of features with the given shapes, in canonical order.

    As arrays, each (len,): `feature`, `bin`, `missing_left`. `first[f]` is the first candidate of feature f and
    `first[d]` the number of candidates. `cell[f]` is where the n_bins + 1 cells of feature f start in a histogram that
    lays all features end to end, `cell[d]` its width; the last cell of a feature counts the missing. `groups`: the
    places with sums over single categories, which are no candidates; `grouped` (len,) is their mask, `one_hot` (len,)
    that of categories against the rest.
    """

    def __init__(self, shapes: Sequence[tuple[int, bool] | Shape]) -> None:
        self.shapes = tuple(Shape(*given) for given in shapes)
        feature: list[Ints] = []
        bins: list[Ints] = []
        left: list[Bools] = []
        for f, shape in enumerate(self.shapes):
            k = np.arange(shape.sums)
            # With missing values each bin comes twice: missing right, then left; one against the rest: left, right.
            twice = shape.has_missing and shape.kind is not Kind.PARTITIONS
            bins.append(k // 2 if twice else k)
            if shape.kind is Kind.NUMBERS:
                left.append(twice & (k % 2 == 1))
            else:
                left.append((k % 2 == 0) if twice else np.full(len(k), shape.kind is Kind.ONE_HOT))
            feature.append(np.full(len(k), f))
        none = np.zeros(0, dtype=np.int64)
        self.feature = np.concatenate([none, *feature])
        self.bin = np.concatenate([none, *bins])
        self.missing_left: Bools = np.concatenate([none.astype(bool), *left])
        self.first = np.concatenate([[0], np.cumsum([len(part) for part in feature], dtype=np.int64)])
        self.cell = np.concatenate([[0], np.cumsum([shape.n_bins + 1 for shape in self.shapes], dtype=np.int64)])
        kinds = np.array([shape.kind.value for shape in self.shapes], dtype=np.int64)[self.feature]
        self.one_hot, self.grouped = kinds == Kind.ONE_HOT.value, kinds == Kind.PARTITIONS.value
        # the places, among a party's sums in a node, of those over the categories of each partitioned column
        self.groups = tuple(
            range(int(first), int(first) + shape.n_bins)
            for first, shape in zip(self.first, self.shapes, strict=False)
            if shape.kind is Kind.PARTITIONS
        )

    def __len__(self) -> int:
        return len(self.feature)

    def at(self, k: int) -> Candidate:
        """Candidate number k. Raises IndexError outside 0..len−1, and for the sum over a category."""
        if not 0 <= k < len(self) or self.grouped[k]:
            raise IndexError(f"candidate {k} of {len(self)}")
        right = (int(self.bin[k]),) if self.one_hot[k] else None
        return Candidate(int(self.feature[k]), int(self.bin[k]), bool(self.missing_left[k]), right)

    def of(self, place: int | Partition) -> Candidate:
        """The candidate of a place, or a partition of one of the `groups`."""
        if not isinstance(place, Partition):
            return self.at(place)
        feature = int(self.feature[self.groups[place.group].start])
        return Candidate(feature, place.right[0], place.missing_left, place.right)

    def goes_left(self, codes: Array, candidate: Candidate) -> Bools:
        """The mask (n,) of those records with bin numbers codes (n, d) that go left."""
        return column_goes_left(codes[:, candidate.feature], candidate, self.shapes[candidate.feature].n_bins)


def column_goes_left(column: Array, candidate: Candidate, n_bins: int) -> Bools:
    """The mask (n,) of records that go left, given the bin numbers (n,) of the candidate's own feature."""
    if candidate.right is not None:
        among: Bools = ~np.isin(column, candidate.right)
        return np.where(column == n_bins, candidate.missing_left, among)
    left: Bools = column <= candidate.bin  # a missing value has code n_bins, which is above every candidate's bin
    return left | (column == n_bins) if candidate.missing_left else left


#: The order (K,) of K categories by the sums (K, S) over them, and `max_cat_threshold`.
PartitionRule = tuple[Callable[[Ints], Ints], int]


class NodeCandidates:
    """A party's candidates of one node, made of its sums there, and behind them as many mirror images if it has marks.

    Attributes:
        lefts: (candidates, S) left sums, in the order of the places of the sums that they are made of.
    """

    def __init__(
        self,
        sums: Ints,
        total: Ints,
        groups: Sequence[range],
        rule: PartitionRule | None,
        width: int,
        marks: Ints | None = None,
    ) -> None:
        """`sums` (places, S); `total` (S,) the node's own sums; `groups`: as of a `CandidateList`.

        `width`: the slots, of S, by which the rule orders categories. `marks` (places,): those of the party's
        constraints, see `treetap.trees.boosting_criterion`; None: it has none.

        Raises:
            ValueError: there are groups and no rule.
        """
        places, lefts, at = list[Ints](), list[Ints](), 0
        self._orders: list[Ints] = []
        self._counts: list[int] = []
        for number, group in enumerate(groups):
            if rule is None:
                raise ValueError("categories are partitioned by no rule of this criterion")
            order_of, most = rule
            of_each = sums[group.start : group.stop]
            order = order_of(of_each[:, :width])
            self._orders.append(order)
            count = min(most, len(group)) - 1
            self._counts.append(count)
            running = np.cumsum(of_each[order], axis=0)
            lefts += [sums[at : group.start], total - running[:count], running[-1] - running[::-1][1 : count + 1]]
            # a place below 0 is that of a partition: −1 − the number of its group
            places += [np.arange(at, group.start), np.full(2 * count, -1 - number)]
            at = group.stop
        self.lefts = np.concatenate([*lefts, sums[at:]])
        self._places = np.concatenate([*places, np.arange(at, len(sums))])
        self._sums, self._count = len(sums), len(self.lefts)
        self._directions = np.zeros(self._count, dtype=np.int64)
        self._offered = np.ones(self._count, dtype=bool)
        if marks is not None:
            own = np.where(self._places < 0, 0, marks[self._places])  # partitions have no constraint
            self.lefts = np.concatenate([self.lefts, total - self.lefts])
            self._directions = np.sign(np.tile(own, 2))
            self._offered = np.concatenate([self._offered, np.abs(own) == MIRRORED])

    def place(self, k: int) -> int | Partition:
        """The place of the sums of candidate number k, beyond all of them that of a mirror image; or the partition."""
        place = int(self._places[k % self._count])
        if place >= 0:
            return place if k < self._count else place + self._sums
        group = -1 - place
        number = k % self._count - int(np.flatnonzero(self._places == place)[0])
        order, count = self._orders[group], self._counts[group]
        forward = number < count
        size = number + 1 if forward else len(order) - 1 - (number - count)
        return Partition(group, tuple(sorted(order[:size].tolist())), forward)

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


def largest(gains: Sequence[Floats]) -> tuple[int, Ints, float] | None:
    """The lowest party that has the largest gain exactly, its candidates that have it, and the gain; None: no gains."""
    best = [float(part.max(initial=-np.inf)) for part in gains]
    top = max(best, default=-np.inf)
    if top == -np.inf:
        return None
    party = best.index(top)
    return party, np.flatnonzero(gains[party] == top), top

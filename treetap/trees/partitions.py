"""Partitions of a column's categories into two sets, as XGBoost's `hist` finds them in a node.

1. Order the categories by the weight −G/(H+λ) that a leaf of each would have, ascending and stable: those of equal
   weight, absent ones among them, stay in the order of their codes.
2. Forward: the first k categories go right, k = 1, 2, …; all others and missing values go left.
3. Backward: the last k categories go left, k = 1, 2, …; all others and missing values go right.

k is less than the number of categories and than `max_cat_threshold`. Candidates have this order, of equal ones the
first counts: where no value is missing in a node, the forward one.

The sums over the categories add up over children, the candidates' do not, because every node has an order of its own.
Hence a party makes the sums over the categories (`Group`), and the label holder the candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Group:
    """Places `first`, …, `first + size − 1` of a party's sums in a node: those over the categories of one column."""

    first: int
    size: int


@dataclass(frozen=True)
class Partition:
    """A candidate of group number `group`: the categories that go right, ascending, and the side of missing values."""

    group: int
    right: tuple[int, ...]
    missing_left: bool


@dataclass(frozen=True)
class PartitionRule:
    """`order`: sums over K categories (K, S) → their order (K,); `most`: `max_cat_threshold`."""

    order: Callable[[Ints], Ints]
    most: int


class NodeCandidates:
    """A party's candidates of one node, made of its sums there.

    Attributes:
        lefts: (candidates, S) left sums, in the order of the places of the sums that they are made of.
    """

    def __init__(
        self, sums: Ints, total: Ints, groups: Sequence[Group], rule: PartitionRule | None, width: int
    ) -> None:
        """`sums` (places, S); `total` (S,) the node's own sums; `groups` in the order of their places.

        `width`: the slots, of S, by which the rule orders categories.

        Raises:
            ValueError: there are groups and no rule.
        """
        if not groups:
            self._places: Ints | None = None
            self.lefts = sums
            return
        if rule is None:
            raise ValueError("categories are partitioned by no rule of this criterion")
        places, lefts, at = [], [], 0
        self._orders: list[Ints] = []
        for number, group in enumerate(groups):
            behind = group.first + group.size
            of_each = sums[group.first : behind]
            order = rule.order(of_each[:, :width])
            self._orders.append(order)
            count = min(rule.most, group.size) - 1
            running = np.cumsum(of_each[order], axis=0)
            lefts += [sums[at : group.first], total - running[:count], running[-1] - running[::-1][1 : count + 1]]
            # a place below 0 is that of a partition: −1 − the number of its group
            places += [np.arange(at, group.first), np.full(2 * count, -1 - number)]
            at = behind
        self.lefts = np.concatenate([*lefts, sums[at:]])
        self._places = np.concatenate([*places, np.arange(at, len(sums))])
        self._counts = [min(rule.most, group.size) - 1 for group in groups]

    @property
    def places(self) -> Ints:
        """(candidates,) the place of the sums of each candidate; below 0 where it is a partition."""
        return np.arange(len(self.lefts)) if self._places is None else self._places

    def place(self, k: int) -> int | Partition:
        """The place of the sums of candidate number k, or the partition that it is."""
        if self._places is None:
            return k
        place = int(self._places[k])
        if place >= 0:
            return place
        group = -1 - place
        number = k - int(np.flatnonzero(self._places == place)[0])
        order, count = self._orders[group], self._counts[group]
        forward = number < count
        size = number + 1 if forward else len(order) - 1 - (number - count)
        return Partition(group, tuple(sorted(order[:size].tolist())), forward)

"""The order in which the nodes of a tree are split, and the number of leaves that ends it, as in XGBoost.

`depthwise` splits level by level, each from left to right. `lossguide` splits the node with the largest loss change
first; of equal ones the node that came into being first, of siblings the left one. Under either `max_leaves` ends the
tree as soon as it has as many leaves: under `depthwise` nodes further right in the last level stay leaves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

GROW_POLICIES = ("depthwise", "lossguide")


@dataclass(frozen=True)
class ExpansionRules:
    """Limits of a tree and the order of its splits. `max_leaves` 0 is no limit."""

    max_depth: int
    max_leaves: int = 0
    grow_policy: str = GROW_POLICIES[0]

    @property
    def one_by_one(self) -> bool:
        """True if a node is split only once the loss changes of all others are known, those of new children too."""
        return self.grow_policy == "lossguide"

    @property
    def most_stages(self) -> int:
        """The most times that nodes are compared in a tree: at each level, or before each split."""
        if not self.one_by_one:
            return self.max_depth
        most = (1 << self.max_depth) - 1
        return most if self.max_leaves == 0 else min(most, self.max_leaves - 1)

    def most_compared(self, stage: int) -> int:
        """The most nodes that are compared for the first time at a stage."""
        return min(2, 1 << stage) if self.one_by_one else 1 << stage

    def most_summed(self, *, subtract: bool) -> int:
        """The most nodes of a tree that are summed; `subtract`: of two siblings one."""
        compared = map(self.most_compared, range(self.most_stages))
        return sum((count + 1) // 2 if subtract else count for count in compared)

    def at_bottom(self, node: int) -> bool:
        """True for a node at the greatest depth, which is a leaf."""
        return node.bit_length() > self.max_depth

    def within(self, leaves: int) -> ExpansionRules:
        """The rules of a part of the tree that may have as many leaves, where leaves are limited."""
        return replace(self, max_leaves=leaves) if self.max_leaves else self


class Expansions:
    """The nodes of one tree whose best splits are known and not carried out."""

    def __init__(self, rules: ExpansionRules) -> None:
        self._rules, self._leaves = rules, 1
        self._waiting: dict[int, float] = {}  # node → gain, in the order in which they came into being

    @property
    def complete(self) -> bool:
        """True once the tree has all the leaves that it may have."""
        return self._leaves == self._rules.max_leaves

    def offer(self, node: int, gain: float) -> None:
        """Add a node with the gain of its best split; nodes come in the order in which they came into being."""
        self._waiting[node] = gain

    @property
    def first(self) -> int | None:
        """The node to split next; None if the tree is complete, or no node waits."""
        if self.complete or not self._waiting:
            return None
        # `max` returns the first of equal ones
        return (
            max(self._waiting, key=self._waiting.__getitem__) if self._rules.one_by_one else next(iter(self._waiting))
        )

    def take(self) -> int | None:
        """Take out that node, which is then split."""
        node = self.first
        if node is not None:
            del self._waiting[node]
            self._leaves += 1
        return node

"""The way of records through a model's trees from party to party, as the stored lines of one party describe it.

Every line names the source of each split and the keeper of each leaf of its tree (`party.pivodl.growing_tree`), so all
parties know who passes records on to whom on each level. Nothing here depends on a record.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from treetap.trees.ensemble import ROOT

#: (number of the tree, heap number of the node).
Place = tuple[int, int]


class Routes:
    """Nodes and their holders: of a split its source, of a leaf the keeper of its weight.

    Attributes:
        trees: the number of trees.
        levels: the levels on which some tree has a split, at least 1.
    """

    def __init__(self, shard: Sequence[Mapping[str, Any]]) -> None:
        """`shard`: the lines of a party, tree by tree."""
        self.trees = len(shard)
        self._sources = {
            (t, each["node"]): str(each["source"]) for t, line in enumerate(shard) for each in line["nodes"]
        }
        self._keepers = {
            (t, each["node"]): str(each["keeper"]) for t, line in enumerate(shard) for each in line["leaves"]
        }
        self._holders = self._sources | self._keepers
        self.levels = max((level_of(node) + 1 for _, node in self._sources), default=1)

    def roots(self, party: str) -> list[Place]:
        """The roots that a party holds."""
        return [(t, ROOT) for t in range(self.trees) if self._holders[t, ROOT] == party]

    def splits(self, party: str, level: int) -> list[Place]:
        """The splits of a party on a level, in order."""
        return sorted(
            place for place, source in self._sources.items() if source == party and level_of(place[1]) == level
        )

    def leaves(self, party: str) -> list[Place]:
        """The leaves whose weights a party keeps, in order."""
        return sorted(place for place, keeper in self._keepers.items() if keeper == party)

    def children(self, source: str, holder: str, level: int) -> list[Place]:
        """The children, held by `holder`, of the splits of `source` on a level, in order."""
        below = ((t, child) for t, node in self.splits(source, level) for child in (2 * node, 2 * node + 1))
        return [place for place in below if self._holders[place] == holder]

    def most_children(self, holder: str) -> int:
        """The most nodes of one level that a party holds."""
        levels = Counter(level_of(node) for (_, node), held in self._holders.items() if held == holder)
        return max(levels.values(), default=0)

    def hidden_bits(self, reader: str) -> float:
        """log2 of the combinations of leaves, one of each tree, that `reader` cannot tell apart by itself, at least.

        It sees which of its nodes a record passes, and to which side.
        """
        return math.fsum(math.log2(min(self._alike(t, reader).values())) for t in range(self.trees))

    def path_bits(self) -> float:
        """log2 of all combinations of leaves, one of each tree."""
        leaves = Counter(t for t, _ in self._keepers)
        return math.fsum(math.log2(count) for count in leaves.values())

    def _alike(self, tree: int, reader: str) -> Counter[tuple[tuple[int, int], ...]]:
        """The numbers of leaves that look the same to a party, by the own nodes on the way and the node after each."""
        found: Counter[tuple[tuple[int, int], ...]] = Counter()
        for t, leaf in self._keepers:
            if t == tree:
                way = [leaf >> up for up in range(leaf.bit_length() - 1, -1, -1)]
                steps = zip(way, [*way[1:], 0], strict=True)
                found[tuple((at, to) for at, to in steps if self._holders[t, at] == reader)] += 1
        return found


def level_of(node: int) -> int:
    """The level of a node, that of the root being 0."""
    return node.bit_length() - 1

"""The way of records through a model's trees from party to party, and the records of a block on that way.

Every stored line of a party names the source of each split and the keeper of each leaf of its tree
(`treetap.party.pivodl.growing_tree`), so all parties know who passes records on to whom on each level. The routes do
not depend on a record.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from treetap.errors import Malformed
from treetap.party.runtime.messages import REMEDY
from treetap.privacy.masks import Ring
from treetap.trees.ensemble import ROOT
from treetap.trees.paths import Bools

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
            (t, split["node"]): str(split["source"]) for t, line in enumerate(shard) for split in line["nodes"]
        }
        self._keepers = {
            (t, leaf["node"]): str(leaf["keeper"]) for t, line in enumerate(shard) for leaf in line["leaves"]
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
        alike: Counter[tuple[tuple[int, int], ...]] = Counter()
        for t, leaf in self._keepers:
            if t == tree:
                way = [leaf >> up for up in range(leaf.bit_length() - 1, -1, -1)]
                steps = zip(way, [*way[1:], 0], strict=True)
                alike[tuple((at, to) for at, to in steps if self._holders[t, at] == reader)] += 1
        return alike


def level_of(node: int) -> int:
    """The level of a node, that of the root being 0."""
    return node.bit_length() - 1


#: The mask (n,) of the block's records that go left at an own split.
GoesLeft = Callable[[Place], Bools]


class Standing:
    """Masks (n,) of the records that arrive at this party's nodes, for one block of n records."""

    def __init__(self, routes: Routes, party: str, records: int) -> None:
        self._routes, self._party, self._records = routes, party, records
        self._at: dict[Place, Bools] = {place: np.ones(records, dtype=bool) for place in routes.roots(party)}
        self._passed: dict[Place, npt.NDArray[np.uint8]] = {}  # to other parties' nodes, bits packed

    def split(self, level: int, goes_left: GoesLeft) -> None:
        """Split the records at the own nodes of a level: `outgoing` has what others get of them."""
        self._sides: dict[Place, Bools] = {}
        for tree, node in self._routes.splits(self._party, level):
            here, left = self._at.pop((tree, node)), goes_left((tree, node))
            self._sides[tree, 2 * node], self._sides[tree, 2 * node + 1] = here & left, here & ~left
        own = set(self._routes.children(self._party, self._party, level))
        for place, side in self._sides.items():
            if place in own:
                self._at[place] = side
            else:
                self._passed[place] = np.packbits(side)

    def outgoing(self, to: str, level: int) -> list[tuple[Place, Bools]]:
        """The nodes of another party below the own splits of a level, each with the records that arrive there."""
        return [(place, self._sides[place]) for place in self._routes.children(self._party, to, level)]

    def take(self, sender: str, level: int, passed: Iterable[tuple[Place, Bools]]) -> None:
        """Take the records that another party passes on.

        Raises:
            Malformed: they are not about the nodes that this party holds below the sender's splits, or not among the
                records that this party has passed on above.
        """
        arrived = list(passed)
        expected = self._routes.children(sender, self._party, level)
        if [place for place, _ in arrived] != expected:
            raise Malformed(f"{sender} passes on records of other nodes than those of {self._party} below its splits")
        for (tree, node), mask in arrived:
            above = next((up for k in range(1, node.bit_length()) if (up := (tree, node >> k)) in self._passed), None)
            if above is not None and (np.packbits(mask) & ~self._passed[above]).any():
                raise Malformed(
                    f"{sender} passed on, to node {node} of tree {tree}, records that {self._party} did not pass on to "
                    f"node {above[1]} above; {REMEDY.format(sender)}"
                )
        self._at.update(arrived)

    def check(self) -> None:
        """`Malformed` if a record has come to two of this party's nodes of one tree."""
        for tree in {tree for tree, _ in self._at}:
            times = np.sum([mask for (t, _), mask in self._at.items() if t == tree], axis=0)
            if (times > 1).any():
                raise Malformed(f"a party has passed on the same record to two nodes of tree {tree}")

    def sums(self, weights: Mapping[Place, Ring], outputs: int) -> Ring:
        """Sums of weights (outputs,) of the own leaves that each record has reached: (n, outputs), modulo 2^64."""
        sums: npt.NDArray[np.uint64] = np.zeros((self._records, outputs), dtype=np.uint64)
        for place, weight in weights.items():
            sums[self._at[place]] += weight
        return sums

"""The records of a block on their way through the trees, as far as they come to this party."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import numpy.typing as npt

from party.masked.routes import Place, Routes
from treetap.errors import Malformed
from treetap.privacy.masks import Ring
from treetap.trees.paths import Bools

#: The mask (n,) of the block's records that go left at an own split.
GoesLeft = Callable[[Place], Bools]


class Standing:
    """Masks (n,) of the records that arrive at this party's nodes, for one block of n records."""

    def __init__(self, routes: Routes, party: str, records: int) -> None:
        self._routes, self._party, self._records = routes, party, records
        self._at: dict[Place, Bools] = {place: np.ones(records, dtype=bool) for place in routes.roots(party)}

    def split(self, level: int, goes_left: GoesLeft) -> None:
        """Split the records at the own nodes of a level: `outgoing` has what others get of them."""
        self._sides: dict[Place, Bools] = {}
        for tree, node in self._routes.splits(self._party, level):
            here, left = self._at.pop((tree, node)), goes_left((tree, node))
            self._sides[tree, 2 * node], self._sides[tree, 2 * node + 1] = here & left, here & ~left
        for place in self._routes.children(self._party, self._party, level):
            self._at[place] = self._sides[place]

    def outgoing(self, to: str, level: int) -> list[tuple[Place, Bools]]:
        """The nodes of another party below the own splits of a level, each with the records that arrive there."""
        return [(place, self._sides[place]) for place in self._routes.children(self._party, to, level)]

    def take(self, sender: str, level: int, found: Iterable[tuple[Place, Bools]]) -> None:
        """Take the records that another party passes on.

        Raises:
            Malformed: they are not about the nodes that this party holds below the sender's splits.
        """
        arrived = list(found)
        expected = self._routes.children(sender, self._party, level)
        if [place for place, _ in arrived] != expected:
            raise Malformed(f"{sender} passes on records of other nodes than those of {self._party} below its splits")
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

"""Entries of a chain as one feature party gets them, and the shard by which it checks their layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from party.prediction.chain import ChainPlace
from treetap.errors import DataError, Malformed
from treetap.trees.leaf_entries import Ints
from treetap.trees.local_values import GoesLeft
from treetap.trees.paths import Bools, least_candidate_bits, reachable

#: The branches of one party on the way to a leaf, from the root: (handle of its split, True for left).
Branches = tuple[tuple[int, bool], ...]


class NamedTrees:
    """A party's shard, of which the label holder names the trees of a prediction, each once."""

    def __init__(self, party: str, label_holder: str, shard: Sequence[dict[str, Any]]) -> None:
        self._party, self._label_holder, self._shard = party, label_holder, shard
        self._seen: set[int] = set()

    def take(self, number: int) -> tuple[list[Branches], list[int]]:
        """The own branches on the way to each leaf of a tree, and the own splits' nodes.

        Raises:
            DataError: there is no such tree.
            Malformed: it was named before.
        """
        if number >= len(self._shard):
            raise DataError(
                f"{self._label_holder} predicts with tree {number}, this party's shard has "
                f"{len(self._shard)} trees: the shards are of different jobs"
            ).at(self._party)
        if number in self._seen:
            raise Malformed(f"{self._label_holder} has named tree {number} twice")
        self._seen.add(number)
        tree = self._shard[number]
        ways: list[Branches] = [tuple((handle, bool(left)) for handle, left in leaf) for leaf in tree["leaves"]]
        return ways, [split["node"] for split in tree["splits"]]


@dataclass(frozen=True)
class MemberEntries:
    """The own branches on the way to each entry, and the entry that each goes on as.

    `constant`: entries that come once per prediction. `spare`: bits by which the leaves that the own splits
    leave open in every record's trees exceed any possible sum.
    """

    branches: list[Branches]
    outgoing: Ints
    constant: Ints
    spare: float

    def masks(self, goes_left: GoesLeft, n: int) -> Bools:
        """Equation 9 of Fed-EINI: the entries that n records may be in by the own columns (n, entries)."""
        return reachable(self.branches, n, goes_left)

    def check_place(self, place: ChainPlace) -> None:
        """`Malformed` if constant entries are announced to a party that is not the first of the chain."""
        if len(self.constant) and not place.first:
            raise Malformed(
                f"{place.label_holder} sends constant entries to the first of the chain only, {place.party} is not it"
            )


def spare_of(nodes: Mapping[tuple[int, ...], Sequence[Sequence[int]]], bits: float) -> float:
    """Bits by which the leaves that one's own splits leave open exceed the possible sums, for any weights.

    `nodes`: by the columns of the score, the own nodes of each tree that adds to them; `bits`: of a sum, sign included.
    """
    each = (least_candidate_bits(trees) - bits * len(outputs) for outputs, trees in nodes.items())
    return min(each, default=0.0)

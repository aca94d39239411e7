"""Which entry each leaf is in: told by the label holder, checked by a feature party against its own shard."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from party.runtime.messages import batches
from treetap.errors import DataError, Malformed
from treetap.trees.leaf_entries import SUM_BITS, GoesLeft, Ints, TreeHop
from treetap.trees.paths import Bools, least_candidate_bits, reachable
from treetap.wire.v2 import eini_pb2, exchange_pb2

#: The turns of one party on the way to a leaf, from the root: (handle of its split, whether left).
Turns = tuple[tuple[int, bool], ...]


class NamedTrees:
    """A party's shard, of which the label holder names the trees of a prediction, each once."""

    def __init__(self, party: str, label_holder: str, shard: Sequence[dict[str, Any]]) -> None:
        self._party, self._label_holder, self._shard = party, label_holder, shard
        self._seen: set[int] = set()

    def take(self, number: int) -> tuple[list[Turns], list[int]]:
        """The own turns on the way to each leaf of a tree, and the own splits' nodes.

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
        ways: list[Turns] = [tuple((handle, bool(left)) for handle, left in leaf) for leaf in tree["leaves"]]
        return ways, [split["node"] for split in tree["splits"]]


def layout_parcels(hop: Sequence[TreeHop], constant: list[int]) -> Iterator[eini_pb2.EntryLayout]:
    """What one member of the chain is told, in bounded messages."""
    trees = (
        eini_pb2.TreeEntries(
            tree=each.tree, incoming=each.incoming.tolist(), outgoing=each.outgoing.tolist(), outputs=each.outputs
        )
        for each in hop
    )
    for number, batch in enumerate(batches(trees)):
        yield eini_pb2.EntryLayout(trees=batch, constant=constant if number == 0 else [])


@dataclass(frozen=True)
class MemberLayout:
    """The entries as one member gets them: its own turns on the way to each, and where each goes.

    `spare`: bits by which the leaves that its own splits leave open in every record's trees exceed any possible sum.
    """

    turns: list[Turns]
    outgoing: Ints
    constant: Ints
    spare: float

    def masks(self, goes_left: GoesLeft, n: int) -> Bools:
        """Equation 9: the entries that n records may be in by the own columns (n, entries)."""
        return reachable(self.turns, n, goes_left)


async def take_layout(
    parcels: AsyncIterator[exchange_pb2.PeerMessage],
    party: str,
    label_holder: str,
    shard: Sequence[dict[str, Any]],
    outputs: int,
) -> MemberLayout:
    """What the label holder told this party, checked against its shard; the score has so many columns.

    Raises:
        DataError: trees or leaves are others than in the shard.
        Malformed: leaves that this party's own turns tell apart are in one entry, or a numbering is wrong.
    """
    turns: dict[int, Turns] = {0: ()}
    outgoing: dict[int, int] = {0: 0}
    constant: list[int] = []
    nodes: defaultdict[tuple[int, ...], list[list[int]]] = defaultdict(list)
    named = NamedTrees(party, label_holder, shard)
    async for parcel in parcels:
        constant += parcel.protocol.eini.entry_layout.constant
        for tree in parcel.protocol.eini.entry_layout.trees:
            own, splits = named.take(tree.tree)
            if not len(own) == len(tree.incoming) == len(tree.outgoing):
                raise DataError(
                    f"tree {tree.tree} has {len(tree.incoming)} leaves at {label_holder}, {len(own)} in this "
                    "party's shard: the shards are of different jobs"
                ).at(party)
            if not tree.outputs or not set(tree.outputs) <= set(range(outputs)):
                raise Malformed(f"{label_holder} has named columns of the score wrongly")
            nodes[tuple(tree.outputs)].append(splits)
            for entry, to, way in zip(tree.incoming, tree.outgoing, own, strict=True):
                if turns.setdefault(entry, way) != way or outgoing.setdefault(entry, to) != to:
                    raise Malformed(f"{label_holder} has put leaves of tree {tree.tree} in one entry that differ here")
    numbers = sorted(turns)
    if numbers != list(range(len(numbers))) or not set(constant) <= set(numbers[1:]) or turns[0]:
        raise Malformed(f"{label_holder} has numbered the entries wrongly")
    if sorted(set(outgoing.values())) != list(range(max(outgoing.values()) + 1)):
        raise Malformed(f"{label_holder} has numbered the entries that go on wrongly")
    return MemberLayout(
        [turns[number] for number in numbers],
        np.array([outgoing[number] for number in numbers], dtype=np.int64),
        np.array(sorted(set(constant)), dtype=np.int64),
        spare_of(nodes, SUM_BITS + 1),
    )


def spare_of(nodes: Mapping[tuple[int, ...], Sequence[Sequence[int]]], bits: float) -> float:
    """Bits by which the leaves that one's own splits leave open exceed the possible sums, whatever the weights are.

    `nodes`: by the columns of the score, the own nodes of each tree that adds to them; `bits`: of a sum, sign included.
    """
    each = (least_candidate_bits(trees) - bits * len(outputs) for outputs, trees in nodes.items())
    return min(each, default=0.0)

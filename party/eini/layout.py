"""The entry that each leaf is in: sent by the label holder, checked by a feature party against its own shard."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import numpy as np

from party.prediction.entry_scheme import MessageNames
from party.prediction.member_entries import Branches, MemberEntries, NamedTrees, spare_of
from party.runtime.messages import batches
from treetap.errors import DataError, Malformed
from treetap.trees.leaf_entries import SUM_BITS, TreeHop
from treetap.wire.v2 import eini_pb2, exchange_pb2

#: The names of the messages of scores.
SCORES = MessageNames("constant_entries", "leaf_entries", "leaf_sums")


def layout_messages(hop: Sequence[TreeHop], constant: list[int]) -> Iterator[eini_pb2.EntryLayout]:
    """The layout for one member of the chain, in bounded messages."""
    trees = (
        eini_pb2.TreeEntries(
            tree=each.tree, incoming=each.incoming.tolist(), outgoing=each.outgoing.tolist(), outputs=each.outputs
        )
        for each in hop
    )
    for number, batch in enumerate(batches(trees)):
        yield eini_pb2.EntryLayout(trees=batch, constant=constant if number == 0 else [])


async def take_layout(
    messages: AsyncIterator[exchange_pb2.PeerMessage],
    party: str,
    label_holder: str,
    shard: Sequence[dict[str, Any]],
    outputs: int,
) -> MemberEntries:
    """Take the layout for this party and check it against its shard. `outputs`: columns of the score.

    Raises:
        DataError: the trees or leaves differ from those of the shard.
        Malformed: leaves that this party's own branches distinguish are in one entry, or a numbering is wrong.
    """
    branches: dict[int, Branches] = {0: ()}
    outgoing: dict[int, int] = {0: 0}
    constant: list[int] = []
    nodes: defaultdict[tuple[int, ...], list[list[int]]] = defaultdict(list)
    named = NamedTrees(party, label_holder, shard)
    async for message in messages:
        constant += message.protocol.eini.entry_layout.constant
        for tree in message.protocol.eini.entry_layout.trees:
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
                if branches.setdefault(entry, way) != way or outgoing.setdefault(entry, to) != to:
                    raise Malformed(f"{label_holder} has put leaves of tree {tree.tree} in one entry that differ here")
    if set().union(*nodes) != set(range(outputs)):
        raise Malformed(f"{label_holder} has laid out {outputs} columns of the score, not all of which have a tree")
    numbers = sorted(branches)
    if numbers != list(range(len(numbers))) or not set(constant) <= set(numbers[1:]) or branches[0]:
        raise Malformed(f"{label_holder} has numbered the entries wrongly")
    going = sorted(set(outgoing.values()))
    if going != list(range(len(going))):  # as many numbers as there are, not as many as the largest says
        raise Malformed(f"{label_holder} has numbered the entries that go on wrongly")
    return MemberEntries(
        [branches[number] for number in numbers],
        np.array([outgoing[number] for number in numbers], dtype=np.int64),
        np.array(sorted(set(constant)), dtype=np.int64),
        spare_of(nodes, SUM_BITS + 1),
    )

"""The entries of attributions: told by the label holder, checked by a feature party against its own shard."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from party.eini.layout import MemberLayout, Turns
from party.parcels import batches
from treetap.errors import DataError, Malformed
from treetap.trees.attributed import AttributedHop
from treetap.trees.entries import SUM_BITS
from treetap.trees.leaves import least_candidate_bits
from treetap.wire.v1 import exchange_pb2, explain_pb2

#: No model has more features that count: a bound on what a message can make a party hold.
MOST_PLAYERS = 100_000


def layout_parcels(
    hop: Sequence[AttributedHop], constant: list[int], players: int
) -> Iterator[explain_pb2.AttributionLayout]:
    """What one member of the chain is told, in bounded messages."""
    trees = (
        explain_pb2.AttributedTree(
            tree=each.tree,
            leaves=[place + 1 for place in each.leaves],
            outgoing=each.outgoing,
            outputs=each.outputs,
        )
        for each in hop
    )
    for number, batch in enumerate(batches(trees)):
        yield explain_pb2.AttributionLayout(trees=batch, constant=constant if number == 0 else [], players=players)


@dataclass(frozen=True)
class AttributedLayout(MemberLayout):
    """The entries as one member gets them: its own turns that each depends on, where each goes, which come once.

    `spare`: bits by which the leaves that its own splits leave open exceed those of a score and of all players' values.
    """

    players: int


async def take_layout(
    parcels: AsyncIterator[exchange_pb2.Parcel],
    party: str,
    label_holder: str,
    shard: Sequence[dict[str, Any]],
    outputs: int,
    *,
    last: bool,
) -> AttributedLayout:
    """What the label holder told this party, checked against its shard; the score has so many columns.

    Raises:
        DataError: the trees are others than in the shard.
        Malformed: a numbering is wrong, or an entry depends on a leaf that is not there.
    """
    turns: list[Turns] = [()]
    outgoing, constant, players = [0], list[int](), 0
    nodes: defaultdict[tuple[int, ...], list[list[int]]] = defaultdict(list)
    async for parcel in parcels:
        body = parcel.attribution_layout
        constant += body.constant
        players = body.players
        for tree in body.trees:
            if tree.tree >= len(shard):
                raise DataError(
                    f"{party}: {label_holder} predicts with tree {tree.tree}, this party's shard has {len(shard)} "
                    "trees: the shards are of different jobs"
                )
            own: list[Turns] = [(), *(_turns(leaf) for leaf in shard[tree.tree]["leaves"])]
            if not tree.outputs or not set(tree.outputs) <= set(range(outputs)):
                raise Malformed(f"{label_holder} has named columns of the score wrongly")
            if len(tree.leaves) != len(tree.outgoing) or any(
                place >= len(own) or (place and not own[place]) for place in tree.leaves
            ):
                raise Malformed(
                    f"{label_holder} has told entries of tree {tree.tree} by leaves that {party} does not decide"
                )
            nodes[tuple(tree.outputs)].append([split["node"] for split in shard[tree.tree]["splits"]])
            turns += [own[place] for place in tree.leaves]
            outgoing += tree.outgoing
    going = sorted(set(outgoing))
    if going != list(range(len(going))) or (last and going != [0]) or not set(constant) <= set(range(1, len(turns))):
        raise Malformed(f"{label_holder} has numbered the entries of the attributions wrongly")
    if not 1 <= players <= MOST_PLAYERS:
        raise Malformed(f"{label_holder} says that there are {players} players")
    # Whatever the weights are: each value has SUM_BITS and a sign, and so has the score.
    each = (
        least_candidate_bits(trees) - (SUM_BITS + 1) * len(columns) * (1 + players) for columns, trees in nodes.items()
    )
    return AttributedLayout(
        turns,
        np.array(outgoing, dtype=np.int64),
        np.array(sorted(set(constant)), dtype=np.int64),
        min(each, default=0.0),
        players,
    )


def _turns(leaf: list[list[int]]) -> Turns:
    return tuple((handle, bool(left)) for handle, left in leaf)

"""The entries of attributions: sent by the label holder, checked by a feature party against its own shard."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from party.prediction.entry_scheme import MessageNames
from party.prediction.member_entries import Branches, MemberEntries, NamedTrees
from party.runtime.messages import batches
from treetap.errors import Malformed
from treetap.trees.leaf_entries import SUM_BITS
from treetap.trees.local_values import GoesLeft
from treetap.trees.paths import Bools, least_candidate_bits
from treetap.trees.shapley_entries import AttributedHop
from treetap.wire.v2 import attributions_pb2, exchange_pb2

#: The names of the messages of attributions.
VALUES = MessageNames("constant_attributions", "attribution_entries", "attribution_sums")
#: Of a tree: the columns of the score it adds to, the players that have a split there, the own splits by heap number.
TreeSplits = tuple[tuple[int, ...], frozenset[int], list[int]]
#: Most players in a message, more than the features of any model: a bound on a party's memory.
MOST_PLAYERS = 100_000


def layout_messages(
    hop: Sequence[AttributedHop], constant: list[int], players: int
) -> Iterator[attributions_pb2.AttributionLayout]:
    """The layout for one member of the chain, in bounded messages."""
    trees = (
        attributions_pb2.AttributedTree(
            tree=each.tree,
            leaves=[place + 1 for place in each.leaves],
            outgoing=each.outgoing,
            outputs=each.outputs,
            players=each.players,
        )
        for each in hop
    )
    for number, batch in enumerate(batches(trees)):
        yield attributions_pb2.AttributionLayout(trees=batch, constant=constant if number == 0 else [], players=players)


@dataclass(frozen=True)
class AttributedLayout:
    """The entries as one member gets them, and the number of players to whose values they add.

    The spare bits of the entries are those beyond a score and all players' values.
    """

    entries: MemberEntries
    players: int

    def masks(self, goes_left: GoesLeft, n: int) -> Bools:
        """The entries that n records may be in by the own columns (n, entries)."""
        return self.entries.masks(goes_left, n)


async def take_layout(
    messages: AsyncIterator[exchange_pb2.PeerMessage],
    party: str,
    label_holder: str,
    shard: Sequence[dict[str, Any]],
    outputs: int,
    members: int,
    *,
    last: bool,
) -> AttributedLayout:
    """Take the layout for this party and check it against its shard.

    `outputs`: columns of the score; `members`: feature parties of the chain, which are the last players.

    Raises:
        DataError: the trees differ from those of the shard.
        Malformed: a numbering is wrong, or an entry depends on a leaf that does not exist.
    """
    branches: list[Branches] = [()]
    outgoing, constant, players = [0], list[int](), 0
    splits: list[TreeSplits] = []
    named = NamedTrees(party, label_holder, shard)
    async for message in messages:
        body = message.protocol.attributions.attribution_layout
        constant += body.constant
        players = body.players
        for tree in body.trees:
            ways, nodes = named.take(tree.tree)
            own: list[Branches] = [(), *ways]
            if not tree.outputs or not set(tree.outputs) <= set(range(outputs)):
                raise Malformed(f"{label_holder} has named columns of the score wrongly")
            if len(tree.leaves) != len(tree.outgoing) or any(
                place >= len(own) or (place and not own[place]) for place in tree.leaves
            ):
                raise Malformed(
                    f"{label_holder} has sent entries of tree {tree.tree} by leaves that {party} does not decide"
                )
            splits.append((tuple(tree.outputs), frozenset(tree.players), nodes))
            branches += [own[place] for place in tree.leaves]
            outgoing += tree.outgoing
    going = sorted(set(outgoing))
    if going != list(range(len(going))) or (last and going != [0]) or not set(constant) <= set(range(1, len(branches))):
        raise Malformed(f"{label_holder} has numbered the entries of the attributions wrongly")
    if not 1 <= players <= MOST_PLAYERS:
        raise Malformed(f"{label_holder} has announced {players} players")
    if any(not playing <= set(range(players)) or (nodes and not playing) for _, playing, nodes in splits):
        raise Malformed(f"{label_holder} has sent wrong players of a tree, of {players}")
    if not set(range(players - members)) <= set().union(*(playing for _, playing, _ in splits)) or players < members:
        raise Malformed(f"{label_holder} has announced {players} players, not all of which have a tree")
    entries = MemberEntries(
        branches,
        np.array(outgoing, dtype=np.int64),
        np.array(sorted(set(constant)), dtype=np.int64),
        _spare(splits),
    )
    return AttributedLayout(entries, players)


def _spare(splits: Sequence[TreeSplits]) -> float:
    """Spare bits: of trees that add to the same columns, beyond values and score; of a player, beyond its values.

    For any weights: each value has SUM_BITS and a sign for each column, and so has the score.
    """
    found = []
    for columns in {columns for columns, _, _ in splits}:
        some = [(playing, nodes) for these, playing, nodes in splits if these == columns]
        bits = (SUM_BITS + 1) * len(columns)
        players = frozenset[int]().union(*(playing for playing, _ in some))
        found.append(least_candidate_bits(nodes for _, nodes in some) - bits * (1 + len(players)))
        for player in players:
            found.append(least_candidate_bits(nodes for playing, nodes in some if player in playing) - bits)
    return min(found, default=0.0)

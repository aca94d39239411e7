"""The branches that masks of a lattice's columns depend on: sent by the label holder, checked by each feature party."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from party.eini.chain import ChainPlace
from party.eini.entry_layout import NamedTrees, TreeSplits, spare_of
from party.runtime.messages import batches
from treetap.errors import DataError, Malformed
from treetap.lattice.columns import Branches, ColumnShape, NodeColumns, Page, TreeShape
from treetap.trees.local_values import GoesLeft
from treetap.trees.paths import Bools, reachable
from treetap.wire.v2 import exchange_pb2, lattice_pb2, types_pb2


def layout_messages(columns: NodeColumns, member: str) -> Iterator[lattice_pb2.ColumnLayout]:
    """The layout for one member of the chain, in bounded messages."""
    trees = (
        lattice_pb2.TreeColumns(
            tree=tree.index,
            outputs=tree.outputs,
            leaves=len(tree.leaves),
            columns=[
                lattice_pb2.ColumnPath(branches=[types_pb2.Branch(handle=handle, left=left) for handle, left in way])
                for way in ways
            ],
        )
        for tree, ways in zip(columns.trees, columns.ways(member), strict=True)
    )
    for batch in batches(trees):
        yield lattice_pb2.ColumnLayout(trees=batch)


@dataclass(frozen=True)
class MemberColumns:
    """The columns as one member gets them: its own branches on the way of each, and its own splits."""

    shape: ColumnShape
    ways: list[Branches]
    splits: list[TreeSplits]

    def spare(self, sum_bits: float) -> float:
        """Bits by which the leaves that the own splits leave open exceed the possible sums, of `sum_bits` each."""
        return spare_of(self.splits, sum_bits)

    def mask(self, page: Page, goes_left: GoesLeft, n: int) -> Bools:
        """The slots of a page that n records keep: (slots,)."""
        return reachable(self.ways[page.first : page.last], n, goes_left).T.reshape(-1)


async def take_layout(
    messages: AsyncIterator[exchange_pb2.PeerMessage], place: ChainPlace, shard: Sequence[dict[str, Any]], members: int
) -> MemberColumns:
    """Take the layout for this party and check it against its shard; the chain has `members` feature parties.

    Raises:
        DataError: the trees, leaves or splits differ from those of the shard.
        Malformed: ways that this party's trees do not have, a tree twice, or columns of the score that are left out.
    """
    trees: list[TreeShape] = []
    ways: list[Branches] = []
    splits: list[TreeSplits] = []
    label_holder = place.label_holder
    named = NamedTrees(place.party, label_holder, shard)
    async for message in messages:
        for tree in message.protocol.lattice.column_layout.trees:
            own, nodes = named.take(tree.tree)
            sent = [tuple((branch.handle, branch.left) for branch in column.branches) for column in tree.columns]
            _check_tree(place, tree, own, sent)
            outputs = tuple(tree.outputs)
            trees.append(TreeShape(outputs, len(sent)))
            ways += sent
            splits.append(TreeSplits(outputs, nodes))
    columns = {output for tree in trees for output in tree.outputs}
    if columns != set(range(len(columns))) or any(
        len(set(t.outputs)) != len(t.outputs) or not t.outputs for t in trees
    ):
        raise Malformed(f"{label_holder} has named columns of the score wrongly")
    return MemberColumns(ColumnShape(trees, len(columns), members), ways, splits)


def _check_tree(
    place: ChainPlace, tree: lattice_pb2.TreeColumns, own: Sequence[Branches], sent: Sequence[Branches]
) -> None:
    party, label_holder = place.party, place.label_holder
    if len(own) != tree.leaves:
        raise DataError(
            f"tree {tree.tree} has {tree.leaves} leaves at {label_holder}, {len(own)} in this party's shard: "
            "the shards are of different jobs"
        ).at(party)
    if len(sent) >= len(own):
        raise Malformed(f"{label_holder} has {len(sent)} columns of tree {tree.tree}, which has {len(own) - 1} splits")
    possible = {way[:length] for way in own for length in range(len(way) + 1)}
    if not set(sent) <= possible:
        raise Malformed(f"{label_holder} has a column of tree {tree.tree} to which no way leads here")
    # every split has the column of the records that go left there
    if missing := {way for way in possible if way and way[-1][1]} - set(sent):
        raise DataError(
            f"{len(missing)} of this party's splits in tree {tree.tree} have no column at {label_holder}: "
            "the shards are of different jobs"
        ).at(party)

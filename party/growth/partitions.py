"""Partitions of a feature party's categories that won nodes, from the label holder to that party.

A message is as long for any outcome: every node of the party's has as many entries as the party has such columns, of
which all may tie, and every entry as many bits as the column of the most categories needs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

import numpy as np

from party.runtime.messages import CountedItem, counted_bodies
from party.runtime.outbox import CountedBody
from treetap.errors import Malformed
from treetap.trees.partitions import Partition
from treetap.wire.v2 import exchange_pb2, growth_pb2


def partition_messages(won: Mapping[int, Sequence[Partition]], sizes: Sequence[int]) -> Iterator[CountedBody]:
    """The tied partitions of each node that a party won, none where another candidate did.

    `sizes`: the numbers of categories of the party's columns that are partitioned.
    """
    return counted_bodies(
        lambda entries: growth_pb2.ChosenPartitions(partitions=entries),
        (
            _item(node, each, sizes)
            for node, tied in won.items()
            for each in (*tied, *[None] * (len(sizes) - len(tied)))
        ),
    )


async def take_partitions(
    messages: AsyncIterator[exchange_pb2.PeerMessage], sizes: Sequence[int]
) -> dict[int, list[Partition]]:
    """The tied partitions of each node, as the owner receives them.

    Raises:
        Malformed: one is of a column that was not offered, or does not divide its categories.
    """
    found: defaultdict[int, list[Partition]] = defaultdict(list)
    async for message in messages:
        for each in message.growth.chosen_partitions.partitions:
            if not each.column:
                continue
            if each.column > len(sizes):
                raise Malformed(f"a partition of column {each.column} of {len(sizes)} that were offered")
            right = np.flatnonzero(np.unpackbits(np.frombuffer(each.right, dtype=np.uint8), bitorder="little"))
            count = sizes[each.column - 1]
            if not 0 < len(right) < count or right[-1] >= count:
                raise Malformed(f"a partition of node {each.node} that does not divide the categories of its column")
            found[each.node].append(Partition(each.column - 1, tuple(right.tolist()), each.missing_left))
    return dict(found)


def _item(node: int, partition: Partition | None, sizes: Sequence[int]) -> CountedItem[growth_pb2.ChosenPartition]:
    bits = np.zeros(max(sizes), dtype=np.uint8)
    if partition is not None:
        bits[list(partition.right)] = 1
    right = np.packbits(bits, bitorder="little").tobytes()
    counted = growth_pb2.ChosenPartition(node=node, column=len(sizes), right=right, missing_left=True)
    entry = growth_pb2.ChosenPartition(node=node, right=right)
    if partition is not None:
        entry.column, entry.missing_left = partition.group + 1, partition.missing_left
    return CountedItem(entry, counted, counted.ByteSize())

"""Contents of the messages of a growing tree: messages are bounded in size, received sets are checked.

Partitions of a feature party's categories that won nodes are as long for any outcome: every node of the party's has as
many entries as the party has such columns, of which all may tie, and every entry as many bits as the column of the most
categories needs.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from treetap.arrays import Words
from treetap.errors import Malformed
from treetap.party.runtime.context import CountedBody, CountedItem, Rows, as_chunk, counted_bodies, counted_items
from treetap.trees.candidates import Partition
from treetap.trees.growing_tree import Made
from treetap.wire.records import rows_of
from treetap.wire.v2 import exchange_pb2, growth_pb2, types_pb2

#: Most bytes of packed ciphertexts and second halves in one message of candidate sums, of choices or bits in others.
SUMS_BYTES = 15 << 17
#: Most leaf paths in one message.
LEAVES_PER_MESSAGE = 4096


def sampled_messages(rows: Rows, total: int) -> Iterator[CountedBody]:
    return counted_bodies(lambda chunks: growth_pb2.SampledRecords(chunks=chunks), counted_items(as_chunk, rows, total))


async def take_sampled(messages: AsyncIterator[exchange_pb2.PeerMessage], total: int) -> Rows:
    """The sampled records that the label holder sent."""
    chunks: list[types_pb2.RecordChunk] = []
    async for message in messages:
        chunks.extend(message.growth.sampled_records.chunks)
    return rows_of(chunks, total)


def drawn_messages(drawn: Rows, total: int, *, sums_of_all: bool = False) -> Iterator[CountedBody]:
    """The multiplicity of each record in a tree's draw, (N,), as sets of the records drawn at least `times` times.

    `sums_of_all`: ask for sums over all records of a node besides.
    """
    for times in range(1, int(drawn.max(initial=0)) + 1):

        def body(chunks: list[types_pb2.RecordChunk], times: int = times) -> growth_pb2.SampledRecords:
            return growth_pb2.SampledRecords(chunks=chunks, times=times, sums_of_all=sums_of_all)

        yield from counted_bodies(body, counted_items(as_chunk, np.flatnonzero(drawn >= times), total))


async def take_drawn(messages: AsyncIterator[exchange_pb2.PeerMessage], total: int) -> tuple[Rows, bool]:
    """The multiplicity of each record in a tree's draw, (N,), as the label holder sent it; and its `sums_of_all`."""
    chunks: dict[int, list[types_pb2.RecordChunk]] = defaultdict(list)
    sums_of_all = False
    async for message in messages:
        sums_of_all |= message.growth.sampled_records.sums_of_all
        chunks[message.growth.sampled_records.times].extend(message.growth.sampled_records.chunks)
    drawn = np.zeros(total, dtype=np.int64)
    for times in sorted(chunks):
        rows = rows_of(chunks[times], total)
        if (drawn[rows] != times - 1).any() or not len(rows):
            raise Malformed(f"records drawn {times} times that were not drawn {times - 1} times")
        drawn[rows] = times
        if drawn.sum() > total:
            raise Malformed(f"a tree draws more records than the {total} that there are")
    return drawn, sums_of_all


def space_messages(spaces: Iterable[tuple[int, Rows]], total: int) -> Iterator[CountedBody]:
    """Instance spaces of nodes, for a feature party."""
    return counted_bodies(lambda items: growth_pb2.InstanceSpaces(spaces=items), space_items(spaces, total))


def space_items(spaces: Iterable[tuple[int, Rows]], total: int) -> Iterator[CountedItem[growth_pb2.NodeSpace]]:
    """Sets of records of nodes, in chunks."""
    return (item for node, rows in spaces for item in counted_items(partial(_space, node), rows, total))


def _space(node: int, records: types_pb2.RecordChunk) -> growth_pb2.NodeSpace:
    return growth_pb2.NodeSpace(node=node, records=records)


async def take_spaces(messages: AsyncIterator[exchange_pb2.PeerMessage], total: int) -> dict[int, Rows]:
    """Instance spaces by node, as a feature party receives them."""
    chunks: dict[int, list[types_pb2.RecordChunk]] = defaultdict(list)
    async for message in messages:
        for space in message.growth.instance_spaces.spaces:
            chunks[space.node].append(space.records)
    return dict(_disjoint(chunks, total))


def won_messages(owner: str, won: Mapping[int, Sequence[int]]) -> Iterator[CountedBody]:
    """Node → places of the tied winners, for their owner; each node counts as one with a single winner."""

    def item(node: int, places: Sequence[int]) -> CountedItem[growth_pb2.WonSplit]:
        counted = growth_pb2.WonSplit(node=node, candidates=[(1 << 32) - 1])
        split = growth_pb2.WonSplit(node=node, candidates=places)
        return split, counted, max(split.ByteSize(), counted.ByteSize())

    items = (item(node, places) for node, places in won.items())
    return counted_bodies(lambda splits: growth_pb2.WonSplits(owner=owner, splits=splits), items)


async def take_won(messages: AsyncIterator[exchange_pb2.PeerMessage]) -> dict[int, list[int]]:
    """Node → places of the tied winners, as their owner receives them; `Malformed` if a node comes twice."""
    won: dict[int, list[int]] = {}
    async for message in messages:
        for split in message.growth.won_splits.splits:
            if split.node in won:
                raise Malformed(f"node {split.node} is split twice")
            won[split.node] = list(split.candidates)
    return won


def share_messages(
    make: type[growth_pb2.ChampionShare | growth_pb2.WinnerShares], numbers: bytes
) -> Iterator[growth_pb2.ChampionShare | growth_pb2.WinnerShares]:
    """Shares of the scores of nodes."""
    for first in range(0, max(len(numbers), 1), SUMS_BYTES):
        yield make(numbers=numbers[first : first + SUMS_BYTES])


async def take_shares(messages: AsyncIterator[exchange_pb2.PeerMessage], sender: str, kind: str, *shape: int) -> Words:
    """Such shares, of this shape; `Malformed` where they are more or fewer."""
    numbers, due = bytearray(), 8 * math.prod(shape)
    async for message in messages:
        numbers += getattr(message.growth, kind).numbers
    if len(numbers) != due:
        raise Malformed(f"{sender} sent {len(numbers)} bytes of {kind}, where {due} are due")
    return np.frombuffer(numbers, dtype="<u8").astype(np.uint64).reshape(shape)


def child_messages(
    children: Iterable[tuple[int, int, Rows | bytes]], total: int, missing_left: Collection[int] = ()
) -> Iterator[CountedBody]:
    """(node, handle, rows that go left) of each split, for the label holder; or, in the place of rows, left bits.

    `missing_left`: the nodes at which records go left that this party lacks.
    """
    items = (
        item
        for node, handle, left in children
        for item in _child_items(node, handle, left, total, missing_left=node in missing_left)
    )
    return counted_bodies(lambda children: growth_pb2.Children(children=children), items)


def _child_items(
    node: int, handle: int, left: Rows | bytes, total: int, *, missing_left: bool
) -> Iterator[CountedItem[growth_pb2.Child]]:
    if not isinstance(left, bytes):
        made = partial(_child, node, handle, missing_left)
        yield from counted_items(made, left, total)
        return
    for first in range(0, max(len(left), 1), SUMS_BYTES):
        bits = left[first : first + SUMS_BYTES]
        child = growth_pb2.Child(node=node, handle=handle, left_bits=bits, missing_left=missing_left)
        yield child, child, child.ByteSize()


def _child(node: int, handle: int, missing_left: bool, left: types_pb2.RecordChunk) -> growth_pb2.Child:
    return growth_pb2.Child(node=node, handle=handle, left=left, missing_left=missing_left)


async def take_children(
    messages: AsyncIterator[exchange_pb2.PeerMessage],
    total: int,
    opened: Callable[[int, Sequence[growth_pb2.Child]], Rows] | None = None,
    whole: Callable[[int, Rows, bool], Rows] = lambda _node, rows, _missing_left: rows,
) -> tuple[set[int], Iterator[tuple[int, int, Rows]]]:
    """The nodes that an owner divides, and of each (node, handle, rows that go left), as the label holder gets them.

    `opened`: makes the rows of a node of its left bits, where these come in the place of rows; node by node. `whole`:
    makes of them those of the job, given also whether records go left that the owner lacks.
    """
    parts: dict[int, list[growth_pb2.Child]] = defaultdict(list)
    async for message in messages:
        for child in message.growth.children.children:
            if parts[child.node] and parts[child.node][0].handle != child.handle:
                raise Malformed(f"two handles for the split of node {child.node}")
            parts[child.node].append(child)
    handles = {node: own[0].handle for node, own in parts.items()}
    if opened is None:
        sets = _disjoint({node: [child.left for child in own] for node, own in parts.items()}, total)
    else:
        sets = ((node, opened(node, own)) for node, own in parts.items())
    made = ((node, handles[node], whole(node, rows, parts[node][0].missing_left)) for node, rows in sets)
    return set(handles), made


def _disjoint(chunks: Mapping[int, list[types_pb2.RecordChunk]], total: int) -> Iterator[tuple[int, Rows]]:
    """The rows of each node of a level. Stops before it decodes more than `total` rows in all."""
    held = 0
    for node, parts in chunks.items():
        rows = rows_of(parts, total)
        held += len(rows)
        if held > total:
            raise Malformed(f"the nodes of a level have more than the {total} records together")
        yield node, rows


def partition_messages(won: Mapping[int, Sequence[Partition]], sizes: Sequence[int]) -> Iterator[CountedBody]:
    """The tied partitions of each node that a party won, none where another candidate did.

    `sizes`: the numbers of categories of the party's columns that are partitioned.
    """
    return counted_bodies(
        lambda entries: growth_pb2.ChosenPartitions(partitions=entries),
        (
            _item(node, partition, sizes)
            for node, tied in won.items()
            for partition in (*tied, *[None] * (len(sizes) - len(tied)))
        ),
    )


async def take_partitions(
    messages: AsyncIterator[exchange_pb2.PeerMessage], sizes: Sequence[int]
) -> dict[int, list[Partition]]:
    """The tied partitions of each node, as the owner receives them.

    Raises:
        Malformed: one is of a column that was not offered, or does not divide its categories.
    """
    tied: defaultdict[int, list[Partition]] = defaultdict(list)
    async for message in messages:
        for entry in message.growth.chosen_partitions.partitions:
            if not entry.column:
                continue
            if entry.column > len(sizes):
                raise Malformed(f"a partition of column {entry.column} of {len(sizes)} that were offered")
            right = np.flatnonzero(np.unpackbits(np.frombuffer(entry.right, dtype=np.uint8), bitorder="little"))
            count = sizes[entry.column - 1]
            if not 0 < len(right) < count or right[-1] >= count:
                raise Malformed(f"a partition of node {entry.node} that does not divide the categories of its column")
            tied[entry.node].append(Partition(entry.column - 1, tuple(right.tolist()), entry.missing_left))
    return dict(tied)


def _item(node: int, partition: Partition | None, sizes: Sequence[int]) -> CountedItem[growth_pb2.ChosenPartition]:
    bits = np.zeros(max(sizes), dtype=np.uint8)
    if partition is not None:
        bits[list(partition.right)] = 1
    right = np.packbits(bits, bitorder="little").tobytes()
    counted = growth_pb2.ChosenPartition(node=node, column=len(sizes), right=right, missing_left=True)
    entry = growth_pb2.ChosenPartition(node=node, right=right)
    if partition is not None:
        entry.column, entry.missing_left = partition.group + 1, partition.missing_left
    return entry, counted, counted.ByteSize()


def leaf_paths(made: Mapping[int, Made], party: int, leaves: Sequence[int]) -> list[growth_pb2.LeafPaths]:
    """For each leaf in order, the branches at the splits of party number `party`.

    `leaves`: of the tree, or of a full one that has it at its top.
    """
    paths = []
    for leaf in leaves:
        branches = []
        for up in range(leaf.bit_length() - 1, 0, -1):
            parent, child = leaf >> up, leaf >> (up - 1)
            if (split := made.get(parent)) is not None and split.party == party:
                branches.append(types_pb2.Branch(handle=split.handle, left=child % 2 == 0))
        paths.append(growth_pb2.LeafPath(branches=branches))
    return [
        growth_pb2.LeafPaths(leaves=paths[start : start + LEAVES_PER_MESSAGE])
        for start in range(0, len(paths), LEAVES_PER_MESSAGE)
    ]

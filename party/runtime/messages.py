"""Conversion of record sets to and from messages: messages are bounded in size, received sets are checked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from google.protobuf.message import Message

from party.runtime.outbox import MESSAGE_BYTES, CountedBody
from treetap.errors import Malformed
from treetap.wire.frame import content_of
from treetap.wire.records import chunks_of, counted_chunks, rows_of
from treetap.wire.v2 import (
    exchange_pb2,
    growth_pb2,
    types_pb2,
)

Rows = np.ndarray[tuple[int], np.dtype[np.int64]]
Item = TypeVar("Item", bound=Message)


def ciphertext_body(kind: str, ciphertexts: bytes) -> Message:
    """A body that holds ciphertexts only, of the message kind of this name."""
    return type(content_of(exchange_pb2.PeerMessage(), kind))(ciphertexts=ciphertexts)


async def ciphertexts_in(messages: AsyncIterator[exchange_pb2.PeerMessage], kind: str) -> AsyncIterator[bytes]:
    """The ciphertexts in the bodies of a series of such a kind, in order."""
    async for message in messages:
        body: Any = content_of(message, kind)
        yield body.ciphertexts


def batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Items in lists of at most about one message's size."""
    batch: list[Item] = []
    size = 0
    for item in items:
        if batch and size + item.ByteSize() > MESSAGE_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += item.ByteSize()
    if batch:
        yield batch


class CountedItem(NamedTuple, Generic[Item]):
    """An item of a message, the one that counts in its place, and the most bytes that such an item can take."""

    item: Item
    counted: Item
    most: int


def counted_items(
    make: Callable[[types_pb2.RecordChunk], Item], rows: Rows, total: int, size: int | None = None
) -> Iterator[CountedItem[Item]]:
    """The items that `make` makes of the chunks of a record set; chunks of `size` bytes, or bitmaps, count as it."""
    for chunk, counting in zip(chunks_of(rows, total), counted_chunks(total, size), strict=True):
        counted = make(counting)
        yield CountedItem(make(chunk), counted, counted.ByteSize())


def counted_bodies(make: Callable[[list[Item]], Message], items: Iterable[CountedItem[Item]]) -> Iterator[CountedBody]:
    """Bodies that `make` makes of items of about one message's size, which their content does not change."""
    batch: list[CountedItem[Item]] = []
    size = 0

    def body() -> CountedBody:
        return CountedBody(make([each.item for each in batch]), make([each.counted for each in batch]))

    for item in items:
        if batch and size + item.most > MESSAGE_BYTES:
            yield body()
            batch, size = [], 0
        batch.append(item)
        size += item.most
    if batch:
        yield body()


def as_chunk(chunk: types_pb2.RecordChunk) -> types_pb2.RecordChunk:
    """A chunk as an item of its own."""
    return chunk


def sampled_messages(rows: Rows, total: int) -> Iterator[CountedBody]:
    """The sampled records of a tree."""
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
    items = (item for node, rows in spaces for item in counted_items(partial(_space, node), rows, total))
    return counted_bodies(lambda spaces: growth_pb2.InstanceSpaces(spaces=spaces), items)


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
        return CountedItem(split, counted, max(split.ByteSize(), counted.ByteSize()))

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


def child_messages(children: Iterable[tuple[int, int, Rows]], total: int) -> Iterator[CountedBody]:
    """(node, handle, rows that go left) of each split, for the label holder."""
    items = (
        item for node, handle, rows in children for item in counted_items(partial(_child, node, handle), rows, total)
    )
    return counted_bodies(lambda children: growth_pb2.Children(children=children), items)


def _child(node: int, handle: int, left: types_pb2.RecordChunk) -> growth_pb2.Child:
    return growth_pb2.Child(node=node, handle=handle, left=left)


async def take_children(messages: AsyncIterator[exchange_pb2.PeerMessage], total: int) -> dict[int, tuple[int, Rows]]:
    """Node → (handle, rows that go left), as the label holder receives them."""
    chunks: dict[int, list[types_pb2.RecordChunk]] = defaultdict(list)
    handles: dict[int, int] = {}
    async for message in messages:
        for child in message.growth.children.children:
            if handles.setdefault(child.node, child.handle) != child.handle:
                raise Malformed(f"two handles for the split of node {child.node}")
            chunks[child.node].append(child.left)
    return {node: (handles[node], rows) for node, rows in _disjoint(chunks, total)}


def _disjoint(chunks: Mapping[int, list[types_pb2.RecordChunk]], total: int) -> Iterator[tuple[int, Rows]]:
    """The rows of each node of a level. Stops before it decodes more than `total` rows in all."""
    held = 0
    for node, parts in chunks.items():
        rows = rows_of(parts, total)
        held += len(rows)
        if held > total:
            raise Malformed(f"the nodes of a level have more than the {total} records together")
        yield node, rows

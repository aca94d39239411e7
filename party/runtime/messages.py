"""Sets of records in and out of parcels: every parcel bounded, every set checked on arrival."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np
from google.protobuf.message import Message

from party.runtime.outbox import PARCEL_BYTES
from treetap.errors import Malformed
from treetap.wire.frame import content_of
from treetap.wire.records import chunks_of, rows_of
from treetap.wire.v2 import (
    exchange_pb2,
    growth_pb2,
    types_pb2,
)

Rows = np.ndarray[tuple[int], np.dtype[np.int64]]
Item = TypeVar("Item", bound=Message)


def ciphertext_body(kind: str, ciphertexts: bytes) -> Message:
    """A body that is ciphertexts and nothing else, of the kind that a frame knows by this name."""
    return type(content_of(exchange_pb2.PeerMessage(), kind))(ciphertexts=ciphertexts)


async def ciphertexts_in(parcels: AsyncIterator[exchange_pb2.PeerMessage], kind: str) -> AsyncIterator[bytes]:
    """What the bodies of a series of one of these kinds hold, in order."""
    async for parcel in parcels:
        body: Any = content_of(parcel, kind)
        yield body.ciphertexts


def batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Items in lists of about one parcel's size."""
    batch: list[Item] = []
    size = 0
    for item in items:
        if batch and size + item.ByteSize() > PARCEL_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += item.ByteSize()
    if batch:
        yield batch


def sampled_parcels(rows: Rows, total: int) -> Iterator[growth_pb2.SampledRecords]:
    """The sampled records of a tree."""
    for batch in batches(chunks_of(rows, total)):
        yield growth_pb2.SampledRecords(chunks=batch)


async def take_sampled(parcels: AsyncIterator[exchange_pb2.PeerMessage], total: int) -> Rows:
    """The sampled records that the label holder sent."""
    chunks: list[types_pb2.RecordChunk] = []
    async for parcel in parcels:
        chunks.extend(parcel.growth.sampled_records.chunks)
    return rows_of(chunks, total)


def drawn_parcels(drawn: Rows, total: int) -> Iterator[growth_pb2.SampledRecords]:
    """How often a forest's tree draws each record (N,): the records drawn once or more, twice or more, and so on."""
    for times in range(1, int(drawn.max(initial=0)) + 1):
        for batch in batches(chunks_of(np.flatnonzero(drawn >= times), total)):
            yield growth_pb2.SampledRecords(chunks=batch, times=times)


async def take_drawn(parcels: AsyncIterator[exchange_pb2.PeerMessage], total: int) -> Rows:
    """How often each record was drawn, (N,), as the label holder sent it."""
    chunks: dict[int, list[types_pb2.RecordChunk]] = defaultdict(list)
    async for parcel in parcels:
        chunks[parcel.growth.sampled_records.times].extend(parcel.growth.sampled_records.chunks)
    drawn = np.zeros(total, dtype=np.int64)
    for times in sorted(chunks):
        rows = rows_of(chunks[times], total)
        if (drawn[rows] != times - 1).any() or not len(rows):
            raise Malformed(f"records drawn {times} times that were not drawn {times - 1} times")
        drawn[rows] = times
    return drawn


def space_parcels(spaces: Iterable[tuple[int, Rows]], total: int) -> Iterator[growth_pb2.InstanceSpaces]:
    """Instance spaces of nodes, as they go to a feature party."""
    items = (
        growth_pb2.NodeSpace(node=node, records=chunk) for node, rows in spaces for chunk in chunks_of(rows, total)
    )
    for batch in batches(items):
        yield growth_pb2.InstanceSpaces(spaces=batch)


async def take_spaces(parcels: AsyncIterator[exchange_pb2.PeerMessage], total: int) -> dict[int, Rows]:
    """Instance spaces by node, as a feature party receives them."""
    chunks: dict[int, list[types_pb2.RecordChunk]] = defaultdict(list)
    async for parcel in parcels:
        for space in parcel.growth.instance_spaces.spaces:
            chunks[space.node].append(space.records)
    return {node: rows_of(parts, total) for node, parts in chunks.items()}


def child_parcels(children: Iterable[tuple[int, int, Rows]], total: int) -> Iterator[growth_pb2.Children]:
    """(node, handle, rows that go left), as the owner of the splits sends them."""
    items = (
        growth_pb2.Child(node=node, handle=handle, left=chunk)
        for node, handle, rows in children
        for chunk in chunks_of(rows, total)
    )
    for batch in batches(items):
        yield growth_pb2.Children(children=batch)


async def take_children(parcels: AsyncIterator[exchange_pb2.PeerMessage], total: int) -> dict[int, tuple[int, Rows]]:
    """Node → (handle, rows that go left), as the label holder receives them."""
    chunks: dict[int, list[types_pb2.RecordChunk]] = defaultdict(list)
    handles: dict[int, int] = {}
    async for parcel in parcels:
        for child in parcel.growth.children.children:
            if handles.setdefault(child.node, child.handle) != child.handle:
                raise Malformed(f"two handles for the split of node {child.node}")
            chunks[child.node].append(child.left)
    return {node: (handles[node], rows_of(parts, total)) for node, parts in chunks.items()}

"""Conversion of record sets to and from messages: messages are bounded in size, received sets are checked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from google.protobuf.message import Message

from treetap.wire.frame import content_of, head_of
from treetap.wire.records import chunks_of, counted_chunks
from treetap.wire.v2 import exchange_pb2, types_pb2

Rows = np.ndarray[tuple[int], np.dtype[np.int64]]
T = TypeVar("T")
Item = TypeVar("Item", bound=Message)
#: Approximate maximum of bytes in one message's body.
MESSAGE_BYTES = 1024 * 1024
#: The end of an error about contents that the job rules out, with the sender's name.
REMEDY = "no party that follows the protocol sends this: ask {} what it runs before any other job with it"


class CountedBody(NamedTuple):
    """A body, and the one whose sizes are counted in its place because they do not depend on the content."""

    body: Message
    counted: Message


class CiphertextBody(NamedTuple):
    """A body with ciphertexts, which are copied into the message once: `head` has its other fields.

    Its type has them in the field `ciphertexts`, whose number is the highest.
    """

    head: Message
    ciphertexts: bytes

    def serialised(self) -> bytes:
        """The body as protobuf writes it."""
        fields = self.head.DESCRIPTOR.fields_by_name
        number = fields["ciphertexts"].number
        assert number == max(field.number for field in fields.values()), self.head.DESCRIPTOR.name
        if not self.ciphertexts:
            return self.head.SerializeToString()
        return b"".join((self.head.SerializeToString(), head_of(number, len(self.ciphertexts)), self.ciphertexts))


Body = Message | CountedBody | CiphertextBody


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
    return _batches(items, lambda item: item.ByteSize())


def _batches(items: Iterable[T], size_of: Callable[[T], int]) -> Iterator[list[T]]:
    batch: list[T] = []
    size = 0
    for item in items:
        taken = size_of(item)
        if batch and size + taken > MESSAGE_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += taken
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
    for batch in _batches(items, lambda item: item.most):
        yield CountedBody(make([item.item for item in batch]), make([item.counted for item in batch]))


def as_chunk(chunk: types_pb2.RecordChunk) -> types_pb2.RecordChunk:
    """A chunk as an item of its own."""
    return chunk

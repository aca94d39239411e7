"""Sets of record positions as messages: what `treetap.wire.records` codes, in and out of protobuf."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from treetap.wire import records
from treetap.wire.v1 import types_pb2


def chunks_of(rows: records.Positions, total: int) -> Iterator[types_pb2.RecordChunk]:
    """A set of positions below `total` as bounded messages."""
    for chunk in records.encode(rows, total):
        message = types_pb2.RecordChunk(start=chunk.start, span=chunk.span)
        if chunk.bitmap is not None:
            message.bitmap = chunk.bitmap
        else:
            message.deltas = chunk.deltas or b""
        yield message


def rows_of(chunks: Iterable[types_pb2.RecordChunk], total: int) -> records.Positions:
    """The positions that a peer sent; `Malformed` where they do not cover 0..total-1."""
    return records.decode(
        [
            records.RecordChunk(
                chunk.start,
                chunk.span,
                chunk.bitmap if chunk.WhichOneof("coding") == "bitmap" else None,
                chunk.deltas if chunk.WhichOneof("coding") == "deltas" else None,
            )
            for chunk in chunks
        ],
        total,
    )

"""Sets of record positions on the wire: bitmaps or delta lists, whichever is smaller, in bounded chunks.

A set of positions in the aligned order (an instance space, the records to label) is cut into ranges
``[start, start + span)`` that cover ``[0, total)`` in order. Each range is coded as one of

* ``bitmap``: ``ceil(span / 8)`` bytes, least significant bit first, unused bits zero;
* ``deltas``: LEB128 numbers, the first being the offset from ``start``, every later one the distance (at
  least 1) from the position before it.

No chunk grows with the number of records: a range is cut so that its bitmap fits the limit.

The size of a coded set depends on its content. Where sizes are counted or decide where a message ends, chunks of the
greatest size take its place (`counted_chunks`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from treetap.errors import Malformed
from treetap.wire.v2 import types_pb2

Positions = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

CHUNK_LIMIT = 262_144  # bytes of one chunk: 2,097,152 records as a bitmap
_LONGEST = 9  # LEB128 bytes of the largest int64
_FEW = 24  # positions up to which a loop is quicker than calls of numpy
_CUT = "records: the list of distances is cut in the middle of a number"
_LONG = "records: a distance is written with more bytes than it takes"
_UNORDERED = "records: positions do not ascend"


def chunks_of(positions: Positions, total: int, limit: int = CHUNK_LIMIT) -> Iterator[types_pb2.RecordChunk]:
    """Code the ascending, distinct ``positions`` out of ``total`` records as chunks of at most ``limit`` bytes.

    At least one chunk is made, for an empty set and for no records too. Raises ValueError (a bug of the
    caller) for positions that do not ascend or lie outside ``[0, total)``.
    """
    positions = np.asarray(positions, dtype=np.int64)
    if positions.ndim != 1 or limit < 1 or total < 0:
        raise ValueError("positions must be one-dimensional, the limit at least 1 byte, the total not negative")
    if positions.size and (positions[0] < 0 or positions[-1] >= total or (positions[1:] <= positions[:-1]).any()):
        raise ValueError(f"positions must ascend without repeats within [0, {total})")
    return _chunks(positions, total, 8 * limit)


def _chunks(positions: Positions, total: int, widest: int) -> Iterator[types_pb2.RecordChunk]:
    for start in range(0, max(total, 1), widest):
        span = min(widest, total - start)
        first, after = np.searchsorted(positions, (start, start + span))
        offsets = positions[first:after] - start
        deltas = _leb128(offsets, (span + 7) // 8)
        if deltas is not None:
            yield types_pb2.RecordChunk(start=start, span=span, deltas=deltas)
            continue
        flags = np.zeros(span, dtype=np.bool_)
        flags[offsets] = True
        yield types_pb2.RecordChunk(start=start, span=span, bitmap=pack_bits(flags))


@lru_cache(maxsize=4096)
def most_bytes(most: int, total: int, sets: int = 1) -> int:
    """Bytes that the codings of some sets never exceed, which have at most `most` of `total` positions together.

    The distances of a set add up to less than `total`, so few of them are long: at most total / 128 take a second byte.
    """
    deltas = sum(min(most, sets * (total >> 7 * k)) for k in range(_LONGEST))
    return min(max(deltas, most), sets * ((total + 7) // 8))


def counted_chunks(total: int, size: int | None = None) -> Iterator[types_pb2.RecordChunk]:
    """The chunks that count for a set of positions below `total`, whatever it holds: the ranges of `chunks_of`.

    Their codings are zeros, `size` bytes in all; None: those of bitmaps, which no coding exceeds.
    """
    rest = (total + 7) // 8 if size is None else size
    for start in range(0, max(total, 1), 8 * CHUNK_LIMIT):
        span = min(8 * CHUNK_LIMIT, total - start)
        here = min(rest, (span + 7) // 8)
        rest -= here
        yield types_pb2.RecordChunk(start=start, span=span, bitmap=bytes(here))


class ChunkCache:
    """Chunks of many sets out of the same `total` positions, of which most are empty or small."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._counted: dict[int, list[types_pb2.RecordChunk]] = {}  # by size
        self._made: dict[bytes, list[types_pb2.RecordChunk]] = {}  # of small sets, which come again in every tree

    def pairs(self, rows: Positions, size: int) -> Iterator[tuple[types_pb2.RecordChunk, types_pb2.RecordChunk]]:
        """The chunks of a set, each with the one that counts for it: see `counted_chunks`."""
        if size not in self._counted:
            self._counted[size] = list(counted_chunks(self._total, size))
        if len(rows) > _FEW:
            return zip(chunks_of(rows, self._total), self._counted[size], strict=True)
        known = rows.tobytes()
        if known not in self._made:
            self._made[known] = list(chunks_of(rows, self._total))
        return zip(self._made[known], self._counted[size], strict=True)


def rows_of(chunks: Iterable[types_pb2.RecordChunk], total: int) -> Positions:
    """Positions that a peer's ``chunks`` name out of ``total`` records, ascending.

    Raises Malformed for a gap or an overlap between ranges, a range beyond the total, a position beyond its
    range, positions that do not ascend, and missing, surplus or unused bytes and bits.
    """
    parts: list[Positions] = []
    reached, closed = 0, False
    for chunk in chunks:
        if chunk.start != reached or chunk.span > total - reached:
            raise Malformed(
                f"records: a range of {chunk.span} from {chunk.start} cannot follow {reached} of {total} records"
            )
        # One coding for each set: what comes twice or says nothing would be a second.
        if closed or (chunk.span == 0 and total > 0):
            raise Malformed(f"records: a needless range at {chunk.start} of {total} records")
        if (coding := chunk.WhichOneof("coding")) is None:
            raise Malformed(f"records: the range from {chunk.start} needs a bitmap or deltas, one of them")
        if coding == "bitmap":
            offsets = np.flatnonzero(unpack_bits(chunk.bitmap, chunk.span)).astype(np.int64, copy=False)
        else:
            offsets = _from_leb128(chunk.deltas, chunk.span)
        parts.append(offsets + chunk.start)
        reached += chunk.span
        closed = reached == total
    if not closed:
        raise Malformed(f"records: the ranges end at {reached} of {total} records")
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def pack_bits(flags: Flags) -> bytes:
    """``ceil(n / 8)`` bytes for ``n`` flags, least significant bit first, unused bits zero."""
    return np.packbits(flags, bitorder="little").tobytes()


def unpack_bits(packed: bytes, n: int) -> Flags:
    """The ``n`` flags of :func:`pack_bits`. Raises Malformed for another length or a bit set beyond ``n``."""
    if n < 0 or len(packed) != (n + 7) // 8:
        raise Malformed(f"records: {n} bits take {(max(n, 0) + 7) // 8} bytes, not {len(packed)}")
    if n % 8 and packed[-1] >> (n % 8):
        raise Malformed(f"records: bits are set beyond the last of {n}")
    return np.unpackbits(np.frombuffer(packed, dtype=np.uint8), count=n, bitorder="little").view(np.bool_)


def _leb128(offsets: Positions, at_most: int) -> bytes | None:
    """LEB128 of the distances between ascending offsets, or None if a bitmap of ``at_most`` bytes is smaller."""
    if offsets.size > at_most:
        return None
    if offsets.size <= _FEW:
        return _few_leb128(offsets.tolist(), at_most)
    values = offsets.copy()
    values[1:] -= offsets[:-1]
    longest = -(-max(int(values.max()), 1).bit_length() // 7)
    if longest == 1:
        return values.astype(np.uint8).tobytes()
    rest = values[:, np.newaxis] >> np.arange(0, 7 * longest, 7)  # (numbers, bytes), the lowest first
    used = rest > 0
    used[:, 0] = True
    if np.count_nonzero(used) > at_most:
        return None
    coded = (rest & 0x7F).astype(np.uint8)
    coded[:, :-1] |= used[:, 1:].view(np.uint8) << 7
    return coded[used].tobytes()


def _few_leb128(offsets: list[int], at_most: int) -> bytes | None:
    """As `_leb128`."""
    coded, before = bytearray(), 0
    for offset in offsets:
        rest, before = offset - before, offset
        while rest > 0x7F:
            coded.append(rest & 0x7F | 0x80)
            rest >>= 7
        coded.append(rest)
    return bytes(coded) if len(coded) <= at_most else None


def _from_leb128(coded: bytes, span: int) -> Positions:
    """Offsets below ``span`` whose distances ``coded`` holds; the inverse of :func:`_leb128`, checked."""
    if len(coded) <= 2 * _FEW:
        return _few_from_leb128(coded, span)
    raw = np.frombuffer(coded, dtype=np.uint8)
    if raw[-1] >= 0x80:
        raise Malformed(_CUT)
    ends = np.flatnonzero(raw < 0x80)
    starts = np.concatenate(([0], ends[:-1] + 1))
    lengths = ends - starts + 1
    longest = int(lengths.max())
    if longest > _LONGEST or ((raw[ends] == 0) & (lengths > 1)).any():
        raise Malformed(_LONG)
    values = (raw[starts] & 0x7F).astype(np.int64)
    for k in range(1, longest):
        on = lengths > k
        values[on] |= (raw[starts[on] + k] & 0x7F).astype(np.int64) << np.int64(7 * k)
    if (values[1:] == 0).any():
        raise Malformed(_UNORDERED)
    # The sum in floating point comes first: distances near 2^63 would wrap the exact one.
    if values.sum(dtype=np.float64) > 2.0 * span or (offsets := np.cumsum(values))[-1] >= span:
        raise Malformed(f"records: a position lies beyond its range of {span}")
    return offsets


def _few_from_leb128(coded: bytes, span: int) -> Positions:
    """As `_from_leb128`."""
    offsets: list[int] = []
    value = taken = reached = 0
    for byte in coded:
        value |= (byte & 0x7F) << 7 * taken
        taken += 1
        if byte & 0x80:
            continue
        if taken > _LONGEST or (taken > 1 and not byte):
            raise Malformed(_LONG)
        if offsets and not value:
            raise Malformed(_UNORDERED)
        reached += value
        offsets.append(reached)
        value = taken = 0
    if taken:
        raise Malformed(_CUT)
    if reached >= span and offsets:
        raise Malformed(f"records: a position lies beyond its range of {span}")
    return np.array(offsets, dtype=np.int64)

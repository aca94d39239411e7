"""Sets of record positions: every set survives the wire, in bounded chunks, and nothing inconsistent is accepted."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treetap.errors import Malformed
from treetap.wire.records import (
    chunks_of,
    counted_chunks,
    most_bytes,
    pack_bits,
    rows_of,
    unpack_bits,
)
from treetap.wire.v2.types_pb2 import RecordChunk


def _array(*positions: int) -> np.ndarray:
    return np.array(positions, dtype=np.int64)


@st.composite
def _sets(draw: st.DrawFn) -> tuple[np.ndarray, int]:
    total = draw(st.integers(0, 5_000))
    density = draw(st.sampled_from([0.0, 0.001, 0.02, 0.1, 0.5, 0.99, 1.0]))
    flags = np.random.default_rng(draw(st.integers(0, 2**32))).random(total) < density
    return np.flatnonzero(flags).astype(np.int64), total


@settings(deadline=None)
@given(st.lists(_sets(), min_size=1, max_size=4), st.integers(1, 400_000))
def test_no_coding_exceeds_the_bytes_that_count_for_it(drawn: list[tuple[np.ndarray, int]], stretch: int) -> None:
    """Of one set or of several together, over few positions or many; chunks that count have the same ranges."""
    total = max(total for _, total in drawn) * stretch
    sets = [positions * stretch for positions, _ in drawn]
    coded = [sum(len(chunk.bitmap) + len(chunk.deltas) for chunk in chunks_of(each, total)) for each in sets]
    assert sum(coded) <= most_bytes(sum(map(len, sets)), total, len(sets))
    for each, size in zip(sets, coded, strict=True):
        most = most_bytes(len(each), total)
        assert size <= most <= (total + 7) // 8
        counted = list(counted_chunks(total, most))
        assert [(c.start, c.span) for c in counted] == [(c.start, c.span) for c in chunks_of(each, total)]
        assert sum(len(chunk.bitmap) for chunk in counted) == most


@settings(deadline=None)
@given(_sets(), st.integers(1, 700))
def test_every_set_survives_in_bounded_chunks_that_cover_the_total(drawn: tuple[np.ndarray, int], limit: int) -> None:
    """Decoding returns the set; ranges are contiguous from 0 to the total; no chunk exceeds the limit."""
    positions, total = drawn
    chunks = list(chunks_of(positions, total, limit))
    decoded = rows_of(chunks, total)
    assert decoded.dtype == np.int64
    np.testing.assert_array_equal(decoded, positions)
    assert [chunk.start for chunk in chunks] == [0, *np.cumsum([chunk.span for chunk in chunks])[:-1]]
    assert sum(chunk.span for chunk in chunks) == total
    for chunk in chunks:
        assert chunk.WhichOneof("coding")
        assert len(chunk.bitmap or chunk.deltas) <= min(limit, (chunk.span + 7) // 8)


@settings(deadline=None)
@given(st.lists(st.integers(0, 2**40 - 1), unique=True, max_size=20))
def test_distances_of_every_width_survive(drawn: list[int]) -> None:
    """One range wide enough for distances of up to six bytes codes and decodes them."""
    positions = np.array(sorted(drawn), dtype=np.int64)
    chunks = list(chunks_of(positions, 2**40, limit=2**37))
    assert len(chunks) == 1
    np.testing.assert_array_equal(rows_of(chunks, 2**40), positions)


def test_the_smaller_coding_is_chosen() -> None:
    """Three of 8,000 records take one LEB128 number each; every second record takes a bitmap."""
    (sparse,) = chunks_of(_array(5, 6, 1_000), 8_000)
    assert sparse == RecordChunk(start=0, span=8_000, deltas=bytes([5, 1, 0xE2, 0x07]))
    (dense,) = chunks_of(np.arange(0, 8_000, 2), 8_000)
    assert dense == RecordChunk(start=0, span=8_000, bitmap=b"\x55" * 1_000)


@pytest.mark.parametrize("total", [0, 1, 9])
def test_an_empty_set_is_one_chunk(total: int) -> None:
    """Receivers can wait for a chunk: an empty set sends one, with no bytes in it."""
    assert list(chunks_of(_array(), total)) == [RecordChunk(start=0, span=total, deltas=b"")]
    assert rows_of([RecordChunk(start=0, span=total, deltas=b"")], total).size == 0


@pytest.mark.parametrize("positions", [_array(3, 3), _array(4, 3), _array(-1, 3), _array(3, 10)])
def test_a_caller_with_unsorted_or_foreign_positions_has_a_bug(positions: np.ndarray) -> None:
    """The encoder refuses what the decoder of the other side would refuse."""
    with pytest.raises(ValueError, match="ascend"):
        chunks_of(positions, 10)


def _replaced(span: int = 10, **coding: bytes) -> RecordChunk:
    """The chunk below with another span, or another coding than its own."""
    return RecordChunk(start=0, span=span, **(coding or {"deltas": bytes([2, 3])}))


WHOLE = _replaced()

MALFORMED = {
    "no chunk": [],
    "gap": [_replaced(span=4, deltas=b"\x01"), RecordChunk(start=5, span=5, deltas=b"")],
    "overlap": [_replaced(span=6), RecordChunk(start=5, span=5, deltas=b"")],
    "too short": [_replaced(span=9)],
    "beyond the total": [_replaced(span=11)],
    "range after the end": [WHOLE, RecordChunk(start=10, span=0, deltas=b"")],
    "empty range first": [RecordChunk(start=0, span=0, deltas=b""), WHOLE],
    "neither coding": [RecordChunk(start=0, span=10)],
    "position beyond the span": [_replaced(deltas=bytes([2, 8]))],
    "position repeated": [_replaced(deltas=bytes([2, 0]))],
    "number cut": [_replaced(deltas=bytes([2, 0x83]))],
    "number padded": [_replaced(deltas=bytes([2, 0x83, 0x00]))],
    "number of ten bytes": [_replaced(deltas=b"\x80" * 9 + b"\x01")],
    "sum that would wrap": [_replaced(deltas=(b"\xff" * 8 + b"\x7f") * 3)],
    "bitmap too short": [_replaced(bitmap=b"\x01")],
    "bitmap with a trailing byte": [_replaced(bitmap=b"\x01\x00\x00")],
    "bits beyond the span": [_replaced(bitmap=b"\x01\x04")],
}


@pytest.mark.parametrize("chunks", MALFORMED.values(), ids=MALFORMED.keys())
def test_inconsistent_chunks_are_refused(chunks: list[RecordChunk]) -> None:
    """Each fault that a peer's chunks can have is named as such, not decoded into some set."""
    np.testing.assert_array_equal(rows_of([WHOLE], 10), [2, 5])
    with pytest.raises(Malformed, match="records: "):
        rows_of(chunks, 10)


@settings(deadline=None)
@given(st.integers(0, 300), st.binary(max_size=40), st.booleans())
def test_hostile_bytes_give_a_set_within_the_span_or_malformed(span: int, content: bytes, as_bitmap: bool) -> None:
    """No bytes make the decoder answer with positions that repeat, descend or leave the range."""
    chunk = RecordChunk(start=0, span=span, **{"bitmap" if as_bitmap else "deltas": content})
    try:
        positions = rows_of([chunk], span)
    except Malformed:
        return
    assert (np.diff(positions) > 0).all()
    assert positions.size == 0 or (positions[0] >= 0 and positions[-1] < span)


@settings(deadline=None)
@given(st.lists(st.booleans(), max_size=70))
def test_bits_survive_packing_and_take_an_eighth(flags: list[bool]) -> None:
    """n flags take ceil(n / 8) bytes and come back as flags."""
    packed = pack_bits(np.array(flags, dtype=np.bool_))
    assert len(packed) == -(-len(flags) // 8)
    unpacked = unpack_bits(packed, len(flags))
    assert unpacked.dtype == np.bool_
    assert unpacked.tolist() == flags


@pytest.mark.parametrize(("packed", "n"), [(b"\x08", 3), (b"", 1), (b"\x01\x00", 8), (b"", -1), (b"\x00", -1)])
def test_bits_of_another_number_are_refused(packed: bytes, n: int) -> None:
    """A wrong length and a bit beyond the last are Malformed."""
    with pytest.raises(Malformed):
        unpack_bits(packed, n)


@pytest.mark.parametrize("distance", [1, 20, 200])
def test_a_million_positions_are_coded_without_a_loop(distance: int) -> None:
    """Coding and decoding a million positions takes a fraction of what one Python step per position would."""
    positions = np.cumsum(np.random.default_rng(7).integers(1, distance, 1_000_000, endpoint=True))
    total = int(positions[-1]) + 1
    began = time.process_time()
    decoded = rows_of(chunks_of(positions, total), total)
    assert time.process_time() - began < 0.3
    np.testing.assert_array_equal(decoded, positions)

"""Ids in Arrow's memory behave as a list of strings does, and name the rows of faults as a loop over it would."""

from __future__ import annotations

import hashlib
import tracemalloc
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treetap.errors import DataError
from treetap.tables import record_ids
from treetap.tables.normalised import joined_id
from treetap.tables.record_ids import Ids, ids_of, sorted_keys

#: Text that UTF-8 can encode.
TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), max_size=30)
PATH, PLACE = Path("own.csv"), "column 'id'"


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut ids into parts of four."""
    monkeypatch.setattr(record_ids, "_AT_ONCE", 4)


@given(TEXTS, st.data())
def test_ids_are_a_sequence_of_texts(texts: list[str], data: st.DataObject) -> None:
    """Length, places, slices, iteration, sums, equality and the order are those of the list."""
    ids, n = Ids.of(texts), len(texts)
    first, last = sorted(data.draw(st.tuples(st.integers(0, n), st.integers(0, n))))
    places = data.draw(st.lists(st.integers(0, n - 1), max_size=9)) if n else []
    assert len(ids) == n
    assert list(ids) == texts == ids
    assert [ids[place] for place in range(-n, n)] == [*texts, *texts]
    assert ids[first:last] == texts[first:last]
    assert ids[:first] + ids[last:] == texts[:first] + texts[last:]
    assert ids.take(np.array(places, dtype=np.int64)) == [texts[place] for place in places]
    assert ids[first:].marked("t:") == ["t:" + text for text in texts[first:]]
    assert ids.order().tolist() == sorted(range(n), key=texts.__getitem__)
    assert (ids == [*texts, "x"]) is False
    assert pa.array(ids).to_pylist() == texts


@given(TEXTS, st.integers(0, 30))
def test_digest_and_packed_ids_cover_lengths_and_texts(texts: list[str], first: int) -> None:
    """The digest is the one that earlier releases send, also of ids in the middle of a buffer."""
    ids, own = Ids.of(texts)[first:], [text.encode() for text in texts[first:]]
    content, bounds = ids.packed()
    assert ids.digest == hashlib.sha256(b"".join(len(raw).to_bytes(4, "big") + raw for raw in own)).digest()
    ends = np.frombuffer(bounds, dtype=np.int64).tolist()
    assert [content[begin:end] for begin, end in pairwise(ends)] == own


@given(st.sets(st.text("abc", max_size=3)), TEXTS)
def test_places_among_distinct_ids(texts: set[str], others: list[str]) -> None:
    """Every id is found at its place, every other one is at -1."""
    own = list(texts)
    wanted = own[::2] + others
    found = Ids.of(own).places_of(Ids.of(wanted))
    assert found.tolist() == [own.index(each) if each in texts else -1 for each in wanted]


@given(st.lists(st.sampled_from(["", " ", "a", " a", "b\t", "b", "c", "\u2003d"]), max_size=7))
def test_the_first_fault_is_named_by_its_row(cells: list[str]) -> None:
    """The row of a missing id, or the rows of one that is there twice and of two more, and how many there are."""
    column = pa.chunked_array([cells[:3], cells[3:]], pa.string())
    rows: dict[str, list[int]] = {}
    for row, cell in enumerate(map(str.strip, cells), start=1):
        rows.setdefault(cell, []).append(row)
    several = sorted((own[1], own[0]) for own in rows.values() if own[1:])
    if "" not in rows and not several:
        assert list(ids_of(PATH, PLACE, column)) == list(rows)
        ids, order = sorted_keys(PATH, {"id": column})
        assert list(ids) == sorted(rows)
        assert [cells[row].strip() for row in order] == sorted(rows)
        return
    if "" in rows and (not several or rows[""][0] <= several[0][0]):
        expected, choice = f"own.csv: row {rows[''][0]}, column 'id': the id is missing", ""
    else:
        choice = record_ids.CHOICE
        expected = f"own.csv: row {several[0][0]}, column 'id': the id is there already, at row {several[0][1]}"
        also = ", ".join(f"row {again} as at row {first}" for again, first in several[1:3])
        more = ", …" if several[3:] else ""
        expected += f"; {len(several)} ids are there more than once, also at {also}{more}" if also else ""
    for read, advice in (
        (lambda: ids_of(PATH, PLACE, column), ""),
        (lambda: sorted_keys(PATH, {"id": column}), choice),
    ):
        with pytest.raises(DataError) as fault:
            read()
        assert str(fault.value) == expected + advice


def test_whole_numbers_are_ids_as_they_are_written() -> None:
    """Ids of a typed column of numbers sort as text, as ids of a CSV file do."""
    ids, order = sorted_keys(PATH, {"id": pa.chunked_array([[10, -3], [9]], pa.int32())})
    assert (list(ids), order.tolist()) == (["-3", "10", "9"], [1, 0, 2])


def test_no_string_of_python_is_kept_for_an_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading, sorting, digest and packing of ids take no memory of Python's that grows with their number."""
    monkeypatch.setattr(record_ids, "_AT_ONCE", 1 << 10)

    def peak(count: int) -> int:
        column = pa.chunked_array([pa.array([f"record {n:06d}" for n in range(count)])])
        tracemalloc.start()
        try:
            ids, order = sorted_keys(PATH, {"id": column})
            assert len(ids.digest) == 32
            ids[: 1 << 10].packed()
            return tracemalloc.get_traced_memory()[1] - order.nbytes
        finally:
            tracemalloc.stop()

    assert peak(40_000) < peak(10_000) + 40_000 * 12  # masks and numbers of rows, of NumPy; a string takes 62 bytes


@given(st.lists(st.tuples(*[st.text(st.characters(exclude_categories=["Cs"]), max_size=12)] * 3), max_size=12))
def test_ids_of_several_columns_keep_each_text(rows: list[tuple[str, str, str]]) -> None:
    """Each text comes after its length, so that what is joined is apart again: `a`, `bc` is not `ab`, `c`."""
    columns = [Ids.of(column) for column in zip(*rows, strict=True)] or [Ids.of([])] * 3
    joined = Ids.joined(columns)
    assert list(joined) == ["".join(f"{len(text.encode())}:{text}" for text in row) for row in rows]
    assert list(joined) == list(map(joined_id, rows))
    assert joined.columns(3) == columns
    assert joined[len(rows) // 2 :].columns(3) == [column[len(rows) // 2 :] for column in columns]
    assert len(set(joined)) == len(set(rows))
    assert joined.columns(1) == [joined]


def test_faults_of_several_id_columns() -> None:
    """An id that lacks one of its columns is missing; one is there twice where all of its columns are."""
    first, second = pa.chunked_array([["a", "ab", "a"]]), pa.chunked_array([["bc", "c", "d"]])
    ids, order = sorted_keys(PATH, {"x": first, "y": second})
    assert list(ids) == ["1:a1:d", "1:a2:bc", "2:ab1:c"]
    assert order.tolist() == [2, 0, 1]
    for lacking in (["bc", None, "d"], ["bc", " ", "d"]):
        with pytest.raises(DataError, match=r"own\.csv: row 2, column 'y': the id is missing"):
            sorted_keys(PATH, {"x": first, "y": pa.chunked_array([lacking])})
    twice = pa.chunked_array([["bc", "c", "bc"]])
    with pytest.raises(DataError, match=r"row 3, columns 'x', 'y': the id is there already, at row 1"):
        sorted_keys(PATH, {"x": first, "y": twice})

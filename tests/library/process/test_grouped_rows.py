"""Rows that come in any order lie in a file at their places."""

from __future__ import annotations

import tempfile
import tracemalloc
from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treetap.process.grouped_rows import PlacedRows, Raw, Rows

FILE = partial(tempfile.TemporaryFile, buffering=0)


def _parts(order: Rows, rows: Raw, size: int) -> Iterator[tuple[Rows, Raw]]:
    """The rows in an order, some at a time."""
    for first in range(0, len(order), size):
        places = order[first : first + size]
        yield places, rows[places]


@pytest.mark.second_tier
@given(st.integers(1, 1500), st.integers(1, 9), st.integers(1, 400), st.data())
def test_rows_lie_at_their_places(total: int, width: int, size: int, data: st.DataObject) -> None:
    """Of any number and width, in whatever order and parts they come."""
    draws = np.random.default_rng(total)
    rows = draws.integers(0, 256, size=(total, width), dtype=np.uint8)
    found = PlacedRows.of(_parts(draws.permutation(total), rows, size), total, width, FILE)
    first = data.draw(st.integers(0, total - 1))
    count = data.draw(st.integers(0, total - first))
    assert np.array_equal(found.take(first, count), rows[first : first + count])
    found.close()


@pytest.mark.second_tier
def test_memory_does_not_grow_with_the_rows() -> None:
    """Beside the parts as they come there is one of 256 groups."""

    def peak(total: int) -> int:
        def parts() -> Iterator[tuple[Rows, Raw]]:
            for first in range(0, total, 1024):
                places = (np.arange(first, min(first + 1024, total)) * 7919) % total
                yield places, np.zeros((len(places), 40), dtype=np.uint8)

        tracemalloc.start()
        try:
            PlacedRows.of(parts(), total, 40, FILE).close()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(160_001) < 2 * peak(20_003)


def test_a_file_that_ends_early_is_an_error() -> None:
    """Fewer bytes than were written are never taken for rows."""
    found = PlacedRows.of([(np.arange(2), np.ones((2, 3), dtype=np.uint8))], 2, 3, FILE)
    with pytest.raises(OSError, match="3 of 6 bytes"):
        found.take(1, 2)

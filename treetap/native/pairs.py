"""The order of the products that multiply values into cells (`pairs.c`): made from the cells alone, without a number.

It is the same for all numbers that lie in the same cells. Within eight consecutive products of a call no row that one
writes is read or written by another, so that kernels may compute eight at a time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from treetap.native import library
from treetap.native.library import argument, in_bounds

#: Rows beyond those of the cells that a pass may take: 2.6 MB of ciphertexts of a 2,048-bit key, as much as a cache.
SPARES = 4096
_ROUNDS = 3

Places = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Pass:
    """One pass over some of the values; rows of cells come first, spare rows follow.

    Attributes:
        put: rows that get a value as it is.
        put_at: the place of the value of each.
        rows: rows that are multiplied by a value, in this order.
        rows_at: the place of the value of each.
        rounds: (left, right) rows that are multiplied together, into the left ones; no row occurs twice in a round.
        spares: spare rows that are used.
    """

    put: Places
    put_at: Places
    rows: Places
    rows_at: Places
    rounds: tuple[tuple[Places, Places], ...]
    spares: int


def passes(places: Places, cells: Places, count: int, held: int, spares: int) -> Iterator[Pass]:
    """The products of values at places into their cells' rows, in one pass, or few where spare rows run out.

    Args:
        places: places of the values, shape (n,).
        cells: the cell of each, 0..count-1, shape (n,).
        count: number of cells; the row of a cell has its number, the first spare row is `count`.
        held: the first `held` cells' rows hold products already.
        spares: the spare rows, at least one.

    Raises:
        Unavailable: the kernels were not compiled.
        ValueError: a cell outside of the bounds.
    """
    in_bounds(
        places.shape == cells.shape and places.ndim == 1 and places.dtype == cells.dtype == np.int64,
        "not one cell for each place, 64-bit numbers",
    )
    in_bounds(spares >= 1 and 0 <= held <= count, "no spare row, or more rows held than there are")
    in_bounds(not len(cells) or (int(cells.min()) >= 0 and int(cells.max()) < count), "a cell beyond the last one")
    schedule = library.compiled().treetap_pairs
    schedule.restype = ctypes.c_size_t
    begun = np.zeros(count, dtype=np.uint8)
    begun[:held] = 1
    work = np.empty(4 * (count + spares), dtype=np.int64)
    places, cells = np.ascontiguousarray(places), np.ascontiguousarray(cells)
    first = 0
    while first < len(cells):
        left = len(cells) - first
        put, put_at, rows, rows_at = (np.empty(left, dtype=np.int64) for _ in range(4))
        pairs = np.empty((2, spares), dtype=np.int64)
        counts = np.zeros(4 + _ROUNDS, dtype=np.int64)
        arrays = (places[first:], cells[first:], begun, work, put, put_at, rows, rows_at, *pairs, counts)
        first += schedule(*map(argument, (count, spares, left, *arrays)))
        ends = np.cumsum([0, *counts[4 : 4 + counts[3]]])
        yield Pass(
            put[: counts[0]],
            put_at[: counts[0]],
            rows[: counts[1]],
            rows_at[: counts[1]],
            tuple((pairs[0, start:end], pairs[1, start:end]) for start, end in pairwise(ends)),
            int(counts[2]),
        )

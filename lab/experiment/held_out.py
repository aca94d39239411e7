"""The rows that a run holds out: a share of them, a fold of a cross-validation, or the last ones by a time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from treetap.errors import DataError
from treetap.tables.categories import as_written
from treetap.tables.dates import ISO, is_date, timestamps
from treetap.tables.number_styles import number
from treetap.tables.source import Origin, is_text, numbers_of, row_name

Rows = np.ndarray[Any, np.dtype[np.int64]]


def drawn_share(groups: Sequence[Rows], share: float, draw: np.random.Generator) -> Rows:
    """A share of each group of rows; a group is a class, or the table."""
    return np.sort(np.concatenate([draw.permutation(rows)[: round(share * len(rows))] for rows in groups]))


def drawn_fold(groups: Sequence[Rows], fold: int, folds: int, draw: np.random.Generator) -> Rows:
    """Fold `fold`, from 1, of `folds`: sizes differ by one row at most, of the table and of each group."""
    dealt = np.concatenate([draw.permutation(rows) for rows in groups])
    return np.sort(dealt[fold - 1 :: folds])


def last_share(order: Rows, share: float) -> tuple[Rows, Rows]:
    """Training and held-out rows: the last `share` of the rows by time are held out. `order`: rows by time."""
    count = round(share * len(order))
    return np.sort(order[: len(order) - count]), np.sort(order[len(order) - count :])


def expanding_window(order: Rows, fold: int, folds: int) -> tuple[Rows, Rows]:
    """Training and held-out rows of fold `fold`, from 1, as scikit-learn's `TimeSeriesSplit` has them.

    The rows by time have `folds` + 1 parts, the first of them with the remainder; fold k holds part k + 1 out and
    trains on all rows before it.
    """
    size = len(order) // (folds + 1)
    start = len(order) - (folds - fold + 1) * size
    return np.sort(order[:start]), np.sort(order[start : start + size])


def time_ranks(origin: Origin, name: str, column: pa.ChunkedArray, date_format: str = ISO) -> Rows:
    """Each row's place by the time in a plain column (N,): numbers, dates, times with a date, or text of these.

    Rows of one time keep the order of the table.

    Raises:
        DataError: a cell is missing or no time, by its place, or the column has another type.
    """
    plain = is_text(column.type) and _is_number(origin, column[0].as_py())
    if date_format != ISO or is_date(column.type) or (is_text(column.type) and not plain):
        moments = timestamps(origin, name, as_written(origin, name, column, None, date_format), date_format)
        absent, values = moments.is_null().to_numpy(), moments.cast(pa.int64()).fill_null(0).to_numpy()
    elif pa.types.is_integer(column.type):  # exact, as large ones are not in double precision
        absent, values = column.is_null().to_numpy(), column.fill_null(0).to_numpy()
    elif pa.types.is_boolean(column.type):
        raise DataError(f"{origin}: time column {name!r} holds bool; rows are ordered by numbers, dates or times")
    else:
        values = numbers_of(origin, name, column)
        absent = np.isnan(values)
    if np.any(absent):
        row = int(np.flatnonzero(absent)[0])
        raise DataError(f"{origin}: {row_name(origin, row)}, time column {name!r}: the cell is missing")
    ranks = np.empty(len(values), dtype=np.int64)
    ranks[np.argsort(values, kind="stable")] = np.arange(len(values))
    return ranks


def _is_number(origin: Origin, cell: str | None) -> bool:
    try:
        (number if isinstance(origin, Path) else origin.number)(cell or "")
    except ValueError:
        return False
    return True

"""Columns of ids as text, each of which is there once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from treetap.errors import DataError
from treetap.tables.numbers import doubles, is_number, is_text, kind_name
from treetap.tables.record_ids import Ids
from treetap.tables.source import Origin, row_name


def sorted_ids(path: Origin, place: str, column: pa.ChunkedArray) -> tuple[Ids, npt.NDArray[np.int64]]:
    """Ids as text in their order, and the row of each; `DataError` for one that is missing or there twice."""
    return _sorted(path, place, _texts(path, place, column))


def ids_of(path: Origin, place: str, column: pa.ChunkedArray) -> Ids:
    """Ids as text without surrounding blanks; `DataError` for one that is missing or there twice."""
    return distinct_ids(path, place, _texts(path, place, column))


def distinct_ids(path: Origin, place: str, ids: Ids) -> Ids:
    """The ids as they are; `DataError` for one that is empty or there twice."""
    _sorted(path, place, ids)
    return ids


def is_id(kind: pa.DataType) -> bool:
    """True for plain columns that may be ids: whole numbers, also of a database's DECIMAL(n, 0), and text."""
    return bool(pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0) or is_text(kind))


def _texts(path: Origin, place: str, column: pa.ChunkedArray) -> Ids:
    if column.null_count:
        index = int(np.flatnonzero(column.is_null().to_numpy())[0])
        raise DataError(f"{path}: {row_name(path, index)}, {place}: the id is missing")
    kind = column.type
    if is_id(kind):
        return Ids.of_column(column)
    if is_number(kind) and not (doubles(column) % 1).any():
        raise DataError(
            f"{path}: {place}: whole numbers are ids, and these are stored as {kind}: write them as whole numbers (in "
            "pandas by astype('int64')) or as text"
        )
    raise DataError(
        f"{path}: {place} holds {kind_name(kind)}; ids are whole numbers or text: write them as one of these"
    )


def _sorted(path: Origin, place: str, ids: Ids) -> tuple[Ids, npt.NDArray[np.int64]]:
    """The ids in their order, and the row of each; `DataError` for the first row whose id is empty or there before."""
    order = ids.order()
    in_order = ids.take(order)
    again = np.asarray(
        pc.equal(in_order.array[1:], in_order.array[:-1]), dtype=bool
    )  # row order[i + 1] has order[i]'s id
    repeated = int(order[1:][again].min()) if again.any() else len(ids)
    if len(ids) and not in_order[0] and int(order[0]) <= repeated:  # equal ids keep their order: the first empty one
        raise DataError(f"{path}: {row_name(path, int(order[0]))}, {place}: the id is missing")
    if repeated < len(ids):
        first = int(order[int(np.flatnonzero(np.asarray(pc.equal(in_order.array, ids[repeated]), dtype=bool))[0])])
        raise DataError(
            f"{path}: {row_name(path, repeated)}, {place}: the id is there already, at {row_name(path, first)}"
        )
    return in_order, order

"""Columns of ids as text, each of which is there once."""

from __future__ import annotations

from itertools import islice
from operator import eq

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from treetap.errors import DataError
from treetap.tables.numbers import kind_name
from treetap.tables.source import Origin, row_name


def sorted_ids(path: Origin, place: str, column: pa.ChunkedArray) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Ids as text in their order, and the row of each; `DataError` for one that is missing or there twice.

    What is made on the way is Arrow's and NumPy's: dictionaries and numbers of Python would take several times the ids.
    """
    ids = _texts(path, place, column)
    order = np.asarray(pc.sort_indices(pa.array(ids, pa.large_string())), dtype=np.int64)  # UTF-8 sorts as text does
    found: list[str] = np.array(ids, dtype=np.object_)[order].tolist()
    if "" in found[:1] or any(map(eq, found, islice(found, 1, None))):
        distinct_ids(path, place, ids)
    return found, order


def ids_of(path: Origin, place: str, column: pa.ChunkedArray) -> list[str]:
    """Ids as text without surrounding blanks; `DataError` for one that is missing or there twice."""
    return distinct_ids(path, place, _texts(path, place, column))


def _texts(path: Origin, place: str, column: pa.ChunkedArray) -> list[str]:
    if column.null_count:
        index = int(np.flatnonzero(column.is_null().to_numpy())[0])
        raise DataError(f"{path}: {row_name(path, index)}, {place}: the id is missing")
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise DataError(f"{path}: {place} holds {kind_name(kind)}; ids are whole numbers or text")
    return [str(value).strip() for value in column.to_pylist()]


def distinct_ids(path: Origin, place: str, ids: list[str]) -> list[str]:
    """The ids as they are; `DataError` for one that is empty or there twice."""
    first: dict[str, int] = {}
    for index, value in enumerate(ids):
        if not value:
            raise DataError(f"{path}: {row_name(path, index)}, {place}: the id is missing")
        if value in first:
            raise DataError(
                f"{path}: {row_name(path, index)}, {place}: the id is there already, at {row_name(path, first[value])}"
            )
        first[value] = index
    return ids

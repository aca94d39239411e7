"""Columns of ids as text, each of which is there once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from treetap.errors import DataError
from treetap.tables.numbers import kind_name, row_name


def ids_of(path: Path, place: str, column: pa.ChunkedArray) -> list[str]:
    """Ids as text without surrounding blanks; `DataError` for one that is missing or there twice."""
    if column.null_count:
        index = int(np.flatnonzero(column.is_null().to_numpy())[0])
        raise DataError(f"{path}: {row_name(path, index)}, {place}: the id is missing")
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise DataError(f"{path}: {place} holds {kind_name(kind)}; ids are whole numbers or text")
    return distinct_ids(path, place, [str(value).strip() for value in column.to_pylist()])


def distinct_ids(path: Path, place: str, ids: list[str]) -> list[str]:
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

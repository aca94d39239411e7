"""Columns of numbers, of a type or as text."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from treetap.errors import DataError
from treetap.tables.source import Origin, Source, number, row_name


def kind_name(kind: pa.DataType) -> str:
    """A column's type in a message: of a nested one only its kind, since its fields may be many."""
    if isinstance(kind, pa.FixedShapeTensorType):
        return "tensors"
    return str(kind).partition("<")[0] if pa.types.is_nested(kind) else str(kind)


#: What to do about text among numbers.
ENCODE = (
    'encode text columns, by encode = "ordinal" or "one-hot", for boosting also "categorical", '
    'in the table\'s settings (dates by "days"), or leave the column out'
)


def values_of(origin: Origin, place: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of categories as their values; `DataError` where these are of a type that has none to compare."""
    kind = column.type.value_type
    try:
        chunks = [chunk.dictionary.take(chunk.indices) for chunk in column.chunks]
        return pa.chunked_array(chunks, kind)
    except pa.ArrowException:
        raise DataError(f"{origin}: {place} holds categories of {kind_name(kind)}: write their values") from None


def may_be_numbers(kind: pa.DataType) -> bool:
    """True for a type of numbers, of which a column of nothing but nulls is one."""
    of = (pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_null)
    return any(is_kind(kind) for is_kind in of)


def numbers_of(
    path: Origin, name: str, column: pa.ChunkedArray, advice: str = ENCODE
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """A column of numbers (n,), NaN where missing; `DataError` names the first cell that is none, and gives advice."""
    kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif not may_be_numbers(kind):
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            raise DataError(f"{path}: column {name!r} holds {kind_name(kind)}, not numbers")
        return _parse(path, name, column.to_pylist(), advice)
    values = np.asarray(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)
    if np.isinf(values).any():
        index = int(np.flatnonzero(np.isinf(values))[0])
        raise DataError(f"{path}: {row_name(path, index)}, column {name!r}: the cell is infinite")
    return values


def as_stored(missing: float, kind: pa.DataType) -> float:
    """The number as a column of this type stores it: -999.9 is another one in 32 bits."""
    if pa.types.is_float16(kind) or pa.types.is_float32(kind):
        return float(kind.to_pandas_dtype()(missing))
    return missing


def _parse(
    path: Origin, name: str, cells: list[str | None], advice: str
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    parse = path.number if isinstance(path, Source) else number
    values = np.empty(len(cells), dtype=np.float64)
    for index, cell in enumerate(cells):
        try:
            values[index] = np.nan if cell is None or not cell.strip() else parse(cell)
        except ValueError:
            remedy = path.remedy(cells) if isinstance(path, Source) else ""
            raise DataError(
                f"{path}: {row_name(path, index)}, column {name!r}: the cell is not a number; {remedy or advice}"
            ) from None
    if np.isinf(values).any():
        index = int(np.flatnonzero(np.isinf(values))[0])
        raise DataError(f"{path}: {row_name(path, index)}, column {name!r}: the cell is infinite")
    return values

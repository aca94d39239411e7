"""Columns of numbers, of a type or as text."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from treetap.errors import DataError
from treetap.tables.number_styles import number
from treetap.tables.source import Origin, row_name

#: Different cells of a column of booleans in text, with blanks around them.
_MOST_SPELLINGS = 100
#: Spellings of booleans in text.
TRUE, FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")
Floats = np.ndarray[tuple[int], np.dtype[np.float64]]


def kind_name(kind: pa.DataType) -> str:
    """A column's type in a message: of a nested one only its kind, since its fields may be many."""
    if isinstance(kind, pa.FixedShapeTensorType):
        return "tensors"
    return str(kind).partition("<")[0] if pa.types.is_nested(kind) else str(kind)


#: What to do about text among numbers.
ENCODE = (
    'encode text columns, by encode = "ordinal" or "one-hot", for boosting also "categorical", '
    'in the table\'s settings (dates by "days"), leave the column out, or list in missing a text that means a missing '
    "value"
)


def remedy_of(kind: pa.DataType) -> str:
    """The remedy for a column of a type that is neither numbers nor text."""
    if pa.types.is_time(kind):
        return "write it as text, or as seconds since midnight, or leave the column out"
    if pa.types.is_duration(kind):
        return "write it in seconds, as numbers, or leave the column out"
    return "write it as numbers or as text, one in each cell, or leave the column out"


def is_text(kind: pa.DataType) -> bool:
    """True for text, as a plain column has it."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_number(kind: pa.DataType) -> bool:
    """True for integers, floating-point numbers and decimals."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def may_be_numbers(kind: pa.DataType) -> bool:
    """True for numbers and booleans, and a column of nothing but nulls."""
    return is_number(kind) or bool(pa.types.is_boolean(kind) or pa.types.is_null(kind))


def as_doubles(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Numbers, booleans or nulls as the nearest doubles.

    Arrow's own conversion of decimals multiplies by a power of ten that is no double: -999.9 would be another number.
    """
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.string())
    elif pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    return column.cast(pa.float64(), safe=False)


def doubles(column: pa.ChunkedArray | pa.Array) -> Floats:
    """The same as an array (n,), NaN where null."""
    return np.asarray(as_doubles(column).to_numpy(zero_copy_only=False), dtype=np.float64)


def numbers_of(path: Origin, name: str, column: pa.ChunkedArray, advice: str = ENCODE) -> Floats:
    """A column of numbers (n,), NaN where missing; `DataError` names the first cell that is none, and gives advice."""
    kind = column.type
    if is_text(kind):
        few = column.unique()
        if len(few) <= _MOST_SPELLINGS and are_booleans(few.to_pylist()):
            spelt = pa.array([*TRUE, *FALSE], column.type)
            spelling = doubles(pc.index_in(pc.utf8_trim_whitespace(column), value_set=spelt))
            return np.where(np.isnan(spelling), np.nan, spelling < len(TRUE))
        return _parse(path, name, column.to_pylist(), advice)
    if not may_be_numbers(kind):
        raise DataError(f"{path}: column {name!r} holds {kind_name(kind)}, not numbers; {remedy_of(kind)}")
    return _finite(path, name, doubles(column))


def are_booleans(cells: Iterable[str | None]) -> bool:
    """True for texts that are booleans, one at least, beside missing and blank ones."""
    held = {cell.strip() for cell in cells if cell and cell.strip()}
    return bool(held) and held <= {*TRUE, *FALSE}


def in_width(number: float, kind: pa.DataType) -> float:
    """A configured number as a column of this type has it: 0.7 is another number in 32 bits, and in 16.

    One for which floats of this width have no room stays itself.
    """
    if not pa.types.is_floating(kind):
        return number
    with np.errstate(over="ignore"):
        nearest = float(kind.to_pandas_dtype()(number))
    return nearest if math.isfinite(nearest) else number


def sentinels(missing: float | None, kind: pa.DataType) -> tuple[float, ...]:
    """The numbers that mean a missing cell in a column of this type; none where no number does.

    In 64 bits -999.9 may have been written from 32.
    """
    if missing is None or np.isnan(missing):
        return ()
    written = pa.types.is_float64(kind) and not float(missing).is_integer()
    return (in_width(missing, kind), in_width(missing, pa.float32())) if written else (in_width(missing, kind),)


def _parse(path: Origin, name: str, cells: list[str | None], advice: str) -> Floats:
    parse = number if isinstance(path, Path) else path.number
    values = np.empty(len(cells), dtype=np.float64)
    for index, cell in enumerate(cells):
        try:
            values[index] = np.nan if cell is None or not cell.strip() else parse(cell)
        except ValueError:
            remedy = "" if isinstance(path, Path) else path.remedy("no numbers", cells)
            raise DataError(
                f"{path}: {row_name(path, index)}, column {name!r}: the cell is not a number; {remedy or advice}"
            ) from None
    return _finite(path, name, values)


def _finite(path: Origin, name: str, values: Floats) -> Floats:
    """The values; `DataError` names the first that is infinite."""
    infinite = np.isinf(values)
    if infinite.any():
        index = int(np.flatnonzero(infinite)[0])
        raise DataError(f"{path}: {row_name(path, index)}, column {name!r}: the cell is infinite")
    return values

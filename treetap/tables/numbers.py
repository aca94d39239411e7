"""Cells of a party's file: their places, and columns of numbers."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa

from treetap.errors import DataError

#: Bytes of a CSV file that are parsed at once: no row can be longer than about this.
BLOCK = 1 << 20


def kind_name(kind: pa.DataType) -> str:
    """A column's type in a message: of a nested one only its kind, since its fields may be many."""
    if isinstance(kind, pa.FixedShapeTensorType):
        return "tensors"
    return str(kind).partition("<")[0] if pa.types.is_nested(kind) else str(kind)


def row_name(path: Path, index: int) -> str:
    """The row's place for a reader: the line of a CSV file (the header is line 1), else the row from 1.

    Also the row where the file has changed since or cannot be parsed up to there.
    """
    row = f"row {index + 1}"
    if path.suffix != ".csv":
        return row
    line, _ = next(islice(csv_rows(path), index + 1, None), (0, 0))
    return f"line {line}" if line else row


def csv_rows(path: Path) -> Iterator[tuple[int, int]]:
    """The line where each row of a CSV file ends, from 1, and its number of cells, as far as it can be read."""
    csv.field_size_limit(BLOCK)  # for the whole process: the module's own limit is below Arrow's
    try:
        with path.open(encoding="utf-8", errors="replace", newline="") as file:
            reader = csv.reader(file)
            for cells in reader:
                if cells:  # Arrow skips empty lines too
                    yield reader.line_num, len(cells)
    except (csv.Error, OSError):
        return


def numbers_of(path: Path, name: str, column: pa.ChunkedArray) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """A column of numbers (n,), NaN where missing; `DataError` names the first cell that is none."""
    kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif not (
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind)
    ):
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            raise DataError(f"{path}: column {name!r} holds {kind_name(kind)}, not numbers")
        return _parse(path, name, column.to_pylist())
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


def number(cell: str) -> float:
    """A number as CSV files write it: Python would take 1_000 and digits of other scripts too."""
    if "_" in cell or not cell.isascii():
        raise ValueError
    return float(cell)


def _parse(path: Path, name: str, cells: list[str | None]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    values = np.empty(len(cells), dtype=np.float64)
    for index, cell in enumerate(cells):
        try:
            values[index] = np.nan if cell is None or not cell.strip() else number(cell)
        except ValueError:
            raise DataError(
                f"{path}: {row_name(path, index)}, column {name!r}: the cell is not a number; "
                'encode text columns as numbers, by encode = "ordinal" or "one-hot" in the table\'s settings (dates by '
                '"days"), or leave the column out'
            ) from None
    if np.isinf(values).any():
        index = int(np.flatnonzero(np.isinf(values))[0])
        raise DataError(f"{path}: {row_name(path, index)}, column {name!r}: the cell is infinite")
    return values

"""The interface of every source of a table: its columns' names, its columns, the name of a row; columns of numbers.

`str(source)` is the place that messages about faults begin with. It holds neither content nor a password.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from treetap.errors import DataError
from treetap.tables.number_styles import PLAIN, Style, number
from treetap.usage import half_of_memory

Part = TypeVar("Part", pa.Table, pa.RecordBatch)
#: Most rows of one batch.
BATCH_ROWS = 1 << 16
#: Cells that are no numbers; cells of text that may be meant as numbers, so that they are no categories yet; a cell
#: that is no text; a column that is not there.
Trouble = Literal["no numbers", "maybe numbers", "no text", "no column"]


class Source(ABC):
    """Rows of one table: a file, several files, or the answer to a query.

    Attributes:
        typed: its columns have types of their own; those of text files are inferred, and an id there is a whole number
            if all of them are written as one.
        ordered: reading twice gives the rows in the same order.
        streams: `batches` holds no more of the source than a batch, and what its format unpacks at once: a row group
            of Parquet, a record batch of Arrow.
    """

    typed = True
    ordered = True
    streams = False

    def opened(self) -> AbstractContextManager[None]:
        """A block within which the source may keep open what it needs for each of its answers."""
        return nullcontext()

    @property
    def style(self) -> Style:
        """The way in which cells of text write numbers."""
        return PLAIN

    @property
    def file_ends(self) -> list[int]:
        """Of several files that have been read the rows up to the end of each; of another source none."""
        return []

    @property
    def says(self) -> list[str]:
        """Detections that replace configuration, each a sentence with the key that would say the same."""
        return []

    @abstractmethod
    def fields(self) -> list[tuple[str, pa.DataType]]:
        """Names and types of the columns, in their order; in text files the types of the first rows.

        `DataError` if the source cannot be read.
        """

    @abstractmethod
    def read(self, wanted: list[str], text: Collection[str]) -> pa.Table:
        """The columns, which are there, those in `text` as they are written, if the source is text.

        Raises:
            DataError: the source cannot be read. Its message contains nothing of what Arrow or a driver says, who quote
                whole rows.
        """

    def batches(self, wanted: list[str], text: Collection[str]) -> Iterator[pa.Table]:
        """The rows of `read` in their order, in parts of at most `BATCH_ROWS` rows whose columns have the same types.

        Each call begins at the first row, so that columns can be read one after the other. A source that does not
        stream is read whole first. The rows of one that is not `ordered` come in another order at each call.

        Raises:
            DataError: the source cannot be read, at the latest by the batch that would hold the fault.
        """
        table = self.read(wanted, text)
        return (table.slice(first, BATCH_ROWS) for first in range(0, table.num_rows, BATCH_ROWS))

    def words_for_missing(self, _names: list[str]) -> dict[str, int]:
        """The cells of these columns that count as missing, and hold a word for it, such as NA; only if there are any.

        `DataError` if the source cannot be read.
        """
        return {}

    def cleared(self, _names: Sequence[str]) -> list[str]:
        """Sentences about cells of these columns that the table's settings made missing, once all have been read."""
        return []

    def count_rows(self) -> int | None:
        """The number of rows, of a source that streams; None of another one, which would have to be read whole.

        `DataError` if the source cannot be read.
        """
        return None

    def orders(self, name: str) -> list[pa.Array]:
        """The categories of a column in their order, by part of the source, where its type says that they have one.

        `DataError` if the source cannot be read.
        """
        kind, orders = dict(self.fields())[name] if self.streams else pa.null(), list[pa.Array]()
        if pa.types.is_dictionary(kind) and kind.ordered:
            for chunk in (chunk for part in self.batches([name], ()) for chunk in part.column(0).chunks):
                if not orders or not orders[-1].equals(chunk.dictionary):
                    orders.append(chunk.dictionary)
        return orders

    def stamp(self) -> object:
        """Of a source that streams a value that is another one once its files have been written again or replaced.

        `DataError` if a file is not there any more.
        """
        return None

    def row_name(self, index: int) -> str:
        """The place of a row, counted from 0, for the operator."""
        return f"row {index + 1}"

    def number(self, cell: str) -> float:
        """A cell of text as a number, as the source writes numbers; `ValueError` if it is none."""
        return number(cell, self.style)

    def remedy(self, _trouble: Trouble, _content: Sequence[str | None]) -> str:
        """The settings of the table without which this trouble is, as a clause; empty if there are none.

        `content`: the cells in question, or the name of the column that is absent.
        """
        return ""


class RowsOf:
    """Some rows of a source that have been read, under the names that they have in the whole: for messages.

    `rows`: their numbers among all, from 0.
    """

    def __init__(self, source: Source, rows: range | npt.NDArray[np.int64]) -> None:
        self._source, self._rows = source, rows
        self.typed, self.style = source.typed, source.style
        self.number, self.remedy, self.orders = source.number, source.remedy, source.orders

    def __str__(self) -> str:
        return str(self._source)

    @property
    def file_ends(self) -> list[int]:
        """The same among these, which are in their order."""
        ends: list[int] = np.searchsorted(self._rows, self._source.file_ends).tolist()
        return ends

    def row_name(self, index: int) -> str:
        """The place of a row, counted from 0 among these, for the operator."""
        return self._source.row_name(int(self._rows[index]))


def within_memory(place: object, parts: Iterable[Part]) -> list[Part]:
    """The parts of a table; `DataError` as soon as they take up more than half of the memory."""
    most, size, kept = half_of_memory(), 0, list[Part]()
    for part in parts:
        size += part.nbytes
        if size > most:
            raise too_large(place)
        kept.append(part)
    return kept


def too_large(place: object) -> DataError:
    """The error for columns that do not fit into memory."""
    return DataError(f"{place}: the columns take up more than half of this machine's memory; leave some out")


#: A table's origin in messages: its source, rows of it, or the path of a table that was not read here.
Origin = Source | RowsOf | Path


def row_name(origin: Origin, index: int) -> str:
    """The place of a row, counted from 0, for the operator: the line of a CSV file, else the row from 1."""
    return f"row {index + 1}" if isinstance(origin, Path) else origin.row_name(index)


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


def numbers_of(
    path: Origin, name: str, column: pa.ChunkedArray, advice: str = ENCODE, *, finite: bool = True
) -> Floats:
    """A column of numbers (n,), NaN where missing; `DataError` names the first cell that is none, and gives advice.

    `finite`: one that is infinite is refused too.
    """
    kind = column.type
    if is_text(kind):
        few = column.unique()
        if len(few) <= _MOST_SPELLINGS and are_booleans(few.to_pylist()):
            spelt = pa.array([*TRUE, *FALSE], column.type)
            spelling = doubles(pc.index_in(pc.utf8_trim_whitespace(column), value_set=spelt))
            return np.where(np.isnan(spelling), np.nan, spelling < len(TRUE))
        values = _parse(path, name, column.to_pylist(), advice)
        return _finite(path, name, values) if finite else values
    if not may_be_numbers(kind):
        raise DataError(f"{path}: column {name!r} holds {kind_name(kind)}, not numbers; {remedy_of(kind)}")
    return _finite(path, name, doubles(column)) if finite else doubles(column)


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
    return values


def _finite(path: Origin, name: str, values: Floats) -> Floats:
    """The values; `DataError` names the first that is infinite."""
    infinite = np.isinf(values)
    if infinite.any():
        index = int(np.flatnonzero(infinite)[0])
        raise DataError(f"{path}: {row_name(path, index)}, column {name!r}: the cell is infinite")
    return values

"""The interface of every source of a table: its columns' names, its columns, and the name of a row for an operator.

`str(source)` is the place that messages about faults begin with. It holds neither content nor a password.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pyarrow as pa

from treetap.tables.number_styles import PLAIN, Style

#: Most rows of one batch.
BATCH_ROWS = 1 << 16


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

    def count_rows(self) -> int | None:
        """The number of rows, of a source that streams; None of another one, which would have to be read whole.

        `DataError` if the source cannot be read.
        """
        return None

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
        return number(cell)

    def remedy(self, cells: Iterable[str | None]) -> str:
        """The settings of the table with which all these cells would be numbers; empty if there are none."""
        del cells
        return ""

    def doubt(self, cells: Iterable[str | None]) -> str:
        """The same where all these cells of text may be meant as numbers, so that they are no categories yet."""
        del cells
        return ""

    def not_text(self) -> str:
        """The settings with which a cell that is no text here may be some; empty if there are none."""
        return ""

    def remedy_of_absence(self, name: str) -> str:
        """The settings with which the source would have this column; empty if there are none."""
        del name
        return ""


#: A table's origin in messages: its source, or the path of a table that was not read here.
Origin = Source | Path


def row_name(origin: Origin, index: int) -> str:
    """The place of a row, counted from 0, for the operator: the line of a CSV file, else the row from 1."""
    return origin.row_name(index) if isinstance(origin, Source) else f"row {index + 1}"


def number(cell: str) -> float:
    """A number as CSV files write it: Python would take 1_000 and digits of other scripts too."""
    if "_" in cell or not cell.isascii():
        raise ValueError
    return float(cell)

"""Columns of a source, checked as far as every table needs it: they are there, once, and text is text."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from functools import partial
from operator import add
from pathlib import Path

import pyarrow as pa

from treetap.errors import DataError
from treetap.names import nearest
from treetap.tables.dates import is_date
from treetap.tables.numbers import values_of
from treetap.tables.opening import source_at
from treetap.tables.rows_of import RowsOf
from treetap.tables.source import Origin, Source, row_name
from treetap.tables.sql import in_order_of_ids

log = logging.getLogger(__name__)
#: Type for each kind of text in a file: views cannot be sorted.
TEXT = {"string": pa.string(), "large_string": pa.large_string(), "string_view": pa.large_string()}


def columns_of(place: Source | Path) -> list[str]:
    """The names of a table's columns, in their order."""
    return [name for name, _ in source_at(place).fields()]


def date_columns(place: Source | Path) -> list[str]:
    """The columns that hold dates or times with a date; in text files by their first rows."""
    return [name for name, kind in source_at(place).fields() if is_date(kind)]


def check_columns(source: Source, wanted: list[str]) -> None:
    """Raise `DataError` if a column that a configuration names is not there, or there twice."""
    have = columns_of(source)
    absent = [name for name in wanted if name not in have]
    if absent:
        meant = [f"for {name!r} {found!r} may be meant" for name in absent if (found := nearest(name, have))]
        log.info("%s: %s", source, "; ".join([f"the table's columns are {', '.join(map(repr, have))}", *meant]))
        more = f", nor {len(absent) - 1} more that the configuration names" if len(absent) > 1 else ""
        remedy = source.remedy_of_absence(absent[0]) or "this party's log lists those that it has"
        raise DataError(f"{source}: has no column {absent[0]!r}{more}; {remedy}")
    doubled = sorted({name for name in wanted if have.count(name) > 1})
    if doubled:
        raise DataError(f"{source}: has column {doubled[0]!r} more than once")


def read_columns(source: Source, wanted: list[str], text: Collection[str], ids: str | None = None) -> pa.Table:
    """The columns, which are there, in the source's order of rows; those in `text` as they are written.

    Rows of a source without an order come in that of the column `ids`.

    Raises:
        DataError: the source cannot be read or has no rows.
    """
    table = source.read(wanted, text)
    if table.num_rows == 0:
        raise DataError(f"{source}: has no rows")
    return table if source.ordered or ids is None else in_order_of_ids(table, ids)


def plain_batches(source: Source, wanted: list[str]) -> Iterator[tuple[int, dict[str, pa.ChunkedArray]]]:
    """The rows of a source that streams, in batches: the first row's number, and its columns as `plain_column` does.

    Raises:
        DataError: the source cannot be read, or a cell of text is none.
    """
    first = 0
    for batch in source.batches(wanted, ()):
        here = RowsOf(source, partial(add, first))
        yield first, {name: plain_column(here, f"column {name!r}", batch.column(name)) for name in wanted}
        first += batch.num_rows


def plain_column(origin: Origin, place: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Categories as their values, and text as UTF-8 text."""
    if pa.types.is_dictionary(column.type):
        column = values_of(origin, place, column)
    text = TEXT.get(str(column.type))
    untyped = isinstance(origin, Source) and not origin.typed
    if untyped and pa.types.is_binary(column.type):
        text = pa.string()  # a text file holds text
    if text is None:
        return column
    raw = column.cast(pa.large_binary())
    try:
        return raw.cast(text)
    except pa.ArrowInvalid:
        index = next(i for i, cell in enumerate(raw.to_pylist()) if not _is_utf8(cell))
        remedy = origin.not_text() if isinstance(origin, Source) else ""
        raise DataError(
            f"{origin}: {row_name(origin, index)}, {place}: the cell is not UTF-8 text{remedy and '; '}{remedy}"
        ) from None


def _is_utf8(cell: bytes | None) -> bool:
    try:
        (cell or b"").decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True

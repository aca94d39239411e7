"""Columns of a source, checked as far as every table needs it: they are there, once, and text is text."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterator
from functools import partial
from operator import add
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from treetap.errors import DataError
from treetap.names import nearest
from treetap.tables.cells import plain_column
from treetap.tables.dates import is_date
from treetap.tables.opening import source_at
from treetap.tables.record_ids import is_id
from treetap.tables.source import RowsOf, Source

log = logging.getLogger(__name__)


def columns_of(place: Source | Path) -> list[str]:
    """The names of a table's columns, in their order."""
    return [name for name, _ in source_at(place).fields()]


def date_columns(place: Source | Path) -> list[str]:
    """The columns that hold dates or times with a date; in text files by their first rows."""
    return [name for name, kind in source_at(place).fields() if is_date(kind)]


def check_columns(source: Source, wanted: list[str]) -> None:
    """Raise `DataError` if a column that a configuration names is not there, or there twice."""
    have = columns_of(source)
    times = Counter(have)
    absent = [name for name in wanted if name not in times]
    if absent:
        meant = [f"for {name!r} {meant_name!r} may be meant" for name in absent if (meant_name := nearest(name, have))]
        log.info("%s: %s", source, "; ".join([f"the table's columns are {', '.join(map(repr, have))}", *meant]))
        more = f", nor {len(absent) - 1} more that the configuration names" if len(absent) > 1 else ""
        remedy = source.remedy("no column", absent[:1]) or "this party's log lists those that it has"
        raise DataError(f"{source}: has no column {absent[0]!r}{more}; {remedy}")
    doubled = sorted({name for name in wanted if times[name] > 1})
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
    return table if source.ordered or ids is None else _in_order_of(table, source, ids)


def plain_batches(source: Source, wanted: list[str]) -> Iterator[tuple[int, dict[str, pa.ChunkedArray]]]:
    """The rows of a source that streams, in batches: the first row's number, and its columns as `plain_column` does.

    Raises:
        DataError: the source cannot be read, or a cell of text is none.
    """
    first, kinds = 0, dict[str, pa.DataType]()
    for batch in source.batches(wanted, ()):
        here = RowsOf(source, partial(add, first))
        columns = {name: plain_column(here, f"column {name!r}", batch.column(name)) for name in wanted}
        for name, column in columns.items():
            if kinds.setdefault(name, column.type) != column.type:
                raise DataError(f"{source}: column {name!r} holds bytes, and in some rows no text: write it as text")
        yield first, columns
        first += batch.num_rows


def _in_order_of(table: pa.Table, source: Source, name: str) -> pa.Table:
    """The rows in the order of their ids as text; as they are where these are of a kind that no ids have."""
    ids = plain_column(source, f"column {name!r}", table.column(name))
    return table.take(pc.sort_indices(ids.cast(pa.large_string()))) if is_id(ids.type) else table

"""Rows of forgotten records taken out of the tables that a party writes: predictions, explanations, previews.

A file's other rows stay as they are, byte for byte in CSV. Its id columns are the first ones, before those that every
file of its kind has.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from treetap.errors import DataError
from treetap.models.durable import writing_whole
from treetap.tables.record_ids import Ids, joined_id
from treetap.tables.written import table_writer

#: The first column behind the ids, in every kind of file.
_BEHIND = ("prediction", "paths", "class", "score")
#: Rows of Parquet that are in memory at a time.
_AT_ONCE = 1 << 16


def forget_rows(path: Path, ids: Collection[str], *, first: int = 0, dry: bool) -> int:
    """Take these records' rows out of a file, durably; returns how many it had. With `dry` nothing is written.

    `first`: the number of columns before the ids.

    Raises:
        DataError: it is no such file, or damaged.
    """
    try:
        of_form = _of_parquet if path.suffix == ".parquet" else _of_csv
        gone = of_form(path, ids, first, None)
        if gone and not dry:
            with writing_whole(path) as file:
                of_form(path, ids, first, file)
    except (pa.ArrowException, csv.Error, IndexError, UnicodeDecodeError) as failure:
        raise DataError(f"{path}: is damaged ({type(failure).__name__}): move it away, or delete it") from None
    return gone


def _columns(path: Path, names: Sequence[str], first: int) -> range:
    """The places of the id columns. Raises DataError where there are none."""
    marks = () if first else _BEHIND  # a preview has nothing behind its ids
    behind = next((place for place, name in enumerate(names) if name in marks), len(names) if first else 0)
    if behind <= first:
        raise DataError(f"{path}: no file of predictions or of a preview has these columns; move it away")
    return range(first, behind)


def _of_parquet(path: Path, ids: Collection[str], first: int, to: BinaryIO | None) -> int:
    gone = 0
    with pq.ParquetFile(path) as source:
        schema = source.schema_arrow
        places = _columns(path, schema.names, first)
        parts = _kept_parts(source, places, ids)
        if to is None:
            return sum(len(part) - len(kept) for part, kept in parts)
        with table_writer(to, schema, "parquet") as write:
            for part, kept in parts:
                gone += len(part) - len(kept)
                write(kept)
    return gone


def _kept_parts(source: pq.ParquetFile, places: range, ids: Collection[str]) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Each part of a file, and its rows that stay."""
    for batch in source.iter_batches(_AT_ONCE):
        part = pa.Table.from_batches([batch])
        columns = [Ids.of_column(part.column(place)) for place in places]
        own = columns[0] if len(columns) == 1 else Ids.joined(columns)
        yield part, part.filter(pa.array([text not in ids for text in own], pa.bool_()))


def _of_csv(path: Path, ids: Collection[str], first: int, to: BinaryIO | None) -> int:
    gone, places = 0, range(0)
    for number, (raw, cells) in enumerate(_csv_rows(path)):
        if number == 0:
            places = _columns(path, cells, first)
        texts = [cells[place].strip() for place in places]
        if number and (texts[0] if len(texts) == 1 else joined_id(texts)) in ids:
            gone += 1
        elif to is not None:
            to.write(raw)
    return gone


def _csv_rows(path: Path) -> Iterator[tuple[bytes, list[str]]]:
    """Each row of a CSV file, which may go over several lines, as it is and by cells."""
    raw = b""
    with path.open("rb") as file:
        for line in file:
            raw += line
            if raw.count(b'"') % 2 == 0:
                yield raw, next(csv.reader([raw.decode()]))
                raw = b""
    if raw:
        raise DataError(f"{path}: ends within quotation marks: move it away, or delete it")

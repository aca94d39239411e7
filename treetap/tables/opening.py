"""The source that a table's settings describe."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from treetap.errors import DataError
from treetap.tables.csv_dialect import Given
from treetap.tables.csv_file import CsvFile
from treetap.tables.faults import missing
from treetap.tables.files import TableFile
from treetap.tables.formats import HEAD, NAMES, SUFFIXES, content_of
from treetap.tables.parquet import ParquetFile
from treetap.tables.source import Source
from treetap.tables.source_keys import SourceKeys


def source_of(keys: SourceKeys) -> Source:
    """The source of a table; `DataError` if it is not there or holds something else than a table."""
    place = keys.places[0]
    return file_source(TableFile.local(place), keys.format, keys.dialect)


def file_source(file: TableFile, kind: str | None = None, given: Given | None = None) -> Source:
    """One file of a format, by default that of its name.

    Raises:
        DataError: it is not there, its name says no format, or its first bytes are of something else.
    """
    try:
        head = file.head(HEAD)
    except (pa.ArrowException, OSError) as failure:
        codec = f"{file.codec}, as its name says" if file.codec else "a file"
        raise missing(file, failure) or DataError(f"{file}: is not readable as {codec}") from None
    found, named = content_of(head), kind or SUFFIXES.get(file.suffix)
    own_encoding = given is not None and given.encoding is not None
    if named is None:
        holds = f"its content is {found.what}: {found.remedy}" if found else 'write format = "csv" if it is CSV'
        raise DataError(f"{file}: its name does not end with {', '.join(SUFFIXES)}; {holds}")
    if found is not None and found.format != named and not (own_encoding and found.what.startswith("text")):
        by = f'format = "{kind}"' if kind else "its name"
        raise DataError(f"{file}: is {found.what}, not {NAMES[named]} as {by} says: {found.remedy}")
    if named == "csv":
        tabs = file.suffix in (".tsv", ".tab")
        usual = given or Given()
        return CsvFile(file, replace(usual, delimiter="\t") if tabs and usual.delimiter is None else usual)
    return ParquetFile(file)


def source_at(place: Source | Path) -> Source:
    """A source as it is, or that of a local file."""
    return place if isinstance(place, Source) else file_source(TableFile.local(place))

"""Tables as the content of a file, with the types that their columns have."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

#: A cell of CSV with what ends it.
_CELL = re.compile(r'("(?:[^"]|"")*"|[^",\n]*)[,\n]')


@contextmanager
def table_writer(file: BinaryIO, schema: pa.Schema, form: str) -> Iterator[Callable[[pa.Table], None]]:
    """Write a table of this schema as `content_of` does, given in parts."""
    if form == "parquet":
        with pq.ParquetWriter(file, schema, compression="zstd") as parquet:
            yield parquet.write_table
        return
    plain = _plain(schema.empty_table())
    with pacsv.CSVWriter(file, plain.schema) as csv:
        yield lambda part: csv.write_table(_plain(part))


def content_of(table: pa.Table, form: str) -> pa.Buffer:
    """A table as `parquet` or `csv`.

    CSV has no types: text is in quotation marks, numbers are written so that they read back exactly, and a missing cell
    is empty.
    """
    content = pa.BufferOutputStream()
    if form == "parquet":
        pq.write_table(table, content, compression="zstd")
    else:
        pacsv.write_csv(_plain(table), content)
    return content.getvalue()


def written(path: Path) -> pa.Table:
    """The table of a file that has the content of `content_of`. In CSV, text is what is in quotation marks: 007 is."""
    if path.suffix == ".parquet":
        return pq.read_table(path)
    dialect = pacsv.ParseOptions(newlines_in_values=True)
    names = pacsv.read_csv(path, parse_options=dialect).column_names
    cells = islice(_CELL.finditer(path.read_bytes().decode()), len(names), None)  # those below the header
    texts = {names[place % len(names)] for place, cell in enumerate(cells) if cell[1].startswith('"')}
    options = pacsv.ConvertOptions(
        column_types=dict.fromkeys(texts, pa.string()),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    return pacsv.read_csv(path, parse_options=dialect, convert_options=options)


def _plain(table: pa.Table) -> pa.Table:
    """The table as Arrow writes it to CSV: views of text, of which it writes none, as text."""
    columns = [
        column.cast(pa.large_string()) if str(column.type) == "string_view" else column for column in table.columns
    ]
    return pa.table(columns, names=table.column_names)

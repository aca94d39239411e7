"""Tables as the content of a file, with the types that their columns have."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq


def content_of(table: pa.Table, form: str) -> pa.Buffer:
    """A table as `parquet` or `csv`.

    CSV has no types: text is in quotation marks, numbers are written so that they read back exactly, and a missing cell
    is empty.
    """
    content = pa.BufferOutputStream()
    if form == "parquet":
        pq.write_table(table, content, compression="zstd")
    else:
        columns = [_writable(table.column(name)) for name in table.column_names]
        pacsv.write_csv(pa.table(columns, names=table.column_names), content)
    return content.getvalue()


def _writable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Views of text as text: Arrow writes none of them to CSV."""
    return column.cast(pa.large_string()) if str(column.type) == "string_view" else column

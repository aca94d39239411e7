"""Feather of version 2, which is Arrow's file format; and Arrow's stream format under the same endings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from treetap.errors import DataError
from treetap.tables.files import FileSource, decoding
from treetap.tables.source import BATCH_ROWS, within_memory

_NAME = "Feather"
#: Type of text → the type that has the same buffers and takes any bytes.
_RAW = {"string": pa.binary(), "large_string": pa.large_binary(), "string_view": pa.binary_view()}
_VIEW = 16  # bytes of a cell of views
_STREAM = b"\xff\xff\xff\xff"


class ArrowFile(FileSource):
    """A file whose columns have types, compressed or not, read by record batch."""

    streams = True

    def fields(self) -> list[tuple[str, pa.DataType]]:
        with decoding(self, _NAME), self.file.open() as raw, self._reader(raw) as reader:
            return [(field.name, field.type) for field in reader.schema]

    def read(self, wanted: list[str], text: Collection[str]) -> pa.Table:
        parts = within_memory(self, self.batches(wanted, text))
        kinds = dict(self.fields())
        return pa.concat_tables(parts) if parts else pa.schema([(name, kinds[name]) for name in wanted]).empty_table()

    def batches(self, wanted: list[str], text: Collection[str]) -> Iterator[pa.Table]:
        del text  # a column has its type
        for batch in self._batches(wanted):
            whole = pa.Table.from_batches([batch]).select(wanted)
            yield from (whole.slice(first, BATCH_ROWS) for first in range(0, whole.num_rows, BATCH_ROWS))

    def count_rows(self) -> int:
        """That of the first column, since the format counts the rows of each batch alone."""
        return sum(batch.num_rows for batch in self._batches([name for name, _ in self.fields()][:1]))

    def _batches(self, wanted: list[str]) -> Iterator[pa.RecordBatch]:
        """The file's record batches with these columns, in the file's order, if they are some."""
        named = set(wanted)
        places = [place for place, (name, _) in enumerate(self.fields()) if name in named]
        options = pa.ipc.IpcReadOptions(included_fields=places)
        with decoding(self, _NAME), self.file.open() as raw, self._reader(raw, options) as reader:
            for number, batch in enumerate(_batches(reader), start=1):
                yield checked(batch, partial(self._damaged, number))

    def _damaged(self, number: int, name: str) -> DataError:
        place = f"{self}: record batch {number}, column {name!r}"
        return DataError(f"{place} cannot be decoded; is the {_NAME} file damaged? Write it again")

    def _reader(self, raw: pa.NativeFile, options: pa.ipc.IpcReadOptions | None = None) -> AbstractContextManager[Any]:
        stream = raw.read(len(_STREAM)) == _STREAM
        raw.seek(0)
        made: AbstractContextManager[Any] = (pa.ipc.open_stream if stream else pa.ipc.open_file)(raw, options=options)
        return made


def checked(batch: pa.RecordBatch, fault: Callable[[str], DataError]) -> pa.RecordBatch:
    """A batch of any origin that can be read: all buffers hold what the types of the columns say.

    Arrow takes lengths, offsets and places in dictionaries from a file as they are, and reads beyond its buffers where
    they are wrong. Text that is not UTF-8 is memory all the same: `plain_column` names its row.

    Raises:
        DataError: `fault`, given the name of the first column that cannot be read.
    """
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if len(column) != batch.num_rows or not _sound(column):
            raise fault(name)
    return pa.record_batch([_readable(column) for column in batch.columns], batch.schema)


def _readable(column: pa.Array) -> pa.Array:
    """A column that was checked, without what no check looks at: views of missing cells, which a cast follows."""
    if isinstance(column, pa.DictionaryArray):
        values = _readable(column.dictionary)
        return pa.DictionaryArray.from_arrays(column.indices, values, ordered=column.type.ordered)
    if str(column.type) not in ("string_view", "binary_view") or not column.null_count:
        return column
    valid, views, *data = column.buffers()
    plain = np.frombuffer(views, np.uint8)[: _VIEW * len(column)].reshape(-1, _VIEW).copy()
    plain[np.asarray(column.is_null())] = 0
    return pa.Array.from_buffers(column.type, len(column), [valid, pa.py_buffer(plain), *data])


def _sound(column: pa.Array) -> bool:
    """True if a column can be read, which may hold text that is none."""
    raw = _RAW.get(str(column.type))
    try:
        if raw is not None:
            column = pa.Array.from_buffers(raw, len(column), column.buffers(), column.null_count, column.offset)
        column.validate(full=True)
    except pa.ArrowException:
        return False
    return True


def _batches(reader: Any) -> Any:
    if isinstance(reader, pa.ipc.RecordBatchStreamReader):
        return reader
    return (reader.get_batch(number) for number in range(reader.num_record_batches))

"""Feather of version 2, which is Arrow's file format; and Arrow's stream format under the same endings."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa

from treetap.errors import DataError
from treetap.tables.faults import unreadable
from treetap.tables.files import FileSource
from treetap.tables.source import BATCH_ROWS
from treetap.usage import half_of_memory

_STREAM = b"\xff\xff\xff\xff"


class ArrowFile(FileSource):
    """A file whose columns have types, compressed or not, read by record batch."""

    streams = True

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """See `Source`."""
        try:
            with self.file.open() as raw, self._reader(raw) as reader:
                return [(field.name, field.type) for field in reader.schema]
        except (pa.ArrowException, OSError) as failure:
            raise unreadable(self, failure, "Feather") from None

    def read(self, wanted: list[str], text: Collection[str]) -> pa.Table:
        """See `Source`."""
        most, size = half_of_memory(), 0
        parts: list[pa.Table] = []
        for part in self.batches(wanted, text):
            parts.append(part)
            size += part.nbytes
            if size > most:
                raise DataError(f"{self}: the columns take up more than half of this machine's memory; leave some out")
        kinds = dict(self.fields())
        return pa.concat_tables(parts) if parts else pa.schema([(name, kinds[name]) for name in wanted]).empty_table()

    def batches(self, wanted: list[str], text: Collection[str]) -> Iterator[pa.Table]:
        """See `Source`."""
        del text  # a column has its type
        for batch in self._batches(wanted):
            whole = pa.Table.from_batches([batch]).select(wanted)
            yield from (whole.slice(first, BATCH_ROWS) for first in range(0, whole.num_rows, BATCH_ROWS))

    def count_rows(self) -> int:
        """See `Source`: that of the first column, since the format counts the rows of each batch alone."""
        return sum(batch.num_rows for batch in self._batches([name for name, _ in self.fields()][:1]))

    def _batches(self, wanted: list[str]) -> Iterator[pa.RecordBatch]:
        """The file's record batches with these columns, in the file's order, if they are some."""
        named = set(wanted)
        places = [place for place, (name, _) in enumerate(self.fields()) if name in named]
        options = pa.ipc.IpcReadOptions(included_fields=places)
        try:
            with self.file.open() as raw, self._reader(raw, options) as reader:
                yield from _batches(reader)
        except (pa.ArrowException, OSError) as failure:
            raise unreadable(self, failure, "Feather") from None

    def _reader(self, raw: pa.NativeFile, options: pa.ipc.IpcReadOptions | None = None) -> AbstractContextManager[Any]:
        stream = raw.read(len(_STREAM)) == _STREAM
        raw.seek(0)
        made: AbstractContextManager[Any] = (pa.ipc.open_stream if stream else pa.ipc.open_file)(raw, options=options)
        return made


def _batches(reader: Any) -> Any:
    """The batches of either format."""
    if isinstance(reader, pa.ipc.RecordBatchStreamReader):
        return reader
    return (reader.get_batch(number) for number in range(reader.num_record_batches))

"""Feather of version 2, which is Arrow's file format; and Arrow's stream format under the same endings."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa

from treetap.errors import DataError
from treetap.tables.faults import unreadable
from treetap.tables.files import FileSource
from treetap.usage import half_of_memory

_STREAM = b"\xff\xff\xff\xff"


class ArrowFile(FileSource):
    """A file whose columns have types, compressed or not."""

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """See `Source`."""
        try:
            with self.file.open() as raw, self._reader(raw) as reader:
                return [(field.name, field.type) for field in reader.schema]
        except (pa.ArrowException, OSError) as failure:
            raise unreadable(self, failure, "Feather") from None

    def read(self, wanted: list[str], text: Collection[str]) -> pa.Table:
        """See `Source`."""
        del text  # a column has its type
        most, size = half_of_memory(), 0
        parts: list[pa.RecordBatch] = []
        try:
            with self.file.open() as raw, self._reader(raw) as reader:
                for batch in _batches(reader):
                    parts.append(batch.select(wanted))
                    size += parts[-1].nbytes
                    if size > most:
                        raise DataError(f"{self}: the columns take up more than half of this machine's memory")
                names = set(wanted)
                schema = pa.schema([field for field in reader.schema if field.name in names])
        except (pa.ArrowException, OSError) as failure:
            raise unreadable(self, failure, "Feather") from None
        return pa.Table.from_batches(parts, parts[0].schema if parts else schema)

    def _reader(self, raw: pa.NativeFile) -> AbstractContextManager[Any]:
        stream = raw.read(len(_STREAM)) == _STREAM
        raw.seek(0)
        made: AbstractContextManager[Any] = pa.ipc.open_stream(raw) if stream else pa.ipc.open_file(raw)
        return made


def _batches(reader: Any) -> Any:
    """The batches of either format."""
    if isinstance(reader, pa.ipc.RecordBatchStreamReader):
        return reader
    return (reader.get_batch(number) for number in range(reader.num_record_batches))

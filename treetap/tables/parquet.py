"""Parquet files of any origin: with run lengths and dictionaries a few kilobytes can describe terabytes."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from treetap.errors import DataError
from treetap.tables.faults import missing, unreadable
from treetap.tables.files import FileSource, TableFile
from treetap.tables.tensors import is_tensor
from treetap.usage import half_of_memory

log = logging.getLogger(__name__)
_ROWS = 8192  # decoded at once
_NUMBER = 8  # bytes of a number
_BLOCK = 32 << 20  # bytes of tensors that are decoded at once
_OF_TEXT = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)


class ParquetFile(FileSource):
    """A file whose columns have types."""

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """See `Source`."""
        try:
            with self.file.open() as raw:
                return [(field.name, field.type) for field in pq.read_schema(raw)]
        except (pa.ArrowException, OSError) as failure:
            raise unreadable(self, failure, "Parquet") from None

    def read(self, wanted: list[str], text: Collection[str]) -> pa.Table:
        """See `Source`."""
        del text  # a column has its type
        try:
            return read_parquet(self.file, wanted)
        except (pa.ArrowException, OSError) as failure:
            raise (missing(self, failure) or self._undecodable(wanted)) from None

    def _undecodable(self, wanted: list[str]) -> DataError:
        """The error for the first column that cannot be decoded."""
        for name in wanted:
            try:
                read_parquet(self.file, [name])
            except (pa.ArrowException, OSError) as failure:
                log.debug("%s: column %r: decoding it raised %s", self, name, type(failure).__name__)
                return DataError(f"{self}: column {name!r} cannot be decoded; is the Parquet file damaged?")
        return DataError(f"{self}: is not readable Parquet")


def read_parquet(source: TableFile, wanted: list[str]) -> pa.Table:
    """These columns, in the order of the file's rows.

    Raises:
        DataError: they take up more than half of the memory.
        pa.ArrowException, OSError: the file cannot be read.
    """
    most = half_of_memory()
    with source.open() as raw, pq.ParquetFile(raw) as file:
        fields = [file.schema_arrow.field(name) for name in wanted]
        text = [field.name for field in fields if _is_text(field.type)]
        values = sum(math.prod(field.type.shape) for field in fields if is_tensor(field.type))  # of a row
        row = values + _NUMBER * len(wanted)
        if file.metadata.num_rows * row > most or _longest(source, text, most) > most:
            raise _too_large(source)
        parts, size = [], 0
        for batch in file.iter_batches(batch_size=min(_ROWS, max(1, _BLOCK // max(values, 1))), columns=wanted):
            size += batch.nbytes
            if size > most:
                raise _too_large(source)
            parts.append(batch)
        return pa.Table.from_batches(parts, parts[0].schema if parts else pa.schema(fields))


def _longest(source: TableFile, text: list[str], most: int) -> int:
    """The bytes of columns of text, had every cell the longest text of its dictionary, as far as the bound.

    Of each group of rows one cell is decoded, and with it the dictionary, where there is one.
    """
    size = 0
    if not text:
        return size
    with source.open() as raw, pq.ParquetFile(raw, read_dictionary=text) as file:
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            first = next(file.iter_batches(batch_size=1, row_groups=[group], columns=text), None)
            for column in () if first is None else first.columns:
                size += rows * int(pc.max(pc.binary_length(column.dictionary)).as_py() or 0)
            if size > most:
                break
    return size


def _is_text(kind: pa.DataType) -> bool:
    """True for text and bytes, also where the file keeps them as categories, which become text later."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return any(is_kind(kind) for is_kind in _OF_TEXT)


def _too_large(source: TableFile) -> DataError:
    return DataError(f"{source}: the columns take up more than half of this machine's memory; leave some out")

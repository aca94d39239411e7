"""Parquet files of any origin: with run lengths and dictionaries a few kilobytes can describe terabytes."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from treetap.errors import DataError
from treetap.tables.files import FileSource, TableFile, decoding
from treetap.tables.source import BATCH_ROWS, too_large, within_memory
from treetap.tables.tensors import is_tensor
from treetap.usage import half_of_memory

log = logging.getLogger(__name__)
_NUMBER = 8  # bytes of a number
_BLOCK = 32 << 20  # bytes of a batch
_OF_TEXT = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)


class ParquetFile(FileSource):
    """A file whose columns have types, read by row group."""

    streams = True

    def fields(self) -> list[tuple[str, pa.DataType]]:
        with decoding(self, "Parquet"), self.file.open() as raw:
            return [(field.name, field.type) for field in pq.read_schema(raw)]

    def read(self, wanted: list[str], text: Collection[str]) -> pa.Table:
        del text  # a column has its type
        most = half_of_memory()
        with _open(self.file, wanted) as file:
            row = _NUMBER * len(wanted) + file.tensors
            if file.rows * row > most or file.all_of_longest(most) > most:
                raise too_large(self)
            parts = within_memory(self, file.batches())
            return pa.Table.from_batches(parts, parts[0].schema if parts else pa.schema(file.fields))

    def batches(self, wanted: list[str], text: Collection[str]) -> Iterator[pa.Table]:
        """No page of another column is read, and a damaged row group is named with its column."""
        del text
        with _open(self.file, wanted) as file:
            for batch in file.batches():
                yield pa.Table.from_batches([batch]).select(wanted)

    def count_rows(self) -> int:
        with decoding(self, "Parquet"), self.file.open() as raw:
            return int(pq.read_metadata(raw).num_rows)


@contextmanager
def _open(source: TableFile, wanted: list[str]) -> Iterator[_Columns]:
    """These columns of a file; `DataError` if it cannot be opened."""
    with ExitStack() as stack:
        with decoding(source, "Parquet"):
            raw = stack.enter_context(source.open())
            file = stack.enter_context(pq.ParquetFile(raw, page_checksum_verification=True))
            schema = file.schema_arrow  # made anew each time it is asked for
            fields = [schema.field(name) for name in wanted]
            text = [field.name for field in fields if _is_text(field.type)]
            cells = file
            if text:
                raw = stack.enter_context(source.open())
                cells = stack.enter_context(pq.ParquetFile(raw, read_dictionary=text))
        yield _Columns(source, fields, text, file, cells)


class _Columns:
    """Columns of an open file. `cells`: the file with dictionaries for its columns of `text`."""

    def __init__(
        self, source: TableFile, fields: list[pa.Field], text: list[str], file: pq.ParquetFile, cells: pq.ParquetFile
    ) -> None:
        self.fields = fields
        self._source, self._text, self._file, self._cells = source, text, file, cells
        self.rows = int(file.metadata.num_rows)
        #: Values of a row in columns of tensors.
        self.tensors = sum(math.prod(field.type.shape) for field in fields if is_tensor(field.type))

    def all_of_longest(self, most: int) -> int:
        """The bytes of columns of text, had every cell the longest text of its dictionary, as far as the bound."""
        size = 0
        for group in range(self._file.num_row_groups if self._text else 0):
            with decoding(self._source, "Parquet", partial(self._undecodable, group)):
                size += self._file.metadata.row_group(group).num_rows * self._longest(group, self._text)
            if size > most:
                break
        return size

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows; a batch has no more than `_BLOCK` bytes, if that is one row at least."""
        names, text = [field.name for field in self.fields], self._text
        for group in range(self._file.num_row_groups):
            with decoding(self._source, "Parquet", partial(self._undecodable, group)):
                yield from self._of_group(group, names, text)

    def _of_group(self, group: int, names: list[str], text: list[str]) -> Iterator[pa.RecordBatch]:
        longest = self._longest(group, text)
        if longest > half_of_memory():
            raise too_large(self._source)
        rows = min(BATCH_ROWS, max(1, _BLOCK // max(self.tensors, _NUMBER * len(names), longest)))
        yield from self._file.iter_batches(batch_size=rows, row_groups=[group], columns=names)

    def _longest(self, group: int, text: list[str]) -> int:
        """The bytes of a row with the longest texts of a group of rows.

        One cell of each column is decoded, and with it the dictionary, where there is one.
        """
        if not text:
            return 0
        first = next(self._cells.iter_batches(batch_size=1, row_groups=[group], columns=text), None)
        columns = () if first is None else first.columns
        return sum(int(pc.max(pc.binary_length(column.dictionary)).as_py() or 0) for column in columns)

    def _undecodable(self, group: int) -> DataError:
        """The error for the first column of a group of rows that cannot be decoded."""
        place = f"{self._source}: row group {group + 1} of {self._file.num_row_groups}"
        for field in self.fields:
            try:
                name = field.name
                for _ in self._of_group(group, [name], [name] if _is_text(field.type) else []):
                    pass
            except Exception as failure:  # noqa: BLE001 - whatever it is, it is this column's
                log.debug("%s, column %r: decoding it raised %s", place, field.name, type(failure).__name__)
                return DataError(
                    f"{place}, column {field.name!r} cannot be decoded; is the Parquet file damaged? Write it again"
                )
        return DataError(f"{place} cannot be decoded; is the Parquet file damaged? Write it again")


def _is_text(kind: pa.DataType) -> bool:
    """True for text and bytes, also where the file keeps them as categories, which become text later."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return any(is_kind(kind) for is_kind in _OF_TEXT)

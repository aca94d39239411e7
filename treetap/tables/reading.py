"""A party's table on disk: CSV or Parquet with an id column; only the named columns are read.

Records come back sorted by id, so that parties with the same ids have the same order. Messages about faults travel to
the operator by way of the coordinator: they name the place of a fault, never the content of a cell.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from treetap.errors import DataError
from treetap.tables.categories import Category, encoded
from treetap.tables.config import TableConfig, encoded_by_name
from treetap.tables.constant import constant_columns, in_words
from treetap.tables.dates import is_date
from treetap.tables.ids import distinct_ids, ids_of, sorted_ids
from treetap.tables.numbers import BLOCK, csv_rows, kind_name, row_name
from treetap.tables.parquet import read_parquet
from treetap.tables.tensors import Shape, Tensor, check_trained, is_tensor, tensor_of, tensor_shape
from treetap.tables.typed import STRING, id_type

log = logging.getLogger(__name__)
Floats = np.ndarray[tuple[int, int], np.dtype[np.float64]]
_PARSING = pacsv.ParseOptions(newlines_in_values=True)
#: Type for each kind of text in a file: views cannot be sorted.
TEXT = {"string": pa.string(), "large_string": pa.large_string(), "string_view": pa.large_string()}


@dataclass(frozen=True)
class Table:
    """Records in the order of their sorted ids.

    `ids`: N strings. `columns`: names of the d features. `features`: (N, d) float64, NaN where missing. `label`: N
    values as read, or None. `rows`: (N,) each record's row in the file, from 0. `sources`: the file's columns
    that the features were made of, and those of tensors; `categories`: how those of text were encoded. `tensors`: each
    column of images, (N, height, width) or (N, channels, height, width); none of them is among `columns`. `id_column`,
    `id_type`: name and type of the ids in the file. `dropped`: columns that were left out because they are constant;
    None where the configuration does not ask for that.
    """

    path: Path
    ids: list[str]
    columns: list[str]
    features: Floats
    label: pa.ChunkedArray | None
    rows: np.ndarray[tuple[int], np.dtype[np.int64]]
    sources: list[str] = field(default_factory=list)
    categories: Mapping[str, Category] = field(default_factory=dict)
    id_column: str = "id"
    id_type: pa.DataType = STRING
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    dropped: list[str] | None = None

    def __repr__(self) -> str:
        return f"<Table of {len(self.ids)} records>"

    @property
    def made(self) -> set[str]:
        """Features that are one category each."""
        return {name for each in self.categories.values() for name in each.features if each.encode == "one-hot"}

    @property
    def may_be_constant(self) -> set[str]:
        """Features that may be constant among the common records: one category each, or all where such are dropped."""
        return self.made if self.dropped is None else set(self.columns)

    def constant(self) -> dict[str, str]:
        """The columns of the file that may not be constant and are: see `treetap.tables.constant`."""
        if self.dropped is not None:
            return {}
        return constant_columns(self.sources, self.columns, self.features, self.categories, one_hot=False)

    @property
    def shapes(self) -> dict[str, Shape]:
        """Column of tensors → shape of a cell: (height, width) or (channels, height, width)."""
        return {name: cells.shape[1:] for name, cells in self.tensors.items()}

    def described(self) -> dict[str, Any]:
        """The columns in a model's manifest: the features, the file's columns they are made of, shapes of tensors."""
        return {
            "columns": self.columns,
            "source_columns": self.sources,
            "categories": {name: each.to_dict() for name, each in self.categories.items()},
            "tensors": {name: {"shape": list(shape)} for name, shape in self.shapes.items()},
            **({"dropped_columns": self.dropped} if self.dropped else {}),
        }

    def where(self, record: int) -> str:
        """A record's place in the file, for a reader."""
        return row_name(self.path, int(self.rows[record]))

    def take(self, records: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Table:
        """The records at these places, in this order."""
        return replace(
            self,
            ids=[self.ids[place] for place in records.tolist()],
            features=self.features[records],
            label=None if self.label is None else self.label.take(pa.array(records)),
            rows=self.rows[records],
            tensors={name: cells[records] for name, cells in self.tensors.items()},
        )

    def digest(self) -> bytes:
        """SHA-256 over the sorted ids."""
        return digest_of(self.ids)


def digest_of(ids: list[str]) -> bytes:
    """SHA-256 over ids, each with its length; `sorted-ids` alignment compares that of the sorted ids."""
    state = hashlib.sha256()
    for value in ids:
        raw = value.encode("utf-8")
        state.update(len(raw).to_bytes(4, "big") + raw)
    return state.digest()


def read_table(
    config: TableConfig,
    *,
    with_label: bool,
    missing: float | None,
    categories: Mapping[str, Category] | None = None,
    shapes: Mapping[str, Shape] | None = None,
) -> Table:
    """Read the named columns; `DataError` names file, row and column of the first fault.

    A cell equal to `missing`, an empty cell and NaN count as missing. Columns of text and dates are encoded as the
    configuration says or, for a model that is there already, as its `categories` say; its columns of tensors have these
    `shapes`.
    """
    wanted = [config.id, *config.columns]
    if with_label:
        if config.label is None:
            raise DataError(f"{config.path}: the configuration names no label column for this table")
        wanted.append(config.label)
    as_written = encoded_by_name(config.encode) if categories is None else categories
    table = _load(config.path, wanted, {config.id, *as_written})
    columns = {name: plain_column(config.path, f"column {name!r}", table.column(name)) for name in wanted}
    ids, order = sorted_ids(config.path, f"column {config.id!r}", columns[config.id])
    kinds = {name: columns[name].type for name in config.columns}
    cells = {name: tensor_shape(config.path, name, kind) for name, kind in kinds.items() if is_tensor(kind)}
    if shapes is not None:
        check_trained(config.path, cells, shapes, config.columns)
    chosen = {name: columns[name] for name in config.columns if name not in cells}
    names, values, found = encoded(config.path, chosen, len(ids), config.encode, categories, missing)
    features = values[order]
    tensors = {name: tensor_of(config.path, name, columns[name], order) for name in cells}
    label = _ordered(config.path, config.label, columns[config.label], order) if with_label and config.label else None
    kind = id_type(ids, columns[config.id].type, in_csv=config.path.suffix != ".parquet")
    sources = list(config.columns)
    table = Table(config.path, ids, names, features, label, order, sources, found, config.id, kind, tensors)
    return _without_constant(table) if config.drop_constant and categories is None else table


def _without_constant(table: Table) -> Table:
    """The table without its constant columns, which the log names."""
    constant = constant_columns(table.sources, table.columns, table.features, table.categories, one_hot=True)
    if constant:
        log.info("%s: drop_constant leaves out %s", table.path, in_words(constant))
    categories = {name: each for name, each in table.categories.items() if name not in constant}
    made = [table.categories[name].features if name in table.categories else [name] for name in constant]
    gone = set(chain(*made))
    kept = [place for place, name in enumerate(table.columns) if name not in gone]
    return replace(
        table,
        columns=[table.columns[place] for place in kept],
        features=table.features[:, kept],
        sources=[name for name in table.sources if name not in constant],
        categories=categories,
        dropped=list(constant),
    )


def read_ids(path: Path) -> list[str]:
    """A file of record ids: text, one id a line, or the first column of a Parquet or CSV file."""
    if path.suffix not in (".parquet", ".csv"):
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except OSError as failure:
            raise DataError(f"{path}: cannot be read: {failure.strerror}") from None
        except UnicodeDecodeError:
            raise DataError(f"{path}: is not UTF-8 text; give one id a line, or a .csv or .parquet file") from None
        return distinct_ids(path, "column 'id'", [line.strip() for line in lines if line.strip()])
    names = columns_of(path)
    if not names:
        raise DataError(f"{path}: has no column")
    if names.count(names[0]) > 1:
        raise DataError(f"{path}: another column has the name of the first one")
    # without a header the name is a record's id, hence is not shown
    return ids_of(
        path,
        "first column",
        plain_column(path, "first column", read_columns(path, names[:1], set(names[:1])).column(0)),
    )


def columns_of(path: Path) -> list[str]:
    """The names of a file's columns, in its order."""
    return [name for name, _ in _fields_of(path)]


def date_columns(path: Path) -> list[str]:
    """The columns of a file that hold dates or times with a date; in CSV by its first rows."""
    return [name for name, kind in _fields_of(path) if is_date(kind)]


def _fields_of(path: Path) -> list[tuple[str, pa.DataType]]:
    try:
        if path.suffix == ".parquet":
            return [(field.name, field.type) for field in pq.read_schema(path)]
        with pacsv.open_csv(path, pacsv.ReadOptions(block_size=BLOCK), _PARSING) as reader:
            return [(field.name, field.type) for field in reader.schema]
    except UnicodeDecodeError:
        raise DataError(f"{path}: the names of its columns are not UTF-8 text") from None
    except (pa.ArrowException, OSError) as failure:
        raise _unreadable(path, failure) from None


def _load(path: Path, wanted: list[str], text: Collection[str]) -> pa.Table:
    have = columns_of(path)
    absent = [name for name in wanted if name not in have]
    if absent:
        log.info("%s: the table's columns are %s", path, ", ".join(map(repr, have)))
        more = f", nor {len(absent) - 1} more that the configuration names" if len(absent) > 1 else ""
        raise DataError(f"{path}: has no column {absent[0]!r}{more}; this party's log lists those that it has")
    doubled = sorted({name for name in wanted if have.count(name) > 1})
    if doubled:
        raise DataError(f"{path}: has column {doubled[0]!r} more than once")
    return read_columns(path, wanted, text)


def read_columns(path: Path, wanted: list[str], text: Collection[str]) -> pa.Table:
    """The columns, which are there, in the file's order of rows; those in `text` as they are written.

    Raises:
        DataError: the file cannot be read or has no rows. Its text contains nothing of Arrow's message, which
            quotes whole rows.
    """
    try:
        table = read_parquet(path, wanted) if path.suffix == ".parquet" else _read_csv(path, wanted, text)
    except (pa.ArrowException, OSError) as failure:
        raise (_undecodable(path, wanted) or _unreadable(path, failure)) from None
    if table.num_rows == 0:
        raise DataError(f"{path}: has no rows")
    return table


def _read_csv(path: Path, wanted: list[str], text: Collection[str]) -> pa.Table:
    """Ids are among the columns of text: read as numbers, 007 would become 7.

    An unquoted NA or nothing is a missing cell in a column of text as in one of numbers.
    """
    conversion = pacsv.ConvertOptions(
        include_columns=wanted,
        # for text that is not UTF-8, Arrow would not name the row
        column_types={name: pa.binary() for name in text},
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    return pacsv.read_csv(path, pacsv.ReadOptions(block_size=BLOCK), _PARSING, conversion)


def _unreadable(path: Path, failure: Exception) -> DataError:
    """The error for a file that Arrow cannot read, without any of its content."""
    log.debug("%s: reading it raised %s", path, type(failure).__name__)
    if isinstance(failure, FileNotFoundError):
        return DataError(f"{path}: there is no such file")
    if isinstance(failure, OSError) and failure.errno:
        return DataError(f"{path}: cannot be read: {os.strerror(failure.errno)}")
    if path.is_dir():
        return DataError(f"{path}: is a folder, not a file")
    if path.suffix == ".parquet":
        return DataError(f"{path}: is not readable Parquet")
    return _ragged(path) or DataError(
        f"{path}: is not readable CSV: it is empty, or its rows differ in their number of cells, or one is longer than "
        f"{BLOCK >> 20} MiB, as a quote that is never closed makes it"
    )


def _undecodable(path: Path, wanted: list[str]) -> DataError | None:
    """The first column of a Parquet file that cannot be decoded."""
    if path.suffix != ".parquet":
        return None
    for name in wanted:
        try:
            read_parquet(path, [name])
        except (pa.ArrowException, OSError) as failure:
            log.debug("%s: column %r: decoding it raised %s", path, name, type(failure).__name__)
            return DataError(f"{path}: column {name!r} cannot be decoded; is the Parquet file damaged?")
    return None


def _ragged(path: Path) -> DataError | None:
    """The first row of a CSV file with more or fewer cells than its header.

    Arrow could report its number and width, but not for a row that is not UTF-8.
    """
    rows = csv_rows(path)
    _, expected = next(rows, (0, 0))
    line, found = next((row for row in rows if row[1] != expected), (0, 0))
    return DataError(f"{path}: line {line}: {expected} cells expected, {found} found") if line else None


def plain_column(path: Path, place: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Categories as their values, and text as UTF-8 text."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    text = TEXT.get(str(column.type))
    if path.suffix != ".parquet" and pa.types.is_binary(column.type):
        text = pa.string()  # a CSV file holds text
    if text is None:
        return column
    raw = column.cast(pa.large_binary())
    try:
        return raw.cast(text)
    except pa.ArrowInvalid:
        index = next(i for i, cell in enumerate(raw.to_pylist()) if not _is_utf8(cell))
        raise DataError(f"{path}: {row_name(path, index)}, {place}: the cell is not UTF-8 text") from None


def _is_utf8(cell: bytes | None) -> bool:
    try:
        (cell or b"").decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _ordered(
    path: Path, name: str, column: pa.ChunkedArray, order: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> pa.ChunkedArray:
    try:
        return column.take(pa.array(order))
    except pa.ArrowNotImplementedError:
        raise DataError(f"{path}: label column {name!r} holds {kind_name(column.type)}, which is no label") from None

"""A party's table on disk: CSV or Parquet with an id column; only the named columns are read.

Records come back sorted by id, so that parties with the same ids have the same order. Messages about faults travel to
the operator by way of the coordinator: they say where a fault is, never what stands there.
"""

from __future__ import annotations

import csv
import hashlib
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from party.config import TableConfig
from treetap.errors import DataError

Floats = np.ndarray[tuple[int, int], np.dtype[np.float64]]
#: Column names that a message lists at most.
NAMES_SHOWN = 20


@dataclass(frozen=True)
class Table:
    """Records in the order of their sorted ids.

    `ids`: N strings. `features`: (N, d) float64, NaN where missing. `label`: N values as read, or None.
    `rows`: (N,) where each record stands in the file, from 0.
    """

    path: Path
    ids: list[str]
    columns: list[str]
    features: Floats
    label: pa.ChunkedArray | None
    rows: np.ndarray[tuple[int], np.dtype[np.int64]]

    def where(self, record: int) -> str:
        """How a person finds a record in the file."""
        return _row(self.path, int(self.rows[record]))

    def digest(self) -> bytes:
        """SHA-256 over the sorted ids, each with its length: what `sorted-ids` alignment compares."""
        state = hashlib.sha256()
        for value in self.ids:
            raw = value.encode("utf-8")
            state.update(len(raw).to_bytes(4, "big") + raw)
        return state.digest()


def read_table(config: TableConfig, *, with_label: bool, missing: float | None) -> Table:
    """Read the named columns; `DataError` names file, row and column of the first fault.

    A cell equal to `missing`, an empty cell and NaN count as missing.
    """
    wanted = [config.id, *config.columns]
    if with_label:
        if config.label is None:
            raise DataError(f"{config.path}: the configuration names no label column for this table")
        wanted.append(config.label)
    table = _load(config.path, wanted)
    ids = _ids(config.path, config.id, table.column(config.id))
    order = np.array(sorted(range(len(ids)), key=ids.__getitem__), dtype=np.int64)
    features = np.empty((len(ids), len(config.columns)), dtype=np.float64)
    for j, name in enumerate(config.columns):
        values = _numbers(config.path, name, table.column(name))
        if missing is not None and not np.isnan(missing):
            values = np.where(values == missing, np.nan, values)
        features[:, j] = values[order]
    label = table.column(config.label).take(pa.array(order)) if with_label and config.label else None
    return Table(config.path, [ids[i] for i in order], list(config.columns), features, label, order)


def read_ids(path: Path) -> list[str]:
    """A file of record ids: text, one id a line, or the first column of a Parquet or CSV file."""
    if path.suffix not in (".parquet", ".csv"):
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except OSError as failure:
            raise DataError(f"{path}: cannot be read: {failure.strerror}") from None
        except UnicodeDecodeError:
            raise DataError(f"{path}: is not UTF-8 text; give one id a line, or a .csv or .parquet file") from None
        return _distinct(path, "id", [line.strip() for line in lines if line.strip()])
    names = _columns_of(path)
    if not names:
        raise DataError(f"{path}: has no column")
    return _ids(path, names[0], _load(path, names[:1]).column(names[0]))


def _columns_of(path: Path) -> list[str]:
    try:
        if path.suffix == ".parquet":
            return list(pq.read_schema(path).names)
        with pacsv.open_csv(path) as reader:
            return list(reader.schema.names)
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file") from None
    except UnicodeDecodeError:
        raise DataError(f"{path}: the names of its columns are not UTF-8 text") from None
    except (pa.ArrowInvalid, OSError) as failure:
        raise DataError(f"{path}: is neither CSV nor Parquet that can be read: {failure}") from None


def _load(path: Path, wanted: list[str]) -> pa.Table:
    have = _columns_of(path)
    absent = [name for name in wanted if name not in have]
    if absent:
        raise DataError(f"{path}: has no column {_listed(absent)}; it has {_listed(have)}")
    doubled = sorted({name for name in wanted if have.count(name) > 1})
    if doubled:
        raise DataError(f"{path}: has column {doubled[0]!r} more than once")
    try:
        if path.suffix == ".parquet":
            table = pq.read_table(path, columns=wanted)
        else:
            table = pacsv.read_csv(path, convert_options=_csv_options(wanted))
    except (pa.ArrowInvalid, OSError) as failure:
        raise DataError(f"{path}: cannot be read: {failure}") from None
    if table.num_rows == 0:
        raise DataError(f"{path}: has no rows")
    return table


def _csv_options(wanted: list[str]) -> pacsv.ConvertOptions:
    """Ids, the first column wanted, stay as they are written: read as numbers, 007 would become 7.

    An unquoted NA or nothing is a missing cell in a column of text as in one of numbers.
    """
    return pacsv.ConvertOptions(
        include_columns=wanted,
        column_types={wanted[0]: pa.string()},
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )


def _listed(names: list[str]) -> str:
    """Names in a message; of many, the first."""
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(map(repr, names[:NAMES_SHOWN])) + more


def _row(path: Path, index: int) -> str:
    """How a person finds the row: the line of a CSV file (the header is line 1), else the row from 1."""
    if path.suffix != ".csv":
        return f"row {index + 1}"
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        reader = csv.reader(file)
        records = (reader.line_num for cells in reader if cells)  # Arrow skips empty lines too
        return f"line {next(islice(records, index + 1, None))}"


def _ids(path: Path, name: str, column: pa.ChunkedArray) -> list[str]:
    if column.null_count:
        index = next(i for i, value in enumerate(column.to_pylist()) if value is None)
        raise DataError(f"{path}: {_row(path, index)}, column {name!r}: the id is missing")
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise DataError(f"{path}: column {name!r} holds {kind}; ids are whole numbers or text")
    return _distinct(path, name, [str(value).strip() for value in column.to_pylist()])


def _distinct(path: Path, name: str, ids: list[str]) -> list[str]:
    first: dict[str, int] = {}
    for index, value in enumerate(ids):
        if not value:
            raise DataError(f"{path}: {_row(path, index)}, column {name!r}: the id is missing")
        if value in first:
            raise DataError(
                f"{path}: {_row(path, index)}, column {name!r}: the id is there already, at {_row(path, first[value])}"
            )
        first[value] = index
    return ids


def _numbers(path: Path, name: str, column: pa.ChunkedArray) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif not (
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind)
    ):
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            raise DataError(f"{path}: column {name!r} holds {kind}, not numbers")
        return _parse(path, name, column.to_pylist())
    values = np.asarray(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)
    if np.isinf(values).any():
        index = int(np.flatnonzero(np.isinf(values))[0])
        raise DataError(f"{path}: {_row(path, index)}, column {name!r}: the cell is infinite")
    return values


def _parse(path: Path, name: str, cells: list[str | None]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    values = np.empty(len(cells), dtype=np.float64)
    for index, cell in enumerate(cells):
        try:
            values[index] = np.nan if cell is None or not cell.strip() else float(cell)
        except ValueError:
            raise DataError(
                f"{path}: {_row(path, index)}, column {name!r}: the cell is not a number; "
                "encode text columns as numbers, or leave the column out"
            ) from None
    if np.isinf(values).any():
        index = int(np.flatnonzero(np.isinf(values))[0])
        raise DataError(f"{path}: {_row(path, index)}, column {name!r}: the cell is infinite")
    return values

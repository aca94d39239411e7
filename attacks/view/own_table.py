"""A party's own columns in the common order of the records, as numbers; and, for the scorer alone, their labels.

This is an attacker's or auditor's reading of a file, more forgiving than the federation's: text becomes one column of
0 and 1 per value. Messages name file, column and row, never what stands in a cell.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from attacks.view.known_trees import Ints
from attacks.view.view import View
from treetap.errors import DataError
from treetap.privacy.leakage import class_counts

Floats: TypeAlias = npt.NDArray[np.float64]
#: Bytes of a CSV file that are parsed at once; parties read with the same options, or rows would be others.
_BLOCK = 1 << 20
#: Most different values of a text column.
_MOST_VALUES = 256
#: A column with more different values than this, and than half the records, is no class label.
_MOST_CLASSES = 100


@dataclass(frozen=True, eq=False)
class OwnTable:
    """`ids`: N record ids in the common order. `features`: (N, d) float64, NaN where missing.

    `columns`: d names. `as_read`: the columns that are numbers in the file too; the others, `column=value`, are 0 or 1.
    """

    path: Path
    ids: list[str] = field(repr=False)
    columns: list[str]
    features: Floats = field(repr=False)
    as_read: frozenset[str] = field(repr=False)


@dataclass(frozen=True, eq=False)
class Labels:
    """`values`: (N,) int64 class numbers in the common order. `classes`: their names."""

    values: Ints = field(repr=False)
    classes: list[str]

    @property
    def counts(self) -> Ints:
        """Records of each class (C,)."""
        return class_counts(self.values, len(self.classes))


def load_own_table(path: Path, view: View, id_column: str = "id", columns: Sequence[str] | None = None) -> OwnTable:
    """The party's table (CSV or Parquet) as the attacker uses it.

    `columns`: those to use, by default all but the id column.

    Raises:
        DataError: the file cannot be read, lacks a column, or is not the one that the party trained on: by its number
            of rows, its ids where the transcript holds their digest, and the records that each own split sent left.
    """
    if view.rows is None:
        raise DataError(f"{view.path}: does not say which rows of {view.party}'s table the records are")
    have = _columns(path)
    for name in sorted({node.split.feature_name for tree in view.trees for node in tree.nodes.values() if node.split}):
        if not any(name == column or name.startswith(f"{column}=") for column in have):  # of text: column=value
            raise DataError(
                f"{path}: lacks column {name!r}, at which {view.party} split: this is another party's table"
            )
    wanted = [name for name in have if name != id_column] if columns is None else list(columns)
    table = _read(path, [id_column, *wanted], id_column)
    if table.num_rows <= int(view.rows.max(initial=-1)):
        raise DataError(
            f"{path}: has {table.num_rows} rows, but row {int(view.rows.max()) + 1} of {view.party}'s table took part "
            f"in job {view.job!r}: this is another table, or another version of it"
        )
    ids = _ids(path, id_column, table.column(id_column))
    if view.own_digest is not None and _digest(ids) != view.own_digest:
        raise DataError(f"{path}: column {id_column!r} holds other ids than {view.party}'s table in job {view.job!r}")
    names: list[str] = []
    blocks: list[Floats] = []
    plain: set[str] = set()
    for name in wanted:
        for column, values, as_read in _numbers(path, name, table.column(name), view.missing):
            names.append(column)
            blocks.append(values[view.rows])
            if np.isinf(blocks[-1]).any():
                row = int(view.rows[np.flatnonzero(np.isinf(blocks[-1]))[0]])
                raise DataError(f"{path}: column {name!r}: the cell in row {row + 1} is infinite")
            plain |= {column} if as_read else set()
    features = np.column_stack(blocks) if blocks else np.empty((view.records, 0))
    found = OwnTable(path, [ids[row] for row in view.rows.tolist()], names, features, frozenset(plain))
    _check_splits(found, view)
    return found


def load_labels(path: Path, label: str, own: OwnTable, id_column: str = "id") -> Labels:
    """Class labels of the records of `own`, by id, from any table that holds these ids and more; for scoring alone.

    Raises:
        DataError: the file cannot be read; lacks an id; or the label column is missing or none of classes.
    """
    table = _read(path, [id_column, label], id_column)
    ids = _ids(path, id_column, table.column(id_column))
    row_of = {value: row for row, value in enumerate(ids)}
    rows = np.array([row_of.get(value, -1) for value in own.ids], dtype=np.int64)
    absent = int((rows < 0).sum())
    if absent:
        raise DataError(
            f"{path}: column {id_column!r} lacks {absent} of the {len(rows)} ids of {own.path}: labels are needed "
            "of the records of the training, under the same ids"
        )
    column = table.column(label).take(pa.array(rows))
    where = f"{path}: label column {label!r}"
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
    if column.null_count:
        row = int(rows[np.flatnonzero(column.is_null().to_numpy())[0]])
        raise DataError(f"{where}: the label in row {row + 1} is missing")
    if pa.types.is_nested(column.type):
        raise DataError(f"{where}: holds {str(column.type).partition('<')[0]}; classes are numbers, text or booleans")
    names, values = np.unique(np.asarray(column.to_pylist()), return_inverse=True)
    if len(names) > max(_MOST_CLASSES, len(rows) // 2):
        raise DataError(f"{where}: holds {len(names)} different values; a class label has few")
    return Labels(values.astype(np.int64), [_class_name(name) for name in names])


def _check_splits(own: OwnTable, view: View) -> None:
    """Every own split must send left the records that it sent left in training."""
    places = {name: j for j, name in enumerate(own.columns) if name in own.as_read}
    for tree in (*view.trees, *view.unfinished):
        for u, node in tree.nodes.items():
            split = node.split
            if split is None or split.feature_name not in places:
                continue
            values = own.features[node.records, places[split.feature_name]]
            left = node.records[np.where(np.isnan(values), split.missing_left, values < split.threshold)]
            if not np.array_equal(left, tree.nodes[2 * u].records):
                raise DataError(
                    f"{own.path}: column {split.feature_name!r} is not what {view.party} trained on: the split of node "
                    f"{u} of tree {tree.index} sends other records left"
                )


def _columns(path: Path) -> list[str]:
    try:
        if path.suffix == ".parquet":
            return list(pq.read_schema(path).names)
        options = pacsv.ReadOptions(block_size=_BLOCK)
        with pacsv.open_csv(path, options, pacsv.ParseOptions(newlines_in_values=True)) as reader:
            return list(reader.schema.names)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as failure:
        raise _unreadable(path, failure) from None


def _read(path: Path, wanted: list[str], id_column: str) -> pa.Table:
    """Columns that must be there once. Ids stay as they are written: read as numbers, 007 would become 7."""
    have = _columns(path)
    for name in wanted:
        if have.count(name) != 1 or wanted.count(name) != 1:
            what = "has no" if name not in have else "needs just one"
            raise DataError(f"{path}: {what} column {name!r}; it has: {', '.join(have)}")
    try:
        if path.suffix == ".parquet":
            table = pq.read_table(path, columns=wanted)
        else:
            table = pacsv.read_csv(
                path,
                pacsv.ReadOptions(block_size=_BLOCK),
                pacsv.ParseOptions(newlines_in_values=True),
                pacsv.ConvertOptions(
                    include_columns=wanted,
                    column_types={id_column: pa.string()},
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
    except (pa.ArrowException, OSError, UnicodeDecodeError) as failure:
        raise _unreadable(path, failure) from None
    plain = [column.cast(column.type.value_type) if _coded(column) else column for column in table.columns]
    return pa.table(dict(zip(table.column_names, plain, strict=True)))


def _coded(column: pa.ChunkedArray) -> bool:
    return bool(pa.types.is_dictionary(column.type))


def _unreadable(path: Path, failure: Exception) -> DataError:
    if isinstance(failure, FileNotFoundError):
        return DataError(f"{path}: there is no such file")
    if path.is_dir():
        return DataError(f"{path}: is a folder, not a table")
    return DataError(f"{path}: is not readable {'Parquet' if path.suffix == '.parquet' else 'CSV'}")


def _ids(path: Path, name: str, column: pa.ChunkedArray) -> list[str]:
    """Ids as text, as parties read them. `DataError` for one that is missing or there twice."""
    kind = column.type
    if not (pa.types.is_integer(kind) or _text(kind)):
        raise DataError(f"{path}: id column {name!r} holds {kind}; ids are whole numbers or text")
    ids = ["" if value is None else str(value).strip() for value in column.to_pylist()]
    first: dict[str, int] = {}
    for row, value in enumerate(ids):
        if not value:
            raise DataError(f"{path}: id column {name!r}: the id in row {row + 1} is missing")
        if first.setdefault(value, row) != row:
            raise DataError(f"{path}: id column {name!r}: rows {first[value] + 1} and {row + 1} have the same id")
    return ids


def _digest(ids: list[str]) -> bytes:
    """SHA-256 over the sorted ids, each with its length: what parties compare where ids are sorted."""
    state = sha256()
    for value in sorted(ids):
        raw = value.encode("utf-8")
        state.update(len(raw).to_bytes(4, "big") + raw)
    return state.digest()


def _text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or str(kind) == "string_view")


def _numbers(
    path: Path, name: str, column: pa.ChunkedArray, missing: float | None
) -> Iterator[tuple[str, Floats, bool]]:
    """(name, values (n,), whether they are the file's own numbers) of the columns that one column becomes."""
    kind = column.type
    if _text(kind):
        cells = [None if cell is None or not cell.strip() else cell.strip() for cell in column.to_pylist()]
        parsed = _parsed(cells)
        if parsed is not None:
            yield name, _without(parsed, missing), True
            return
        values = sorted({cell for cell in cells if cell is not None})
        if len(values) > _MOST_VALUES:
            raise DataError(f"{path}: column {name!r} holds {len(values)} different texts; leave it out")
        for value in values:
            yield f"{name}={value}", np.array([cell == value for cell in cells], dtype=np.float64), False
        return
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif not (
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind)
    ):
        raise DataError(f"{path}: column {name!r} holds {str(kind).partition('<')[0]}, neither numbers nor text")
    # A value that means missing is compared as the file holds it: -999.9 is another number in 32 bits.
    narrow = pa.types.is_float16(kind) or pa.types.is_float32(kind)
    mark = float(kind.to_pandas_dtype()(missing)) if narrow and missing is not None else missing
    raw = np.asarray(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)
    yield name, _without(raw, mark), True


def _parsed(cells: list[str | None]) -> Floats | None:
    """Text as numbers, None if one is none. Python would take 1_000 and digits of other scripts too; tables do not."""
    try:
        if any(cell is not None and ("_" in cell or not cell.isascii()) for cell in cells):
            return None
        return np.array([np.nan if cell is None else float(cell) for cell in cells], dtype=np.float64)
    except ValueError:
        return None


def _without(values: Floats, missing: float | None) -> Floats:
    return values if missing is None else np.where(values == missing, np.nan, values)


def _class_name(value: object) -> str:
    """A number's name is the same whatever type the column has: 2 and 2.0 are class 2."""
    return str(int(value)) if isinstance(value, float | np.floating) and float(value).is_integer() else str(value)

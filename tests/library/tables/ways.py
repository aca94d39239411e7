"""One content through every way into a party's table: the outcome is the same, or a refusal that names a column."""

from __future__ import annotations

import csv
import datetime
import json
import math
import random
import sqlite3
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather as feather
import pyarrow.parquet as pq

from treetap.errors import DataError
from treetap.lab.api.frames import InvalidInput, arrow_of, of_array
from treetap.tables import streamed_reading
from treetap.tables.categories import Category, _one_text, are_numbers
from treetap.tables.config import OTHERS, TableConfig
from treetap.tables.labels import read_targets
from treetap.tables.reading import read_table

#: The cell that means a missing one, where a content has some.
SENTINELS = (-999, Decimal("-999.9"))
Cells = list[Any]


@dataclass(frozen=True)
class Column:
    """Cells of Python's types, and Arrow's type for them. `encode`: None where the column is not named in encode."""

    cells: Cells
    kind: pa.DataType
    encode: str | None = None

    def array(self) -> pa.Array:
        """The column as a typed format has it."""
        if self.kind == pa.uuid():
            return pa.array([None if cell is None else cell.bytes for cell in self.cells], self.kind)
        return pa.array(self.cells, self.kind)


@dataclass(frozen=True)
class Content:
    """Columns by name, the first of which is `id`. `missing`: the job's. `t` and `w` are targets and weights."""

    columns: dict[str, Column]
    missing: float | None = None
    #: Encoding of the columns that have none of their own.
    others: str | None = None

    @property
    def features(self) -> list[str]:
        """The columns that are neither ids nor targets nor weights."""
        return [name for name in self.columns if name not in ("id", "t", "w")]

    def table(self) -> pa.Table:
        """All columns as a typed format has them."""
        return pa.table({name: column.array() for name, column in self.columns.items()})

    def rows(self) -> Iterable[tuple[Any, ...]]:
        """The cells row by row."""
        return zip(*(column.cells for column in self.columns.values()), strict=True)


def _plain(told: Any) -> Any:
    """What an outcome says, without what CSV cannot say: whether 1.0 and True are a number and a boolean, or text."""
    if isinstance(told, dict):
        return {name: _plain(value) for name, value in told.items() if name != "numeric"}
    if isinstance(told, list):
        return [_plain(value) for value in told]
    head, mark, text = told.rpartition("=") if isinstance(told, str) else ("", "", "")
    return head + mark + (_one_text(text, float) or text) if isinstance(told, str) else told


@dataclass
class Outcome:
    """A table as a party has it, or the refusal of it."""

    refused: str = ""
    ids: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    features: Any = None
    categories: dict[str, dict[str, Any]] = field(default_factory=dict)
    targets: Any = None
    weights: Any = None

    def differs(self, other: Outcome) -> str:
        """The first part in which two outcomes differ; empty if they are the same."""
        if self.refused or other.refused:
            return ""
        for name in ("ids", "names", "categories"):
            if _plain(getattr(self, name)) != _plain(getattr(other, name)):
                return f"{name}: {getattr(self, name)} and {getattr(other, name)}"
        for name in ("features", "targets", "weights"):
            one, two = getattr(self, name), getattr(other, name)
            if (one is None) != (two is None) or (one is not None and not np.array_equal(one, two, equal_nan=True)):
                return f"{name}: {one} and {two}"
        return ""


# ---- the ways


def _text(cell: Any) -> str:
    """A cell as files of text write it."""
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return ""
    return (
        ("false", "true")[cell]
        if isinstance(cell, bool)
        else format(cell, "f")
        if isinstance(cell, Decimal)
        else str(cell)
    )


def _csv(content: Content, path: Path, rows: list[tuple[Any, ...]] | None = None) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(content.columns)
        writer.writerows([_text(cell) for cell in row] for row in (content.rows() if rows is None else rows))
    return path


def _several_csv(content: Content, place: Path) -> Path:
    place.mkdir()
    rows = list(content.rows())
    for number, half in enumerate((rows[: len(rows) // 2], rows[len(rows) // 2 :])):
        _csv(content, place / f"{number}.csv", half)
    return place


def _json_lines(content: Content, path: Path) -> Path:
    def shown(cell: Any) -> str:
        if isinstance(cell, bool | str) or cell is None:
            return json.dumps(cell)
        return _text(cell) or "null" if isinstance(cell, int | float | Decimal) else json.dumps(str(cell))

    with path.open("w", encoding="utf-8") as file:
        for row in content.rows():
            cells = zip(content.columns, row, strict=True)
            file.write("{" + ", ".join(f"{json.dumps(name)}: {shown(cell)}" for name, cell in cells) + "}\n")
    return path


def _feather(content: Content, path: Path) -> Path:
    feather.write_feather(content.table(), path, compression="uncompressed")
    return path


def _coded(content: Content, path: Path, *, ordered: bool, view: bool) -> Path:
    """Text and whole numbers as dictionaries, or text as views."""
    table = content.table()
    for place, (name, column) in enumerate(content.columns.items()):
        cells = table.column(name).combine_chunks()
        if column.kind == pa.string():
            codes = _sorted(cells, ordered)
            values = codes.dictionary.cast(pa.string_view()) if view else codes.dictionary
            cells = pa.DictionaryArray.from_arrays(codes.indices, values, ordered=ordered)
        elif column.kind == pa.int64() and not view:
            codes = _sorted(cells, ordered)
            cells = pa.DictionaryArray.from_arrays(codes.indices, codes.dictionary, ordered=ordered)
        table = table.set_column(place, name, cells)
    with pa.OSFile(str(path), "wb") as raw, pa.ipc.new_file(raw, table.schema) as file:
        file.write_table(table)
    return path


def _sorted(cells: pa.Array, ordered: bool) -> pa.DictionaryArray:
    """Cells as a dictionary, of which an order is that of the text of other formats."""
    texts = sorted(cells.unique().drop_null().to_pylist())
    if are_numbers(map(str, texts)):
        texts.sort(key=float)
    values = pa.array(texts, cells.type)
    return pa.DictionaryArray.from_arrays(pc.index_in(cells, values), values) if ordered else cells.dictionary_encode()


def _polars_ipc(content: Content, path: Path) -> Path:
    """As polars writes text, with one column of categories."""
    frame = pl.DataFrame(_portable(content))
    words = [name for name, kind in frame.schema.items() if kind == pl.String and name != "id"]
    frame.with_columns(pl.col(words[:1]).cast(pl.Categorical)).write_ipc(path)
    return path


def _folder(content: Content, place: Path, parts: int) -> Path:
    place.mkdir()
    table, rows = content.table(), len(content.columns["id"].cells)
    size = -(-rows // parts)
    for number, first in enumerate(range(0, rows, size)):
        pq.write_table(table.slice(first, size), place / f"{number}.parquet")
    return place


def _sqlite(content: Content, path: Path) -> dict[str, Any]:
    def stored(cell: Any) -> Any:
        if isinstance(cell, Decimal):
            return int(cell) if cell == cell.to_integral_value() and cell.as_tuple().exponent == 0 else float(cell)
        return cell if isinstance(cell, int | float) or cell is None else str(cell)

    names = ", ".join(f'"{name}"' for name in content.columns)
    with sqlite3.connect(path) as connection:
        connection.execute(f"CREATE TABLE t ({names})")
        marks = ", ".join("?" * len(content.columns))
        connection.executemany(f"INSERT INTO t VALUES ({marks})", [tuple(map(stored, row)) for row in content.rows()])
    connection.close()
    return {"uri": f"sqlite:{path}", "table": "t"}


def _portable(content: Content) -> pa.Table:
    """The table without the types that a library of data frames has not."""
    table = content.table()
    for place, (name, column) in enumerate(content.columns.items()):
        if column.kind == pa.uuid():
            texts = [None if cell is None else str(cell) for cell in column.cells]
            table = table.set_column(place, name, pa.array(texts))
        elif pa.types.is_decimal256(column.kind):
            cells = pa.array(column.cells, pa.decimal128(38, column.kind.scale))
            table = table.set_column(place, name, cells)
    return table


def _framed(frame: Any, place: Path) -> Path:
    """A Parquet file of what `train` takes, or of a table."""
    path = place.with_suffix(".parquet")
    pq.write_table(frame if isinstance(frame, pa.Table) else arrow_of(frame), path)
    return path


def _numpy(content: Content, place: Path) -> Path:
    """Features as doubles, beside the ids, where all are numbers that are not encoded."""
    held = {name: column for name, column in content.columns.items() if name != "id"}
    for name, column in held.items():
        if column.encode or not all(cell is None or isinstance(cell, int | float | Decimal) for cell in column.cells):
            raise InvalidInput(f"column {name!r}: an array holds numbers alone")
    cells = [[math.nan if cell is None else float(cell) for cell in column.cells] for column in held.values()]
    table = of_array(np.array(cells).T, list(held))
    return _framed(table.add_column(0, "id", content.columns["id"].array()), place)


NULLABLE = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
#: Name → writes a content, and returns the path of the table, or the keys of its source.
WAYS: Mapping[str, Callable[[Content, Path], Path | dict[str, Any]]] = {
    "csv": lambda content, place: _csv(content, place.with_suffix(".csv")),
    "csv files": _several_csv,
    "json lines": lambda content, place: _json_lines(content, place.with_suffix(".jsonl")),
    "parquet": lambda content, place: _framed(content.table(), place),
    "feather": lambda content, place: _feather(content, place.with_suffix(".feather")),
    "dictionaries": lambda content, place: _coded(content, place.with_suffix(".arrow"), ordered=False, view=False),
    "ordered": lambda content, place: _coded(content, place.with_suffix(".arrow"), ordered=True, view=False),
    "views": lambda content, place: _coded(content, place.with_suffix(".arrow"), ordered=False, view=True),
    "polars' ipc": lambda content, place: _polars_ipc(content, place.with_suffix(".arrow")),
    "folder of one": lambda content, place: _folder(content, place, 1),
    "folder": lambda content, place: _folder(content, place, 3),
    "streamed": lambda content, place: _framed(content.table(), place),
    "streamed folder": lambda content, place: _folder(content, place, 2),
    "sqlite": lambda content, place: _sqlite(content, place.with_suffix(".db")),
    "pandas": lambda content, place: _framed(_portable(content).to_pandas(types_mapper=NULLABLE.get), place),
    "polars": lambda content, place: _framed(pl.DataFrame(_portable(content)), place),
    "batch": lambda content, place: _framed(content.table().combine_chunks().to_batches()[0], place),
    "numpy": _numpy,
}


def outcome(content: Content, way: str, place: Path, like: Outcome | None = None) -> Outcome:
    """A content through a way, at a free path; `like`: as the table of a training, which was not refused.

    Any other exception than a refusal is the caller's to see.
    """
    try:
        written = WAYS[way](content, place)
        keys = written if isinstance(written, dict) else {"path": written}
        encode = {name: content.columns[name].encode for name in content.features if content.columns[name].encode}
        encode |= {OTHERS: content.others} if content.others else {}
        further = {"label": "t"} if "t" in content.columns else {}
        further |= {"weight": "w"} if "w" in content.columns else {}
        config = TableConfig(id="id", columns=content.features, **keys, **further, encode=encode or None)
        known = None
        if like is not None:
            known = {name: Category.from_dict(each) for name, each in like.categories.items()}
        missing, labelled = content.missing, bool(further)
        streams = way.startswith("streamed")
        with patch.object(streamed_reading, "STREAMED", 0 if streams else streamed_reading.STREAMED):
            read = read_table(config, with_label=labelled, missing=missing, categories=known, streams=streams)
        targets = read_targets(read, "t", "reg:squarederror").values if labelled else None
    except (DataError, InvalidInput) as refusal:
        return Outcome(refused=str(refusal))
    categories = {name: each.to_dict() for name, each in read.categories.items()}
    return Outcome("", list(read.ids), read.columns, read.features, categories, targets, read.weights)


def faults_of(content: Content, outcome: Outcome) -> str:
    """What is wrong with a refusal alone: it names no column of the content."""
    named = any(f"column {name!r}" in outcome.refused for name in content.columns)
    return "" if not outcome.refused or named else f"refused without a column: {outcome.refused}"


# ---- drawn contents

_WORDS = ("red", "blue", "Red", "yes", "no", "true", "False", "a b", "ü,;", "x'y", 'q"q')
_CODES = ("007", "7", "7.0", "+1", "1e5", "0x10", "10:30", "12-3")
DAY = datetime.date(2024, 1, 1)
_Draw = random.Random


def drawn(seed: int) -> Content:
    """A content by a seed: 4 to 12 records, 1 to 4 features of any kind, blanks and sentinels among them."""
    draw = _Draw(seed)
    rows, sentinel = draw.randint(4, 12), draw.choice((None, *SENTINELS))
    numbers = draw.sample(range(-50, 10**6), rows)
    cell, kind = draw.choice(
        [
            (int, pa.int64()),
            (lambda number: 2**60 + number, pa.int64()),
            (Decimal, pa.decimal128(38, 0)),
            (lambda number: f"{abs(number):07d}", pa.string()),
            (lambda _: uuid.UUID(int=draw.getrandbits(128)), pa.uuid()),
        ]
    )
    columns = {"id": Column([cell(number) for number in numbers], kind)}
    for number in range(draw.randint(1, 4)):
        columns[f"f{number}"] = _column(draw, rows, sentinel)
    if draw.random() < 0.3:
        columns["t"] = _decimals(draw, rows, 0.0, None)
        if draw.random() < 0.5:
            cells = [Decimal(draw.randrange(999)) / 100 for _ in range(rows)]
            columns["w"] = Column(cells, pa.decimal128(5, 2))
    others = draw.choice((None, None, "ordinal", "one-hot", "categorical", "days"))
    return Content(columns, None if sentinel is None else float(sentinel), others)


def _blanked(draw: _Draw, cells: Cells, sentinel: Any, share: float) -> Cells:
    absent = [None, None] if sentinel is None else [None, sentinel]
    return [draw.choice(absent) if draw.random() < share else cell for cell in cells]


def _decimals(draw: _Draw, rows: int, share: float, sentinel: Any) -> Column:
    scale = draw.choice((0, 1, 2, 5)) if sentinel is None or sentinel == int(sentinel) else draw.choice((1, 2))
    cells = [Decimal(draw.randint(-(10**5), 10**5)).scaleb(-scale) for _ in range(rows)]
    if sentinel is not None:
        sentinel = Decimal(sentinel)
    kind = draw.choice((pa.decimal128(20, scale), pa.decimal256(40, scale)))
    return Column(_blanked(draw, cells, sentinel, share), kind)


def _column(draw: _Draw, rows: int, sentinel: Any) -> Column:
    """A feature's column."""
    share, name = draw.choice((0.0, 0.2, 0.5)), draw.choice(("categorical", "ordinal", "one-hot"))
    whole = sentinel if sentinel is None or sentinel == int(sentinel) else None
    real, text = (None if sentinel is None else float(sentinel)), (None if whole is None else str(whole))
    kinds: dict[str, tuple[Callable[[], Any], Any, pa.DataType]] = {
        "whole": (lambda: draw.randint(-3, 12), whole, pa.int64()),
        "wide": (lambda: 2**60 + draw.randint(-3, 3), whole, pa.int64()),
        "real": (lambda: draw.choice((draw.gauss(0, 1), float(draw.randint(-9, 9)), 1e-7, 0.1)), real, pa.float64()),
        "single": (lambda: draw.randint(-40, 40) / 4, real, pa.float32()),
        "truth": (lambda: draw.random() < 0.5, None, pa.bool_()),
        "word": (lambda: draw.choice(_WORDS), text, pa.string()),
        "code": (lambda: draw.choice(_CODES), text, pa.string()),
        "day": (lambda: DAY + datetime.timedelta(draw.randint(-400, 400)), None, pa.date32()),
        "uuid": (lambda: uuid.uuid5(uuid.NAMESPACE_OID, str(draw.randint(1, 3))), None, pa.uuid()),
        "null": (lambda: None, None, pa.null()),
    }
    kind = draw.choice((*kinds, "decimal"))
    encode = draw.choice({"truth": (None,), "day": ("days", None, name)}.get(kind, (None, name)))
    if kind == "decimal":
        return replace(_decimals(draw, rows, share, sentinel), encode=encode)
    cell, absent, arrow = kinds[kind]
    return Column(_blanked(draw, [cell() for _ in range(rows)], absent, share), arrow, encode)

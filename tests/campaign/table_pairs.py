"""A drawn table written in two ways and read whole and in parts: each reading is the table, or a refusal with its fix.

A seed draws what is true: ids, amounts, whole numbers, spikes, dates, booleans, words, codes that look like numbers.
Text is written in a dialect that the settings say, or that is left to detection. What is said is read; what is left
open is read rightly, or refused by a sentence that names file, column and what to write.
"""

from __future__ import annotations

import csv
import datetime
import gzip
import json
import logging
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import quote

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq

from tests.campaign.pools import workplace
from treetap.errors import DataError
from treetap.lab.api.frames import arrow_of
from treetap.tables import streamed_reading
from treetap.tables.binned import bin_columns
from treetap.tables.categories import Category
from treetap.tables.config import TableConfig
from treetap.tables.reading import Table, read_table

Cells = list[Any]
SIZES = ("S", "M", "L", "XL")
_WORDS = ("red", "blue", "Red", "a b", "ü;ö", 'q"q', "x,y", "yes", "10:30", "k=1", "50 %", "a/b")
_CODES = ("250.0", "250.00", "250", "345.1", "345.10", "V45.1", "007", "7", "1e5", "TRUE1", "12-3")
_FORMATS = ("", "%d.%m.%Y", "%Y-%m-%d", "%m/%d/%Y", "%d %b %Y", "%Y%m%d", "%d%m%Y")
_NUMERIC = ("amount", "grams", "whole", "spike", "real", "flag", "late", "single", "tenths")
_KINDS = (*_NUMERIC, "day", "digits", "word", "code", "number", "size")
#: A sentence that says what to do.
_FIX = re.compile(r"\b(write|set|leave|name|give|correct|put|use|rename|save|choose|drop|empty)\b|\b[a-z_]+( = | says)")
_NULL = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class Meant:
    """A column as it is meant: cells of Python's types, None where missing; its encoding, None of numbers."""

    kind: str
    cells: Cells
    encode: str | None = None

    def feature(self, cell: Any) -> Any:
        """The number, day or category that a cell is."""
        if cell is None:
            return None
        if self.encode == "days":
            return float((cell - datetime.date(1970, 1, 1)).days)
        return str(cell) if self.encode else float(cell)


@dataclass(frozen=True)
class Truth:
    """Ids and columns; `ids` are texts or whole numbers."""

    ids: Cells
    columns: dict[str, Meant]


@dataclass(frozen=True)
class Written:
    """A table on disk: the settings that read it, and what they leave to be found out.

    `open_`: nothing, or a word for it; then a refusal is right. `orders`: its categories have an order of their own.
    `torn`: a cell is no date, and nothing else is right.
    """

    keys: Mapping[str, Any]
    open_: str = ""
    orders: bool = False
    torn: bool = False
    date_format: Mapping[str, str] = field(default_factory=dict)


# ---- drawing


def drawn(seed: int) -> Truth:
    """The table of a seed."""
    draw = random.Random(seed)
    n = draw.choice((6, 20, 20, 60, 60, 1_100))
    numbers = draw.sample(range(10**6), n)
    ids = numbers if draw.random() < 0.5 else [f"{number:07d}" for number in numbers]
    kinds = draw.choices([kind for kind in _KINDS if kind != "late"], k=draw.randint(1, 4))
    kinds += ["late"] if n > 1_000 and draw.random() < 0.7 else []
    return Truth(ids, {f"c{place}": _column(draw, kind, n) for place, kind in enumerate(kinds)})


def _column(draw: random.Random, kind: str, n: int) -> Meant:
    makes: dict[str, Callable[[int], Any]] = {
        "amount": lambda _: draw.randint(-(10**6), 10**6) / 100,
        "grams": lambda row: draw.randint(*((10**6, 10**7) if row > 9 else (10**3, 10**6 - 1))) / 1_000,
        "late": float,
        "whole": lambda _: draw.randint(-(10**draw.randint(1, 6)), 10**4),
        "spike": lambda _: 0.0 if draw.random() < 0.85 else draw.randint(-(10**6), 10**6) / 1_000,
        "real": lambda _: draw.choice((draw.gauss(0, 1), 10.0 ** draw.randint(-9, 9), 0.1)),
        "single": lambda _: draw.randint(-400, 40_000) / 8,
        "tenths": lambda _: draw.randint(0, 10) / 10,
        "flag": lambda _: draw.random() < 0.3,
        "day": lambda _: datetime.date(1960, 1, 1) + datetime.timedelta(draw.randint(0, 30_000)),
        "digits": lambda _: datetime.date(2001, 1, 1) + datetime.timedelta(draw.randint(0, 8_000)),
        "word": lambda _: draw.choice(_WORDS), "code": lambda _: draw.choice(_CODES),
        "number": lambda _: draw.choice((1, 2, 10, 20, 100, 1_000)), "size": lambda _: draw.choice(SIZES),
    }  # fmt: skip
    share = 0.0 if kind == "late" else draw.choice((0.0, 0.0, 0.2))
    cells = [None if draw.random() < share else makes[kind](row) for row in range(n)]
    if kind == "code":  # so that a column of a CSV is text too
        cells[0] = "V45.1"
    elif cells.count(None) == n:
        cells[0] = makes[kind](0)
    if kind in ("day", "digits"):
        return Meant(kind, cells, "days")
    if kind == "size":
        return Meant(kind, cells, "ordinal")
    return Meant(kind, cells, None if kind in _NUMERIC else draw.choice(("categorical", "ordinal", "one-hot")))


# ---- writing: files of text


@dataclass(frozen=True)
class Dialect:
    """How text writes cells. `said`: the settings have it all; else what the documentation says is detected."""

    delimiter: str
    decimal: str
    thousands: str
    quoting: int
    encoding: str
    said: bool
    day: str

    def text(self, meant: Meant, cell: Any) -> str:
        """A cell."""
        if cell is None:
            return ""
        if meant.kind == "flag":
            return "true" if cell else "false"
        if meant.encode == "days":
            return cell.strftime("%d%m%Y" if meant.kind == "digits" else self.day or "%Y-%m-%d")
        if meant.encode:
            return str(cell)
        if meant.kind == "real":
            return repr(cell).replace(".", self.decimal)
        places = {"amount": 2, "late": 0, "tenths": 1, "whole": 0}.get(meant.kind, 3)
        marks = {",": self.thousands, ".": self.decimal}
        return "".join(marks.get(sign, sign) for sign in f"{cell:,.{places}f}")


def dialect(draw: random.Random, *, detected: bool) -> Dialect:
    """A dialect of CSV; of one that is left to detection a comma between cells goes with points in numbers."""
    delimiter = draw.choice(",;\t|")
    decimal = "." if detected and delimiter == "," else draw.choice(".,")
    thousands = draw.choice(("", "'", " ", "," if decimal == "." else "."))
    if detected and delimiter == ",":
        thousands = ""
    encoding = draw.choice(("utf-8", "utf-8", "utf-8-sig", "utf-16", *([] if detected else ["windows-1252"])))
    day = draw.choice(_FORMATS)
    quoting = draw.choice((csv.QUOTE_MINIMAL, csv.QUOTE_ALL))
    return Dialect(delimiter, decimal, thousands, quoting, encoding, not detected, day)


def _csv(
    draw: random.Random, truth: Truth, place: Path, *, detected: bool, parts: int = 1, mixed: bool = False
) -> Written:
    """A file, or a folder of parts; `mixed`: each part in a dialect of its own. A date of eight digits may lack one."""
    own, torn = dialect(draw, detected=detected), ""
    names, rows = ["id", *truth.columns], len(truth.ids)
    place.mkdir()
    size = -(-rows // parts)
    packed = ".gz" if draw.random() < 0.2 else ""
    for number, first in enumerate(range(0, rows, size)):
        path = place / f"part-{number}.csv{packed}"
        own = dialect(draw, detected=True) if mixed else own
        opened = gzip.open if packed else open
        with opened(path, "wt", newline="", encoding=own.encoding) as file:
            writer = csv.writer(file, delimiter=own.delimiter, quoting=own.quoting)
            writer.writerow(names)
            for row in range(first, min(first + size, rows)):
                cells = [own.text(meant, meant.cells[row]) for meant in truth.columns.values()]
                if not detected and row == 0 and draw.random() < 0.2:
                    torn = next((cell for cell in cells if re.fullmatch("[0-9]{8}", cell)), "")
                    cells = [cell[1:] if torn and cell == torn else cell for cell in cells]
                writer.writerow([str(truth.ids[row]), *cells])
    keys: dict[str, Any] = {"path": place if parts > 1 else path}
    forms = _digits(truth)
    if own.said:
        forms |= {name: own.day for name, meant in truth.columns.items() if meant.kind == "day" and own.day}
        encoding = own.encoding if own.encoding != "utf-8-sig" else "utf-8"
        keys |= {"delimiter": own.delimiter, "decimal": own.decimal, "thousands": own.thousands, "encoding": encoding}
    left = "a date that lacks a digit" if torn else "" if own.said else "dialect"
    return Written(keys, left, date_format=forms, torn=bool(torn))


def _json_lines(draw: random.Random, truth: Truth, place: Path) -> Written:
    path = place.with_suffix(".jsonl")
    plain = Dialect(",", ".", "", 0, "utf-8", said=True, day=draw.choice(_FORMATS))
    with path.open("w", encoding="utf-8") as file:
        for row, key in enumerate(truth.ids):
            cells: dict[str, Any] = {"id": key}
            for name, meant in truth.columns.items():
                cell = meant.cells[row]
                shown = plain.text(meant, cell) if meant.encode == "days" else cell
                if cell is not None or draw.random() < 0.5:
                    cells[name] = None if cell is None else shown
            file.write(json.dumps(cells) + "\n")
    days = {name: plain.day for name, meant in truth.columns.items() if meant.kind == "day" and plain.day}
    return Written({"path": path}, date_format=days | _digits(truth))


def _digits(truth: Truth) -> dict[str, str]:
    return {name: "%d%m%Y" for name, meant in truth.columns.items() if meant.kind == "digits"}


# ---- writing: typed files and frames


def _typed(draw: random.Random, truth: Truth, *, ordered: bool = False) -> pa.Table:
    """The table in Arrow's types, each column in one of those that hold it."""
    arrays: dict[str, Any] = {"id": pa.array(truth.ids)}
    for name, meant in truth.columns.items():
        cells: Cells = meant.cells
        if meant.kind == "digits":  # a whole number has lost the zero at its front
            arrays[name] = pa.array([None if day is None else int(f"{day:%d%m%Y}") for day in cells], pa.int64())
        elif meant.kind == "day":
            kind = draw.choice((pa.date32(), pa.date64(), pa.timestamp("s"), pa.timestamp("us")))
            arrays[name] = pa.array(cells, pa.date32()).cast(kind)
        elif meant.kind == "size" and ordered:
            places = pa.array([None if size is None else SIZES.index(size) for size in cells], pa.int8())
            arrays[name] = pa.DictionaryArray.from_arrays(places, pa.array(SIZES), ordered=True)
        elif meant.kind in ("word", "code", "size"):
            texts = pa.array(cells, draw.choice((pa.string(), pa.large_string())))
            arrays[name] = texts.dictionary_encode() if draw.random() < 0.3 else texts
        elif meant.kind in ("whole", "number"):
            arrays[name] = pa.array(cells, draw.choice((pa.int32(), pa.int64(), pa.decimal128(9, 0))))
        elif meant.kind in ("single", "tenths"):
            arrays[name] = pa.array(cells, draw.choice((pa.float32(), pa.float64())))
        else:
            arrays[name] = pa.array(cells, pa.bool_() if meant.kind == "flag" else pa.float64())
    return pa.table(arrays)


def _file(draw: random.Random, truth: Truth, place: Path, form: str) -> Written:
    """Parquet, Arrow's file format, or a folder of Parquet."""
    ordered, size = draw.random() < 0.5, draw.choice((7, 10_000))
    table, path = _typed(draw, truth, ordered=ordered), place.with_suffix(f".{form}")
    if form == "arrow":
        feather.write_feather(table, path, chunksize=size)
    elif form == "parquet":
        pq.write_table(table, path, row_group_size=size)
    else:
        path.mkdir()
        for number, first in enumerate(range(0, len(truth.ids), -(-len(truth.ids) // 3))):
            pq.write_table(table.slice(first, -(-len(truth.ids) // 3)), path / f"part-{number}.parquet")
    return Written({"path": path}, orders=ordered, date_format=_digits(truth))


def _partitions(draw: random.Random, truth: Truth, place: Path) -> Written:
    """One column as names of folders, as Spark, pyarrow.dataset and DuckDB write them; of one folder maybe its file."""
    fit = [name for name, meant in truth.columns.items() if meant.kind in ("word", "number", "size")]
    if not fit:
        return _file(draw, truth, place, "folder")
    name, table = draw.choice(fit), _typed(draw, truth)
    different = sorted(set(truth.columns[name].cells), key=str)
    for cell in different:
        rows = [row for row, own in enumerate(truth.columns[name].cells) if own == cell]
        below = place / f"{name}={_NULL if cell is None else quote(str(cell), safe='')}"
        below.mkdir(parents=True)
        pq.write_table(table.drop_columns([name]).take(pa.array(rows)), below / "part-0.parquet")
    path = below / "part-0.parquet" if len(different) == 1 else place
    return Written({"path": path}, date_format=_digits(truth))


def _frame(draw: random.Random, truth: Truth, place: Path) -> Written:
    path, library = place.with_suffix(".parquet"), draw.choice(("pandas", "polars", "pandas, Arrow", "batch"))
    table, sizes = _typed(draw, truth, ordered=True), [name for name, it in truth.columns.items() if it.kind == "size"]
    frames: dict[str, Callable[[], Any]] = {
        "pandas": table.to_pandas,
        "polars": lambda: pl.DataFrame(table).with_columns(pl.col(sizes).cast(pl.Enum(SIZES))),
        "pandas, Arrow": lambda: table.to_pandas(types_mapper=pd.ArrowDtype),
        "batch": lambda: table.combine_chunks().to_batches()[0],
    }  # fmt: skip
    pq.write_table(arrow_of(frames[library]()), path)
    return Written({"path": path}, orders=True, date_format=_digits(truth))


WAYS: dict[str, Callable[[random.Random, Truth, Path], Written]] = {
    "csv, said": partial(_csv, detected=False),
    "csv, detected": partial(_csv, detected=True),
    "csv folder, said": partial(_csv, detected=False, parts=3),
    "csv folder, detected": partial(_csv, detected=True, parts=3),
    "csv folder, mixed": partial(_csv, detected=True, parts=2, mixed=True),
    "json lines": _json_lines,
    **{form: partial(_file, form=form) for form in ("parquet", "arrow", "folder")},
    "partitions": _partitions,
    "frame": _frame,
}


# ---- reading, and what is wrong


def readings(truth: Truth, written: Written) -> Iterator[tuple[str, Table | str]]:
    """The table as it is read whole, and in parts; or the refusal."""
    encode = {name: meant.encode for name, meant in truth.columns.items() if meant.encode}
    keys = {**written.keys, "encode": encode or None, "date_format": dict(written.date_format) or None}
    for streams in (False, True):
        try:
            config = TableConfig(id="id", columns=list(truth.columns), **keys)
            with patch.object(streamed_reading, "STREAMED", 0 if streams else streamed_reading.STREAMED):
                read = read_table(config, with_label=False, missing=None, streams=streams)
                _ = read.features
            yield "in parts" if streams else "whole", read
        except DataError as refusal:
            yield "in parts" if streams else "whole", str(refusal)


def fault(truth: Truth, written: Written, read: Table | str) -> str:
    """What is wrong with a reading; empty: it is the truth, or a refusal that has to be and says its fix."""
    if isinstance(read, str):
        named = Path(str(written.keys["path"])).name in read or "part-" in read
        columned = any(f"column {name!r}" in read or f"{name} =" in read for name in truth.columns)
        columned |= read.count("part-") > 1  # two files that contradict each other
        if not written.open_:
            return f"refused, though nothing is open: {read}"
        return "" if named and columned and _FIX.search(read) else f"refused without file, column or fix: {read}"
    if written.torn:
        return "a date that lacks a digit is read"
    order = np.argsort(np.array([str(key) for key in truth.ids]))
    if list(read.ids) != [str(truth.ids[row]) for row in order]:
        return "ids differ"
    features = dict(zip(read.columns, np.asarray(read.features).T, strict=True))
    for name, meant in truth.columns.items():
        expected = [meant.feature(meant.cells[row]) for row in order]
        found = _decoded(features, name, read.categories.get(name))
        if meant.kind in ("single", "tenths"):
            found = [None if cell is None else round(cell, 3) for cell in found]
        if wrong := [(cell, got) for cell, got in zip(expected, found, strict=True) if cell != got]:
            return f"{meant.kind} {name!r}: {len(wrong)} cells differ, {wrong[0][0]!r} is {wrong[0][1]!r}"
        if (
            meant.kind == "size"
            and written.orders
            and read.categories[name].values != [each for each in SIZES if each in expected]
        ):
            return f"size {name!r}: its order is {read.categories[name].values}"
    return ""


def misbinned(truth: Truth, written: Written) -> str:
    """A column whose bins part no cell from a spike, or part cells otherwise than its cuts say; empty: none."""
    for name, meant in truth.columns.items():
        if meant.kind not in ("spike", "tenths") or written.open_ or len({*meant.cells} - {None}) < 2:
            continue
        cuts = {"cuts": {name: [0.3, 0.7]}} if meant.kind == "tenths" else {}
        read = read_table(TableConfig(id="id", columns=[name], **written.keys, **cuts), with_label=False, missing=None)
        codes = bin_columns(read, 8, None).codes[:, 0]
        cells = [meant.cells[row] for row in np.argsort(np.array([str(key) for key in truth.ids]))]
        pairs = [(cell, int(code)) for cell, code in zip(cells, codes, strict=True) if cell is not None]
        if cuts and (wrong := [cell for cell, code in pairs if code != (cell >= 0.3) + (cell >= 0.7)]):
            return f"tenths {name!r}: {wrong[0]} lies on the other side of a cut"
        spike, count = Counter(cell for cell, _ in pairs).most_common(1)[0]
        if (
            not cuts
            and count * 8 >= len(pairs)
            and {c for v, c in pairs if v == spike} & {c for v, c in pairs if v != spike}
        ):
            return f"spike {name!r}: {spike}, {count} of {len(pairs)}, shares a bin with others"
    return ""


def _decoded(features: Mapping[str, Any], name: str, category: Category | None) -> Cells:
    """The cells (N,) that the features of a column stand for."""
    if category is None or category.of_dates:
        return [None if np.isnan(value) else float(value) for value in features[name]]
    if category.encode != "one-hot":
        values = [*category.values, "an unknown category"]
        return [None if np.isnan(value) else values[int(value)] for value in features[name]]
    hot = np.column_stack([features[each] for each in category.features])
    return [None if np.isnan(row).any() else category.values[int(row.argmax())] for row in hot]


def outcome(seed: int) -> tuple[str, Any]:
    """The fate of a seed's pair: "right", "refused" where a reading is, or "finding" with what is wrong."""
    truth, draw = drawn(seed), random.Random(-seed - 1)
    found, refused = [], False
    logging.disable(logging.CRITICAL)
    try:
        with workplace() as folder:
            for number, way in enumerate(draw.sample(sorted(WAYS), 2)):
                written = WAYS[way](draw, truth, folder / str(number))
                found += [f"{way}: {said}" for said in [misbinned(truth, written)] if said]
                for how, read in readings(truth, written):
                    refused |= isinstance(read, str)
                    if said := fault(truth, written, read):
                        found.append(f"{way}, {how}: {said}".replace(str(folder), ""))
    finally:
        logging.disable(logging.NOTSET)
    return ("finding", found) if found else ("refused" if refused else "right", None)

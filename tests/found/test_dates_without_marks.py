"""Dates without marks, and what a whole file decides.

Dates whose fields have no marks between them: all digits in text, and whole numbers that have lost their zeros.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable
from datetime import datetime
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from tests.needs import needs_libraries
from treetap.errors import DataError
from treetap.lab.api.frames import arrow_of
from treetap.lab.experiment.joined_encodings import time_ranks
from treetap.tables import streamed_reading
from treetap.tables.auto_encoding import date_columns
from treetap.tables.config import TableConfig
from treetap.tables.csv_file import outlines
from treetap.tables.dates import mostly, parser, whole_width
from treetap.tables.number_styles import readings
from treetap.tables.reading import Table, read_table

DAYS = [
    datetime(2024, 12, 1),
    datetime(2004, 11, 1),
    datetime(2023, 12, 31),
    datetime(2000, 1, 5),
    datetime(2009, 10, 10),
]
EPOCH = datetime(1970, 1, 1)


def write_sqlite(table: pa.Table, path: Path) -> None:
    """A table t."""
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE t (id, x)")
        database.executemany("INSERT INTO t VALUES (?, ?)", zip(*table.to_pydict().values(), strict=True))
    database.close()


def write_lines(table: pa.Table, path: Path) -> None:
    """One object a line."""
    path.write_text("".join(f"{json.dumps(row)}\n" for row in table.to_pylist()))


WAYS: dict[str, Callable[[pa.Table, Path], None]] = {
    "t.csv": pacsv.write_csv,
    "t.parquet": pq.write_table,
    "t.feather": feather.write_feather,
    "t.jsonl": write_lines,
    "pandas.parquet": lambda table, path: pq.write_table(arrow_of(table.to_pandas()), path),
    "gaps.parquet": lambda table, path: pq.write_table(arrow_of(table.to_pandas().where(lambda it: it != 0)), path),
    "polars.parquet": lambda table, path: pq.write_table(arrow_of(pl.from_arrow(table)), path),
    "t.db": write_sqlite,
}


def read(path: Path, **keys: Any) -> Table:
    """The column x as days."""
    place = {"uri": f"sqlite:{path}", "table": "t"} if path.suffix == ".db" else {"path": path}
    config = TableConfig.model_validate({**place, "id": "id", "columns": ["x"], "encode": {"x": "days"}, **keys})
    return read_table(config, with_label=False, missing=0.0, streams=True)


@pytest.mark.parametrize("form", ["%d%m%Y", "%d%m%y", "%m%d%Y", "%y%m%d", "%j%Y", "%Y%m%d", "%Y%j"])
def test_whole_numbers_are_the_dates_that_they_were(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In files of every format, frames and databases, whole and in parts, by a format for a column or for all."""
    needs_libraries("adbc_driver_sqlite", extra="sql")
    numbers = [int(day.strftime(form)) for day in DAYS]
    table = pa.table({"id": list("abcdef"), "x": [*numbers, 0]})
    expected = [float((day - EPOCH).days) for day in DAYS]
    named: dict[str, Any] = {"date_format": {"x": form}}
    keys = [named, {"date_format": form}, {**named, "encode": "auto"}]
    for name, write in WAYS.items():
        write(table, tmp_path / name)
        for given in keys if name in ("t.csv", "t.parquet") else keys[:1]:
            for streamed in (0, 1 << 27) if name == "t.parquet" else (1 << 27,):
                monkeypatch.setattr(streamed_reading, "STREAMED", streamed)
                found = read(tmp_path / name, **given).features[:, 0]
                np.testing.assert_array_equal(found, [*expected, np.nan], err_msg=f"{name}, {given}")
    (tmp_path / "t.csv").write_text("\n".join(["id,x", *(f"{k},{day.strftime(form)}" for k, day in enumerate(DAYS))]))
    np.testing.assert_array_equal(read(tmp_path / "t.csv", date_format={"x": form}).features[:, 0], expected)


@pytest.mark.parametrize(
    ("form", "cell"),
    [
        *(("%Y%m%d", cell) for cell in ("202312", "2023113", "2021113", "202301031", "2023 1 1")),
        *(("%d%m%Y", cell) for cell in ("122024", "0112202", "32122024")),
        *(("%Y%m", cell) for cell in ("20241", "2024")),
        *(("%Y%m%dT%H%M%S", cell) for cell in ("20240131T83000", "2024131T083000")),
        *(("%Y%m%d%H%M%S%f", cell) for cell in ("2024013183000", "2024013108300")),
        ("%d%m%y %H:%M", "1124 8:30"),
    ],
)
def test_a_typing_fault_is_no_date(form: str, cell: str, tmp_path: Path) -> None:
    """It is named by its row, in text and in whole numbers, as `strptime` alone would not."""
    sound = datetime(2024, 10, 31, 10, 30).strftime(form)
    tables = [pa.table({"id": ["a", "b"], "x": [sound, cell]})]
    if cell.isdecimal() and len(sound) < 18:
        tables.append(pa.table({"id": ["a", "b"], "x": [int(sound), int(cell)]}))
    for table in tables:
        for name in ("t.csv", "t.parquet", "t.jsonl"):
            WAYS[name](table, tmp_path / name)
            with pytest.raises(DataError, match=r"(line|row) [23], column 'x': the cell is not a date"):
                read(tmp_path / name, date_format={"x": form})


@pytest.mark.parametrize(
    ("form", "cell", "width"),
    [
        ("%d.%m.%Y", "1.2.2024", 0),
        ("%d%b%Y", "1Feb2024", 0),
        ("%m/%d/%Y %H:%M", "2/1/2024 0:00", 0),
        ("%Y%m%d%H%M%S%f", "20240201000000000", 0),
        ("%Y%m%d %H:%M", "20240201 0:00", 0),
        ("%H%M%d%m%Y", "000001022024", 12),
        ("%d%m%Y", "01022024", 8),
        ("%B %d, %Y", "february 1, 2024", 0),
    ],
)
def test_fields_between_marks_may_be_short(form: str, cell: str, width: int) -> None:
    """As `strptime` takes them; only whole dates without a mark are whole numbers."""
    assert parser(form)(cell) == datetime(2024, 2, 1)
    assert whole_width(form) == width


def test_a_file_of_text_says_itself_whether_zeros_are_lost(tmp_path: Path) -> None:
    """A cell without its zero among others that have theirs is a typing fault, and so it is in text of a type."""
    for name in ("t.csv", "t.parquet"):
        WAYS[name](pa.table({"id": ["a", "b"], "x": ["01122024", "1112024"]}), tmp_path / name)
        for form in ({"x": "%d%m%Y"}, "%d%m%Y"):
            with pytest.raises(DataError, match=r"(line|row) [23], column 'x': the cell is not a date; the others are"):
                read(tmp_path / name, date_format=form)


def test_rows_by_a_time_that_is_a_whole_number() -> None:
    """An experiment orders its rows by the dates, not by the numbers."""
    for cells in (pa.array([1122024, 31122023]), pa.array(["01122024", "31122023"])):
        assert time_ranks(Path("t"), "day", pa.chunked_array([cells]), "%d%m%Y").tolist() == [1, 0]


# ---- What a whole file decides is decided from all of it, and each file of a folder is read as it is read alone


def _read_plain(path: Path, *columns: str, **keys: Any) -> Table:
    """These columns of a table, by default x."""
    given = {"path": path, "id": "id", "columns": list(columns or ["x"]), **keys}
    return read_table(TableConfig.model_validate(given), with_label=False, missing=None)


def outcome(path: Path) -> str:
    """The numbers of x whose ids begin with r, or the refusal without its place."""
    try:
        table = _read_plain(path)
    except DataError as fault:
        return re.sub(r".*line \d+, ", "", str(fault))
    return str([float(x) for name, x in zip(table.ids, table.features[:, 0], strict=True) if name[0] == "r"])


#: Cells of x and y in a file with semicolons, and the numbers of x, or a clause of the refusal.
CELLS = [
    ([("1.000", "0"), ("1.001", "0")], "three digits follow each point"),
    ([("1.000", "0"), ("", "0.5")], r"\[1\.0, nan\]"),
    ([("1.000", "0"), ("2", "1.500,5")], r"\[1000\.0, 2\.0\]"),
    ([("1.000", "0.5"), ("2", "A7")], "three digits follow each point"),
    ([("1.000", "0.5"), ("2", "1,5")], "three digits follow each point"),
    ([("1,234", "2,5"), ("5", "7")], r"\[1\.234, 5\.0\]"),
    ([("1,234", "2,5"), ("5", "A7")], "write the one that is meant|three digits follow each comma"),
    ([("1,234", "0"), ("5", "0")], "write the one that is meant|three digits follow each comma"),
    ([("1.234.567", "0"), ("1.234", "0")], r"\[1234567\.0, 1234\.0\]"),
    ([("1 234", "0,5"), ("5", "0")], r"\[1234\.0, 5\.0\]"),
    ([("0.250", "0"), ("1.000", "0")], r"\[0\.25, 1\.0\]"),
    ([("1'000.5", "0"), ("1'000", "0")], r"\[1000\.5, 1000\.0\]"),
    ([("-1.000", "0"), ("+2.000", "0")], "three digits follow each point"),
    ([("1,5", "0"), ("1.5", "0")], "the cell is not a number"),
]
PLACES: dict[str, Callable[[list[str]], list[str]]] = {
    "alone": lambda rows: rows,
    "first": lambda rows: rows + [f"f{row};7;7;" for row in range(1_001)],
    "late": lambda rows: [f"f{row};7;7;" for row in range(1_001)] + rows,
    "behind wide rows": lambda rows: [f"f{row};7;7;{'w' * 4000}" for row in range(80)] + rows,
    "apart": lambda rows: [rows[0], *(f"f{row};7;7;" for row in range(1_001)), *rows[1:]],
}


@pytest.mark.parametrize(("cells", "expected"), CELLS)
def test_wherever_in_a_file_its_numbers_stand(cells: list[tuple[str, str]], expected: str, tmp_path: Path) -> None:
    """The same numbers or the same refusal, whether the telling cells are in the first rows or in the last."""
    rows = [f"r{place};{x};{y};" for place, (x, y) in enumerate(cells)]
    for place, placed in PLACES.items():
        path = tmp_path / f"{place}.csv"
        path.write_text("\n".join(["id;x;y;note", *placed(rows), ""]))
        assert re.search(expected, outcome(path)), place


def test_outlines_stand_for_their_cells() -> None:
    """A style reads drawn cells as it reads their outlines."""
    draw = np.random.default_rng(3)
    for _ in range(150):
        pieces = draw.choice(
            ["0", "7", "12", "345", "045", "6000", ".", ",", " ", "'", "-", "e+05", "x", "\u202f"], (4, 5)
        )
        cells = ["".join(row[: 1 + place]) for place, row in enumerate(pieces)]
        of_column = pa.array([b"pad", *(cell.encode() for cell in cells)])[1:]
        digits = [cell.strip() for cell in cells if any(map(str.isdigit, cell))]
        assert readings(outlines(of_column)) == readings(digits), cells


#: Files, and those that contradict them.
ENGLISH, GERMAN = ("English", "Swiss"), ("German", "German by another column", "decimal commas")
FILES = {
    "English": "id,x,y\n{0}1,1.500,0\n{0}2,2.625,0\n",
    "Swiss": "id;x;y\n{0}1;1'500.25;0\n{0}2;3;0\n",
    "German": "id;x;y\n{0}1;1.500,50;0\n{0}2;3;0\n",
    "German by another column": "id;x;y\n{0}1;1500;0\n{0}2;3;2,5\n",
    "decimal commas": "id;x;y\n{0}1;1,5;0\n{0}2;3;0\n",
    "whole": "id,x,y\n{0}1,1500,0\n{0}2,3,0\n",
    "in doubt": "id;x;y\n{0}1;1.500;0\n{0}2;3;0\n",
}


@pytest.mark.parametrize(("one", "other"), list(product(FILES, FILES)))
def test_a_file_of_a_folder_is_read_as_alone(one: str, other: str, tmp_path: Path) -> None:
    """Its numbers are those that it has alone, or two files are named that contradict each other."""
    numbers: list[float] = []
    for name, content in (("b", FILES[other]), ("a", FILES[one])):
        (tmp_path / f"{name}.csv").write_text(content.format(name))
        if "in doubt" not in (one, other):
            numbers = _read_plain(tmp_path / f"{name}.csv").features[:, 0].tolist() + numbers
    said = "differently in .*a.csv and .*b.csv: write them in one way"
    if (one in ENGLISH and other in GERMAN) or (one in GERMAN and other in ENGLISH):
        with pytest.raises(DataError, match=said):
            _read_plain(tmp_path)
    elif "in doubt" in (one, other):
        with pytest.raises(DataError, match=rf"[ab]\.csv: line 2, column 'x': three digits|{said}"):
            _read_plain(tmp_path)
    else:
        assert _read_plain(tmp_path).features[:, 0].tolist() == numbers


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ([["25.12.2024", "01.02.2024"], ["26.12.2024"]], ""),
        ([["25 May 2024"], ["1 March 2024"]], ""),
        ([["25.12.2024"], ["", ""], ["26.12.2024"]], ""),
        ([["25/12/2024"], ["01/02/2024"]], "change places in one file alone, from b.*\n.*%d/%m/%Y.*\n.*%m/%d/%Y"),
        (
            [["25/12/2024"], ["26/12/2024"], ["12/25/2024"]],
            "of two formats, as in a.* and c.*: write them in one",
        ),
        ([["2024-12-25"], ["25.12.2024"]], "of two formats, as in a.* and b.*: write them in one"),
        ([["25.12.2024"], ["26.12.24"]], "whose years have two digits in one file alone, from b"),
    ],
)
def test_dates_of_a_file_of_a_folder(
    cells: list[list[str]], said: str, ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One file does not say what day and month are in another one; files _read_plain in parts are no exception."""
    monkeypatch.setattr(streamed_reading, "STREAMED", 0)
    for name, own in zip("abc", cells, strict=False):
        table = pa.table({"id": [f"{name}{row}" for row in range(len(own))], "x": own})
        (pq.write_table if ending == "parquet" else pacsv.write_csv)(table, tmp_path / f"{name}.{ending}")
    for encode in ("auto", "days", {"x": "days"}):
        config = TableConfig(path=tmp_path, id="id", columns=["x"], encode=encode)
        if said:
            with pytest.raises(DataError, match=f"column 'x' holds dates .*{said}"):
                read_table(config, with_label=False, missing=None, streams=True)
        else:
            assert read_table(config, with_label=False, missing=None, streams=True).categories["x"].of_dates


def test_columns_of_categories_in_one_file_of_two(tmp_path: Path) -> None:
    """Whichever file comes first, and where one of them has no value."""
    for number, kinds in enumerate(product((pa.int64(), pa.dictionary(pa.int8(), pa.int64()), pa.null()), repeat=2)):
        for name, kind in zip("ab", kinds, strict=True):
            path = tmp_path / str(number) / f"{name}.feather"
            path.parent.mkdir(exist_ok=True)
            cells = pa.nulls(2) if kind == pa.null() else pa.array([7, 9], pa.int64())
            column = cells.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else cells
            feather.write_feather(pa.table({"id": [f"{name}1", f"{name}2"], "x": column}), path)
        table = _read_plain(tmp_path / str(number), encode="auto")
        assert bool(table.categories) == any(map(pa.types.is_dictionary, kinds)), kinds


@pytest.mark.parametrize("streamed", [0, 1 << 27])
def test_text_that_is_booleans_in_one_part(streamed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers in another part are refused, whether a table is _read_plain whole or in parts."""
    monkeypatch.setattr(streamed_reading, "STREAMED", streamed)
    cells = ["true", "false", "true", "5"]
    pq.write_table(pa.table({"id": list("abcd"), "x": cells}), tmp_path / "t.parquet", row_group_size=2)
    config = TableConfig(path=tmp_path / "t.parquet", id="id", columns=["x"])
    with pytest.raises(DataError, match="column 'x'"):
        read_table(config, with_label=False, missing=None, streams=True)


def test_dates_behind_the_first_rows(tmp_path: Path) -> None:
    """Columns of dates are those whose cells all are some, and most cells are told from others wherever they stand."""
    rows = [f"{row:06d},2024-01-01,,{'w' * 40}" for row in range(20_000)]
    (tmp_path / "t.csv").write_text("\n".join(["id,x,y,z", *rows, "a,soon,2024-01-01,", ""]))
    assert date_columns(tmp_path / "t.csv", ["x", "y"]) == ["y"]
    assert mostly([f"{k % 28 + 1:02d}.01.{k:04d}" if k % 4 else f"order 12-{k}" for k in range(1900, 2900)])


@pytest.mark.parametrize("rows", [1, 9_000])
def test_a_byte_of_value_zero(rows: int, tmp_path: Path) -> None:
    """In a file's first bytes and behind them, in numbers and in text, its line is named."""
    for cell, encode in (("2\0", None), ("u\0", "ordinal")):
        content = "".join(f"{row:06d},{cell[0]}\n" for row in range(rows))
        (tmp_path / "t.csv").write_text(f"id,x\n{content}z,{cell}\n")
        with pytest.raises(DataError, match=rf"line {rows + 2}\b.*remove it, as tr -d") as fault:
            _read_plain(tmp_path / "t.csv", encode=encode)
        assert "byte of value 0" in str(fault.value)
    (tmp_path / "t.csv").write_text("ORC,x\na,1\nb,2\n")  # nor do its first letters decide
    assert _read_plain(tmp_path / "t.csv", id="ORC").features.tolist() == [[1.0], [2.0]]


def test_encodings_behind_the_first_bytes(tmp_path: Path) -> None:
    """The encoding to try is one that all bytes have, and the one that is given is doubted where all are UTF-8."""
    text = "id,x\n" + "".join(f"{row:06d},1\n" for row in range(30_000))
    path = tmp_path / "t.csv"
    for last, named in ((b"\xfc,2\n", "windows-1252"), (b"\xfc\x81,2\n", "latin-1")):
        path.write_bytes(text.encode() + last)
        with pytest.raises(DataError, match=f'line 30002.*write encoding = "{named}"'):
            _read_plain(path)
    path.write_bytes(text.encode() + "ü,2\n".encode())
    source = _read_plain(path, encoding="latin-1").path
    assert not isinstance(source, Path)
    assert any("is UTF-8 too" in sentence for sentence in source.says)  # type: ignore[union-attr]


def test_a_delimiter_that_later_rows_contradict(tmp_path: Path) -> None:
    """The line is named, and the delimiter by which all rows have one number of cells."""
    (tmp_path / "t.csv").write_text("id,a;x\n" + "".join(f"{row},1;2\n" for row in range(1_200)) + "z;1\n")
    with pytest.raises(DataError, match='line 1202: 2 cells expected, 1 found; write delimiter = ";"'):
        _read_plain(tmp_path / "t.csv")

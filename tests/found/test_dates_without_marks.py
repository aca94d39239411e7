"""Dates whose fields have no marks between them: all digits in text, and whole numbers that have lost their zeros."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from datetime import datetime
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
from treetap.tables.config import TableConfig
from treetap.tables.dates import parser, whole_width
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

"""Formats of dates in text: the one that all cells show, or a setting; never a guess."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from treetap.errors import ConfigError, DataError
from treetap.strict import load
from treetap.tables.config import TableConfig
from treetap.tables.dates import ISO, mostly, parser, readings
from treetap.tables.reading import Table, read_table

DAY, LATE, EARLY = datetime(2019, 10, 2), datetime(2018, 12, 25), datetime(2020, 1, 31)


@pytest.mark.parametrize(
    "form",
    [
        *("%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%Y/%m/%d", "%Y.%m.%d", "%d-%m-%Y", "%d-%b-%Y", "%d %B %Y", "%B %d, %Y"),
        *("%d.%m.%Y %H:%M", "%d.%m.%Y %H:%M:%S", "%m/%d/%Y %I:%M %p", "%d/%m/%Y %H:%M:%S.%f", "%d%b%Y"),
    ],
)
def test_an_unmistakable_format(form: str) -> None:
    """It is the one reading of dates that it wrote, and gives them back."""
    cells = [day.strftime(form) for day in (DAY, LATE, EARLY)]
    assert readings(cells) == [form]
    assert [parser(form)(cell) for cell in cells] == [DAY, LATE, EARLY]


@pytest.mark.parametrize(
    ("cells", "forms"),
    [
        (["01.02.2019", "03.04.2019"], ["%d.%m.%Y", "%m.%d.%Y"]),
        (["02/01/2019"], ["%d/%m/%Y", "%m/%d/%Y"]),
        (
            ["01.01.2019", "02.02.2019"],
            ["%d.%m.%Y", "%m.%d.%Y"],
        ),  # which mean the same days here, and not in other tables
        (["01.02.19"], ["%d.%m.%y", "%m.%d.%y", "%y.%m.%d"]),
        (["2019-02-01", "2019-02-01T10:30"], [ISO]),
        (["2019-02-01", "01.02.2019"], []),
        (["13.13.2019"], []),
        (["C4711", "A1234"], []),
        (["10:30"], []),
        ([], []),
    ],
)
def test_readings(cells: list[str], forms: list[str]) -> None:
    """All of them, or none."""
    assert readings(cells) == forms


def test_a_format_of_most_cells() -> None:
    """By which the others can be named."""
    assert mostly(["25.12.2019", "26.12.2019", "soon"]) == "%d.%m.%Y"
    assert mostly(["25.12.2019", "soon", "later"]) is None


def _read(path: Path, **keys: object) -> Table:
    config = TableConfig(path=path, id="id", columns=["d"], **keys)  # type: ignore[arg-type]
    return read_table(config, with_label=False, missing=None)


def test_days_by_a_format(tmp_path: Path) -> None:
    """Given for all columns or by name, or detected; a cell of another format is named by its line."""
    path = tmp_path / "t.csv"
    path.write_text("id,d\n1,02.10.2019\n2,\n3,25.12.2018\n")
    for keys in (
        {"encode": "auto"},
        {"encode": "days"},
        {"encode": {"d": "days"}},
        {"encode": "days", "date_format": "%d.%m.%Y"},
        {"encode": "auto", "date_format": {"d": "%d.%m.%Y"}},
    ):
        table = _read(path, **keys)
        np.testing.assert_array_equal(table.features[:, 0], [18171, np.nan, 17890])
        assert table.categories["d"].date_format == "%d.%m.%Y"
    for keys in ({"encode": "days"}, {"encode": {"d": "days"}, "date_format": {"d": "%d.%m.%Y"}}):
        path.write_text("id,d\n1,02.10.2019\n2,soon\n3,25.12.2018\n")
        with pytest.raises(DataError, match="line 3, column 'd': the cell is not a date; the others are as") as refused:
            _read(path, **keys)
        assert "soon" not in str(refused.value)


def test_whole_numbers_are_dates_by_a_format(tmp_path: Path) -> None:
    """Where it is named for their column: as numbers in a file of types, and as text in one without."""
    content = pa.table({"id": [1, 2, 3], "d": [20191002, None, 20181225]})
    pq.write_table(content, tmp_path / "t.parquet")
    pacsv.write_csv(content, tmp_path / "t.csv")
    for name in ("t.parquet", "t.csv"):
        for encode in ("auto", {"d": "days"}):
            table = _read(tmp_path / name, encode=encode, date_format={"d": "%Y%m%d"})
            np.testing.assert_array_equal(table.features[:, 0], [18171, np.nan, 17890])
        assert _read(tmp_path / name, encode="auto").features[0, 0] == 20191002
    with pytest.raises(DataError, match="row 1, column 'd': the cell is not a date; the others are as date_format"):
        _read(tmp_path / "t.parquet", encode="auto", date_format={"d": "%d.%m.%Y"})


def test_days_that_may_be_months_are_asked_for(tmp_path: Path) -> None:
    """Each of the lines gives the other days."""
    path, days = tmp_path / "t.csv", []
    path.write_text("id,d\n1,01.02.2019\n")
    for encode in ("auto", "days"):
        with pytest.raises(
            DataError, match="column 'd' holds dates whose day and month could change places"
        ) as refused:
            _read(path, encode=encode)
    assert '  date_format = { d = "%d.%m.%Y" }  # as in 31.01.2024\n' in str(refused.value)
    assert '  date_format = { d = "%m.%d.%Y" }  # or as in 01.31.2024' in str(refused.value)
    for form in ("%d.%m.%Y", "%m.%d.%Y"):
        days += [
            _read(path, encode="days", date_format=form).features[0, 0],
            _read(path, encode="auto", date_format=form).features[0, 0],
        ]
    assert days == [17928, 17928, 17898, 17898]


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ('"%d.%m"', "'%d.%m' has no year and month"),
        ('"dd.mm.yyyy"', "'dd.mm.yyyy' has no year and month: write one such as"),
        ('"%d.%m.%Q"', "has %Q, which is none of %Y"),
        ('"%d.%d.%Y"', "has a directive twice"),
        ('"%d.%m.%Y %H:%M %p"', "has %p, which goes with %I"),
        ('{ e = "%d.%m.%Y" }', "date_format names 'e', which is none of the table's columns"),
        ("3", "a format of dates is text"),
    ],
)
def test_formats_that_are_none(form: str, said: str, tmp_path: Path) -> None:
    """A fault of the file, by its key."""
    path = tmp_path / "config.toml"
    path.write_text(f'path = "t.csv"\nid = "id"\ncolumns = ["d"]\ndate_format = {form}\n')
    with pytest.raises(ConfigError) as failure:
        load(path, TableConfig)
    assert said in str(failure.value)

"""Encodings that a table's own cells show: taken where they leave no doubt, else asked for, all columns at once.

Reading is linear in the columns: counted are comparisons of their names, and what Arrow is asked.
"""

from __future__ import annotations

import logging
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from tests.library.tables.given import parquet_file, read
from tests.library.tables.ways import WAYS, Column, Content, outcome
from treetap.errors import DataError
from treetap.lab.api.frames import arrow_of
from treetap.lab.experiment import joined_table
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.process.apart import ReadApart
from treetap.tables import streamed_reading
from treetap.tables.auto_encoding import date_columns
from treetap.tables.config import TableConfig
from treetap.tables.reading import Table, read_table

ROWS = 120
DAYS = [date(2018, 3, 1) + timedelta(days=17 * row) for row in range(ROWS)]
GERMAN = [day.strftime("%d.%m.%Y") for day in DAYS]
WORDS = ["clerk", "nurse", "driver", None]
SHOWN: dict[str, list[Any]] = {
    "job": [WORDS[row % 4] for row in range(ROWS)],
    "owns": ["yes" if row % 3 else "no" for row in range(ROWS)],
    "opened": list(map(str, DAYS)),
    "start": [None if row % 9 == 0 else text for row, text in enumerate(GERMAN)],
    "digits": [str(row / 4) for row in range(ROWS)],
    "flag": ["true" if row % 2 else "false" for row in range(ROWS)],
}
TAKEN = {"job": "categorical", "owns": "categorical", "opened": "days", "start": "days"}


def _file(folder: Path, **columns: list[Any]) -> Path:
    """A Parquet file of these columns of text behind an id."""
    rows = len(next(iter(columns.values())))
    return parquet_file(folder, {"id": list(range(rows)), **columns}, row_group_size=50)


def _read(path: Path, encode: Any = "auto", names: Sequence[str] = (), **keys: Any) -> Table:
    own = names or [name for name in pq.read_schema(path).names if name != "id"]
    return read(path, *own, **{"encode": encode, "categorical": True, "streams": True, **keys})


def _refusal(path: Path, encode: Any = "auto", **keys: Any) -> str:
    with pytest.raises(DataError) as refused:
        _read(path, encode, **keys)
    return str(refused.value)


def test_what_the_cells_show_is_what_the_same_lines_say(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Text of few values, dates of two formats, numbers and booleans; the log has the lines, which give the same."""
    path = _file(tmp_path, **SHOWN)
    with caplog.at_level(logging.INFO, logger="treetap"):
        table = _read(path)
    assert {name: it.encode for name, it in table.categories.items()} == TAKEN
    assert table.categories["start"].date_format == "%d.%m.%Y"
    days = [float((day - date(1970, 1, 1)).days) for day in DAYS]
    features = dict(zip(table.columns, table.features[np.argsort(table.rows)].T, strict=True))
    np.testing.assert_array_equal(features["opened"], days)
    np.testing.assert_array_equal(features["start"], np.where(np.arange(ROWS) % 9 == 0, np.nan, days))
    said = next(line for line in caplog.messages if "stands for" in line)
    encode, form = said.partition('encode = "auto" stands for ')[2].split(" and ")
    again = _read(path, **tomllib.loads(f"{encode}\n{form}"))
    np.testing.assert_array_equal(again.features, table.features)
    assert (again.columns, dict(again.categories)) == (table.columns, dict(table.categories))


def test_a_prediction_reads_as_the_training_did(tmp_path: Path) -> None:
    """Formats and categories are the model's: a cell of another format is an error, unless the table says its own."""
    trained = _read(_file(tmp_path, **SHOWN))
    new = {name: cells[:3] for name, cells in SHOWN.items()} | {"start": ["01.02.2019", None, "03.04.2019"]}
    features = _read(_file(tmp_path, **new), None, like=trained).features
    np.testing.assert_array_equal(features[:, trained.columns.index("start")], [17928, np.nan, 17989])
    path = _file(tmp_path, **new | {"start": ["2019-02-01", None, "2019-04-03"]})
    said = _refusal(path, None, like=trained)
    assert "row 1, column 'start': the cell is not a date; the others are as date_format" in said
    for own in ("%Y-%m-%d", {"start": "%Y-%m-%d"}):
        np.testing.assert_array_equal(_read(path, None, like=trained, date_format=own).features, features)
    typed = pa.table({"id": [0, 1, 2], **new, "start": pa.array([date(2019, 2, 1), None, date(2019, 4, 3)])})
    pq.write_table(typed, path)
    np.testing.assert_array_equal(_read(path, None, like=trained).features, features)


@pytest.mark.parametrize("streams", [False, True])
def test_one_format_is_of_the_columns_that_are_written_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, streams: bool
) -> None:
    """At a prediction as at the training: others keep theirs, and cells that are dates by both need a word."""
    monkeypatch.setattr("treetap.tables.reading.too_large_to_hold", lambda *_: streams)
    columns = {"d": ["31.01.2024", None, "01.02.2024"], "iso": ["2024-01-31", "2024-02-01", None]}
    keys: dict[str, Any] = {"names": ["d", "iso"], "date_format": "%d.%m.%Y"}
    path = _file(tmp_path, **columns)
    keys["like"] = trained = _read(path, **keys)
    features = trained.features
    again = _read(path, **keys)
    np.testing.assert_array_equal(again.features, features)
    assert {name: it.date_format for name, it in again.categories.items()} == {"d": "%d.%m.%Y", "iso": ""}
    keys["date_format"] = "%m.%d.%Y"
    other = _read(_file(tmp_path, **columns | {"d": ["01.31.2024", None, "02.01.2024"]}), **keys)
    np.testing.assert_array_equal(other.features, features)
    said = _refusal(_file(tmp_path, **columns | {"d": ["03.01.2024", None, "02.01.2024"]}), **keys)
    assert "column 'd': all cells are dates as the training wrote them" in said
    assert 'd = "%m.%d' in said


def test_categories_where_trees_may_not_partition_them(tmp_path: Path) -> None:
    """They are one-hot."""
    table = _read(_file(tmp_path, **SHOWN), categorical=False)
    assert table.columns[:5] == ["job=clerk", "job=driver", "job=nurse", "owns=no", "owns=yes"]
    assert not table.category_counts


@pytest.mark.second_tier
def test_every_way_into_a_table_takes_the_same(tmp_path: Path) -> None:
    """CSV, JSON lines, Parquet, Arrow, folders, databases, frames, read whole or in batches; also at a prediction."""
    kinds = {**dict.fromkeys(SHOWN, pa.string()), "opened": pa.date32()}
    columns = {name: Column(DAYS if name == "opened" else cells, kinds[name]) for name, cells in SHOWN.items()}
    ids = Column(list(range(ROWS)), pa.int64())
    content = Content({"id": ids, **columns}, others="auto")
    read = {way: outcome(content, way, tmp_path / f"{k}") for k, way in enumerate(WAYS) if way != "numpy"}
    first = read["parquet"]
    assert {name: it["encode"] for name, it in first.categories.items()} == TAKEN | {
        "job": "one-hot",
        "owns": "one-hot",
    }
    assert first.categories["start"]["date_format"] == "%d.%m.%Y"
    # a column that a library calls one of categories is one, also of digits and booleans
    called = {"dictionaries", "ordered", "views"}
    assert {way: it.refused or first.differs(it) for way, it in read.items() if way not in called} == {
        way: "" for way in read if way not in called
    }
    for way in called:
        assert (
            read[way].categories["digits"]["encode"] == "one-hot"
            if not read[way].refused
            else "digits" in read[way].refused
        )
    again = outcome(content, "csv", tmp_path / "again", first)
    assert (again.refused, first.differs(again)) == ("", "")


@pytest.mark.second_tier
def test_streamed_tables_take_and_ask_the_same(tmp_path: Path) -> None:
    """Whole and in batches: one table, and one message."""
    path, doubtful = _file(tmp_path, **SHOWN), tmp_path / "doubt"
    doubtful.mkdir()
    asked = _file(
        doubtful,
        **SHOWN,
        name=[f"n{row}" for row in range(ROWS)],
        when=["01.02.2019"] * ROWS,
        age=["?", *map(str, range(1, ROWS))],
    )
    whole = _read(path), _refusal(asked), _refusal(asked, None)
    with patch.object(streamed_reading, "STREAMED", 0):
        table = _read(path)
        assert type(table.values).__name__ == "Streamed"
        np.testing.assert_array_equal(table.features, whole[0].features)
        assert dict(table.categories) == dict(whole[0].categories)
        assert (_refusal(asked), _refusal(asked, None)) == whole[1:]


def test_all_columns_that_need_a_word_are_in_one_message(tmp_path: Path) -> None:
    """With lines that cure them, once what they ask is decided; no cell is in it."""
    doubt = {
        "name": [f"n{row}" for row in range(ROWS)],
        "street": [f"s{row // 2}" for row in range(ROWS)],
        "when": [f"0{1 + row % 9}.02.2019" for row in range(ROWS)],
        "born": [day.strftime("%d/%m/%y") for day in DAYS],
        "age": ["unknown" if row == 76 else str(row) for row in range(ROWS)],
        "paid": [text if row != 4 else "never" for row, text in enumerate(GERMAN)],
        "price": [f"{row},5" for row in range(ROWS)],
    }
    path = _file(tmp_path, **SHOWN, **doubt)
    said = _refusal(path)
    assert said.startswith(f"{path}: 7 columns need a word in the table's settings:")
    assert not any(
        name in said.replace(str(path), "") for name in ("'job'", "'opened'", "'start'", "n76", "never", "76,5")
    )
    for line in (
        "column 'name' holds another text in each record: leave it out of columns",
        "column 'street' holds 60 different texts in 120 records: leave it out of columns; or, if these are categories",
        "column 'when' holds dates whose day and month could change places",
        "column 'born' holds dates whose years have two digits",
        "2 columns have one text among numbers or dates: 'age' first in row 77, 'paid' first in row 5",
        '  missing = ["…"]  # where such a text means a missing value',
        "column 'price' holds numbers in another style",
    ):
        assert line in said
    dated = [line for line in said.splitlines() if line.startswith("  date_format")]
    pasted = [tomllib.loads(line)["date_format"] for line in dated[:2]]
    assert pasted[0] == {"start": "%d.%m.%Y", "when": "%d.%m.%Y", "born": "%d/%m/%y"}
    assert pasted[1]["when"] == "%m.%d.%Y"
    codes = {"street": "categorical"}
    assert said.count("if these are categories") == 1  # of the others there are too many
    pq.write_table(pq.read_table(path).drop_columns(["name", "age", "paid", "price"]), path)
    table = _read(path, {"*": "auto", **codes}, date_format=pasted[0])
    assert {name: it.encode for name, it in table.categories.items()} == TAKEN | codes | {
        "when": "days",
        "born": "days",
    }


def test_text_of_which_the_settings_say_nothing(tmp_path: Path) -> None:
    """The same message without auto, whose lines give the table; what the file has already stays in them."""
    path = _file(tmp_path, **SHOWN)
    for given, auto in (
        (None, '\n  encode = "auto"  # or'),
        ({"job": "ordinal"}, '"*" = "auto", job = "ordinal" }  # or'),
    ):
        said = _refusal(path, given)
        assert auto in said
        lines = [line for line in said.splitlines() if line.startswith(("  encode", "  date_format"))][1:]
        table = _read(path, **tomllib.loads("\n".join(line.strip() for line in lines)))
        assert {name: it.encode for name, it in table.categories.items()} == TAKEN | (given or {})


@pytest.mark.parametrize(
    ("rows", "values", "taken"),
    [
        (5000, 256, True),
        (5000, 257, False),
        (2000, 200, True),
        (2000, 201, False),
        (30, 10, True),
        (30, 11, False),
        (8, 4, True),
        (8, 5, False),
    ],
)
def test_the_most_values_of_categories(rows: int, values: int, taken: bool, tmp_path: Path) -> None:
    """256, and a tenth of the records; of few records ten, of which two records each have one."""
    path = _file(tmp_path, x=[f"v{row % values}" for row in range(rows)])
    if taken:
        assert _read(path).category_counts == {"x": values}
    else:
        assert f"column 'x' holds {values} different texts in {rows:,} records" in _refusal(path)


def test_a_number_that_means_a_missing_cell(tmp_path: Path) -> None:
    """It is no category, no date and no doubt."""
    path = tmp_path / "t.csv"
    cells = zip(range(20), ["a", "b", "-999.0", ""] * 5, ["13.04.2019", "-999", "14.05.2020", ""] * 5, strict=True)
    path.write_text("id,k,d\n" + "".join(f"{row},{k},{d}\n" for row, k, d in cells))
    table = _read(path, names=["k", "d"], missing=-999.0)
    assert (table.categories["k"].values, table.categories["d"].date_format) == (["a", "b"], "%d.%m.%Y")
    assert np.isnan(table.features).mean() == 0.5


def test_cells_that_a_word_makes_missing_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """NA in a column of text may be Namibia, hence is said, also of several files and apart; in quotes it is text."""
    folder = tmp_path / "t"
    folder.mkdir()
    for part in range(2):
        lines = [f"{part}{row},{('NA', 'DE', 'FR', '')[row % 4]},{('NA', '1', '')[row % 3]}\n" for row in range(40)]
        (folder / f"{part}.csv").write_text("id,country,n\n" + "".join(lines))
    said = "column 'country': 20 cells count as missing by a word for it without quotes, such as NA or null"
    config = TableConfig(path=folder, id="id", columns=["country", "n"], encode="auto")
    for own in (config, config.kept_within(tmp_path, ReadApart)):
        caplog.clear()
        with caplog.at_level(logging.INFO, logger="treetap"):
            table = read_table(own, with_label=False, missing=None)
        assert [line for line in caplog.messages if line.endswith(said)], caplog.messages
        assert table.seen["country"].present == 40
    for path in folder.iterdir():
        path.write_text(path.read_text().replace(",NA,", ',"NA",'))
    table = read_table(config, with_label=False, missing=None)
    assert (table.seen["country"].present, table.says[1:]) == (60, [])


def test_columns_that_an_auditor_counts_in_days(tmp_path: Path) -> None:
    """Dates of a type, and text of one format alone."""
    doubt = {"when": ["01.02.2019"] * ROWS, "born": [day.strftime("%d/%m/%y") for day in DAYS], "typed": DAYS}
    path = _file(tmp_path, **SHOWN, **doubt)
    assert date_columns(path, [*SHOWN, *doubt, "absent"]) == ["opened", "start", "typed"]


def test_a_column_that_its_source_calls_categories(tmp_path: Path) -> None:
    """A dictionary is one whatever it holds, up to half of the records."""
    path = tmp_path / "t.arrow"
    coded = pa.array([3, 1, None, 2] * 30).dictionary_encode()
    feather.write_feather(pa.table({"id": list(range(ROWS)), "x": coded}), path, compression="uncompressed")
    assert _read(path, names=["x"]).categories["x"].values == ["1", "2", "3"]
    many = pa.array([f"c{row}" for row in range(ROWS)]).dictionary_encode()
    feather.write_feather(pa.table({"id": list(range(ROWS)), "x": many}), path, compression="uncompressed")
    assert "column 'x' holds another text in each record" in _refusal(path, names=["x"])


WIDTHS = (40, 160)


class Name(str):
    """A column's name that counts how often it is compared with another one."""

    compared = 0
    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return str.__eq__(self, other)


def _table(width: int) -> pa.Table:
    cells = {f"f{place}": [0.5 * place, 1.0, None, 2.0] for place in range(width)}
    return pa.table({"id": ["a", "b", "c", "d"], "y": [0, 1, 1, 0], **cells})


def _comparisons(work: Callable[[], object]) -> int:
    Name.compared = 0
    work()
    return Name.compared


def _halves(table: pa.Table, place: Path) -> None:
    place.mkdir()
    pq.write_table(table.slice(0, 2), place / "a.parquet")
    pq.write_table(table.slice(2), place / "b.parquet")


@pytest.mark.parametrize(
    ("ending", "write", "streamed"),
    [
        (".csv", pacsv.write_csv, False),
        (".feather", feather.write_feather, False),
        ("", _halves, False),
        (".parquet", pq.write_table, False),
        (".parquet", pq.write_table, True),
    ],
    ids=["csv", "feather", "folder", "parquet", "streamed"],
)
def test_comparisons_of_names_grow_with_the_columns(
    ending: str,
    write: Callable[[pa.Table, Path], object],
    streamed: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever the source, encoded columns and all included."""
    if streamed:
        monkeypatch.setattr("treetap.tables.streamed_reading.STREAMED", 0)
    found = {}
    for width in WIDTHS:
        place = tmp_path / f"{width}{ending}"
        write(_table(width), place)
        names = [Name(f"f{number}") for number in range(width)]
        config = TableConfig(path=place, id="id", label="y").model_copy(
            update={"columns": names, "encode": dict.fromkeys(names[::2], "categorical")}
        )
        found[width] = _comparisons(partial(read_table, config, with_label=True, missing=None, streams=True))
    few, many = WIDTHS
    assert found[many] <= 1.1 * many / few * found[few] + 50, found


def test_arrow_is_asked_for_a_schema_a_few_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The property makes it anew each time."""
    made = Counter[str]()
    real = pq.ParquetFile.schema_arrow.fget

    def counted(file: pq.ParquetFile) -> pa.Schema:
        made["schema"] += 1
        return real(file)

    monkeypatch.setattr(pq.ParquetFile, "schema_arrow", property(counted))
    path = parquet_file(tmp_path, _table(100))
    read(path, *(f"f{place}" for place in range(100)))
    assert 0 < made["schema"] < 5


def test_a_frame_is_not_searched_for_each_name() -> None:
    """Neither by counting a name in the list of all, nor by making that list again."""
    calls = Counter[str]()

    def seen(frame: Any, event: str, called: Any) -> None:
        del frame
        if event == "c_call":
            calls[called.__name__] += 1

    table = _table(100)
    sys.setprofile(seen)
    try:
        arrow_of(table)
    finally:
        sys.setprofile(None)
    assert calls["count"] == 0
    assert calls["index"] == 0


def test_the_table_of_an_experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its names, claims and shares."""
    found = {}
    for width in WIDTHS:
        names = [Name(name) for name in _table(width).column_names]
        pq.write_table(_table(width), tmp_path / "t.parquet")
        monkeypatch.setattr(joined_table, "columns_of", lambda _, names=names: names)
        parties = [{"name": "a", "labels": True, "columns": ["f0"]}, {"name": "b", "share": 1.0}]
        content = {"data": {"path": "t.parquet", "id": "id", "label": "y"}, "party": parties, "job": {}}
        experiment = ExperimentFile.model_validate(content)
        found[width] = _comparisons(partial(joined_table.read_table, experiment, tmp_path))
    few, many = WIDTHS
    assert found[many] <= 1.1 * many / few * found[few] + 50, found

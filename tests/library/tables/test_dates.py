"""Dates and their formats.

- Dates as days since 1970-01-01: the same number from every file, at prediction as in training.
- Formats of dates in text: the one that all cells show, or a setting; never a guess.

Tables in several files, and ids in several columns.

- Several files as one table: lists, folders and patterns; rows are named by file, files that disagree are refused.
- Tables whose records are known by several columns together.
"""

from __future__ import annotations

import re
import sqlite3
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from tests.library.tables.given import parquet_file, read, refusal, text_file
from treetap.models.own_split import OwnSplit
from treetap.tables.categories import Category
from treetap.tables.config import Encode
from treetap.tables.dates import ISO, date_text, mostly, parser, readings
from treetap.tables.opening import columns_of

NAN = float("nan")
EAST = timezone(timedelta(hours=2))
DATES = [date(1970, 1, 2), None, date(1969, 12, 31), date(2024, 2, 29)]
TIMES = [datetime(1970, 1, 1, 6), None, datetime(1969, 12, 31, 12), datetime(2024, 2, 29, 0, 0, 0, 500_000)]
ZONED = [None if moment is None else (moment + timedelta(hours=2)).replace(tzinfo=EAST) for moment in TIMES]
DAYS_OF_DATES = [1.0, NAN, -1.0, 19782.0]
DAYS_OF_TIMES = [0.25, NAN, -0.5, 19782.0 + 0.5 / 86_400]
DAY, LATE, EARLY = datetime(2019, 10, 2), datetime(2018, 12, 25), datetime(2020, 1, 31)


def _parquet(folder: Path, column: pa.Array, name: str = "opened") -> Path:
    content = {"id": [f"{i}" for i in range(len(column))], name: column}
    return parquet_file(folder, content, f"{len(list(folder.iterdir()))}.parquet")


@pytest.mark.parametrize("encode", ["days", {"opened": "days"}, {"*": "days"}])
@pytest.mark.parametrize("kind", ["parquet", "csv"])
@pytest.mark.parametrize(
    ("column", "days", "utc"),
    [
        (pa.array(DATES, pa.date32()), DAYS_OF_DATES, False),
        (pa.array(DATES, pa.date64()), DAYS_OF_DATES, False),
        (pa.array(TIMES, pa.timestamp("us")), DAYS_OF_TIMES, False),
        (pa.array(TIMES, pa.timestamp("ns")), DAYS_OF_TIMES, False),
        (pa.array(ZONED, pa.timestamp("ms", "Europe/Helsinki")), DAYS_OF_TIMES, True),
        (pa.array([each and each.isoformat() for each in DATES]), DAYS_OF_DATES, False),
        (pa.array([each and each.isoformat() for each in TIMES]), DAYS_OF_TIMES, False),
        (pa.array([each and each.isoformat() for each in ZONED]), DAYS_OF_TIMES, True),
        (pa.array([" 1970-01-01T06Z", "", "19691231T120000+0000", "2024-02-29T00:00:00.5Z"]), DAYS_OF_TIMES, True),
    ],
    ids=["date32", "date64", "us", "ns", "zone", "dates", "times", "offsets", "other forms"],
)
def test_days(encode: Encode, kind: str, column: pa.Array, days: list[float], utc: bool, tmp_path: Path) -> None:
    """Dates, times and ISO texts, of Parquet and of CSV; a number that marks missing cells is a day like any other."""
    path = _parquet(tmp_path, column)
    if kind == "csv":
        pacsv.write_csv(pq.read_table(path), path.with_suffix(".csv"))
        path = path.with_suffix(".csv")
    table = read(path, "opened", encode=encode, missing=-1.0)
    np.testing.assert_array_equal(table.features[:, 0], days)
    assert (table.columns, table.categories["opened"]) == (["opened"], Category("days", [], ["opened"], utc))
    np.testing.assert_array_equal(read(path, "opened", like=table, missing=-1.0).features[:, 0], days)


def test_a_prediction_reads_dates_as_the_training_did(tmp_path: Path) -> None:
    """Whatever the type in the new file; times of another kind are refused, also without any encode."""
    trained = read(_parquet(tmp_path, pa.array(DATES, pa.date32())), "opened", encode="days")
    texts = pa.array(["1970-01-02", None, "1969-12-31", "2024-02-29T12:00"])
    found = read(_parquet(tmp_path, texts), "opened", like=trained)
    np.testing.assert_array_equal(found.features[:, 0], [1, NAN, -1, 19782.5])
    assert np.isnan(read(_parquet(tmp_path, pa.nulls(3)), "opened", like=trained).features).all()
    for cells, why in (
        (pa.array(ZONED, pa.timestamp("us", "UTC")), "times of a zone, and times without a zone when it was trained"),
        (pa.array([1.0]), "double, not dates"),
    ):
        refusal(_parquet(tmp_path, cells), "opened", like=trained, match=f"column 'opened' holds {why}")


def test_dates_without_an_encoding(tmp_path: Path) -> None:
    """The message has the line that cures it, with quotation marks where the name needs them."""
    path = _parquet(tmp_path, pa.array(DATES, pa.date32()))
    for encode in ("one-hot", {"opened": "ordinal"}):
        refusal(path, "opened", encode=encode, match=r'holds date32\[day\].*encode = { opened = "days" }')
    refusal(path, "opened", match=r"column 'opened' holds dates; write in the.*\n.*\n  encode = { opened = .days. }")
    path = _parquet(tmp_path, pa.array(TIMES, pa.timestamp("us")), "day of birth")
    refusal(path, "day of birth", match=r'encode = { "day of birth" = "days" }')


@pytest.mark.parametrize(
    ("column", "fault"),
    [
        (pa.array(["2024-01-01", "01/02/2024"]), "row 2, column 'opened': the cell is not a date; dates are"),
        (
            pa.array(["2024-01-01T00:00Z", None, "2024-01-01"]),
            "row 3, column 'opened': the time has no offset",
        ),
        (pa.array(["2024-01-01", "2024-01-01T00:00Z"]), "row 2, column 'opened': the time has an offset, and the"),
        (pa.array([2**62], pa.timestamp("ms")), "more than 290,000 years away"),
        (pa.array([1, 2]), "column 'opened' holds int64, and encode is for text and dates"),
    ],
)
def test_what_is_no_date(column: pa.Array, fault: str, tmp_path: Path) -> None:
    """Told by row and column, and without the cell."""
    failure = refusal(_parquet(tmp_path, column), "opened", encode={"opened": "days"})
    assert fault in failure
    assert "01/02/2024" not in failure


def test_encodings_by_column(tmp_path: Path) -> None:
    """Each named column has its own, whatever its texts look like; the others that of `*`, or none."""
    content = {
        "id": ["a", "b", "c"],
        "zip": ["007", "7", "007"],
        "city": ["x", "y", "x"],
        "n": ["1", "2", "3"],
        "opened": ["2024-01-01", "2024-01-02", ""],
    }
    pacsv.write_csv(pa.table(content), path := tmp_path / "t.csv", pacsv.WriteOptions(quoting_style="none"))
    columns = ("zip", "city", "n", "opened")
    table = read(path, *columns, encode={"zip": "one-hot", "opened": "days", "*": "ordinal"})
    assert table.columns == ["zip=007", "zip=7", "city", "n", "opened"]
    np.testing.assert_array_equal(table.features[1], [0, 1, 1, 2, 19724])
    why = "column 'city' holds 2 different texts in 3 records: leave it out of columns"
    refusal(path, *columns, encode={"zip": "ordinal", "opened": "days"}, match=why)


@pytest.mark.parametrize(
    ("days", "utc", "text"),
    [
        (0.0, False, "1970-01-01"),
        (19782.5, False, "2024-02-29T12:00:00"),
        (19782.0, True, "2024-02-29T00:00:00Z"),
        (-0.25, True, "1969-12-31T18:00:00Z"),
        (1e8, False, "1e+08"),
    ],
)
def test_a_threshold_as_a_date(days: float, utc: bool, text: str) -> None:
    """Conditions of a model's splits at dates are read as dates, those beyond the calendar as numbers."""
    assert date_text(days, utc=utc) == text
    split = OwnSplit(0, 1, 1, 0, days, False)
    category = Category("days", [], ["opened"], utc).to_dict()
    shown = {"columns": ["n", "opened"], "categories": {"opened": category}}
    assert split.condition(shown, left=True) == f"opened < {text}"
    assert split.condition(shown, left=False) == f"opened ≥ {text} or missing"


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


def test_days_by_a_format(tmp_path: Path) -> None:
    """Given for all columns or by name, or detected; a cell of another format is named by its line."""
    path = text_file(tmp_path, "id,d\n1,02.10.2019\n2,\n3,25.12.2018\n")
    for keys in (
        {"encode": "auto"},
        {"encode": "days"},
        {"encode": {"d": "days"}},
        {"encode": "days", "date_format": "%d.%m.%Y"},
        {"encode": "auto", "date_format": {"d": "%d.%m.%Y"}},
    ):
        table = read(path, "d", **keys)
        np.testing.assert_array_equal(table.features[:, 0], [18171, np.nan, 17890])
        assert table.categories["d"].date_format == "%d.%m.%Y"
    for keys in ({"encode": "days"}, {"encode": {"d": "days"}, "date_format": {"d": "%d.%m.%Y"}}):
        path.write_text("id,d\n1,02.10.2019\n2,soon\n3,25.12.2018\n")
        why = "line 3, column 'd': the cell is not a date; the others are as"
        assert "soon" not in refusal(path, "d", match=why, **keys)


def test_whole_numbers_are_dates_by_a_format(tmp_path: Path) -> None:
    """Where it is named for their column: as numbers in a file of types, and as text in one without."""
    content = pa.table({"id": [1, 2, 3], "d": [20191002, None, 20181225]})
    pq.write_table(content, tmp_path / "t.parquet")
    pacsv.write_csv(content, tmp_path / "t.csv")
    for name in ("t.parquet", "t.csv"):
        for encode in ("auto", {"d": "days"}):
            table = read(tmp_path / name, "d", encode=encode, date_format={"d": "%Y%m%d"})
            np.testing.assert_array_equal(table.features[:, 0], [18171, np.nan, 17890])
        assert read(tmp_path / name, "d", encode="auto").features[0, 0] == 20191002
    why = "row 1, column 'd': the cell is not a date; the others are as date_format"
    refusal(tmp_path / "t.parquet", "d", encode="auto", date_format={"d": "%d.%m.%Y"}, match=why)


def test_days_that_may_be_months_are_asked_for(tmp_path: Path) -> None:
    """Each of the lines gives the other days."""
    path = text_file(tmp_path, "id,d\n1,01.02.2019\n")
    for encode in ("auto", "days"):
        said = refusal(path, "d", encode=encode, match="column 'd' holds dates whose day and month could change places")
        assert '  date_format = { d = "%d.%m.%Y" }  # as in 31.01.2024\n' in said
        assert '  date_format = { d = "%m.%d.%Y" }  # or as in 01.31.2024' in said
        days = [read(path, "d", encode=encode, date_format=f"%{form}.%Y").features[0, 0] for form in ("d.%m", "m.%d")]
        assert days == [17928, 17898]


ROWS = pa.table({"name": ["bo", "al", "al"], "born": [1990, 1985, 1970], "x": [0.5, 1.5, 2.5]})
IDS = ["2:al4:1970", "2:al4:1985", "2:bo4:1990"]


def parts(folder: Path, *names: str, **columns: Any) -> None:
    """A Parquet file of two rows for each name."""
    for number, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {"id": [f"r{2 * number + 1}", f"r{2 * number}"], "x": [2.0 * number + 1, 2.0 * number], **columns}
        pq.write_table(pa.table(content), path)


@pytest.mark.parametrize("form", ["folder", "pattern", "list", "deep"])
def test_a_table_in_several_files(form: str, tmp_path: Path) -> None:
    """A folder, a pattern and a list have the rows of all their files, in the order of names or of the list."""
    names = ["a.parquet", "b.parquet", "c.parquet"] if form != "deep" else ["a/x.parquet", "b.parquet", "c/d/y.parquet"]
    parts(tmp_path, *names)
    (tmp_path / "_metadata.parquet").write_bytes(b"no table")
    (tmp_path / ".hidden.parquet").write_bytes(b"no table")
    (tmp_path / "README.md").write_text("no table")
    path: Any = {"pattern": tmp_path / "[a-c].parquet", "list": [tmp_path / name for name in names]}.get(form, tmp_path)
    table = read(path, "x")
    assert table.ids == [f"r{k}" for k in range(6)]
    np.testing.assert_array_equal(table.features[:, 0], range(6))
    assert table.rows.tolist() == [1, 0, 3, 2, 5, 4]
    assert table.where(2) == f"{names[1]}, row 2"


def test_a_cell_is_named_by_its_file(tmp_path: Path) -> None:
    """Row and file of a fault in the second file, and both places of an id that is there twice."""
    parts(tmp_path, "a.parquet", "b.parquet")
    parquet_file(tmp_path, {"id": ["r9", "r8"], "x": [np.inf, 1.0]}, "c.parquet")
    refusal(tmp_path, "x", match=r": c\.parquet, row 1, column 'x': the cell is infinite")
    parquet_file(tmp_path, {"id": ["r9", "r0"], "x": [0.0, 1.0]}, "c.parquet")
    refusal(tmp_path, "x", match=r"c\.parquet, row 2, .*: the id is there already, at a\.parquet, row 2")


def test_files_of_csv(tmp_path: Path) -> None:
    """Each in its own delimiter, read as it is alone; text in one file is text in all."""
    text_file(tmp_path, "id,x,c\n1,1234,5\n", "a.csv")
    text_file(tmp_path, "id;x;c\n2;1.234,5;u\n3;x;7,0\n", "b.csv")
    refusal(tmp_path, "x", match=r"b\.csv, line 3, column 'x': the cell is not a number")
    text_file(tmp_path, "id;x;c\n2;1.234,5;u\n3;2;7,0\n", "b.csv")
    table = read(tmp_path, "x", "c", encode={"c": "ordinal"})
    np.testing.assert_array_equal(table.features[:, 0], [1234, 1234.5, 2])
    assert table.categories["c"].values == ["5", "7,0", "u"]
    text_file(tmp_path, "id;x;c\n4;1 234;1\n", "c.csv")
    refusal(tmp_path, "x", match=r"numbers are written differently in .*b\.csv and .*c\.csv")
    refusal(tmp_path, "x", decimal=",", thousands=".", match=r"c\.csv, line 2, column 'x'")


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ({"id": ["b"], "y": [1.0]}, "b.parquet has no column 'x', which a.parquet has"),
        ({"id": ["b"], "x": [1.0], "y": [1.0]}, "a.parquet has no column 'y', which b.parquet has"),
        ({"id": ["b"], "x": ["u"]}, "column 'x' holds string in b.parquet, and double in a.parquet: write one type"),
        ({"id": ["b"], "x": [True]}, "column 'x' holds bool in b.parquet, and double in a.parquet"),
    ],
)
def test_files_that_disagree(second: dict[str, Any], said: str, tmp_path: Path) -> None:
    """Both files and the column are named."""
    parts(tmp_path, "a.parquet")
    parquet_file(tmp_path, second, "b.parquet")
    refusal(tmp_path, "x", match=re.escape(said))


def test_widths_of_numbers_and_empty_columns_agree(tmp_path: Path) -> None:
    """As writers choose them by file: whole and real numbers, categories and text, nothing and something."""
    kinds = (pa.array([1, 2], pa.int32()), pa.array([0.5, None]), pa.array([None, None]))
    texts = (pa.array(["u", "v"]).dictionary_encode(), pa.array(["w", None], pa.large_string()), pa.array([None, "u"]))
    for number, (x, c) in enumerate(zip(kinds, texts, strict=True)):
        parquet_file(tmp_path, {"id": [f"{number}a", f"{number}b"], "x": x, "c": c}, f"{number}.parquet")
    table = read(tmp_path, "x", "c", encode="ordinal")
    np.testing.assert_array_equal(table.features[:, 0], [1, 2, 0.5, np.nan, np.nan, np.nan])
    assert table.categories["c"].values == ["u", "v", "w"]


def test_folders_that_are_columns(tmp_path: Path) -> None:
    """`year=2024` is a column of numbers, `site=a` one of text; a name that the files have too is refused."""
    parts(tmp_path, "year=2023/site=a/p.parquet", "year=2024/site=b/p.parquet")
    assert columns_of(read(tmp_path, "x").path) == ["id", "x", "year", "site"]  # type: ignore[arg-type]
    table = read(tmp_path, "site", "year", encode="ordinal")
    np.testing.assert_array_equal(table.features, [[0, 2023], [0, 2023], [1, 2024], [1, 2024]])
    parts(tmp_path, "other/p.parquet")
    refusal(tmp_path, "x", match=r"lies in folders of columns")
    parts(tmp_path / "again", "x=1/p.parquet", "x=2/p.parquet")
    refusal(tmp_path / "again", "x", match=r"column 'x' is in x=1/p.parquet and in the name of a folder")


def test_what_is_no_table_of_files(tmp_path: Path) -> None:
    """Folders and patterns without a file, mixed formats, one file twice, and no file at all."""
    refusal(tmp_path, "x", match="is a folder without a file whose name ends with")
    refusal(tmp_path / "*.parquet", "x", match="matches no file whose name ends with")
    parts(tmp_path, "a.parquet")
    refusal(
        [tmp_path / "a.parquet", tmp_path / "a.parquet"],
        "x",
        match=r"names file a\.parquet twice|names file .*a\.parquet twice",
    )
    text_file(tmp_path, "id,x\n1,2\n", "b.csv")
    refusal(tmp_path, "x", match=r"a\.parquet and b\.csv are of different formats")
    refusal([tmp_path / "a.parquet", tmp_path / "absent.parquet"], "x", match="there is no such file")
    with pytest.raises(ValueError, match="names no file"):
        read([], "x")


def test_a_file_with_a_pattern_in_its_name(tmp_path: Path) -> None:
    """A path that exists is a file, whatever characters it has."""
    parts(tmp_path, "t[1].parquet")
    assert read(tmp_path / "t[1].parquet", "x").ids == ["r0", "r1"]
    assert read(tmp_path / "t[1].parquet", "x").where(0) == "row 2"


def test_all_files_together_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound of memory holds for the table, not for each file."""
    parts(tmp_path, *(f"{number}.parquet" for number in range(20)))
    monkeypatch.setattr("treetap.tables.source.half_of_memory", lambda: 400)
    refusal(tmp_path, "x", match="the columns take up more than half of this machine's memory")


@pytest.mark.parametrize("streamed", [False, True])
def test_ids_of_several_columns(streamed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of the configuration; a file that is written for them has the columns with their types."""
    if streamed:
        monkeypatch.setattr("treetap.tables.streamed_reading.STREAMED", 0)
    path = parquet_file(tmp_path, ROWS)
    table = read(path, "x", id=["name", "born"], streams=True)
    assert list(table.ids) == IDS
    assert table.rows.tolist() == [2, 1, 0]
    assert table.features.ravel().tolist() == [2.5, 1.5, 0.5]
    own = table.id_columns
    written = pa.table(own.at(np.arange(3)), schema=pa.schema(own.fields))
    assert written.equals(ROWS.select(["name", "born"]).take([2, 1, 0]))
    assert read(path, "x", id=["born", "name"]).ids[0] == "4:19702:al"
    refusal(path, id=["name", "birth"], match="has no column 'birth'")


def test_ids_of_csv_are_text_as_it_is_written(tmp_path: Path) -> None:
    table = read(text_file(tmp_path, "name,born,x\nbo,0990,1\nal,1985,2\n"), "x", id=["name", "born"])
    assert list(table.ids) == ["2:al4:1985", "2:bo4:0990"]
    assert table.id_types == {"name": pa.string(), "born": pa.string()}


def test_rows_of_a_query_come_in_the_order_of_all_their_ids(tmp_path: Path) -> None:
    """Whatever order the database gives them: two readings have the same rows."""
    pytest.importorskip("adbc_driver_sqlite")
    with sqlite3.connect(tmp_path / "d.sqlite") as database:
        database.execute("create table t (name text, born integer, x real)")
        database.executemany("insert into t values (?, ?, ?)", zip(*ROWS.to_pydict().values(), strict=True))
    query = {"uri": f"sqlite:{tmp_path / 'd.sqlite'}", "query": "select * from t"}
    table = read(None, "x", id=["name", "born"], **query)
    assert list(table.ids) == IDS
    assert table.rows.tolist() == [0, 1, 2]

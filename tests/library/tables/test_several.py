"""Tables in several files, and ids in several columns.

- Several files as one table: lists, folders and patterns; rows are named by file, files that disagree are refused.
- Tables whose records are known by several columns together.
"""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.library.tables.given import parquet_file, read, refusal, text_file
from treetap.tables.opening import columns_of

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

"""A party's table: what is read, in which order, and how each fault of a file is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from party.config import TableConfig
from party.table import Table, read_ids, read_table
from treetap.errors import DataError

NAN = float("nan")
#: Records as they stand in the files; sorted by id they are b, c, d.
IDS, A, B = ["d", "b", "c"], [1.5, None, -2.0], [7, 8, 9]


def _csv(folder: Path, text: str) -> Path:
    path = folder / "table.csv"
    path.write_text(text, encoding="utf-8")
    return path


def _parquet(folder: Path, name: str = "table.parquet", **columns: Any) -> Path:
    path = folder / name
    pq.write_table(pa.table(columns), path)
    return path


def _read(path: Path, *columns: str, missing: float | None = None, label: str | None = None) -> Table:
    config = TableConfig(path=path, id="id", columns=list(columns), label=label)
    return read_table(config, with_label=label is not None, missing=missing)


def _fault(path: Path, *columns: str) -> str:
    with pytest.raises(DataError) as caught:
        _read(path, *columns)
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_records_come_sorted_by_id(kind: str, tmp_path: Path) -> None:
    """CSV and Parquet give the same ids, features and label, in the order of the ids."""
    if kind == "csv":
        path = _csv(tmp_path, "y,a,id,b\nno,1.5,d,7\nyes,,b,8\nno,-2,c,9\n")
    else:
        path = _parquet(tmp_path, y=["no", "yes", "no"], a=A, id=IDS, b=B)
    table = _read(path, "b", "a", label="y")
    assert table.ids == ["b", "c", "d"]
    assert table.columns == ["b", "a"]
    np.testing.assert_array_equal(table.features, [[8, NAN], [9, -2], [7, 1.5]])
    assert table.label is not None
    assert table.label.to_pylist() == ["yes", "no", "no"]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_other_columns_are_not_loaded(kind: str, tmp_path: Path) -> None:
    """A column that is not named may hold anything, even text, and never gets into the table."""
    if kind == "csv":
        path = _csv(tmp_path, "id,a,secret,y\n1,2,no number,0\n2,3,nor this,1\n")
    else:
        path = _parquet(tmp_path, id=[1, 2], a=[2, 3], secret=["no number", "nor this"], y=[0, 1])
    table = _read(path, "a")
    assert table.columns == ["a"]
    np.testing.assert_array_equal(table.features, [[2], [3]])
    assert table.label is None


def test_a_party_may_have_no_columns(tmp_path: Path) -> None:
    """Ids alone are a table of width 0."""
    assert _read(_csv(tmp_path, "id,a\n2,x\n1,y\n")).features.shape == (2, 0)


def test_integers_booleans_and_decimals_are_numbers(tmp_path: Path) -> None:
    """Every column type that stands for a number becomes float64, rounded where float64 has no more digits."""
    path = _parquet(
        tmp_path,
        id=[1, 2],
        whole=[2**60 + 1, 3],
        flag=[True, False],
        money=pa.array([1, 2], pa.decimal128(9, 2)),
        short=pa.array([0.5, None], pa.float16()),
        nothing=pa.array([None, None]),
    )
    table = _read(path, "whole", "flag", "money", "short", "nothing")
    np.testing.assert_array_equal(table.features, [[2.0**60, 1, 1, 0.5, NAN], [3, 0, 2, NAN, NAN]])


def test_whole_numbers_and_text_are_the_same_ids(tmp_path: Path) -> None:
    """Ids 1, 2, 10 agree whether a party keeps them as numbers, as text or in a CSV file."""
    whole = _read(_parquet(tmp_path, "whole.parquet", id=[10, 2, 1]))
    text = _read(_parquet(tmp_path, "text.parquet", id=["1", "10", " 2 "]))
    csv = _read(_csv(tmp_path, "id,a\n2,0\n10,0\n1,0\n"))
    assert whole.ids == text.ids == csv.ids == ["1", "10", "2"]
    assert whole.digest() == text.digest() == csv.digest()


def test_ids_of_a_csv_file_stay_as_written(tmp_path: Path) -> None:
    """Leading zeros, dates and more digits than an integer has are kept, so that they match a text column elsewhere."""
    ids = ["007", "2024-01-02", "7", "99999999999999999999"]
    csv = _read(_csv(tmp_path, "id,a\n" + "".join(f"{value},1\n" for value in reversed(ids))), "a")
    assert csv.ids == ids
    assert csv.digest() == _read(_parquet(tmp_path, id=ids)).digest()


def test_the_digest_is_of_the_ids_alone(tmp_path: Path) -> None:
    """Neither the order of rows nor a value changes the digest; an id does, and so does where one id ends."""
    first = _read(_csv(tmp_path, "id,a\n1,5\n23,6\n"), "a").digest()
    assert _read(_csv(tmp_path, "id,a\n23,0\n1,9\n"), "a").digest() == first
    assert _read(_csv(tmp_path, "id,a\n1,5\n24,6\n"), "a").digest() != first
    assert _read(_csv(tmp_path, "id,a\n12,5\n3,6\n"), "a").digest() != first
    assert _read(_csv(tmp_path, "id,a\n1,5\n23,6\n3,7\n"), "a").digest() != first


def test_the_missing_value(tmp_path: Path) -> None:
    """A cell equal to `missing` is missing, beside empty cells, NaN and NA; without it -1 is a number."""
    path = _csv(tmp_path, "id,a,b\n1,-1,1\n2,,-1\n3,NaN,NA\n")
    table = _read(path, "a", "b", missing=-1.0)
    np.testing.assert_array_equal(table.features, [[NAN, 1], [NAN, NAN], [NAN, NAN]])
    np.testing.assert_array_equal(_read(path, "a", "b", missing=NAN).features, [[-1, 1], [NAN, -1], [NAN, NAN]])


def test_a_cell_that_is_no_number(tmp_path: Path) -> None:
    """The message names file, line and column, not the cell; a cell marked NA before it is missing, not wrong."""
    fault = _fault(_csv(tmp_path, "id,a,b\n1,1,1\n2,NA,2\n3,abc,3\n"), "b", "a")
    assert "line 4, column 'a': the cell is not a number" in fault
    assert "abc" not in fault


def test_lines_are_counted_as_an_editor_counts_them(tmp_path: Path) -> None:
    """Empty lines and a cell that spans two lines do not shift the line that a message names."""
    fault = _fault(_csv(tmp_path, 'id,a,note\n\n1,1,"two\nlines"\n\n2,abc,x\n'), "a")
    assert "line 6, column 'a'" in fault


@pytest.mark.parametrize("cell", ["inf", "-inf", "1e999"])
def test_an_infinite_cell(cell: str, tmp_path: Path) -> None:
    """An infinite cell is refused with its line, in a column of numbers and in one that has text too."""
    assert "line 3, column 'a': the cell is infinite" in _fault(_csv(tmp_path, f"id,a\n1,1\n2,{cell}\n"), "a")


def test_a_fault_in_parquet_names_the_row(tmp_path: Path) -> None:
    """Parquet has no lines: rows count from 1."""
    assert "row 2, column 'a': the cell is infinite" in _fault(_parquet(tmp_path, id=[5, 4], a=[1.0, np.inf]), "a")
    assert "row 3, column 'id': the id is there already, at row 1" in _fault(_parquet(tmp_path, id=[5, 4, 5]))


def test_a_column_that_holds_no_numbers(tmp_path: Path) -> None:
    """A column of dates is refused by its type."""
    assert "column 'a' holds date32" in _fault(_csv(tmp_path, "id,a\n1,2024-01-02\n"), "a")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id,a\n1,1\n,2\n", "line 3, column 'id': the id is missing"),
        ("id,a\n1,1\n  ,2\n", "line 3, column 'id': the id is missing"),
        ("id,a\n1,1\n2,2\n 1,3\n", "line 4, column 'id': the id is there already, at line 2"),
        ("id,b\n1,1\n", "has no column 'a'; it has 'id', 'b'"),
        ("id;a\n1;1\n", "has no column 'id', 'a'; it has 'id;a'"),
        ("id,a,a\n1,1,2\n", "has column 'a' more than once"),
        ("id,a\n", "has no rows"),
        ("", "is neither CSV nor Parquet"),
        ("id,a\n1,1\n2\n", "Expected 2 columns, got 1"),
    ],
)
def test_faults_of_a_csv_file(text: str, expected: str, tmp_path: Path) -> None:
    """Ids that are missing or doubled, columns that are absent or doubled, and files without records."""
    assert expected in _fault(_csv(tmp_path, text), "a")


def test_files_that_are_no_tables(tmp_path: Path) -> None:
    """No file, a folder, another format and another encoding are each told apart from a fault of the data."""
    assert "there is no such file" in _fault(tmp_path / "absent.csv", "a")
    assert "there is no such file" in _fault(tmp_path / "absent.parquet", "a")
    folder = tmp_path / "folder.csv"
    folder.mkdir()
    assert "is neither CSV nor Parquet" in _fault(folder, "a")
    other = tmp_path / "other.parquet"
    other.write_bytes(b"PK\x03\x04 this is something else")
    assert "is neither CSV nor Parquet" in _fault(other, "a")
    latin = tmp_path / "latin.csv"
    latin.write_bytes("id,größe\n1,2\n".encode("latin-1"))
    assert "not UTF-8" in _fault(latin, "größe")


def test_a_message_about_a_wide_table_stays_short(tmp_path: Path) -> None:
    """The columns that a table does have are listed up to a point: the message travels in a gRPC header."""
    fault = _fault(_csv(tmp_path, "id," + ",".join(f"column{i}" for i in range(5000)) + "\n"), "a")
    assert len(fault) < 1000
    assert "and 4981 more" in fault


def test_ids_of_a_kind_that_cannot_agree(tmp_path: Path) -> None:
    """Floating-point ids are refused: 0.1 is not the same text everywhere."""
    assert "column 'id' holds double" in _fault(_parquet(tmp_path, id=[0.5, 1.5]))


def test_a_label_must_be_configured(tmp_path: Path) -> None:
    """Asking for labels of a table whose configuration names none is an error, not a table without labels."""
    config = TableConfig(path=_csv(tmp_path, "id,a\n1,1\n"), id="id", columns=["a"])
    with pytest.raises(DataError, match="names no label column"):
        read_table(config, with_label=True, missing=None)


@pytest.mark.parametrize(
    ("name", "content"),
    [("ids.txt", "b\n\n a \n007\n"), ("ids.csv", "who,when\nb,1\na,2\n007,3\n"), ("ids", "b\na\n007")],
)
def test_files_of_ids(name: str, content: str, tmp_path: Path) -> None:
    """One id a line, or the first column of a CSV file, in the order of the file."""
    path = tmp_path / name
    path.write_text(content)
    assert read_ids(path) == ["b", "a", "007"]


def test_faults_of_files_of_ids(tmp_path: Path) -> None:
    """A doubled id, text in another encoding, a column-less and an absent file are refused by name."""
    path = tmp_path / "ids.txt"
    path.write_text("a\nb\na\n")
    with pytest.raises(DataError, match="row 3, column 'id': the id is there already, at row 1"):
        read_ids(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="is not UTF-8"):
        read_ids(path)
    pq.write_table(pa.table({}), tmp_path / "ids.parquet")
    with pytest.raises(DataError, match="has no column"):
        read_ids(tmp_path / "ids.parquet")
    with pytest.raises(DataError, match="absent"):
        read_ids(tmp_path / "absent.txt")

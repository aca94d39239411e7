"""A party's table: what is read, in which order, and how each fault of a file is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from treetap.errors import DataError
from treetap.tables.config import TableConfig
from treetap.tables.reading import Table, read_ids, read_table

NAN = float("nan")


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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id,a\n1,1\n,2\n", "line 3, column 'id': the id is missing"),
        ("id,a\n1,1\n  ,2\n", "line 3, column 'id': the id is missing"),
        ("id,a\n1,1\n2,2\n 1,3\n", "line 4, column 'id': the id is there already, at line 2"),
        ("id,b\n1,1\n", "has no column 'a'; this party's log lists"),
        ("key,b\n1,1\n", "has no column 'id', nor 1 more that the configuration names; this party's log lists"),
        ("id,a,a\n1,1,2\n", "has column 'a' more than once"),
        ("id,a\n", "has no rows"),
        ("", "is not readable CSV: it is empty"),
        ("id,a\n\n1,1\n2\n3,3,3\n", "line 4: 2 cells expected, 1 found"),
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
    assert "is a folder" in _fault(folder, "a")
    loop = tmp_path / "loop.csv"
    loop.symlink_to(loop)
    assert "cannot be read: Too many levels" in _fault(loop, "a")
    other = tmp_path / "other.parquet"
    other.write_bytes(b"PK\x03\x04 this is something else")
    assert _fault(other, "a") == f"{other}: is a ZIP archive, not Parquet as its name says: unpack it"
    other.write_bytes(b"a,b\n1,2\n")
    assert _fault(other, "a") == f"{other}: is not readable Parquet"
    latin = tmp_path / "latin.csv"
    latin.write_bytes("id,größe\n1,2\n".encode("latin-1"))
    assert "not UTF-8" in _fault(latin, "größe")


def test_only_the_log_lists_a_tables_columns(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A missing column is told by its name, also of many that are missing; what the file has is for its owner."""
    path = _parquet(tmp_path, id=[1, 2], diagnosis=[0, 1])
    with caplog.at_level("INFO", "treetap.tables"):
        fault = _fault(path, *(f"column{i}" for i in range(5000)))
    assert "has no column 'column0', nor 4999 more" in fault
    assert "diagnosis" not in fault
    assert len(fault) - len(str(path)) < 200
    assert "'id', 'diagnosis'" in caplog.text


@pytest.mark.second_tier
def test_a_ragged_row_far_down(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Beyond the first block too a row of another width is told by its line, whatever its bytes; not its cells."""
    path = tmp_path / "table.csv"
    path.write_bytes(b"id,a\n" + b"1,1\n\n" * 300_000 + b"secret,\xfc,9\n")
    with caplog.at_level("DEBUG", "treetap.tables"):
        assert _fault(path, "a") == f"{path}: line 600002: 2 cells expected, 3 found"
    assert "ArrowInvalid" in caplog.text
    assert "secret" not in caplog.text


def test_cells_with_line_breaks_in_a_large_file(tmp_path: Path) -> None:
    """A quoted line break may fall where one block of the file ends and the next begins."""
    path = _csv(tmp_path, "id,a,note\n" + "".join(f'{i},{i},"two\nlines, and\nthree"\n' for i in range(60_000)))
    assert _read(path, "a").features.sum() == 60_000 * 59_999 / 2


def test_a_fault_below_a_very_long_cell(tmp_path: Path) -> None:
    """A cell that is longer than Python's csv allows at first hides neither the line nor the fault."""
    long = "x" * 140_000
    assert "line 3, column 'a': the cell is not" in _fault(_csv(tmp_path, f"id,a,note\n1,1,{long}\n2,abc,x\n"), "a")
    assert "line 3: 2 cells expected, 1 found" in _fault(_csv(tmp_path, f"id,a\n1,{long}\n2\n"), "a")


def test_the_place_of_a_record_in_a_file_that_has_changed(tmp_path: Path) -> None:
    """A record that the file no longer has is told by the row where it stood."""
    path = _csv(tmp_path, "id,a\n1,1\n2,2\n3,3\n")
    table = _read(path, "a")
    assert table.where(2) == "line 4"
    path.write_text("id,a\n1,1\n")
    assert table.where(2) == "row 3"
    path.unlink()
    assert table.where(1) == "row 2"


def test_text_in_another_encoding(tmp_path: Path) -> None:
    """A CSV cell that is not UTF-8 is told by its line, whether it is an id or a feature."""
    path = tmp_path / "table.csv"
    path.write_bytes(b"id,a\n1,1\n\xfc,1\n3,\xfc\n")
    assert "line 3, column 'id': the cell is not UTF-8 text" in _fault(path, "a")
    path.write_bytes(b"id,a\n1,1\n2,1\n3,\xfc\n")
    assert "line 4, column 'a': the cell is not UTF-8 text" in _fault(path, "a")


def test_ids_of_a_kind_that_cannot_agree(tmp_path: Path) -> None:
    """Floating-point ids are refused: 0.1 is not the same text everywhere."""
    assert "column 'id' holds double" in _fault(_parquet(tmp_path, id=[0.5, 1.5]))


@pytest.mark.parametrize(
    ("name", "content"),
    [("ids.txt", "b\n\n a \n007\n"), ("ids.csv", "who,when\nb,1\na,2\n007,3\n"), ("ids", "b\na\n007")],
)
def test_files_of_ids(name: str, content: str, tmp_path: Path) -> None:
    """One id a line, or the first column of a CSV file, in the order of the file."""
    path = tmp_path / name
    path.write_text(content)
    assert read_ids(path) == ["b", "a", "007"]


@pytest.mark.parametrize("second", ["", "\xfc", "b"])
def test_a_file_of_ids_without_a_header(second: str, tmp_path: Path) -> None:
    """The first line may be somebody's id by mistake, so no message shows the name of the first column."""
    path = tmp_path / "ids.csv"
    path.write_text(f"secret,1\nb,2\n{second},3\n", encoding="latin-1")
    with pytest.raises(DataError, match="line 3, first column: the ") as caught:
        read_ids(path)
    assert "secret" not in str(caught.value)
    path.write_text("secret,secret\nb,2\n")
    with pytest.raises(DataError, match="another column has the name of the first") as caught:
        read_ids(path)
    assert "secret" not in str(caught.value)


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


def test_a_missing_value_is_found_in_columns_of_32_bits(tmp_path: Path) -> None:
    """-999.9 in 32 bits is another number than in 64; both are the value that was written."""
    table = pa.table(
        {
            "id": ["a", "b"],
            "narrow": pa.array([-999.9, 1.0], pa.float32()),
            "half": pa.array(np.array([-999.9, 1.0], dtype=np.float16)),
            "wide": [-999.9, 1.0],
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    config = TableConfig(path=tmp_path / "t.parquet", id="id", columns=["narrow", "half", "wide"])
    found = read_table(config, with_label=False, missing=-999.9)
    assert np.isnan(found.features[0]).all()
    assert (found.features[1] == 1.0).all()


@pytest.mark.parametrize("cell", ["1_000", "\uff11\uff12"])
def test_numbers_are_written_as_csv_files_write_them(cell: str, tmp_path: Path) -> None:
    """What only Python takes for a number is none."""
    (tmp_path / "t.csv").write_text(f"id,a\nw,1\nx,{cell}\ny,z\n", encoding="utf-8")
    config = TableConfig(path=tmp_path / "t.csv", id="id", columns=["a"])
    with pytest.raises(DataError, match="line 3, column 'a': the cell is not a number"):
        read_table(config, with_label=False, missing=None)

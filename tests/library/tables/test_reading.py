"""A party's table: what is read, in which order, and how each fault of a file is told.

Sample weights: which cells are some, where a fault is, and what a configuration may say of their column.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.library.tables.given import parquet_file, read, refusal, text_file
from treetap.errors import DataError
from treetap.party.setup.steps import fingerprint
from treetap.tables.config import TableConfig
from treetap.tables.label_columns import cells_of
from treetap.tables.labels import read_labels, read_targets
from treetap.tables.reading import read_ids, read_table
from treetap.tables.written import content_of

NAN = float("nan")
#: Records as they stand in the files; sorted by id they are b, c, d.
IDS, A, B = ["d", "b", "c"], [1.5, None, -2.0], [7, 8, 9]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_records_come_sorted_by_id(kind: str, tmp_path: Path) -> None:
    """CSV and Parquet give the same ids, features and label, in the order of the ids."""
    if kind == "csv":
        path = text_file(tmp_path, "y,a,id,b\nno,1.5,d,7\nyes,,b,8\nno,-2,c,9\n")
    else:
        path = parquet_file(tmp_path, {"y": ["no", "yes", "no"], "a": A, "id": IDS, "b": B})
    table = read(path, "b", "a", label="y")
    assert table.ids == ["b", "c", "d"]
    assert table.columns == ["b", "a"]
    np.testing.assert_array_equal(table.features, [[8, NAN], [9, -2], [7, 1.5]])
    assert table.label is not None
    assert cells_of(table.label).to_pylist() == ["yes", "no", "no"]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_other_columns_are_not_loaded(kind: str, tmp_path: Path) -> None:
    """A column that is not named may hold anything, even text, and never gets into the table."""
    if kind == "csv":
        path = text_file(tmp_path, "id,a,secret,y\n1,2,no number,0\n2,3,nor this,1\n")
    else:
        path = parquet_file(tmp_path, {"id": [1, 2], "a": [2, 3], "secret": ["no number", "nor this"], "y": [0, 1]})
    table = read(path, "a")
    assert table.columns == ["a"]
    np.testing.assert_array_equal(table.features, [[2], [3]])
    assert table.label is None


def test_a_party_may_have_no_columns(tmp_path: Path) -> None:
    """Ids alone are a table of width 0."""
    assert read(text_file(tmp_path, "id,a\n2,x\n1,y\n")).features.shape == (2, 0)


def test_integers_booleans_and_decimals_are_numbers(tmp_path: Path) -> None:
    """Every column type that stands for a number becomes float64, rounded where float64 has no more digits."""
    path = parquet_file(
        tmp_path,
        {
            "id": [1, 2],
            "whole": [2**60 + 1, 3],
            "flag": [True, False],
            "money": pa.array([1, 2], pa.decimal128(9, 2)),
            "short": pa.array([0.5, None], pa.float16()),
            "nothing": pa.array([None, None]),
        },
    )
    table = read(path, "whole", "flag", "money", "short", "nothing")
    np.testing.assert_array_equal(table.features, [[2.0**60, 1, 1, 0.5, NAN], [3, 0, 2, NAN, NAN]])


def test_whole_numbers_and_text_are_the_same_ids(tmp_path: Path) -> None:
    """Ids 1, 2, 10 agree whether a party keeps them as numbers, as text or in a CSV file."""
    whole = read(parquet_file(tmp_path, {"id": [10, 2, 1]}, "whole.parquet"))
    text = read(parquet_file(tmp_path, {"id": ["1", "10", " 2 "]}, "text.parquet"))
    csv = read(text_file(tmp_path, "id,a\n2,0\n10,0\n1,0\n"))
    assert whole.ids == text.ids == csv.ids == ["1", "10", "2"]
    assert whole.ids.digest == text.ids.digest == csv.ids.digest


def test_ids_of_a_csv_file_stay_as_written(tmp_path: Path) -> None:
    """Leading zeros, dates and more digits than an integer has are kept, so that they match a text column elsewhere."""
    ids = ["007", "2024-01-02", "7", "99999999999999999999"]
    csv = read(text_file(tmp_path, "id,a\n" + "".join(f"{value},1\n" for value in reversed(ids))), "a")
    assert csv.ids == ids
    assert csv.ids.digest == read(parquet_file(tmp_path, {"id": ids})).ids.digest


def test_the_digest_is_of_the_ids_alone(tmp_path: Path) -> None:
    """Neither the order of rows nor a value changes the digest; an id does, and so does where one id ends."""
    first = read(text_file(tmp_path, "id,a\n1,5\n23,6\n"), "a").ids.digest
    assert read(text_file(tmp_path, "id,a\n23,0\n1,9\n"), "a").ids.digest == first
    assert read(text_file(tmp_path, "id,a\n1,5\n24,6\n"), "a").ids.digest != first
    assert read(text_file(tmp_path, "id,a\n12,5\n3,6\n"), "a").ids.digest != first
    assert read(text_file(tmp_path, "id,a\n1,5\n23,6\n3,7\n"), "a").ids.digest != first


def test_the_missing_value(tmp_path: Path) -> None:
    """A cell equal to `missing` is missing, beside empty cells, NaN and NA; without it -1 is a number."""
    path = text_file(tmp_path, "id,a,b\n1,-1,1\n2,,-1\n3,NaN,NA\n")
    table = read(path, "a", "b", missing=-1.0)
    np.testing.assert_array_equal(table.features, [[NAN, 1], [NAN, NAN], [NAN, NAN]])
    np.testing.assert_array_equal(read(path, "a", "b", missing=NAN).features, [[-1, 1], [NAN, -1], [NAN, NAN]])


def test_a_fault_in_parquet_names_the_row(tmp_path: Path) -> None:
    """Parquet has no lines: rows count from 1."""
    assert "row 2, column 'a': the cell is infinite" in refusal(
        parquet_file(tmp_path, {"id": [5, 4], "a": [1.0, np.inf]}), "a"
    )
    assert "row 3, column 'id': the id is there already, at row 1" in refusal(parquet_file(tmp_path, {"id": [5, 4, 5]}))


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
        # a cell marked NA is missing, not wrong; empty lines and line breaks in cells count
        ("id,a\n1,1\n2,NA\n3,secret\n", "line 4, column 'a': the cell is not a number"),
        ('id,a,note\n\n1,1,"two\nlines"\n\n2,secret,x\n', "line 6, column 'a': the cell is not a number"),
        *[(f"id,a\n1,1\n2,{cell}\n", "line 3, column 'a': the cell is infinite") for cell in ("inf", "-inf", "1e999")],
        # what only Python takes for a number
        *[(f"id,a\n1,1\n2,{cell}\n3,z\n", "line 3, column 'a': the cell is not") for cell in ("1_000", "\uff11\uff12")],
        # longer than Python's csv allows at first
        (f"id,a,note\n1,1,{'x' * 140_000}\n2,secret,x\n", "line 3, column 'a': the cell is not"),
        (f"id,a\n1,{'x' * 140_000}\n2\n", "line 3: 2 cells expected, 1 found"),
        ('id,a\n1,"' + "secret,\n" * 400_000, "line 2: no quote at the end of a cell closes the one that opens there"),
        # bytes that are not UTF-8
        ("id,a\n1,1\n\udcfc,1\n3,\udcfc\n", "line 3, column 'id': the cell is not UTF-8 text"),
        ("id,a\n1,1\n2,1\n3,\udcfc\n", "line 4, column 'a': the cell is not UTF-8 text"),
    ],
    ids=lambda text: text[:40],
)
def test_faults_of_a_csv_file(text: str, expected: str, tmp_path: Path) -> None:
    """Told by the line, as an editor counts it, never by the cell."""
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode(errors="surrogateescape"))
    said = refusal(path, "a")
    assert expected in said
    assert "secret" not in said


def test_files_that_are_no_tables(tmp_path: Path) -> None:
    """No file, a folder, another format and another encoding are each told apart from a fault of the data."""
    assert "there is no such file" in refusal(tmp_path / "absent.csv", "a")
    assert "there is no such file" in refusal(tmp_path / "absent.parquet", "a")
    folder = tmp_path / "folder.csv"
    folder.mkdir()
    assert "is a folder" in refusal(folder, "a")
    loop = tmp_path / "loop.csv"
    loop.symlink_to(loop)
    assert "cannot be read: Too many levels" in refusal(loop, "a")
    other = tmp_path / "other.parquet"
    other.write_bytes(b"PK\x03\x04 this is something else")
    assert refusal(other, "a") == f"{other}: is a ZIP archive, not Parquet as its name says: unpack it"
    other.write_bytes(b"a,b\n1,2\n")
    assert refusal(other, "a") == f"{other}: is not readable Parquet"
    latin = tmp_path / "latin.csv"
    latin.write_bytes("id,größe\n1,2\n".encode("latin-1"))
    assert "not UTF-8" in refusal(latin, "größe")


def test_only_the_log_lists_a_tables_columns(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A missing column is told by its name, also of many that are missing; what the file has is for its owner."""
    path = parquet_file(tmp_path, {"id": [1, 2], "diagnosis": [0, 1]})
    with caplog.at_level("INFO", "treetap.tables"):
        fault = refusal(path, *(f"column{i}" for i in range(5000)))
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
        assert refusal(path, "a") == f"{path}: line 600002: 2 cells expected, 3 found"
    assert "ArrowInvalid" in caplog.text
    assert "secret" not in caplog.text


def test_cells_with_line_breaks_in_a_large_file(tmp_path: Path) -> None:
    """A quoted line break may fall where one block of the file ends and the next begins."""
    path = text_file(tmp_path, "id,a,note\n" + "".join(f'{i},{i},"two\nlines, and\nthree"\n' for i in range(60_000)))
    assert read(path, "a").features.sum() == 60_000 * 59_999 / 2


def test_the_place_of_a_record_in_a_file_that_has_changed(tmp_path: Path) -> None:
    """A record that the file no longer has is told by the row where it stood."""
    path = text_file(tmp_path, "id,a\n1,1\n2,2\n3,3\n")
    table = read(path, "a")
    assert table.where(2) == "line 4"
    path.write_text("id,a\n1,1\n")
    assert table.where(2) == "row 3"
    path.unlink()
    assert table.where(1) == "row 2"


def test_text_of_parquet_is_checked(tmp_path: Path) -> None:
    """Parquet writers need not check what they call text; views of text are text too."""
    bad = pa.array([b"a", b"\xfc"]).view(pa.string())
    assert "row 2, column 'id': the cell is not UTF-8" in refusal(parquet_file(tmp_path, {"id": bad}))
    views = pa.array(["b", "a"], pa.string_view())
    assert read(parquet_file(tmp_path, {"id": views})).ids == ["a", "b"]


def test_categories(tmp_path: Path) -> None:
    """Dictionary columns count as what they stand for: ids and labels as text, features as numbers, null as missing."""
    columns = {"id": IDS, "a": [7.5, None, 7.5], "b": ["2", "10", None], "c": ["1", "2", "secret"]}
    y = pa.array(["no", "yes", "no"], pa.large_string())
    path = parquet_file(tmp_path, {k: pa.array(v).dictionary_encode() for k, v in {**columns, "y": y}.items()})
    table = read(path, "a", "b", label="y")
    assert table.ids == ["b", "c", "d"]
    np.testing.assert_array_equal(table.features, [[NAN, 10], [7.5, NAN], [7.5, 2]])
    assert table.label is not None
    assert cells_of(table.label).to_pylist() == ["yes", "no", "no"]
    assert "row 3, column 'c': the cell is not a number; encode text" in refusal(path, "c")


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (pa.array([[77], [78]]), "list"),
        (pa.array([{"inner": 77}, {"inner": 78}]), "struct"),
        (pa.array([77, 78], pa.time64("us")), "time64[us]"),
        (pa.array([77, 78], pa.duration("s")), "duration[s]"),
    ],
)
def test_kinds_of_column_that_are_no_use(cells: pa.Array, kind: str, tmp_path: Path) -> None:
    """Times and nested values are neither ids nor features: the kind is told, no cell and no nested name."""
    fault = refusal(parquet_file(tmp_path, {"id": [0, 1], "a": cells}), "a")
    assert f"column 'a' holds {kind}, not numbers" in fault
    fault += refusal(parquet_file(tmp_path, {"id": cells}))
    assert ("row 2, column 'id': the id is missing" if cells.null_count else f"column 'id' holds {kind}; ids") in fault
    assert not any(told in fault.replace(str(tmp_path), "") for told in ("7", "inner", "000001"))


@pytest.mark.parametrize(
    ("name", "content"),
    [("ids.txt", "b\n\n a \n007\n"), ("ids.csv", "who,when\nb,1\na,2\n007,3\n"), ("ids", "b\na\n007")],
)
def test_files_of_ids(name: str, content: str, tmp_path: Path) -> None:
    """One id a line, or the first column of a CSV file, in the order of the file."""
    path = text_file(tmp_path, content, name)
    assert read_ids(path) == ["b", "a", "007"]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        *[("ids.csv", f"secret,1\nb,2\n{cell},3\n", "line 3, first column: the ") for cell in ("", "\xfc", "b")],
        ("ids.csv", "secret,secret\nb,2\n", "another column has the name of the first"),
        ("ids.csv", 'id\n1\n"2\n3\n', "line 3: no quote"),
        ("ids.txt", "a\nb\na\n", "row 3, column 'id': the id is there already, at row 1"),
        ("ids.txt", "\xff\xfe", "is not UTF-8"),
        ("ids.parquet", content_of(pa.table({}), "parquet").to_pybytes().decode("latin-1"), "has no column"),
        ("absent.txt", None, "there is no such file"),
        ("[ab].csv", None, "there is no such file"),
        ("folder.csv", None, "is a folder, not a file"),
    ],
)
def test_faults_of_files_of_ids(name: str, content: str | None, said: str, tmp_path: Path) -> None:
    """The first line may be somebody's id by mistake, so no message shows the name of the first column."""
    text_file(tmp_path, "id\n1\n", "a.csv")
    if content is not None:
        text_file(tmp_path, content, name, encoding="latin-1")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(DataError, match=f"{re.escape(name)}: .*{said}") as caught:
        read_ids(tmp_path / name)
    assert "secret" not in str(caught.value)


def test_a_missing_value_is_found_in_columns_of_32_bits(tmp_path: Path) -> None:
    """-999.9 in 32 bits is another number than in 64; both are the value that was written."""
    narrow = {str(kind): np.array([-999.9, 1.0], dtype=kind) for kind in ("f4", "f2", "f8")}
    found = read(parquet_file(tmp_path, {"id": ["a", "b"], **narrow}), *narrow, missing=-999.9)
    np.testing.assert_array_equal(found.features, [[NAN] * 3, [1.0] * 3])


def _csv(folder: Path, *weights: str) -> Path:
    rows = [f"r{9 - i},{i},{i % 2},{weight}" for i, weight in enumerate(weights)]
    return text_file(folder, "\n".join(["id,a,y,w", *rows, ""]))


def test_weights_follow_the_records(tmp_path: Path) -> None:
    """In the order of sorted ids, and of the records taken; 0 is a weight, and so is the number that means missing."""
    table = read(_csv(tmp_path, "1", "0", "7", "2.5"), "a", label="y", weight="w", missing=7.0)
    assert table.ids == ["r6", "r7", "r8", "r9"]
    np.testing.assert_array_equal(table.weights, [2.5, 7, 0, 1])
    np.testing.assert_array_equal(table.take(np.array([3, 0])).weights, [1, 2.5])
    assert table.columns == ["a"]
    whole = parquet_file(tmp_path, {"id": ["b", "a"], "a": [1, 2], "y": [0, 1], "w": pa.array([3, 4], pa.int32())})
    np.testing.assert_array_equal(read(whole, "a", label="y", weight="w").weights, [4, 3])


def test_a_prediction_reads_no_weights(tmp_path: Path) -> None:
    """Without its label the table has none, whatever their cells."""
    config = TableConfig(path=_csv(tmp_path, "1", "many"), id="id", columns=["a"], label="y", weight="w")
    assert read_table(config, with_label=False, missing=None).weights is None


@pytest.mark.parametrize(
    ("cell", "fault"),
    [
        ("", "the weight is missing"),
        ("-0.5", "the weight is negative"),
        ("many", "the cell is not a number; a sample weight is one"),
        ("inf", "the cell is infinite"),
    ],
)
def test_a_wrong_weight_is_named_by_its_place(cell: str, fault: str, tmp_path: Path) -> None:
    """File, line and column, and never the cell."""
    path = _csv(tmp_path, "1", "2", cell, "1")
    message = refusal(path, "a", label="y", weight="w", match=f": line 4, .*column 'w'.*{fault}")
    assert not cell or cell == "inf" or cell not in message


@pytest.mark.parametrize("cell", ["", "inf", " Infinity", "+inf"])
def test_an_upper_bound_may_be_missing_or_infinite(cell: str, tmp_path: Path) -> None:
    """In the order of ids, as the labels are, and in that of records taken."""
    path = text_file(tmp_path, f"id,a,y,w\nr4,1,3,3\nr3,2,2.5,{cell}\nr2,3,2,2\nr1,4,7,7.5\n")
    table = read(path, "a", label="y", label_upper="w")
    assert read_labels(table, "y", "survival:aft").values.tolist() == [[7, 7.5], [2, 2], [2.5, np.inf], [3, 3]]
    assert read_targets(table.take(np.array([2, 0])), "y", "survival:aft").values.tolist() == [[2.5, np.inf], [7, 7.5]]
    other = text_file(tmp_path, f"id,a,y,w\nr4,1,3,3\nr3,2,2.5,{cell}\nr2,3,2,9\nr1,4,7,7.5\n", "other.csv")
    assert fingerprint(table) != fingerprint(read(other, "a", label="y", label_upper="w"))


def test_weights_are_part_of_a_tables_fingerprint(tmp_path: Path) -> None:
    """An interrupted job does not go on with other weights, nor without."""
    table = read(_csv(tmp_path, "1", "2", "3"), "a", label="y", weight="w")
    assert table.weights is not None
    others = [np.nextafter(table.weights, 9), None]
    assert len({fingerprint(table), *(fingerprint(replace(table, weights=other)) for other in others)}) == 3

"""Formats of files: the same table from each, and files that are none, refused as what they are."""

from __future__ import annotations

import datetime
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from treetap.errors import DataError
from treetap.tables.config import TableConfig
from treetap.tables.labels import read_classes
from treetap.tables.opening import columns_of
from treetap.tables.reading import Table, read_ids, read_table

DAYS = {"opened": "days", "city": "ordinal"}
#: Every kind of column that a table may have, with missing cells; ids are not in their order.
TABLE = pa.table(
    {
        "id": ["b", "a", "d", "c"],
        "real": [0.1, None, -2.2250738585072014e-308, 1e300],
        "whole": pa.array([2**53 - 1, 3, None, -7], pa.int64()),
        "flag": [True, False, None, True],
        "city": ["Bern", None, "Ulm, Süd", "Bern"],
        "opened": [datetime.date(2024, 2, 29), None, datetime.date(1969, 12, 31), datetime.date(2024, 3, 1)],
        "y": [True, False, True, True],
    }
)
COLUMNS = ["real", "whole", "flag", "city", "opened"]
FEATURES = [  # in the order of the ids
    [np.nan, 3, 0, np.nan, np.nan],
    [0.1, 2**53 - 1, 1, 0, 19782],
    [1e300, -7, 1, 0, 19783],
    [-2.2250738585072014e-308, np.nan, np.nan, 1, -1],
]


def write_csv(table: pa.Table, path: Path) -> None:
    """Booleans as `true` and `false`, as pyarrow, R and databases write them."""
    pacsv.write_csv(table, path)


def write_stream(table: pa.Table, path: Path) -> None:
    """Arrow's stream format."""
    with pa.ipc.new_stream(path, table.schema) as stream:
        stream.write_table(table, max_chunksize=2)


def write_lines(table: pa.Table, path: Path) -> None:
    """As pandas and databases write them: null and absent keys are the same."""
    rows = [
        {name: str(cell) if isinstance(cell, datetime.date) else cell for name, cell in row.items() if cell is not None}
        for row in table.to_pylist()
    ]
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def compressed(path: Path) -> None:
    """CSV that is packed by its ending."""
    with pa.output_stream(str(path)) as file:
        pacsv.write_csv(TABLE, file)


WRITERS: dict[str, Callable[[pa.Table, Path], None]] = {
    "t.csv": write_csv,
    "t.csv.gz": lambda table, path: compressed(path),
    "t.CSV": write_csv,
    "t.parquet": pq.write_table,
    "t.feather": feather.write_feather,
    "t.arrow": write_stream,
    "t.jsonl": write_lines,
    "t.ndjson": write_lines,
}


def read(path: Path, **keys: Any) -> Table:
    """The table with all its columns."""
    given = {"path": path, "id": "id", "columns": COLUMNS, "label": "y", "encode": DAYS, **keys}
    return read_table(TableConfig.model_validate(given), with_label=given["label"] is not None, missing=None)


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_the_same_table(name: str, tmp_path: Path) -> None:
    """Numbers to the last bit, booleans as 0 and 1 and as classes, text, dates as days, and missing cells."""
    path = tmp_path / name
    WRITERS[name](TABLE, path)
    assert columns_of(path) == TABLE.column_names
    table = read(path)
    assert table.ids == ["a", "b", "c", "d"]
    np.testing.assert_array_equal(table.features, FEATURES)
    assert table.categories["city"].values == ["Bern", "Ulm, Süd"]
    labels = read_classes(table, "y")
    assert labels.classes == ["False", "True"]
    assert labels.values.tolist() == [0, 1, 1, 1]
    assert read_ids(path) == ["b", "a", "d", "c"]


def test_a_key_says_what_a_name_does_not(tmp_path: Path) -> None:
    """`format` is for names without one of the endings; without it the error says what to write."""
    pq.write_table(TABLE, tmp_path / "export")
    np.testing.assert_array_equal(read(tmp_path / "export", format="parquet").features, FEATURES)
    with pytest.raises(DataError, match='its content is Parquet: write format = "parquet"'):
        read(tmp_path / "export")
    write_csv(TABLE, tmp_path / "t.dat")
    with pytest.raises(DataError, match='write format = "csv" if it is CSV'):
        read(tmp_path / "t.dat")
    np.testing.assert_array_equal(read(tmp_path / "t.dat", format="csv").features, FEATURES)


def workbook(path: Path) -> None:
    """What spreadsheet programs write."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("[Content_Types].xml", "<Types/>")
        file.writestr("xl/workbook.xml", "<workbook/>")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("t.csv", b"PAR1....", 'is Parquet, not CSV as its name says: write format = "parquet"'),
        ("t.parquet", b"ARROW1\0\0", 'is an Arrow file (Feather), not Parquet as its name says: write format = "fe'),
        ("t.csv", b"\x89PNG\r\n\x1a\n", "is a PNG image, not CSV as its name says: correct the path"),
        ("t.csv", b"\n<!DOCTYPE html><html>", "is an HTML page, such as a server sends for a login or an error, not"),
        ("t.csv", b'<?xml version="1.0"?>', "is XML, not CSV"),
        ("t.csv", b'{"id": 1}\n', 'is JSON, not CSV as its name says: write format = "jsonl"'),
        (
            "t.jsonl",
            b'[{"id": 1}]',
            "is a JSON array, not JSON lines as its name says: write it with one",
        ),
        ("t.csv", b"\xd0\xcf\x11\xe0\xa1\xb1", "is an old Excel workbook, not CSV"),
        ("t.csv", b"\x1f\x8b\x08", 'is gzip, not CSV as its name says: end its name with ".gz"'),
        ("t.csv", b"SQLite format 3\0", 'is a SQLite database, not CSV as its name says: write uri = "sqlite:FILE"'),
        ("t.csv", b"%PDF-1.7", "is a PDF document"),
        ("t.csv", b"\x89HDF\r\n", "is HDF5, not CSV as its name says: export the table"),
        ("t.csv", b"id\0\1\2\3", "is binary data, not CSV"),
        (
            "t.csv",
            "id,a\n1,2\n".encode("utf-16-be"),
            "is text in UTF-16-BE, not CSV as its name says: write encoding =",
        ),
        ("t.png", b"\x89PNG", "its name does not end with .csv, .tsv"),
        ("ids.txt", b"\x89PNG", "is a PNG image, not text with one id a line"),
    ],
)
def test_files_that_are_something_else(name: str, content: bytes, said: str, tmp_path: Path) -> None:
    """Each is refused as what it is, with what to do."""
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_ids(path) if name == "ids.txt" else read(path)
    assert f"{path}: {said}" in str(caught.value)


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.xlsx"])
def test_a_workbook(name: str, tmp_path: Path) -> None:
    """Under any name the remedy is to save the sheet."""
    workbook(tmp_path / name)
    with pytest.raises(DataError, match=r"a workbook of a spreadsheet.*save the sheet as CSV"):
        read(tmp_path / name)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('{"id": "a", "x": 1}\n\nnot json\n', "line 3 is no JSON"),
        ('{"id": "a", "x": 1}\n[1, 2]\n', "line 2 is no object"),
        ('{"id": "a", "x": 1}\n{"id": "b", "x": "77"}\n', "line 2, column 'x': the cell is text, and a number in the"),
        ('{"id": "a", "x": true}\n{"id": "b", "x": 77}\n', "line 2, column 'x': the cell is a number, and a boolean"),
        ('{"id": "a", "x": 1, "x": 77}\n', "line 1 has key 'x' twice"),
        ('{"id": "a", "x": 1e999}\n', "is beyond double precision"),
        ('{"id": "a", "x": "s77"}\n', "column 'x' holds another text in each record"),
        ('{"id": "a", "x": 1}\n\n{"id": "a", "x": 2}\n', "line 3, column 'id': the id is there already, at line 1"),
        ('{"id": "a"}\n', "has no column 'x'"),
        ("", "is not readable JSON lines: it is empty"),
        ('{"id": "a", "x": {"y": 77}}\n', "column 'x' holds struct, not numbers"),
    ],
)
def test_faults_of_json_lines(lines: str, said: str, tmp_path: Path) -> None:
    """The line and the column are named, no cell."""
    path = tmp_path / "t.jsonl"
    path.write_text(lines)
    with pytest.raises(DataError) as caught:
        read(path, columns=["x"], label=None, encode=None)
    assert said in str(caught.value)
    assert "77" not in str(caught.value).replace(str(path), "")


def test_text_of_json_lines_stays_text(tmp_path: Path) -> None:
    """Ids that look like dates, and keys that come late, are read as they are written."""
    path = tmp_path / "t.jsonl"
    path.write_text('{"id": "2024-01-02"}\n{"id": "2024-01-01", "x": 1}\n{"id": "007", "x": 0.5, "z": null}\n')
    table = read(path, columns=["x"], label=None, encode=None)
    assert table.ids == ["007", "2024-01-01", "2024-01-02"]
    np.testing.assert_array_equal(table.features.T, [[0.5, 1, np.nan]])
    assert columns_of(path) == ["id", "x", "z"]


def test_large_files_of_arrow_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is compressed to little is refused before it takes up the memory."""
    path = tmp_path / "t.feather"
    feather.write_feather(pa.table({"id": [str(k) for k in range(10_000)], "x": np.zeros(10_000)}), path, "zstd")
    monkeypatch.setattr("treetap.tables.source.half_of_memory", lambda: 10_000)
    with pytest.raises(DataError, match="the columns take up more than half of this machine's memory"):
        read(path, columns=["x"], label=None, encode=None)


@pytest.mark.parametrize("name", ["t.parquet", "t.feather"])
def test_formats_that_are_compressed_inside(name: str, tmp_path: Path) -> None:
    """Packed once more, they have no place to begin at."""
    WRITERS[name](TABLE, tmp_path / name)
    with pa.output_stream(str(tmp_path / f"{name}.gz")) as file:
        file.write((tmp_path / name).read_bytes())
    with pytest.raises(DataError, match="has its own compression: unpack the file"):
        read(tmp_path / f"{name}.gz")


def test_a_file_of_ids_is_one_file(tmp_path: Path) -> None:
    """A caller names it, so that no pattern and no folder leads elsewhere."""
    (tmp_path / "a.csv").write_text("id\n1\n")
    with pytest.raises(DataError, match=r"\[ab\]\.csv: there is no such file"):
        read_ids(tmp_path / "[ab].csv")
    (tmp_path / "b.csv").mkdir()
    with pytest.raises(DataError, match=r"b\.csv: is a folder, not a file"):
        read_ids(tmp_path / "b.csv")

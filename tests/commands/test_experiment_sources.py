"""The table of an experiment from every kind of source, by the reader of a party."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.needs import needs_libraries
from treetap.errors import ConfigError, DataError
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.joined_table import content_digest, read_table
from treetap.tables.reading import read_ids

ROWS = [(f"r{i}", i / 4, i % 3 + 0.5, i % 2) for i in range(20)]


def experiment(**data: Any) -> ExperimentFile:
    """Two parties with a column each."""
    parties = [{"name": "clinic", "labels": True, "columns": ["a"]}, {"name": "lab", "columns": ["b"]}]
    return ExperimentFile.model_validate({"data": {"label": "y", "id": "id", **data}, "party": parties, "job": {}})


def table(folder: Path, **data: Any) -> pa.Table:
    """The joined table of a file in this folder."""
    return read_table(experiment(**data), folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the same table in every form."""
    needs_libraries("adbc_driver_sqlite", extra="sql")
    columns = dict(zip(["id", "a", "b", "y"], map(list, zip(*ROWS, strict=True)), strict=True))
    made = pa.table(columns)
    for number in range(2):
        (tmp_path / "parts").mkdir(exist_ok=True)
        pq.write_table(made.slice(10 * number, 10), tmp_path / f"parts/{number}.parquet")
    comma = "".join(f"{each[0]};{each[1]};{each[2]};{each[3]}\n".replace(".", ",") for each in ROWS)
    (tmp_path / "t.csv").write_text(f"id;a;b;y\n{comma}")
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made.to_pylist()))
    with sqlite3.connect(tmp_path / "t.db") as database:
        database.execute("CREATE TABLE t (id TEXT, a REAL, b REAL, y INTEGER)")
        database.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", ROWS)
    database.close()
    return tmp_path


def test_all_sources_are_one_table(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Row for row, whose digest is the same; what was detected is said on standard error."""
    digest = content_digest(table(folder, path="parts"))
    assert capfd.readouterr().err == ""
    for data in ({"path": "t.csv"}, {"path": "t.jsonl"}, {"path": ["parts/0.parquet", "parts/1.parquet"]}):
        assert content_digest(table(folder, **data)) == digest
    said = capfd.readouterr().err.replace("\n", " ")
    assert 'delimiter = ";"' in said
    assert 'decimal = ","' in said
    of_database = table(folder, uri="sqlite:t.db", table="t")
    assert of_database.column("treetap_id").to_pylist() == sorted(row[0] for row in ROWS)
    place = {each: row for row, each in enumerate(of_database.column("treetap_id").to_pylist())}
    assert content_digest(of_database.take(pa.array([place[row[0]] for row in ROWS]))) == digest


def test_rows_of_a_query_need_ids(folder: Path) -> None:
    """Numbers of rows would be others in the next run."""
    with pytest.raises(ConfigError, match="rows of a query have no order: name their ids by id = COLUMN"):
        table(folder, uri="sqlite:t.db", table="t", id=None)


def test_a_fault_names_its_file(folder: Path) -> None:
    """A cell by file and row, a column that is absent by the key that would find it."""
    pq.write_table(pa.table({"id": ["x"], "a": [float("inf")], "b": [1.0], "y": [0]}), folder / "parts/2.parquet")
    with pytest.raises(DataError, match=r"parts: 2\.parquet, row 1, column 'a': the cell is infinite"):
        table(folder, path="parts")
    with pytest.raises(DataError, match=r'has no column .*; write delimiter = ";"'):
        table(folder, path="t.csv", delimiter="|")


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl"])
def test_files_of_ids_are_tables_too(name: str, folder: Path) -> None:
    """`label_rows` and `treetap predict --records` take the first column of every format."""
    assert read_ids(folder / name) == [row[0] for row in ROWS]

"""Tables whose records are known by several columns together."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from treetap.errors import DataError
from treetap.tables import streamed_reading
from treetap.tables.config import TableConfig
from treetap.tables.reading import Table, read_table

ROWS = pa.table({"name": ["bo", "al", "al"], "born": [1990, 1985, 1970], "x": [0.5, 1.5, 2.5]})
IDS = ["2:al4:1970", "2:al4:1985", "2:bo4:1990"]


def _read(path: Path, **more: object) -> Table:
    config = TableConfig.model_validate({"path": path, "id": ["name", "born"], "columns": ["x"], **more})
    return read_table(config, with_label=False, missing=None, streams=True)


def _as_a_file_has_them(table: Table) -> pa.Table:
    own = table.id_columns
    return pa.table(own.at(np.arange(len(table.ids))), schema=pa.schema(own.fields))


@pytest.mark.parametrize("streamed", [False, True])
def test_ids_of_several_columns(streamed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of the configuration; a file that is written for them has the columns with their types."""
    if streamed:
        monkeypatch.setattr(streamed_reading, "STREAMED", 0)
    pq.write_table(ROWS, tmp_path / "t.parquet")
    table = _read(tmp_path / "t.parquet")
    assert list(table.ids) == IDS
    assert table.rows.tolist() == [2, 1, 0]
    assert table.features.ravel().tolist() == [2.5, 1.5, 0.5]
    assert _as_a_file_has_them(table).equals(ROWS.select(["name", "born"]).take([2, 1, 0]))
    other = TableConfig(path=tmp_path / "t.parquet", id=["born", "name"], columns=["x"])
    assert read_table(other, with_label=False, missing=None).ids[0] == "4:19702:al"


def test_ids_of_csv_are_text_as_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("name,born,x\nbo,0990,1\nal,1985,2\n")
    table = _read(tmp_path / "t.csv")
    assert list(table.ids) == ["2:al4:1985", "2:bo4:0990"]
    assert table.id_types == {"name": pa.string(), "born": pa.string()}


def test_rows_of_a_query_come_in_the_order_of_all_their_ids(tmp_path: Path) -> None:
    """Whatever order the database gives them: two readings have the same rows."""
    pytest.importorskip("adbc_driver_sqlite")
    with sqlite3.connect(tmp_path / "d.sqlite") as database:
        database.execute("create table t (name text, born integer, x real)")
        database.executemany("insert into t values (?, ?, ?)", zip(*ROWS.to_pydict().values(), strict=True))
    config = TableConfig.model_validate(
        {"uri": f"sqlite:{tmp_path / 'd.sqlite'}", "query": "select * from t", "id": ["name", "born"], "columns": ["x"]}
    )
    table = read_table(config, with_label=False, missing=None)
    assert list(table.ids) == IDS
    assert table.rows.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ({"id": ["name", "name"]}, "id names 'name' twice"),
        ({"id": []}, "at least 1 item"),
        ({"columns": ["born"]}, "column 'born' is the id or the label"),
        ({"label": "born"}, "column 'born' cannot be both the id and the label"),
    ],
)
def test_settings_that_cannot_be(more: dict[str, object], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        TableConfig.model_validate({"path": "t.csv", "id": ["name", "born"], **more})


def test_a_column_that_is_not_there(tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "t.parquet")
    with pytest.raises(DataError, match="has no column 'birth'"):
        _read(tmp_path / "t.parquet", id=["name", "birth"])

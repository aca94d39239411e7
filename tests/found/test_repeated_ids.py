"""Several records with one id: refused with their number and examples, or one of them chosen, in every way in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from treetap.errors import ConfigError, DataError
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.joined_table import read_table as read_joined
from treetap.process.apart import ReadApart
from treetap.strict import load
from treetap.tables import streamed_reading
from treetap.tables.config import TableConfig
from treetap.tables.features import Streamed
from treetap.tables.reading import Table, read_table

IDS = ["a", "b", "c", "a", "d", " b", "e", "a", "f", "f", "g", "g"]
#: A category of row 4 alone, which `first` and `last` leave out.
TABLE = pa.table({"id": IDS, "x": list(range(12)), "t": ["u", "v", "u", "lost"] + ["u", "v"] * 4})
KEPT = {"first": [0, 1, 2, 4, 6, 8, 10], "last": [7, 5, 2, 4, 6, 9, 11]}


def _csv(path: Path, table: pa.Table = TABLE) -> None:
    rows = zip(*table.to_pydict().values(), strict=True)
    path.write_text("\n".join([",".join(table.column_names), *(",".join(map(str, row)) for row in rows)]) + "\n")


def _written(folder: Path, way: str) -> Path:
    path = folder / {"csv": "t.csv", "json lines": "t.jsonl", "parquet": "t.parquet"}.get(way, "t")
    if way == "csv":
        _csv(path)
    elif way == "json lines":
        path.write_text("".join(json.dumps(row) + "\n" for row in TABLE.to_pylist()))
    elif way == "parquet":
        pq.write_table(TABLE, path, row_group_size=3)
    else:
        path.mkdir()
        for part, first in enumerate((0, 5, 9)):
            rows = TABLE.slice(first, 4 if part else 5)
            if way == "folder of csv":
                _csv(path / f"{part}.csv", rows)
            else:
                pq.write_table(rows, path / f"{part}.parquet")
    return path


WAYS = ("csv", "json lines", "parquet", "folder of csv", "folder of parquet")


def _read(path: Path, duplicates: str, apart: bool = False, **keys: Any) -> Table:
    given = {"id": "id", "columns": ["x", "t"], "encode": {"t": "categorical"}, "duplicates": duplicates, **keys}
    config = TableConfig(path=Path(path.name), **given)
    config = config.kept_within(path.parent, ReadApart) if apart else config.below(path.parent)
    return read_table(config, with_label=False, missing=None, streams=True)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("which", KEPT)
def test_one_record_of_each_id_counts(
    which: str, way: str, streamed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By order of files and rows. Encodings, extents and counts are of the records that are left; rows keep names."""
    monkeypatch.setattr(streamed_reading, "STREAMED", 0 if streamed else 1 << 27)
    table = _read(_written(tmp_path, way), which)
    assert isinstance(table.values, Streamed) == (streamed and "parquet" in way)
    assert list(table.ids) == ["a", "b", "c", "d", "e", "f", "g"]
    assert table.features[:, 0].tolist() == KEPT[which]
    assert table.categories["t"].values == ["u", "v"]
    assert table.seen["x"].present == 7
    assert table.values.extents(table.rows)[0].largest == max(KEPT[which])
    last = {"csv": "line {}", "json lines": "line {}", "parquet": "row {}"}.get(way)
    if last:
        assert table.where(0) == last.format(KEPT[which][0] + (2 if way == "csv" else 1))
    (said,) = table.path.says  # type: ignore[union-attr]
    assert "4 ids are there more than once" in said
    assert said.endswith(f'; duplicates = "{which}" leaves out 5 rows')


@pytest.mark.parametrize("way", WAYS)
def test_the_refusal_counts_them(way: str, tmp_path: Path) -> None:
    """Rows of three, the number of all and the key."""
    with pytest.raises(DataError) as refused:
        _read(_written(tmp_path, way), "refuse")
    said = str(refused.value)
    assert ", column 'id': the id is there already, at " in said
    assert "; 4 ids are there more than once, also at " in said
    assert said.count(" as at ") == 2
    assert ', …; write duplicates = "first" or "last"' in said


def test_readers_apart_and_ids_of_several_columns(tmp_path: Path) -> None:
    """In a folder that others write, and where no column alone identifies a record."""
    table = TABLE.append_column("site", pa.array(["n"] * 7 + ["s"] * 5))
    pq.write_table(table, tmp_path / "t.parquet")
    np.testing.assert_array_equal(_read(tmp_path / "t.parquet", "last", apart=True).features[:, 0], KEPT["last"])
    read = _read(tmp_path / "t.parquet", "first", id=["id", "site"])
    assert read.features[:, 0].tolist() == [0, 7, 1, 2, 4, 6, 8, 10]


def test_a_missing_id_is_none_of_several(tmp_path: Path) -> None:
    """It is refused as it is without them, and so is a choice where there is nothing to choose by."""
    pq.write_table(pa.table({"id": ["a", "", " ", "a"], "x": [1, 2, 3, 4]}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match="row 2, column 'id': the id is missing"):
        _read(tmp_path / "t.parquet", "first", columns=["x"], encode=None)
    path = tmp_path / "t.toml"
    path.write_text('uri = "sqlite:t.db"\ntable = "t"\nid = "id"\nduplicates = "last"\n')
    with pytest.raises(ConfigError, match="rows of a database have no order: have the query choose"):
        load(path, TableConfig)


def test_an_experiment_chooses_too(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """With the label of the record that counts, and says what it leaves out; rows without ids have no choice."""
    rows = [f"c{k % 20},{k},{'ab'[k % 2 if k < 20 else 0]}" for k in range(30)]
    (tmp_path / "t.csv").write_text("\n".join(["who,x,y", *rows]) + "\n")
    parties = [{"name": "bank", "labels": True, "columns": ["x"]}, {"name": "shop", "columns": []}]
    content: dict[str, Any] = {"party": parties, "job": {}}
    for which, second in (("first", "b"), ("last", "a")):
        data = {"path": str(tmp_path / "t.csv"), "label": "y", "id": "who", "duplicates": which}
        table = read_joined(ExperimentFile.model_validate({**content, "data": data}), tmp_path)
        assert table.num_rows == 20
        labels = dict(zip(table.column("treetap_id").to_pylist(), table.column("y").to_pylist(), strict=True))
        assert (labels["c1"], labels["c11"]) == (second, "b")
        assert "10 ids are there more than once" in capfd.readouterr().err
    with pytest.raises(ValueError, match="duplicates is of ids, and rows are numbered"):
        ExperimentFile.model_validate({**content, "data": data | {"id": None}})

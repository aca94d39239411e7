"""Folders of partitions, as Spark writes them: the columns that pyarrow's own data sets have."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as dataset
import pyarrow.parquet as pq
import pytest

from treetap.errors import DataError
from treetap.tables import streamed_reading
from treetap.tables.config import TableConfig
from treetap.tables.label_columns import classes_of
from treetap.tables.opening import columns_of, source_at
from treetap.tables.reading import Table, read_table


def folder(base: Path, *names: str) -> Path:
    """A file of two rows in each of these folders."""
    for place, name in enumerate(names):
        (base / name).mkdir(parents=True)
        pq.write_table(pa.table({"id": [f"{place}a", f"{place}b"], "x": [0.5, 1.0]}), base / name / "part-0.parquet")
    return base


def read(path: Any, *columns: str, **keys: Any) -> Table:
    """These columns, by default k."""
    config = TableConfig(path=path, id="id", columns=list(columns or ["k"]), **keys)
    return read_table(config, with_label=False, missing=None)


def column(path: Any) -> list[str | None]:
    """The texts of k by id."""
    table = read(path, encode={"k": "ordinal"})
    values = table.categories["k"].values if table.categories else []
    return [None if np.isnan(place) else values[int(place)] for place in table.features[:, 0]]


@pytest.mark.parametrize(
    "names",
    [
        ["k=1"],
        ["k=1", "k=2"],
        ["k=1", "k=__HIVE_DEFAULT_PARTITION__"],
        ["k=a", "k=__HIVE_DEFAULT_PARTITION__"],
        ["k=a%20b", "k=c%2Fd", "k=e%25"],
        ["k=%C3%A4", "k=ö"],
        ["k=-3", "k=10"],
        ["k=1/m=a", "k=2/m=b"],
        ["deep/k=1", "deep/k=x"],
    ],
)
def test_the_column_of_pyarrow(names: list[str], tmp_path: Path) -> None:
    """Numbers, text, missing values and names with percent signs."""
    base = folder(tmp_path, *names)
    theirs = dataset.dataset(base, partitioning="hive").to_table().sort_by("id").column("k").to_pylist()
    assert column(base) == [None if value is None else str(value) for value in theirs]


def test_a_file_by_itself(tmp_path: Path) -> None:
    """It has the columns of the folders right around it, alone and in a list."""
    base = folder(tmp_path / "run=7" / "tables", "k=1/m%20n=a%20b", "k=2/m%20n=c")
    files = [base / "k=1/m%20n=a%20b/part-0.parquet", base / "k=2/m%20n=c/part-0.parquet"]
    assert columns_of(source_at(files[0])) == ["id", "x", "k", "m n"]
    table = read(files[0], "x", "k", "m n", encode={"m n": "one-hot"})
    np.testing.assert_array_equal(table.features, [[0.5, 1, 1], [1.0, 1, 1]])
    assert table.where(1) == "k=1/m%20n=a%20b/part-0.parquet, row 2"
    assert read(files).features[:, 0].tolist() == [1, 1, 2, 2]
    with pytest.raises(DataError, match="has no column 'run'"):
        read(files[0], "run")


def lines(base: Path, *names: str) -> Path:
    """The same in CSV."""
    for place, name in enumerate(names):
        (base / name).mkdir(parents=True)
        (base / name / "part-0.csv").write_text(f"id,x\n{place}a,0.5\n{place}b,1\n")
    return base


@pytest.mark.parametrize("write", [folder, lines])
def test_a_label_and_an_id(write: Callable[..., Path], tmp_path: Path) -> None:
    """No column of the files themselves is read for them; ids keep their type."""
    base = write(tmp_path, "k=0", "k=1")
    config = TableConfig(path=base, id="id", columns=["x"], label="k", duplicates="first")
    table = read_table(config, with_label=True, missing=None)
    assert table.label is not None
    assert classes_of(base, table.label).to_pylist() == [0, 0, 1, 1]
    assert re.fullmatch(r"k=1/part-0\.(csv, line 3|parquet, row 2)", table.where(3))
    config = TableConfig(path=base, id="k", columns=["x"], duplicates="last")
    by_folder = read_table(config, with_label=False, missing=None)
    assert (list(by_folder.ids), by_folder.id_types["k"]) == (["0", "1"], pa.int64())
    assert by_folder.features.tolist() == [[1.0], [1.0]]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("write", [folder, lines])
@pytest.mark.parametrize("names", [["k=01", "k=02", "k=12"], ["k=a", "k=1"], ["k=1", "k=2", "k=-1"]])
def test_one_folder_of_a_training(
    names: list[str], write: Callable[..., Path], streamed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text that is a whole number where it is alone is the training's category, also one of several files."""
    monkeypatch.setattr(streamed_reading, "STREAMED", 0 if streamed else 1 << 27)
    base = write(tmp_path, *names)
    config = TableConfig(path=base, id="id", columns=["x", "k"], encode={"k": "categorical"})
    known = read_table(config, with_label=False, missing=None, streams=True).categories
    assert set(known["k"].values) == {name.removeprefix("k=") for name in names}
    for part in ([names[-1]], names[1:]):
        own = config.model_copy(update={"path": [next((base / name).iterdir()) for name in part], "encode": None})
        table = read_table(own, with_label=False, missing=None, categories=known, streams=True)
        found = [known["k"].values[int(place)] for place in table.features[:, 1]]
        assert found == [name.removeprefix("k=") for name in part for _ in range(2)]


def test_all_values_missing_and_a_name_that_a_file_has(tmp_path: Path) -> None:
    """A column without a value, and one that is there twice."""
    base = folder(tmp_path / "empty", "k=__HIVE_DEFAULT_PARTITION__", "k=")
    assert np.isnan(read(base, "k", "x").features[:, 0]).all()
    with pytest.raises(DataError, match=r"column 'x' is in x=1/part-0\.parquet and in the name of a folder"):
        read(folder(tmp_path / "twice", "x=1"), "x")

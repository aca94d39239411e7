"""Folders of partitions, as Spark writes them: the columns that pyarrow's own data sets have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as dataset
import pyarrow.parquet as pq
import pytest

from treetap.errors import DataError
from treetap.tables.config import TableConfig
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


def test_all_values_missing_and_a_name_that_a_file_has(tmp_path: Path) -> None:
    """A column without a value, and one that is there twice."""
    base = folder(tmp_path / "empty", "k=__HIVE_DEFAULT_PARTITION__", "k=")
    assert np.isnan(read(base, "k", "x").features[:, 0]).all()
    with pytest.raises(DataError, match=r"column 'x' is in x=1/part-0\.parquet and in the name of a folder"):
        read(folder(tmp_path / "twice", "x=1"), "x")

"""Partial labels: cells that another party labels, the job's classes, and what no error may say."""

from __future__ import annotations

import decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from treetap.errors import DataError
from treetap.tables.config import TableConfig
from treetap.tables.features import Held
from treetap.tables.label_columns import LabelCells
from treetap.tables.labels import PartialLabels, read_partial_labels
from treetap.tables.reading import Table, read_table
from treetap.tables.record_ids import Ids

BINARY, SOFTMAX, SQUARED = "binary:logistic", "multi:softprob", "reg:squarederror"


def _labels(cells: Any, objective: str, classes: list[str], kind: pa.DataType | None = None) -> PartialLabels:
    """The labels of records that stand in a Parquet file in the opposite order of their ids."""
    label = pa.chunked_array([pa.array(cells, kind)])
    ids = [f"r{i:03}" for i in range(len(label))]
    table = Table(
        Path("t.parquet"), Ids.of(ids), [], Held(np.zeros((len(ids), 0))), LabelCells(label), np.arange(len(ids))[::-1]
    )
    return read_partial_labels(table, "y", objective, classes)


def _from_csv(folder: Path, lines: list[str], objective: str, classes: list[str]) -> PartialLabels:
    path = folder / "t.csv"
    path.write_text("id,x,y\n" + "\n".join(lines) + "\n")
    table = read_table(TableConfig(path=path, id="id", columns=["x"], label="y"), with_label=True, missing=None)
    return read_partial_labels(table, "y", objective, classes)


def _fault(cells: Any, objective: str, classes: list[str], kind: pa.DataType | None = None) -> str:
    with pytest.raises(DataError) as caught:
        _labels(cells, objective, classes, kind)
    assert str(caught.value).startswith("t.parquet: label column 'y': ")
    return str(caught.value)


@pytest.mark.parametrize(
    ("cells", "kind", "classes"),
    [
        ([None, 1, 0, None], pa.int64(), ["0", "1"]),
        ([None, 1.0, 0.0, float("nan")], pa.float32(), ["0", "1"]),
        ([None, "yes", "no", ""], pa.string(), ["no", "yes"]),
        (["  ", "yes", "no", None], pa.large_string(), ["no", "yes"]),
        ([None, True, False, None], pa.bool_(), ["False", "True"]),
        ([None, decimal.Decimal("1.00"), decimal.Decimal("0.00"), None], pa.decimal128(5, 2), ["0", "1"]),
    ],
)
def test_empty_cells_are_another_partys(cells: list[Any], kind: pa.DataType, classes: list[str]) -> None:
    """Null, NaN and blank text have no label; the others are numbered in the order of the job, whatever their type."""
    labels = _labels(cells, BINARY, classes, kind)
    assert (labels.rows.tolist(), labels.values.tolist()) == ([1, 2], [1, 0])
    assert labels.rows.dtype == labels.values.dtype == np.int64
    assert _labels(cells, BINARY, classes[::-1], kind).values.tolist() == [0, 1]


def test_one_class_at_a_party_is_enough() -> None:
    """A party may label records of one class only: the job names the others."""
    assert _labels([2, None, 2], SOFTMAX, ["0", "1", "2"]).values.tolist() == [2, 2]


@pytest.mark.parametrize(("objective", "dtype"), [(BINARY, np.int64), (SQUARED, np.float64)])
@pytest.mark.parametrize("kind", [pa.null(), pa.int64(), pa.float64()])
def test_a_column_without_a_label(kind: pa.DataType, objective: str, dtype: type) -> None:
    """A column of empty cells has no labels, whatever its type."""
    labels = _labels([None, None], objective, ["0", "1"] if objective == BINARY else [], kind)
    assert (len(labels.rows), len(labels.values)) == (0, 0)
    assert labels.values.dtype == dtype
    assert len(labels.take(np.array([1, 0])).rows) == 0


def test_targets() -> None:
    """Numbers of any type are targets of a regression."""
    for cells, kind in (([None, 3, 4], pa.int32()), ([None, 3.0, 4.0], pa.float64())):
        labels = _labels(cells, SQUARED, [], kind)
        assert labels.rows.tolist() == [1, 2]
        assert labels.values.tolist() == [3.0, 4.0]
        assert labels.values.dtype == np.float64


def test_faults_name_the_row_and_never_the_label() -> None:
    """The row is that of the file, in which the records stand in the opposite order of their ids."""
    said = _fault([0, None, 7], BINARY, ["0", "1"])
    assert "the label at row 1 is none of the job's classes ('0', '1')" in said
    assert "7" not in said
    assert "row 2 is infinite" in _fault([None, float("inf"), 0.5], SQUARED, [])
    assert "holds string; reg:squarederror needs numbers" in _fault(["secret", None], SQUARED, [])
    assert "none of the job's classes" in _fault([float("-inf"), None], BINARY, ["0", "1"])


def test_many_classes_are_counted() -> None:
    """An error lists the first classes of a job and counts the others."""
    said = _fault(["x", None], SOFTMAX, [f"c{i}" for i in range(20)])
    assert "'c7' and 12 more)" in said


def test_csv(tmp_path: Path) -> None:
    """An empty cell of a CSV file, NA and NaN have no label; records come in the order of their ids."""
    labels = _from_csv(tmp_path, ["c,1,1", "a,1,", "b,1,0", "d,1,NA", "e,1,nan"], BINARY, ["0", "1"])
    assert (labels.rows.tolist(), labels.values.tolist()) == ([1, 2], [0, 1])
    labels = _from_csv(tmp_path, ["c,1,yes", "a,1,", 'b,1,""'], BINARY, ["no", "yes"])
    assert (labels.rows.tolist(), labels.values.tolist()) == ([2], [1])
    assert not len(_from_csv(tmp_path, ["c,1,", "a,1,"], BINARY, ["no", "yes"]).rows)


def test_take() -> None:
    """Selected records keep their labels, at their places in the selection, in any order and number."""
    rng = np.random.default_rng(5)
    for _ in range(50):
        total = int(rng.integers(1, 30))
        rows = np.flatnonzero(rng.random(total) < rng.random()).astype(np.int64)
        labels = PartialLabels(rows, rng.integers(0, 9, len(rows)))
        known = dict(zip(rows.tolist(), labels.values.tolist(), strict=True))
        records = rng.permutation(total)[: rng.integers(0, total + 1)].astype(np.int64)
        taken = labels.take(records)
        expected = [(place, known[record]) for place, record in enumerate(records.tolist()) if record in known]
        assert list(zip(taken.rows.tolist(), taken.values.tolist(), strict=True)) == expected


def test_no_label_in_a_representation() -> None:
    """Labels do not reach a log by way of repr."""
    assert repr(_labels([None, 1], BINARY, ["0", "1"])) == "<PartialLabels of 1 records>"

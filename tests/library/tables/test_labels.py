"""Labels, and those of some records.

- Labels: class numbers and names, targets, and what cannot be learnt from.
- Partial labels: cells that another party labels, the job's classes, and what no error may say.
"""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from treetap.errors import DataError
from treetap.tables.config import TableConfig
from treetap.tables.features import Held
from treetap.tables.label_columns import LabelCells
from treetap.tables.labels import Labels, PartialLabels, read_labels, read_partial_labels
from treetap.tables.reading import Table, read_table
from treetap.tables.record_ids import Ids

BINARY, SOFTMAX, SQUARED = "binary:logistic", "multi:softprob", "reg:squarederror"


def _labels(cells: Any, objective: str, kind: pa.DataType | None = None) -> Labels:
    """The labels of records that stand in a Parquet file in the opposite order of their ids."""
    label = pa.chunked_array([pa.array(cells, kind)])
    ids = [f"r{i:03}" for i in range(len(label))]
    table = Table(
        Path("t.parquet"), Ids.of(ids), [], Held(np.zeros((len(ids), 0))), LabelCells(label), np.arange(len(ids))[::-1]
    )
    return read_labels(table, "y", objective)


def _from_file(folder: Path, cells: pa.Array, label: str | None) -> Table:
    """The table of a Parquet file with the column `y`, which is the label if the configuration says so."""
    path = folder / "t.parquet"
    pq.write_table(pa.table({"id": range(len(cells)), "y": cells}), path)
    return read_table(TableConfig(path=path, id="id", label=label), with_label=True, missing=None)


def _fault(cells: Any, objective: str, kind: pa.DataType | None = None) -> str:
    with pytest.raises(DataError) as caught:
        _labels(cells, objective, kind)
    assert str(caught.value).startswith("t.parquet: label column 'y': ")
    return str(caught.value)


@pytest.mark.parametrize(
    ("cells", "kind", "classes"),
    [
        ([0, 1, 0], pa.int64(), ["0", "1"]),
        ([2.0, 5.0, 2.0], pa.float32(), ["2", "5"]),
        ([-0.5, 0.5, -0.5], pa.float64(), ["-0.5", "0.5"]),
        (["no", "yes", "no"], pa.string(), ["no", "yes"]),
        ([False, True, False], pa.bool_(), ["False", "True"]),
    ],
)
def test_two_classes(cells: list[Any], kind: pa.DataType, classes: list[str]) -> None:
    """Numbers, text and booleans become 0 and 1 in the order of their values; whole numbers are named as such."""
    labels = _labels(cells, BINARY, kind)
    assert labels.values.tolist() == [0, 1, 0]
    assert labels.values.dtype == np.int64
    assert labels.classes == classes


def test_zeros_at_the_end_of_a_text_tell_classes_apart() -> None:
    """numpy's own texts lose them."""
    labels = _labels(["x\0", "x", "", "\0"], SOFTMAX)
    assert (labels.classes, labels.values.tolist()) == (["", "\0", "x", "x\0"], [3, 2, 0, 1])


def test_categories_of_text(tmp_path: Path) -> None:
    """A dictionary column, as pandas writes its categories, is read as the text that it stands for."""
    table = _from_file(tmp_path, pa.array(["b", "a", "c", "b"] * 2).dictionary_encode(), "y")
    labels = read_labels(table, "y", SOFTMAX)
    assert labels.values.tolist() == [1, 0, 2, 1] * 2
    assert labels.classes == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("cells", "kind", "told"),
    [
        ([1_600_000_000_000_000_077, 1], pa.timestamp("ns"), "timestamp[ns]"),
        ([1_600_000_000_000_000_077, None], pa.timestamp("ns", "UTC"), None),
        ([datetime.date(1977, 7, 7), datetime.date(1978, 7, 7)], pa.date32(), "date32[day]"),
        ([datetime.timedelta(77), datetime.timedelta(78)], pa.duration("s"), "duration[s]"),
        ([[77], [78]], pa.list_(pa.int64()), "list"),
        ([[77], [78, 79]], pa.large_list(pa.int64()), "large_list"),
        ([{"inner77": 77}, {"inner77": 78}], pa.struct({"inner77": pa.int64()}), "struct"),
        ([[("77", 77)], [("78", 78)]], pa.map_(pa.string(), pa.int64()), "map"),
        ([b"77", b"78"], pa.binary(), "binary"),
    ],
)
@pytest.mark.parametrize("objective", [BINARY, SOFTMAX, SQUARED])
def test_kinds_that_are_no_labels(cells: list[Any], kind: pa.DataType, told: str | None, objective: str) -> None:
    """Times, bytes and nested values are refused by their kind, or as missing; neither shows a value."""
    fault = _fault(cells, objective, kind)
    wanted = f"holds {told}; " if told else "the label at row 1 is missing"
    assert wanted in fault
    assert "77" not in fault


def test_views(tmp_path: Path) -> None:
    """A view of text is text, and so is a view of bytes that are some."""
    views = _from_file(tmp_path, pa.array(["no", "yes"], pa.string_view()), "y")
    assert read_labels(views, "y", BINARY).classes == ["no", "yes"]
    views = _from_file(tmp_path, pa.array([b"77", b"78"], pa.binary_view()), "y")
    assert read_labels(views, "y", BINARY).classes == ["77", "78"]


def test_a_label_must_be_configured(tmp_path: Path) -> None:
    """Asking for labels of a table whose configuration names none is an error, not a table without labels."""
    with pytest.raises(DataError, match="names no label column"):
        _from_file(tmp_path, pa.array([0, 1]), None)


@pytest.mark.parametrize("kind", [pa.decimal128(9, 2), pa.decimal256(60, 2), pa.decimal128(38, 2)])
def test_decimals_as_classes(kind: pa.DataType) -> None:
    """Decimals are classes, named without the zeros that their column's scale adds."""
    cells = [decimal.Decimal(text) for text in ("10", "1.50", "-2", "0", "10.00")]
    labels = _labels(cells, SOFTMAX, kind)
    assert labels.values.tolist() == [3, 2, 0, 1, 3]
    assert labels.classes == ["-2", "0", "1.5", "10"]


def test_targets_of_a_regression() -> None:
    """Whole numbers, also those beyond float64's exact range, and fractions become float64 without classes."""
    labels = _labels([2**60 + 1, -3, 5], SQUARED)
    assert labels.values.tolist() == [2.0**60, -3.0, 5.0]
    assert labels.classes == []
    for kind in (pa.decimal128(9, 2), pa.decimal256(60, 2)):
        cells = [decimal.Decimal("1.25"), decimal.Decimal(-2)]
        assert _labels(cells, SQUARED, kind).values.tolist() == [1.25, -2.0]
    assert _labels([0.5, 1.5], SQUARED).values.dtype == np.float64


@pytest.mark.parametrize("objective", [BINARY, SOFTMAX])
def test_one_class_only(objective: str) -> None:
    """A label that is the same everywhere is refused, without saying which one everybody has."""
    fault = _fault([7, 7, 7], objective)
    assert "holds one class only" in fault
    assert "7" not in fault


def test_one_target_only() -> None:
    """A regression needs targets that differ."""
    fault = _fault([2.5, 2.5], SQUARED)
    assert "every record has the same target" in fault
    assert "2.5" not in fault


@pytest.mark.parametrize("objective", [BINARY, SOFTMAX, SQUARED])
@pytest.mark.parametrize("cell", [float("nan"), float("inf"), -float("inf")])
def test_labels_that_are_not_finite(objective: str, cell: float) -> None:
    """NaN and infinity are refused with the row that has them, as the file counts rows."""
    assert "the label at row 4 is missing or infinite" in _fault([0.0, cell, 1.0, 0.0, 1.0], objective)


@pytest.mark.parametrize("cells", [[0, None, 1], ["no", None, "yes"], [False, None, True]])
def test_missing_labels(cells: list[Any]) -> None:
    """An empty cell is refused with its row, whatever the type of the column."""
    assert "the label at row 2 is missing" in _fault(cells, BINARY)


def test_too_many_classes() -> None:
    """Three classes are too many for logistic loss; a class per record is a regression or an id."""
    assert "holds 3 classes; binary:logistic needs two" in _fault([0, 1, 2] * 3, BINARY)
    assert "holds 150 different values" in _fault(list(range(150)), SOFTMAX)
    assert _labels(list(range(100)), SOFTMAX).values.tolist() == list(range(100))


def test_a_regression_of_text() -> None:
    """Text is no target."""
    assert "holds string; reg:squarederror needs numbers" in _fault(["1", "2"], SQUARED)


def test_labels_of_some_records() -> None:
    """Classes that none of the records has are left out, the others numbered anew; targets stay as they are."""
    labels = _labels(["b", "a", "d", "c", "d", "b"], SOFTMAX)
    some = labels.take(np.array([4, 0, 5, 2]))
    assert (some.values.tolist(), some.classes) == ([1, 0, 0, 1], ["b", "d"])
    assert some.values.dtype == np.int64
    numbers = _labels([0.5, -2.0, 7.0], SQUARED).take(np.array([2, 1]))
    assert (numbers.values.tolist(), numbers.classes) == ([7.0, -2.0], [])


def test_nothing_of_the_labels_is_shown() -> None:
    """A log line that has labels in it shows how many, not which."""
    assert repr(_labels([0, 1, 0], BINARY)) == "<Labels of 3 records>"


def _some_labels(cells: Any, objective: str, classes: list[str], kind: pa.DataType | None = None) -> PartialLabels:
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


def _fault_of_some(cells: Any, objective: str, classes: list[str], kind: pa.DataType | None = None) -> str:
    with pytest.raises(DataError) as caught:
        _some_labels(cells, objective, classes, kind)
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
    labels = _some_labels(cells, BINARY, classes, kind)
    assert (labels.rows.tolist(), labels.values.tolist()) == ([1, 2], [1, 0])
    assert labels.rows.dtype == labels.values.dtype == np.int64
    assert _some_labels(cells, BINARY, classes[::-1], kind).values.tolist() == [0, 1]


def test_one_class_at_a_party_is_enough() -> None:
    """A party may label records of one class only: the job names the others."""
    assert _some_labels([2, None, 2], SOFTMAX, ["0", "1", "2"]).values.tolist() == [2, 2]


@pytest.mark.parametrize(("objective", "dtype"), [(BINARY, np.int64), (SQUARED, np.float64)])
@pytest.mark.parametrize("kind", [pa.null(), pa.int64(), pa.float64()])
def test_a_column_without_a_label(kind: pa.DataType, objective: str, dtype: type) -> None:
    """A column of empty cells has no labels, whatever its type."""
    labels = _some_labels([None, None], objective, ["0", "1"] if objective == BINARY else [], kind)
    assert (len(labels.rows), len(labels.values)) == (0, 0)
    assert labels.values.dtype == dtype
    assert len(labels.take(np.array([1, 0])).rows) == 0


def test_targets() -> None:
    """Numbers of any type are targets of a regression."""
    for cells, kind in (([None, 3, 4], pa.int32()), ([None, 3.0, 4.0], pa.float64())):
        labels = _some_labels(cells, SQUARED, [], kind)
        assert labels.rows.tolist() == [1, 2]
        assert labels.values.tolist() == [3.0, 4.0]
        assert labels.values.dtype == np.float64


def test_faults_name_the_row_and_never_the_label() -> None:
    """The row is that of the file, in which the records stand in the opposite order of their ids."""
    said = _fault_of_some([0, None, 7], BINARY, ["0", "1"])
    assert "the label at row 1 is none of the job's classes ('0', '1')" in said
    assert "7" not in said
    assert "row 2 is infinite" in _fault_of_some([None, float("inf"), 0.5], SQUARED, [])
    assert "holds string; reg:squarederror needs numbers" in _fault_of_some(["secret", None], SQUARED, [])
    assert "none of the job's classes" in _fault_of_some([float("-inf"), None], BINARY, ["0", "1"])


def test_many_classes_are_counted() -> None:
    """An error lists the first classes of a job and counts the others."""
    said = _fault_of_some(["x", None], SOFTMAX, [f"c{i}" for i in range(20)])
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
    assert repr(_some_labels([None, 1], BINARY, ["0", "1"])) == "<PartialLabels of 1 records>"

"""Labels, and those of some records.

- Labels: class numbers and names, targets, and what cannot be learnt from.
- Partial labels: cells that another party labels, the job's classes, and what no error may say.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.library.tables.given import parquet_file, read, text_file
from treetap.errors import DataError
from treetap.tables.config import TableConfig
from treetap.tables.features import Held
from treetap.tables.label_columns import LabelCells
from treetap.tables.labels import Labels, PartialLabels, read_labels, read_partial_labels
from treetap.tables.reading import Table, read_table
from treetap.tables.record_ids import Ids

BINARY, SOFTMAX, SQUARED = "binary:logistic", "multi:softprob", "reg:squarederror"
DECIMALS = ["-2", "0", "1.5", "10"]


def _table(cells: Any, kind: pa.DataType | None = None) -> Table:
    label = pa.chunked_array([pa.array(cells, kind)])
    ids, none = Ids.of([f"r{i:03}" for i in range(len(label))]), Held(np.zeros((len(label), 0)))
    return Table(Path("t.parquet"), ids, [], none, LabelCells(label), np.arange(len(label))[::-1])


def _labels(cells: Any, objective: str, kind: pa.DataType | None = None) -> Labels:
    return read_labels(_table(cells, kind), "y", objective)


def _some(cells: Any, objective: str, classes: Sequence[str], kind: pa.DataType | None = None) -> PartialLabels:
    return read_partial_labels(_table(cells, kind), "y", objective, classes)


@pytest.mark.parametrize(
    ("cells", "kind", "classes", "values"),
    [
        # whole numbers are named as such
        ([0, 1, 0], pa.int64(), ["0", "1"], [0, 1, 0]),
        ([2.0, 5.0, 2.0], pa.float32(), ["2", "5"], [0, 1, 0]),
        ([-0.5, 0.5, -0.5], pa.float64(), ["-0.5", "0.5"], [0, 1, 0]),
        (["no", "yes", "no"], pa.string(), ["no", "yes"], [0, 1, 0]),
        ([False, True, False], pa.bool_(), ["False", "True"], [0, 1, 0]),
        *[
            ([decimal.Decimal(text) for text in ("10", "1.50", "-2", "0", "10.00")], kind, DECIMALS, [3, 2, 0, 1, 3])
            for kind in (pa.decimal128(9, 2), pa.decimal256(60, 2), pa.decimal128(38, 2))
        ],
        # zeros at the end of a text tell classes apart
        (["x\0", "x", "\0\0", "\0"], pa.string(), ["\0", "\0\0", "x", "x\0"], [3, 2, 1, 0]),
        (list(range(100)), pa.int64(), sorted(map(str, range(100)), key=int), list(range(100))),
    ],
)
def test_classes(cells: list[Any], kind: pa.DataType, classes: list[str], values: list[int]) -> None:
    """Numbers, text and booleans become whole numbers in the order of their values."""
    labels = _labels(cells, SOFTMAX if len(classes) > 2 else BINARY, kind)
    assert (labels.values.tolist(), labels.classes) == (values, classes)
    assert labels.values.dtype == np.int64
    assert repr(labels) == f"<Labels of {len(cells)} records>"


@pytest.mark.parametrize(
    "cells",
    [
        pa.array(["b", "a", "c", "b"]).dictionary_encode(),
        pa.array(["b", "a", "c", "b"], pa.string_view()),
        pa.array([b"b", b"a", b"c", b"b"], pa.binary_view()),
    ],
    ids=lambda cells: str(cells.type),
)
def test_classes_of_a_file(cells: pa.Array, tmp_path: Path) -> None:
    """Categories and views are what they stand for."""
    path = parquet_file(tmp_path, {"id": range(4), "y": cells})
    labels = read_labels(read(path, label="y"), "y", SOFTMAX)
    assert (labels.values.tolist(), labels.classes) == ([1, 0, 2, 1], ["a", "b", "c"])
    with pytest.raises(DataError, match="names no label column"):
        read_table(TableConfig(path=path, id="id"), with_label=True, missing=None)


OBJECTIVES = (BINARY, SOFTMAX, SQUARED)
#: Of types that no label has.
KINDS: list[tuple[Any, pa.DataType, str]] = [
    ([1_600_000_000_000_000_077, 1], pa.timestamp("ns"), "holds timestamp[ns]; "),
    ([1_600_000_000_000_000_077, None], pa.timestamp("ns", "UTC"), "the label at row 1 is missing"),
    ([datetime.date(1977, 7, 7), datetime.date(1978, 7, 7)], pa.date32(), "holds date32[day]; "),
    ([datetime.timedelta(77), datetime.timedelta(78)], pa.duration("s"), "holds duration[s]; "),
    ([[77], [78]], pa.list_(pa.int64()), "holds list; "),
    ([[77], [78, 79]], pa.large_list(pa.int64()), "holds large_list; "),
    ([{"inner77": 77}, {"inner77": 78}], pa.struct({"inner77": pa.int64()}), "holds struct; "),
    ([[("77", 77)], [("78", 78)]], pa.map_(pa.string(), pa.int64()), "holds map; "),
    ([b"77", b"78"], pa.binary(), "holds binary; "),
]
#: Cells, their type, the objective, the job's classes where other parties label records too, and what is said.
FAULTS: list[tuple[Any, pa.DataType | None, str, list[str] | None, str]] = [
    *[(cells, kind, objective, None, said) for cells, kind, said in KINDS for objective in OBJECTIVES],
    *[([77, 77, 77], None, objective, None, "holds one class only") for objective in (BINARY, SOFTMAX)],
    ([77.5, 77.5], None, SQUARED, None, "every record has the same target"),
    *[
        ([0.0, float(cell), 1.0, 0.0, 1.0], None, objective, None, "the label at row 4 is missing or infinite")
        for cell in ("nan", "inf", "-inf")
        for objective in OBJECTIVES
    ],
    *[
        (cells, None, BINARY, None, "the label at row 2 is missing")
        for cells in ([0, None, 1], ["no", None, "yes"], [False, None, True])
    ],
    ([0, 1, 2] * 3, None, BINARY, None, "holds 3 classes; binary:logistic needs two"),
    (list(range(150)), None, SOFTMAX, None, "holds 150 different values"),
    (["77", "78"], None, SQUARED, None, "holds string; reg:squarederror needs numbers"),
    ([0, None, 77], None, BINARY, ["0", "1"], "the label at row 1 is none of the job's classes ('0', '1')"),
    ([None, float("inf"), 0.5], None, SQUARED, [], "row 2 is infinite"),
    (["77", None], None, SQUARED, [], "holds string; reg:squarederror needs numbers"),
    ([float("-inf"), None], None, BINARY, ["0", "1"], "none of the job's classes"),
    (["x", None], None, SOFTMAX, [f"c{i}" for i in range(20)], "'c7' and 12 more)"),
]


@pytest.mark.parametrize(("cells", "kind", "objective", "classes", "said"), FAULTS)
def test_faults_name_the_row_and_never_the_label(
    cells: Any, kind: pa.DataType | None, objective: str, classes: list[str] | None, said: str
) -> None:
    with pytest.raises(DataError) as caught:
        _labels(cells, objective, kind) if classes is None else _some(cells, objective, classes, kind)
    assert str(caught.value).startswith("t.parquet: label column 'y': ")
    assert said in str(caught.value)
    assert "77" not in str(caught.value)


def test_targets_of_a_regression() -> None:
    """Whole numbers, also those beyond float64's exact range, and fractions become float64 without classes."""
    labels = _labels([2**60 + 1, -3, 5], SQUARED)
    assert labels.values.tolist() == [2.0**60, -3.0, 5.0]
    assert labels.classes == []
    for kind in (pa.decimal128(9, 2), pa.decimal256(60, 2)):
        cells = [decimal.Decimal("1.25"), decimal.Decimal(-2)]
        assert _labels(cells, SQUARED, kind).values.tolist() == [1.25, -2.0]
    assert _labels([0.5, 1.5], SQUARED).values.dtype == np.float64


def test_labels_of_some_records() -> None:
    """Classes that none of the records has are left out, the others numbered anew; targets stay as they are."""
    labels = _labels(["b", "a", "d", "c", "d", "b"], SOFTMAX)
    some = labels.take(np.array([4, 0, 5, 2]))
    assert (some.values.tolist(), some.classes) == ([1, 0, 0, 1], ["b", "d"])
    assert some.values.dtype == np.int64
    numbers = _labels([0.5, -2.0, 7.0], SQUARED).take(np.array([2, 1]))
    assert (numbers.values.tolist(), numbers.classes) == ([7.0, -2.0], [])


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
    labels = _some(cells, BINARY, classes, kind)
    assert (labels.rows.tolist(), labels.values.tolist()) == ([1, 2], [1, 0])
    assert labels.rows.dtype == labels.values.dtype == np.int64
    assert _some(cells, BINARY, classes[::-1], kind).values.tolist() == [0, 1]
    assert repr(labels) == "<PartialLabels of 2 records>"


@pytest.mark.parametrize(("objective", "dtype"), [(BINARY, np.int64), (SQUARED, np.float64)])
@pytest.mark.parametrize("kind", [pa.null(), pa.int64(), pa.float64()])
def test_a_column_without_a_label(kind: pa.DataType, objective: str, dtype: type) -> None:
    """A column of empty cells has no labels, whatever its type."""
    labels = _some([None, None], objective, ["0", "1"] if objective == BINARY else [], kind)
    assert (len(labels.rows), len(labels.values)) == (0, 0)
    assert labels.values.dtype == dtype
    assert len(labels.take(np.array([1, 0])).rows) == 0


def test_targets() -> None:
    """Numbers of any type are targets of a regression."""
    for cells, kind in (([None, 3, 4], pa.int32()), ([None, 3.0, 4.0], pa.float64())):
        labels = _some(cells, SQUARED, [], kind)
        assert labels.rows.tolist() == [1, 2]
        assert labels.values.tolist() == [3.0, 4.0]
        assert labels.values.dtype == np.float64


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


@pytest.mark.parametrize(
    ("lines", "classes", "rows", "values"),
    [
        # records come in the order of their ids
        (["c,1,1", "a,1,", "b,1,0", "d,1,NA", "e,1,nan"], ["0", "1"], [1, 2], [0, 1]),
        (["c,1,yes", "a,1,", 'b,1,""'], ["no", "yes"], [2], [1]),
        (["c,1,", "a,1,"], ["no", "yes"], [], []),
        (["a,1,2", "b,1,", "c,1,2"], ["0", "1", "2"], [0, 2], [2, 2]),  # one class at a party is enough
    ],
)
def test_csv(lines: list[str], classes: list[str], rows: list[int], values: list[int], tmp_path: Path) -> None:
    """An empty cell of a CSV file, NA and NaN have no label."""
    path = text_file(tmp_path, "id,x,y\n" + "\n".join(lines) + "\n")
    labels = read_partial_labels(read(path, "x", label="y"), "y", SOFTMAX, classes)
    assert (labels.rows.tolist(), labels.values.tolist()) == (rows, values)

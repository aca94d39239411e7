"""Ids and classes go through protocols as text, and come back in the type of their column.

Cells that a prediction takes otherwise than the training: counted by column, said, refused where they are all.
"""

from __future__ import annotations

from contextlib import nullcontext
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.library.tables.given import parquet_file, read, text_file
from treetap.errors import DataError
from treetap.tables.features import Held
from treetap.tables.label_columns import LabelCells, named_type, typed
from treetap.tables.labels import read_classes
from treetap.tables.reading import Table
from treetap.tables.record_ids import Ids, Unlike, check_values

COLUMNS = [
    pa.array([3, -7, 2**62], pa.int64()),
    pa.array([2**63, 1, 2**64 - 1], pa.uint64()),
    pa.array([7, 3, 1], pa.int8()),
    pa.array(["b", "a", "7"], pa.string()),
    pa.array(["b", "a", "7"], pa.large_string()),
]
CLASSES = [
    *COLUMNS,
    pa.array([True, False, True], pa.bool_()),
    pa.array([2.0, 0.1, 1e300], pa.float64()),
    pa.array([2.0, 0.1, 0.5], pa.float32()),
    pa.array([Decimal("2.00"), Decimal("1.50"), Decimal("-3.25")], pa.decimal128(5, 2)),
    pa.array([Decimal("2"), Decimal("100"), Decimal("-3")], pa.decimal256(50, -1 + 1)),
]


@pytest.mark.parametrize("ids", COLUMNS, ids=lambda column: str(column.type))
def test_ids_of_parquet(ids: pa.Array, tmp_path: Path) -> None:
    """Name and type are the file's; so are the values, in the order of the text."""
    table = read(parquet_file(tmp_path, {"who": ids, "x": [1.0, 2.0, 3.0]}), "x", id="who")
    assert dict(table.id_types) == {"who": ids.type}
    found = typed(table.ids, table.id_types["who"])
    assert found.type == ids.type
    assert found.to_pylist() == sorted(ids.to_pylist(), key=str)
    assert table.take(np.array([1])).id_types == {"who": ids.type}


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["10", "2", "-5"], pa.int64()),
        (["0", str(2**63 - 1), str(-(2**63))], pa.int64()),
        (["10", "2", "007"], pa.string()),
        (["10", "2", "+5"], pa.string()),
        (["10", "2", "-0"], pa.string()),
        (["10", "2", "1.0"], pa.string()),
        (["10", "2", str(2**63)], pa.string()),
        (["a", "2", "3"], pa.string()),
    ],
)
def test_ids_of_csv(cells: list[str], kind: pa.DataType, tmp_path: Path) -> None:
    """Whole numbers if all are written as such, else text, of which no zero is lost."""
    lines = "".join(f"{cell},{k}\n" for k, cell in enumerate(cells))
    table = read(text_file(tmp_path, f"who,x\n{lines}"), "x", id="who")
    assert dict(table.id_types) == {"who": kind}
    expected = set(map(int, cells)) if kind == pa.int64() else set(cells)
    assert set(typed(table.ids, table.id_types["who"]).to_pylist()) == expected


@pytest.mark.parametrize("labels", CLASSES, ids=lambda column: str(column.type))
def test_classes(labels: pa.Array) -> None:
    """A class's text, with the name of its type as a manifest keeps it, gives its value again."""
    none: Any = np.empty((3, 0))
    table = Table(
        Path("t.parquet"), Ids.of("abc"), [], Held(none), LabelCells(pa.chunked_array([labels])), np.arange(3)
    )
    found = read_classes(table, "y")
    kind = named_type(str(found.kind))
    assert kind == labels.type
    assert typed(found.classes, kind).take(pa.array(found.values)).to_pylist() == labels.to_pylist()


@pytest.mark.parametrize("name", ["", "guess", "decimal128(5)"])
def test_a_type_that_is_none(name: str) -> None:
    """A damaged manifest is an error."""
    with pytest.raises(DataError, match="is no type of a column"):
        named_type(name)


NAN = float("nan")


def _read(folder: Path, cells: Any, like: Table | None = None, encode: str = "categorical", **more: Any) -> Table:
    """A table of column k, and of column x with numbers."""
    count = len(cells)
    content = {"id": [f"u{row:03d}" for row in range(count)], "k": cells, "x": [0.5 * row for row in range(count)]}
    path = parquet_file(folder, content | more, f"{len(list(folder.iterdir()))}.parquet")
    return read(path, "k", "x", missing=-999.0, like=like, encode={"k": encode} if like is None else None)


@pytest.mark.parametrize("encode", ["ordinal", "one-hot", "categorical"])
@pytest.mark.parametrize(
    ("trained", "written", "codes"),
    [
        (["1", "2", "10"], pa.array([1.0, 2.0, 10.0, None]), [0, 1, 2, NAN]),
        (["1.0", "2.0", "10.0"], pa.array([1, 2, 10, -999]), [0, 1, 2, NAN]),
        ([1, 2, 10], pa.array(["1.00", "2", "10.", " "]), [0, 1, 2, NAN]),
        ([0.1, 3.3, -2.0], pa.array([0.1, 3.3, -2.0, NAN], pa.float32()), [1, 2, 0, NAN]),
        (pa.array([0.1, 3.3], pa.float32()), pa.array([0.1, 3.3, -999.0]), [0, 1, NAN]),
        ([True, False, True], pa.array(["TRUE", "False", "true"]), [1, 0, 1]),
        ([2**60 + 1, 2**60], pa.array([str(2**60 + 1), str(2**60)]), [1, 0]),
    ],
)
def test_one_category_whatever_wrote_it(
    trained: Any, written: pa.Array, codes: list[float], encode: str, tmp_path: Path
) -> None:
    """Whole numbers with and without a point, of any width and as text, and booleans."""
    like = _read(tmp_path, trained, encode=encode)
    found = _read(tmp_path, written, like)
    assert found.unlike == Unlike(0, 0)
    expected = np.array(codes)[:, None]
    if encode == "one-hot":
        expected = np.where(np.isnan(expected), NAN, expected == np.arange(len(like.categories["k"].values)))
    np.testing.assert_array_equal(found.features[:, :-1], expected)


@pytest.mark.parametrize("streamed", [False, True])
def test_what_is_unknown_is_counted_and_said(
    streamed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """By column, of the cells that have a value; no text of a cell is said."""
    if streamed:
        monkeypatch.setattr("treetap.tables.streamed_reading.STREAMED", 0)
    like = _read(tmp_path, ["red", "blue", "red"])
    found = _read(tmp_path, ["azure", "Red", "red", None], like, x=pa.nulls(4))
    assert found.unlike == Unlike(2, 1, ("k", "x"))
    assert "column 'k': 2 of 3 cells are of no category of the training" in caplog.text
    assert "column 'x' has no value, and had some in the training" in caplog.text
    assert "azure" not in caplog.text


@pytest.mark.parametrize(
    ("trained", "written"),
    [(["red", "blue"], ["a", None, "b"]), ([1, 2], [3.5, 4.5]), ([True, False], [1, 0]), (["true", "no"], ["1", "0"])],
)
def test_a_column_without_a_known_category_is_refused(trained: Any, written: Any, tmp_path: Path) -> None:
    """But for a table of one record, which says it. 1 and true are different categories."""
    like = _read(tmp_path, trained)
    with pytest.raises(DataError, match=r"column 'k'(: all 2 cells are of no category|.* when it was trained on)"):
        _read(tmp_path, written, like)
    assert _read(tmp_path, ["green"], like).unlike == Unlike(1, 0, ("k",))


def test_a_column_that_was_empty_in_the_training_is_none(tmp_path: Path) -> None:
    """It is in the model's description; no value at all is no table to predict, unless it is of one record."""
    like = _read(tmp_path, ["a", "b"], x=pa.nulls(2))
    assert like.described()["empty_columns"] == ["x"]
    assert _read(tmp_path, ["a", "b"], like, x=pa.nulls(2)).unlike == Unlike(0, 0)
    why = "no column has any value, and 1 had some in the training"
    for count, refused in ((2, pytest.raises(DataError, match=why)), (1, nullcontext())):
        nothing = _read(tmp_path, pa.nulls(count), like, x=pa.nulls(count))
        assert nothing.unlike == Unlike(0, 1, ("k",))
        with refused:
            check_values(nothing.path, nothing.seen, nothing.unlike, count)


def test_a_table_without_columns_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With the columns that it has; a prediction by a model without features of the party does not."""
    path = parquet_file(tmp_path, {"id": [1, 2], "x": [0.5, 1.5], "y": [0, 1]})
    with caplog.at_level("INFO", "treetap"):
        like = read(path, label="y")
        assert "columns names none, so that the table contributes no feature; it has 'x'" in caplog.text
        caplog.clear()
        read(path, label="y", like=like)
        assert caplog.text == ""

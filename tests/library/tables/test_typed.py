"""Ids and classes go through protocols as text, and come back in the type of their column."""

from __future__ import annotations

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
from treetap.tables.record_ids import Ids

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

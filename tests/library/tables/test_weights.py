"""Sample weights: which cells are some, where a fault is, and what a configuration may say of their column."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from treetap.errors import DataError
from treetap.party.setup.steps import fingerprint
from treetap.tables.config import TableConfig
from treetap.tables.reading import Table, read_table


def _read(path: Path, *, with_label: bool = True) -> Table:
    config = TableConfig(path=path, id="id", columns=["a"], label="y", weight="w")
    return read_table(config, with_label=with_label, missing=7.0)


def _csv(folder: Path, *weights: str) -> Path:
    path = folder / "t.csv"
    rows = [f"r{9 - i},{i},{i % 2},{weight}" for i, weight in enumerate(weights)]
    path.write_text("\n".join(["id,a,y,w", *rows, ""]))
    return path


def test_weights_follow_the_records(tmp_path: Path) -> None:
    """In the order of sorted ids, and of the records taken; 0 is a weight, and so is the number that means missing."""
    table = _read(_csv(tmp_path, "1", "0", "7", "2.5"))
    assert table.ids == ["r6", "r7", "r8", "r9"]
    np.testing.assert_array_equal(table.weights, [2.5, 7, 0, 1])
    np.testing.assert_array_equal(table.take(np.array([3, 0])).weights, [1, 2.5])
    assert table.columns == ["a"]
    whole = tmp_path / "t.parquet"
    pq.write_table(pa.table({"id": ["b", "a"], "a": [1, 2], "y": [0, 1], "w": pa.array([3, 4], pa.int32())}), whole)
    np.testing.assert_array_equal(_read(whole).weights, [4, 3])


def test_a_prediction_reads_no_weights(tmp_path: Path) -> None:
    """Without its label the table has none, whatever their cells."""
    assert _read(_csv(tmp_path, "1", "many"), with_label=False).weights is None


@pytest.mark.parametrize(
    ("cell", "fault"),
    [
        ("", "the weight is missing"),
        ("-0.5", "the weight is negative"),
        ("many", "the cell is not a number; a sample weight is one"),
        ("inf", "the cell is infinite"),
    ],
)
def test_a_wrong_weight_is_named_by_its_place(cell: str, fault: str, tmp_path: Path) -> None:
    """File, line and column, and never the cell."""
    path = _csv(tmp_path, "1", "2", cell, "1")
    with pytest.raises(DataError) as caught:
        _read(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: line 4, ")
    assert "column 'w'" in message
    assert fault in message
    assert not cell or cell == "inf" or cell not in message


def test_weights_are_part_of_a_tables_fingerprint(tmp_path: Path) -> None:
    """An interrupted job does not go on with other weights, nor without."""
    table = _read(_csv(tmp_path, "1", "2", "3"))
    assert table.weights is not None
    others = [np.nextafter(table.weights, 9), None]
    assert len({fingerprint(table), *(fingerprint(replace(table, weights=other)) for other in others)}) == 3


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"columns": ["w"], "label": "y"}, "column 'w' is the id or the label or the weight"),
        ({"label": "w"}, "column 'w' cannot be both the weight and the id or the label"),
        ({"id": "w", "label": "y"}, "column 'w' cannot be both the weight and the id or the label"),
        ({}, "weight names a column of the label holder's table, and this one has no label"),
    ],
)
def test_a_column_of_weights_is_nothing_else(given: dict[str, Any], fault: str) -> None:
    """Neither id, label nor feature; and it stands beside a label."""
    with pytest.raises(ValueError, match=fault):
        TableConfig(**{"path": Path("t.csv"), "id": "id", "weight": "w", **given})

"""Sample weights: which cells are some, where a fault is, and what a configuration may say of their column."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.library.tables.given import parquet_file, read, refusal, text_file
from treetap.party.setup.steps import fingerprint
from treetap.tables.config import TableConfig
from treetap.tables.reading import read_table


def _csv(folder: Path, *weights: str) -> Path:
    rows = [f"r{9 - i},{i},{i % 2},{weight}" for i, weight in enumerate(weights)]
    return text_file(folder, "\n".join(["id,a,y,w", *rows, ""]))


def test_weights_follow_the_records(tmp_path: Path) -> None:
    """In the order of sorted ids, and of the records taken; 0 is a weight, and so is the number that means missing."""
    table = read(_csv(tmp_path, "1", "0", "7", "2.5"), "a", label="y", weight="w", missing=7.0)
    assert table.ids == ["r6", "r7", "r8", "r9"]
    np.testing.assert_array_equal(table.weights, [2.5, 7, 0, 1])
    np.testing.assert_array_equal(table.take(np.array([3, 0])).weights, [1, 2.5])
    assert table.columns == ["a"]
    whole = parquet_file(tmp_path, {"id": ["b", "a"], "a": [1, 2], "y": [0, 1], "w": pa.array([3, 4], pa.int32())})
    np.testing.assert_array_equal(read(whole, "a", label="y", weight="w").weights, [4, 3])


def test_a_prediction_reads_no_weights(tmp_path: Path) -> None:
    """Without its label the table has none, whatever their cells."""
    config = TableConfig(path=_csv(tmp_path, "1", "many"), id="id", columns=["a"], label="y", weight="w")
    assert read_table(config, with_label=False, missing=None).weights is None


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
    message = refusal(path, "a", label="y", weight="w", match=f": line 4, .*column 'w'.*{fault}")
    assert not cell or cell == "inf" or cell not in message


def test_weights_are_part_of_a_tables_fingerprint(tmp_path: Path) -> None:
    """An interrupted job does not go on with other weights, nor without."""
    table = read(_csv(tmp_path, "1", "2", "3"), "a", label="y", weight="w")
    assert table.weights is not None
    others = [np.nextafter(table.weights, 9), None]
    assert len({fingerprint(table), *(fingerprint(replace(table, weights=other)) for other in others)}) == 3

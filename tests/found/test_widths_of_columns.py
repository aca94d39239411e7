"""Numbers of the configuration are compared in a column's own width: listed cuts, and the number that means missing."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from treetap.tables.binned import bin_columns
from treetap.tables.config import TableConfig
from treetap.tables.reading import Table, read_table

CELLS, CUTS = [0.05, -0.3, 0.7, 0.9, 1e5 / 3, 0.2], [-0.3, 0.05, 0.2, 0.7, 0.9, 1e5 / 3]
BINS = [2, 1, 4, 5, 6, 3]
KINDS = {
    "half": pa.array(np.array(CELLS, np.float16)),
    "single": pa.array(CELLS, pa.float32()),
    "double": pa.array(CELLS),
    "text": pa.array([repr(cell) for cell in CELLS]),
    "decimal": pa.array([Decimal(repr(round(cell, 11))) for cell in CELLS], pa.decimal128(18, 11)),
    "dictionary": pa.array(CELLS, pa.float32()).dictionary_encode(),
}


def _read(folder: Path, cells: pa.Array, cuts: Sequence[float], missing: float | None = None, **keys: Any) -> Table:
    path = folder / "t.parquet"
    pq.write_table(pa.table({"id": [str(row) for row in range(len(cells))], "x": cells}), path)
    config = TableConfig(path=path, id="id", columns=["x"], cuts={"x": list(cuts)} if cuts else {})
    return read_table(config, with_label=False, missing=missing, **keys)


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_value_equal_to_a_cut_lies_above_it(
    kind: str, streams: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the file has the numbers, and whether it is read whole or in batches."""
    monkeypatch.setattr("treetap.tables.streamed_reading.STREAMED", 0)
    cuts = [round(cut, 11) for cut in CUTS] if kind == "decimal" else CUTS
    table = _read(tmp_path, KINDS[kind], cuts, streams=streams)
    assert bin_columns(table, 8, None).codes[:, 0].tolist() == BINS


@pytest.mark.parametrize(
    ("cells", "cuts", "bins"),
    [
        (pa.array(np.array([-6e4, 0.0, 6e4], np.float16)), [-1e6, 1.0, 1e6], [1, 1, 2]),
        (pa.array([-1.0, 3e38], pa.float32()), [-1e300, 0.5, 1e300], [1, 2]),
        (pa.array(np.array([0.7, 0.8], np.float16)), [0.7, 0.70001], [2, 2]),
        (pa.array([2, 3, 2**40], pa.int64()), [2.5, 3, 2.0**40], [0, 2, 3]),
        (pa.array([2, 3], pa.uint8()), [2.0, 2.9], [1, 2]),
        (pa.array([False, True]), [0.5, 1.0], [0, 2]),
    ],
)
def test_a_cut_that_a_width_does_not_have(cells: pa.Array, cuts: list[float], bins: list[int], tmp_path: Path) -> None:
    """Out of its range no value passes it; two that are one there leave an empty bin; whole numbers lie between."""
    assert bin_columns(_read(tmp_path, cells, cuts), 8, None).codes[:, 0].tolist() == bins


@pytest.mark.parametrize("kind", ["half", "single", "double"])
@pytest.mark.parametrize("missing", [0.7, -0.3, 0.05, -99999.9, 1e300])
def test_the_number_that_means_missing(kind: str, missing: float, tmp_path: Path) -> None:
    """Those cells alone, and none where the width has no such number."""
    table = _read(tmp_path, KINDS[kind], [], missing)
    assert np.isnan(table.features[:, 0]).tolist() == [cell == missing for cell in CELLS]

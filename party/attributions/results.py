"""The file of attributions: of each record, what each player adds to the expected score."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from treetap.models.durable import writing_whole
from treetap.tables.reading import Floats


def write_attributions(
    path: Path,
    column: str,
    ids: pa.Array,
    scores: Floats,
    expected: Floats,
    values: npt.NDArray[np.float64],
    players: Sequence[str],
    parties: Collection[str],
    classes: pa.Array,
) -> None:
    """Write values (n, players, outputs) of records with these scores (n, outputs); `expected` (outputs,).

    A row per record, or per record and class if a score has several columns: `column` with the ids, perhaps `class`,
    `score`, `expected`, then a column per player, `own:FEATURE` or `party:NAME`.
    """
    n, outputs = scores.shape
    columns: dict[str, Any] = {column: ids.take(pa.array(np.repeat(np.arange(n), outputs)))}
    if outputs > 1:
        columns["class"] = classes.take(pa.array(np.tile(np.arange(outputs), n)))
    columns |= {"score": scores.ravel(), "expected": np.tile(expected, n)}
    for place, player in enumerate(players):
        columns[f"party:{player}" if player in parties else player] = values[:, place].ravel()
    with writing_whole(path) as file:
        pq.write_table(pa.table(columns), file, compression="zstd")

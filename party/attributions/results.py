"""The file of attributions: of each record, what each player adds to the expected score."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
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
    column: pa.Field,
    parts: Iterable[tuple[pa.Array, Floats, npt.NDArray[np.float64]]],
    expected: Floats,
    players: Sequence[str],
    parties: Collection[str],
    classes: pa.Array,
) -> None:
    """Write, part by part, ids (n,), scores (n, outputs) and values (n, players, outputs); `expected` (outputs,).

    A row per record, or per record and class if a score has several columns: `column` with the ids, perhaps `class`,
    `score`, `expected`, then a column per player, `own:FEATURE` or `party:NAME`.
    """
    kinds: list[Any] = [column, *([("class", classes.type)] if len(expected) > 1 else [])]
    kinds += [(name, pa.float64()) for name in ("score", "expected")]
    schema = pa.schema([*kinds, *((_called(player, parties), pa.float64()) for player in players)])
    with writing_whole(path) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for ids, scores, values in parts:
            n, outputs = scores.shape
            columns: list[Any] = [ids.take(pa.array(np.repeat(np.arange(n), outputs)))]
            if outputs > 1:
                columns.append(classes.take(pa.array(np.tile(np.arange(outputs), n))))
            columns += [scores.ravel(), np.tile(expected, n)]
            columns += [values[:, place].ravel() for place in range(len(players))]
            writer.write_table(pa.table(columns, schema=schema))


def _called(player: str, parties: Collection[str]) -> str:
    return f"party:{player}" if player in parties else player

"""Attributions at the label holder: Shapley values of every score, summed along the same chain (docs/protocol-eini.md).

The file has, of each record, what each player adds to the expected score.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from party.eini.chain import Advance
from party.eini.entry_layout import ATTRIBUTIONS
from party.eini.entry_sums import EntrySums
from party.prediction.opened_model import OpenedModel
from party.runtime.context import StepContext
from treetap.errors import Malformed
from treetap.models.durable import writing_whole
from treetap.tables.typed import typed
from treetap.trees.ensemble import Ensemble
from treetap.trees.paths import Floats
from treetap.trees.shapley import expected_score
from treetap.trees.shapley_entries import AttributionEntries

#: Relative error of sums of doubles.
DOUBLES = 1e-12


class Attributions(EntrySums):
    """The label holder's end of the chain for attributions, with the expected score to which they add up.

    Attributes:
        players: see `AttributionEntries`.
        spare: see there.
    """

    def __init__(
        self,
        context: StepContext,
        chain: list[str],
        entries: AttributionEntries,
        ensemble: Ensemble,
        opened: OpenedModel,
        slots: int,
        advance: Advance,
    ) -> None:
        """`slots`: see `EntrySums`. It is slow, since it computes the expected score."""
        self._expected = expected_score(ensemble)
        self.players, self.spare = entries.players, entries.spare
        super().__init__(context, chain, ATTRIBUTIONS, entries, len(self.players) * len(self._expected), slots, advance)
        self._parties, self._opened = chain, opened
        rounding = np.ldexp(len(ensemble.used_trees), -entries.score_bits - 1) / ensemble.divisor
        self._tolerance = entries.tolerance + rounding

    def check_complete(self, number: int, values: Floats, scores: Floats) -> None:
        """Check that expected score and values add up to the score, as they do for any masks that are also the score's.

        Raises:
            Malformed: they do not, and the gap is larger than the error of fixed point.
        """
        size = np.abs(values).sum(axis=1) + np.abs(scores) + np.abs(self._expected)
        gap = np.abs(self._expected + values.sum(axis=1) - scores)
        if (gap > self._tolerance + DOUBLES * size).any():
            raise Malformed(
                f"block {number}: the attributions do not add up to the scores; {', '.join(self._parties)}: one of "
                "them has not applied the same masks to both"
            )

    def write(self, path: Path, column: pa.Field, parts: Iterable[tuple[pa.Array, Floats, Floats]]) -> None:
        """Write the file; see `write_attributions`."""
        classes = typed(self._opened.classes, self._opened.class_type)
        write_attributions(path, column, parts, self._expected, self.players, self._parties, classes)


def write_attributions(
    path: Path,
    column: pa.Field,
    parts: Iterable[tuple[pa.Array, Floats, Floats]],
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

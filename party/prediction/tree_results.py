"""Scores by trees: handed to the record source, with the leaves that are open if explanations are asked for."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

import numpy as np

from party.prediction.decision_paths import OPEN_LEAVES, foreign, pack_masks, records_at_once, write_paths
from party.prediction.opened_model import OpenedModel
from party.prediction.records import RecordSource
from party.prediction.scores_on_disk import Imputed, ScoreStore
from party.prediction.tree_model import TreeModel
from party.runtime.context import StepContext
from party.runtime.job_store import Arrays
from party.runtime.messages import Rows
from treetap.tables.reading import Floats
from treetap.tables.typed import IdColumn
from treetap.trees.ensemble import Split
from treetap.trees.paths import Bools
from treetap.wire.v2 import prediction_pb2


class TreeResults:
    """The scores of a prediction by trees at the label holder.

    `directed`: parties that send the directions of records at their splits.
    """

    def __init__(
        self,
        context: StepContext,
        opening: prediction_pb2.OpenModel,
        opened: OpenedModel,
        model: TreeModel,
        records: RecordSource,
        directed: Collection[str] = (),
    ) -> None:
        self._context, self._opening, self._opened = context, opening, opened
        self._model, self._records, self._directed = model, records, frozenset(directed)

    def keep(
        self,
        rows: Rows,
        scores: Floats,
        imputed: Imputed | None = None,
        *,
        leaves: Iterable[Bools] | None = None,
        further: Arrays | None = None,
    ) -> None:
        """Keep the scores (n, outputs) of some records, and the imputed share of each (n,).

        `leaves`: of each used tree those that they may have reached (n, leaves); None: all that the own columns leave
        open, f_k(x) of Fed-EINI. `further`: other arrays to keep, by name.
        """
        kept = dict(further or {})
        if self._opening.explain:
            kept[OPEN_LEAVES] = pack_masks(self._model.open_leaves(rows) if leaves is None else leaves)
        self._records.keep(rows, scores, np.zeros(len(rows)) if imputed is None else imputed, kept)

    async def write(
        self, path: Path, own: IdColumn, known: Rows, scored: ScoreStore, written: prediction_pb2.WrittenPredictions
    ) -> None:
        """Write the decision paths of scored records beside the predictions, if explanations are asked for."""
        opening, names = self._opening, self._opened.names
        if not opening.explain:
            return
        shown = known[: opening.explain_limit or len(known)]
        target = path.with_name(f"{self._context.job}.explained.parquet")
        trees = self._model.ensemble.used_trees
        at_once = records_at_once(trees)
        ids = (own.at(shown[first : first + at_once]) for first in range(0, len(shown), at_once))
        leaves = (part[OPEN_LEAVES] for part in scored.in_order([OPEN_LEAVES], shown, at_once))
        parts = zip(ids, leaves, strict=True)
        await self._context.offload(lambda: write_paths(target, own.field, parts, trees, self._meaning))
        written.explanations = str(target)
        written.withheld.extend(names.withheld)

    def _meaning(self, split: Split, left: bool) -> str:
        """One side of a split as text."""
        if split.owner == self._context.party:
            return self._model.own.split(split.handle).condition(self._opened.manifest, left=left)
        known = self._opened.names.sent.get(split.owner, {})
        return foreign(split, known, left if split.owner in self._directed else None)

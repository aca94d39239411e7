"""What the label holder of every prediction by trees has: opened model, trees, records, results, and explanations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from party.alignment.steps import ALIGNMENT
from party.prediction.batch import Beside
from party.prediction.decision_paths import OPEN_LEAVES, foreign, pack_masks, records_at_once, write_paths
from party.prediction.feature_names import NamesTaken
from party.prediction.opened_model import OpenedModel
from party.prediction.order import NAMES
from party.prediction.records import record_source
from party.prediction.scores_on_disk import Imputed, ScoreStore
from party.prediction.tree_model import TreeModel
from party.protocols import PredictionJob
from party.runtime.job_store import Arrays
from party.runtime.messages import Rows
from party.runtime.step_order import Phase
from treetap.protocols.scoring import ScoringSizes
from treetap.tables.reading import Floats
from treetap.tables.typed import IdColumn
from treetap.trees.ensemble import Split
from treetap.trees.paths import Bools
from treetap.wire.v2 import prediction_pb2


class TreeScoring:
    """The part of a role that scores records by trees, whichever way the scores come about.

    Attributes:
        opened: the model that the prediction opens, with the own table.
        trees: its trees.
        records: those to score, block by block.
        names: those of features, which other parties send.
    """

    def __init__(
        self, job: PredictionJob, sizes: ScoringSizes, *, beside: Sequence[Beside] = (), shows_directions: bool = False
    ) -> None:
        """`sizes`: of the prediction; `beside`: writers of further files.

        `shows_directions`: other parties send the directions of records at their splits.

        Raises:
            BadInput: see `OpenedModel`.
        """
        self._context, self._opening = job.context, job.opening
        self._shows_directions = frozenset(job.chain if shows_directions else ())
        self.opened = OpenedModel(job, sizes)
        self.trees = TreeModel(self.opened)
        self.names = NamesTaken(job, self.trees.handles_of)
        sizes.named = sum(len(self.trees.handles_of(party)) for party in job.chain)
        self.records = record_source(job, self.opened, [self._write_paths, *beside])

    @property
    def phases(self) -> Mapping[str, Phase]:
        """The alignment, and the names."""
        return {ALIGNMENT: self.opened.alignment, NAMES: self.names}

    async def open(self) -> prediction_pb2.OpenedModel:
        """Load the own table and begin to align it; report the number of trees that predictions use."""
        table = await self.opened.load()
        await self.records.open(table)
        await self.opened.align(table)
        return self.opened.opened(table, trees=len(self.trees.ensemble.used_trees))

    def keep(
        self,
        rows: Rows,
        scores: Floats,
        imputed: Imputed,
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
            kept[OPEN_LEAVES] = pack_masks(self.trees.open_leaves(rows) if leaves is None else leaves)
        self.records.keep(rows, scores, imputed, kept)

    async def _write_paths(
        self, path: Path, own: IdColumn, known: Rows, scored: ScoreStore, written: prediction_pb2.WrittenPredictions
    ) -> None:
        """Write the decision paths of scored records beside the predictions, if explanations are asked for."""
        if not self._opening.explain:
            return
        shown = known[: self._opening.explain_limit or len(known)]
        target = path.with_name(f"{self._context.job}.explained.parquet")
        trees = self.trees.ensemble.used_trees
        at_once = records_at_once(trees)
        ids = (own.at(shown[first : first + at_once]) for first in range(0, len(shown), at_once))
        leaves = (part[OPEN_LEAVES] for part in scored.in_order([OPEN_LEAVES], shown, at_once))
        parts = zip(ids, leaves, strict=True)
        await self._context.offload(lambda: write_paths(target, own.field, parts, trees, self._meaning))
        written.explanations = str(target)
        written.withheld.extend(self.names.withheld)

    def _meaning(self, split: Split, left: bool) -> str:
        """One side of a split as text."""
        if split.owner == self._context.party:
            return self.trees.own.split(split.handle).condition(self.opened.manifest, left=left)
        named = self.names.known.get(split.owner, {})
        return foreign(split, named, left if split.owner in self._shows_directions else None)

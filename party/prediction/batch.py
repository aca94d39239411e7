"""A prediction of the whole table, or of the ids in a file, that ends as one file at the label holder."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from party.config import PartyConfig
from party.prediction.evaluation import EvaluatedPrediction
from party.prediction.opened_model import OpenedModel
from party.prediction.outcome import Outcome
from party.prediction.scores_on_disk import Imputed, ScoreStore
from party.prediction.step_rows import LAST_BLOCK, MORE_BLOCKS
from party.runtime.context import Step, StepContext
from party.runtime.job_store import Arrays, Store
from party.runtime.messages import Rows
from party.setup.steps import fingerprint
from treetap.errors import DataError
from treetap.models.durable import write_whole
from treetap.protocols.prediction import FORMATS
from treetap.tables.reading import Floats, Table, read_ids
from treetap.tables.typed import typed
from treetap.tables.written import content_of
from treetap.wire.frame import result
from treetap.wire.v2 import control_pb2, prediction_pb2

#: Names of columns in the written files, which the id column cannot have.
TAKEN = ("prediction", "probability", "score", "guessed", "class", "expected", "paths")
TAKEN_PREFIXES = ("probability_", "score_", "own:", "party:")
#: Writes a further file beside the predictions: given their path, the ids that have a score, the stored arrays, and
#: the answer, for the paths of further files.
Beside = Callable[[Path, list[str], ScoreStore, prediction_pb2.WrittenPredictions], Awaitable[None]]


class BatchPrediction:
    """Records by their ids; scored blocks stay on disk until the predictions are written.

    A further attempt goes on with the records that have no score.
    """

    def __init__(
        self,
        config: PartyConfig,
        store: Store,
        context: StepContext,
        opening: prediction_pb2.OpenModel,
        opened: OpenedModel,
        beside: Sequence[Beside],
    ) -> None:
        """`beside`: writers of further files."""
        self._config, self._store, self._context, self._opening = config, store, context, opening
        self._opened, self._beside = opened, beside
        self._evaluated = EvaluatedPrediction(config, context, opening, opened) if opening.evaluate else None
        if self._evaluated is not None:
            self._beside = [*beside, self._evaluated.write]
        self._scored = ScoreStore(context.store, opening.prediction)
        self._done = 0  # records with a score, those of earlier attempts included
        self._asked_for: Sequence[str] = []
        self._again = False  # all records have their score: this attempt's is not kept
        self._wanted: Rows | None = None
        self.size = max(1, opening.block)  #: see `RecordSource`
        self.steps: Mapping[str, Step] = {"write_predictions": self.write_predictions}

    async def open(self, table: Table) -> None:
        """Find the ids to predict, and those that earlier attempts have scored.

        Raises:
            DataError: the ids cannot be found, or their column has the name of one that the written files have.
        """
        if table.id_column in TAKEN or table.id_column.startswith(TAKEN_PREFIXES):
            raise DataError(
                f"{table.path}: the id column is called {table.id_column!r}, as a column of the predictions is; "
                "give it another name"
            ).at(self._config.name)
        self._asked_for = self._ids_asked_for(table)
        if self._evaluated is not None:
            await self._evaluated.read()
        self._scored.open(await self._context.offload(lambda: fingerprint(table)), table.path)

    @property
    def wanted(self) -> Rows:
        """Places in the aligned order of the records to predict that have no score yet, ascending."""
        if self._wanted is None:
            aligned = self._opened.aligned
            if self._evaluated is not None:
                self._evaluated.check(aligned.ids)  # before any score
            self._wanted, self._done = self._places(aligned)
            self._context.progress.done, self._context.progress.total = self._done, self._done + len(self._wanted)
        return self._wanted

    def block(self, number: int) -> tuple[Rows, int]:
        """See `RecordSource`."""
        return self.wanted[number * self.size : (number + 1) * self.size], self._blocks

    def advance(self, records: int) -> None:
        """See `RecordSource`."""
        self._context.progress.done = self._done + records

    def keep(self, rows: Rows, scores: Floats, imputed: Imputed, further: Arrays) -> None:
        """See `RecordSource`: on disk before the step ends."""
        ids = self._opened.aligned.ids
        if not self._again:
            self._scored.add(list(ids.take(rows)), scores, imputed, further)
        self._done += len(rows)
        self._context.progress.done = self._done

    def after_block(self, number: int) -> str:
        """See `RecordSource`."""
        return MORE_BLOCKS if number + 1 < self._blocks else LAST_BLOCK

    async def write_predictions(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """One file, Parquet or CSV: id, raw score(s), and probability, class or value."""
        self._opened.order.check(request)
        path = self._store.predictions / f"{self._context.job}.{self._opening.format or FORMATS[0]}"
        ids = self._asked_for
        known = self._scored.known(ids)
        found = known, self._scored.rows("scores", known), self._scored.rows("guessed", known)
        degraded = self._opening.away_policy == "degrade"
        written = prediction_pb2.WrittenPredictions(path=str(path), records=len(ids))
        for write in self._beside:
            await write(path, known, self._scored, written)
        await self._context.offload(lambda: _write(path, ids, found, self._opened, degraded=degraded))
        self._scored.discard()
        self._opened.order.done(request)
        return result(written)

    @property
    def _blocks(self) -> int:
        return -(-len(self.wanted) // self.size)

    def _ids_asked_for(self, table: Table) -> Sequence[str]:
        """The ids to predict, sorted: all of the own table, or those of the file of ids."""
        if not self._opening.records_file:
            return table.ids
        base = self._config.data
        if base is None:
            raise DataError("a file of records needs `data = FOLDER` in the configuration").at(self._config.name)
        if "\0" in self._opening.records_file:
            raise DataError(f"{self._opening.records_file!r} cannot be a file's name").at(self._config.name)
        path = (base / self._opening.records_file).resolve()
        if not path.is_relative_to(base.resolve()):
            raise DataError(f"{self._opening.records_file} is not below the data folder {base}").at(self._config.name)
        own = set(table.ids)
        try:
            ids = read_ids(path)
            unknown = [number for number, value in enumerate(ids, start=1) if value not in own]
            if unknown:
                raise DataError(f"{path}: id number {unknown[0]} is not in table {self._opening.table!r}")
            if not ids:
                raise DataError(f"{path}: names no record")
        except DataError as fault:
            raise fault.at(self._config.name) from None
        return sorted(ids)

    def _places(self, table: Table) -> tuple[Rows, int]:
        """The places of the records to predict in the aligned order, and the number of those that have a score already.

        Records that some party lacks have no place. If all have their score, the first one is scored again, because a
        protocol needs at least one; the stored score stays.
        """
        place = {value: row for row, value in enumerate(table.ids)}
        common = [value for value in self._asked_for if value in place]
        if not common:
            raise DataError("none of the records to predict is common to all parties").at(self._config.name)
        scored = self._scored.ids()
        found = [place[value] for value in common if value not in scored]
        self._again = not found
        if self._again:
            return np.array([place[common[0]]], dtype=np.int64), len(scored) - 1
        return np.array(sorted(found), dtype=np.int64), len(scored)


def _write(
    path: Path, ids: Sequence[str], found: tuple[list[str], Floats, Imputed], opened: OpenedModel, *, degraded: bool
) -> None:
    """Write the predictions, a row per id; empty cells where a record is not common to all parties.

    Ids have the name and the type of the party's table, classes the type of the label's column. `degraded`: with a
    column of each record's share of imputed directions.
    """
    known, scores, imputed = found
    columns = Outcome.of(opened.objective, opened.classes, scores).columns(opened.classes, opened.class_type)
    if degraded:
        columns["guessed"] = imputed
    place = {value: row for row, value in enumerate(known)}
    rows = pa.table(columns).take(pa.array([place.get(value) for value in ids], pa.int64()))
    own = opened.aligned
    write_whole(path, content_of(rows.add_column(0, own.id_column, typed(ids, own.id_type)), path.suffix[1:]))

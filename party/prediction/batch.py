"""A prediction of the whole table, or of the ids in a file, that ends as one Parquet file at the label holder."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from party.config import PartyConfig
from party.prediction.outcome import Outcome
from party.prediction.scores_on_disk import Guessed, Scored
from party.runtime.context import Step, Tools
from party.runtime.job_store import Arrays, Store
from party.runtime.messages import Rows
from party.runtime.steps import Order, StepId
from party.setup.steps import fingerprint
from treetap.errors import DataError
from treetap.models.durable import write_whole
from treetap.tables.reading import Floats, Table, read_ids
from treetap.trees.ensemble import Ensemble
from treetap.wire.frame import result
from treetap.wire.v2 import control_pb2, prediction_pb2

#: Where the predictions go, the ids that have a score, what was kept of them, and the answer to say more in.
Explain = Callable[[Path, list[str], Scored, prediction_pb2.WrittenPredictions], Awaitable[None]]


class Listed:
    """Records by their ids; blocks that are scored are on disk until the predictions are written.

    So another attempt goes on with the records that have no score.
    """

    def __init__(
        self,
        config: PartyConfig,
        store: Store,
        tools: Tools,
        opening: prediction_pb2.OpenModel,
        order: Order,
        aligned: Callable[[], Table],
        ensemble: Ensemble,
        classes: list[str],
        explain: Explain,
    ) -> None:
        """`explain`: writes beside the predictions what explains them, if that was asked for."""
        self._config, self._store, self._tools, self._opening = config, store, tools, opening
        self._order, self._aligned = order, aligned
        self._ensemble, self._classes, self._explain = ensemble, classes, explain
        self._scored = Scored(tools.store, opening.prediction)
        self._done = 0  # records with a score, those of earlier attempts included
        self._asked_for: list[str] = []
        self._again = False  # all have their score: what is scored now is not kept
        self._wanted: Rows | None = None
        self.steps: Mapping[str, Step] = {"write_predictions": self.write_predictions}

    async def open(self, table: Table) -> prediction_pb2.OpenedModel:
        """The ids to predict, and what earlier attempts have scored of them."""
        self._asked_for = self._ids_asked_for(table)
        self._scored.open(await self._tools.offload(lambda: fingerprint(table)), table.path)
        return prediction_pb2.OpenedModel()

    @property
    def wanted(self) -> Rows:
        """Places in the aligned order of the records to predict that have no score yet, ascending."""
        if self._wanted is None:
            self._wanted, self._done = self._places(self._aligned())
            self._tools.meter.done, self._tools.meter.total = self._done, self._done + len(self._wanted)
        return self._wanted

    def block(self, number: int, size: int) -> tuple[Rows, int]:
        """See `Asked`."""
        return self.wanted[number * size : (number + 1) * size], self._blocks(size)

    def advance(self, records: int) -> None:
        """See `Asked`."""
        self._tools.meter.done = self._done + records

    def keep(self, rows: Rows, scores: Floats, guessed: Guessed, further: Arrays) -> None:
        """See `Asked`: on disk before anything else is asked."""
        ids = self._aligned().ids
        if not self._again:
            self._scored.add([ids[row] for row in rows], scores, guessed, further)
        self._done += len(rows)
        self._tools.meter.done = self._done

    def before_block(self, number: int, begins: str, size: int) -> StepId:
        """See `Asked`: after the last block, the file."""
        return (begins, number, 0) if number == 0 or number < self._blocks(size) else ("write_predictions", 0, 0)

    async def write_predictions(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """One Parquet file: id, raw score(s), and probability, class or value."""
        self._order.check(("write_predictions", request.round, request.stage))
        path = self._store.predictions / f"{self._tools.job}.parquet"
        ids, ensemble, classes = self._asked_for, self._ensemble, self._classes
        known = self._scored.known(ids)
        found = known, self._scored.rows("scores", known), self._scored.rows("guessed", known)
        degraded = self._opening.away_policy == "degrade"
        written = prediction_pb2.WrittenPredictions(path=str(path), records=len(ids))
        await self._explain(path, known, self._scored, written)
        await self._tools.offload(lambda: _write(path, ids, found, ensemble, classes, degraded=degraded))
        self._scored.discard()
        self._order.then()
        return result(written)

    def _blocks(self, size: int) -> int:
        return -(-len(self.wanted) // size)

    def _ids_asked_for(self, table: Table) -> list[str]:
        """The ids to predict, sorted: all of the own table, or those of the file of ids."""
        if not self._opening.records_file:
            return table.ids
        base = self._config.data
        if base is None:
            raise DataError("a file of records needs `data = FOLDER` in the configuration").at(self._config.name)
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
        """Where the records to predict stand in the aligned order, and how many more have a score already.

        Those that some party lacks stand nowhere. Where all have their score, the first one comes again, so that no
        protocol has to do with none; the score that it has stays.
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
    path: Path,
    ids: list[str],
    found: tuple[list[str], Floats, Guessed],
    ensemble: Ensemble,
    classes: list[str],
    *,
    degraded: bool,
) -> None:
    """Write the predictions, a row per id; empty cells where a record is not common to all parties.

    `degraded`: also how much of the way of each record was guessed.
    """
    known, scores, guessed = found
    columns = {"id": known, **Outcome.of(ensemble, classes, scores).columns(classes)}
    if degraded:
        columns["guessed"] = guessed
    table = pa.table(columns)
    if len(known) < len(ids):
        table = pa.table({"id": ids}).join(table, "id").sort_by("id")
    content = pa.BufferOutputStream()
    pq.write_table(table, content, compression="zstd")
    write_whole(path, content.getvalue())

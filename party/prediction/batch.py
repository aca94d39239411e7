"""A prediction of the whole table, or of the ids in a file, that ends as one file at the label holder.

An evaluated prediction: the recipient compares it with the labels of its own table, as far as that has some.

The document (`treetap.trees.evaluation`) stays beside the predictions. Its measures go to the coordinator, to four
significant digits, if the policy lets METRIC go there; where the party protects its labels, only if the policy says
`evaluate_clean_labels = true`, and then they are noted. The policy also says of how many records there must be labels.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from treetap.errors import DataError, naming
from treetap.models.arrays import Arrays
from treetap.models.durable import write_whole, writing_whole
from treetap.party.defences.clean_labels import LabelRules, Use, read_some
from treetap.party.prediction.opened_model import OpenedModel, PredictionJob
from treetap.party.prediction.scores_on_disk import AT_ONCE, Imputed, Outcome, ScoreStore
from treetap.party.prediction.steps import LAST_BLOCK, MORE_BLOCKS
from treetap.party.runtime.context import Rows, required
from treetap.party.runtime.ledger import Kind
from treetap.party.runtime.step_order import step
from treetap.party.setup.steps import fingerprint, load_table, table_config
from treetap.protocols.prediction import FORMATS, id_column_fault
from treetap.tables.label_columns import IdColumns
from treetap.tables.labels import PartialLabels
from treetap.tables.reading import Floats, Table, read_ids
from treetap.tables.record_ids import Ids
from treetap.tables.written import table_writer
from treetap.trees.evaluation import evaluate
from treetap.trees.loss import outcome_of
from treetap.wire.v2 import prediction_pb2, types_pb2

log = logging.getLogger(__name__)
#: Significant digits of the measures that leave the party.
DIGITS = 4


class EvaluatedPrediction:
    """The labels of the table that a prediction reads, by id."""

    def __init__(self, job: PredictionJob, opened: OpenedModel) -> None:
        self._config, self._context, self._opening, self._opened = job.config, job.context, job.opening, opened
        self._rules = LabelRules.of(job.config.name, job.config.defences, job.config.policy)
        self._labels = PartialLabels(np.zeros(0, dtype=np.int64), np.zeros(0))  # by places in the own table

    async def read(self, ids: Ids) -> None:
        """Read the labels of the own table, which has these ids; an empty cell is a record without one.

        Raises:
            DataError: the table has no label column, or a label is none that the model predicts.
        """
        named, opened = table_config(self._config, self._opening.table), self._opened
        if named.label is None:
            raise DataError(
                f"evaluate: the configuration names no label column for table {self._opening.table!r}; write label = "
                f"COLUMN there, or leave evaluate out"
            ).at(self._config.name)
        unread: dict[str, Any] = {"columns": [], "encode": None, "drop_constant": False, "weight": None}
        own = named.without_offsets.model_copy(update=unread)
        table = await load_table(self._context, own, with_label=True, missing=None, categories={})
        try:
            labels = read_some(table, named.label, opened.objective, opened.classes, self._rules, public=False).for_use(
                Use.EVALUATION
            )
        except DataError as failure:
            if not self._rules.released:  # the row of a label that does not fit tells of it
                log.error("job %s: %s", self._context.job, failure)
                failure = DataError(f"{table.path}: its labels do not fit the model; the log has where")
            raise failure.at(self._config.name) from None
        places = ids.places_of(table.ids.take(labels.rows))
        self._labels = PartialLabels(places[places >= 0], labels.values[places >= 0])

    def check(self, records: Rows) -> None:
        """Raise `Refused` if fewer of these records have a label than the policy asks for."""
        records_labelled, words = len(self._labels.take(records).rows), "records common to all parties have a label"
        self._context.policy.check(self._config.name, "min_evaluated_records", records_labelled, records=words)

    async def write(
        self, path: Path, own: IdColumns, known: Rows, scored: ScoreStore, written: prediction_pb2.WrittenPredictions
    ) -> None:
        """Write the document beside the predictions, and put into the answer what may leave this party."""
        del own
        self.check(known)
        target = path.with_name(f"{self._context.job}.evaluation.json")
        document = await self._context.offload(lambda: self._document(known, scored))
        write_whole(target, (json.dumps(document, indent=1, allow_nan=False) + "\n").encode())
        written.evaluation = str(target)
        if self._rules.released and self._context.policy.may_emit(self._context.coordinator, "METRIC"):
            shown = [  # those that are not defined do not leave
                types_pb2.NamedMetric(name=name, value=float(f"{value:.{DIGITS}g}"))
                for name, value in document["measures"].items()
                if value is not None and math.isfinite(value)
            ]
            if self._rules.protect:
                charge = partial(
                    self._context.ledger.enter,
                    Kind.CLEAN_LABELS,
                    len(known) - document["without_label"],
                    model=self._opening.model,
                    measures=[measure.name for measure in shown],
                )
                await self._context.offload(charge, whole=True)
            written.metrics.extend(shown)
        elif not self._rules.released:
            log.info(
                "job %s: the evaluation stays in %s: label_dp or label_budget protects the labels, and the policy says "
                "evaluate_clean_labels = false",
                self._context.job, target,
            )  # fmt: skip

    def _document(self, known: Rows, scored: ScoreStore) -> dict[str, Any]:
        labels = self._labels.take(known)
        labelled = known[labels.rows]
        opened, classes = self._opened, self._opened.classes
        outcome = outcome_of(opened.objective, len(classes), scored.rows("scores", labelled))
        return {
            "model": self._opening.model,
            "table": self._opening.table,
            "without_label": len(known) - len(labelled),
            "guessed": float(scored.rows("guessed", labelled).mean()),
            **evaluate(opened.objective, outcome, labels.values, classes, options=opened.manifest["params"]),
        }


#: Writes a further file beside the predictions: given their path, the own ids, the places there of the records that
#: have a score, the stored arrays, and the answer, for the paths of further files.
Beside = Callable[[Path, IdColumns, Rows, ScoreStore, prediction_pb2.WrittenPredictions], Awaitable[None]]


class BatchPrediction:
    """Records by their ids; scored blocks stay on disk until the predictions are written.

    A further attempt goes on with the records that have no score.

    Attributes:
        size: most records of a block; a protocol may lower it before the first one.
    """

    def __init__(self, job: PredictionJob, opened: OpenedModel, beside: Sequence[Beside]) -> None:
        """`beside`: writers of further files."""
        context, opening = job.context, job.opening
        self._config, self._store, self._context, self._opening = job.config, job.store, context, opening
        self._opened, self._beside = opened, beside
        self._evaluated = EvaluatedPrediction(job, opened) if opening.evaluate else None
        if self._evaluated is not None:
            self._beside = [*beside, self._evaluated.write]
        self._scored = ScoreStore(context.store, opening.prediction, context.digest.hex(), context.scratch.file)
        self._done = 0  # records with a score, those of earlier attempts included
        self._own: IdColumns | None = None
        self._asked_for: Rows = np.zeros(0, dtype=np.int64)  # places in the own table, ascending
        self._again = False  # all records have their score: this attempt's is not kept
        self._wanted: Rows | None = None
        self.size = max(1, opening.block)

    async def open(self, table: Table) -> None:
        """Find the ids to predict, and those that earlier attempts have scored.

        Raises:
            DataError: the ids cannot be found, or their column has the name of one that the written files have.
        """
        if fault := next(filter(None, map(id_column_fault, table.id_types)), None):
            raise DataError(f"{table.path}: {fault}").at(self._config.name)
        self._asked_for = self._records_asked_for(table.ids)
        self._own = table.id_columns
        if self._evaluated is not None:
            await self._evaluated.read(table.ids)
        self._scored.open(await self._context.offload(lambda: fingerprint(table)), table.path)

    @property
    def wanted(self) -> Rows:
        """Places in the aligned order of the records to predict that have no score yet, ascending."""
        if self._wanted is None:
            if self._evaluated is not None:
                self._evaluated.check(self._opened.alignment.records)  # before any score
            self._wanted, self._done = self._places(self._opened.alignment.records)
            self._context.progress.done, self._context.progress.total = self._done, self._done + len(self._wanted)
        return self._wanted

    def block(self, number: int) -> tuple[Rows, int]:
        """The records of a block, and the number of blocks as far as it is known."""
        return self.wanted[number * self.size : (number + 1) * self.size], self._blocks

    def advance(self, records: int) -> None:
        """Show that this number of records of the block at hand is done."""
        self._context.progress.done = self._done + records

    def keep(self, rows: Rows, scores: Floats, imputed: Imputed, further: Arrays) -> None:
        """Take the scores (n, outputs) of these records, and the imputed share of each record's splits (n,).

        `further`: their explanations, arrays with a row per record. All are on disk before the step ends.
        """
        if not self._again:
            begun = self._opened.begun(rows, scores)
            self._scored.add(self._opened.alignment.records[rows], begun, imputed, further)
        self._done += len(rows)
        self._context.progress.done = self._done

    def after_block(self, number: int) -> str:
        """The outcome of a block's last step: one of those in `treetap.party.prediction.steps.after_block`."""
        return MORE_BLOCKS if number + 1 < self._blocks else LAST_BLOCK

    def leave_out(self, spent: Mapping[int, str]) -> None:
        """Do nothing: a party that permits no further query of a record has ended the step."""

    @step()
    async def write_predictions(self) -> prediction_pb2.WrittenPredictions:
        """One file, Parquet or CSV: id, raw score(s), and probability, class or value."""
        path = self._store.predictions / f"{self._context.job}.{self._opening.format or FORMATS[0]}"
        asked, own = self._asked_for, required(self._own)
        known = np.intersect1d(asked, self._scored.records(), assume_unique=True)
        degraded = self._opening.away_policy == "degrade"
        written = prediction_pb2.WrittenPredictions(path=str(path), records=len(asked))
        for write in self._beside:
            await write(path, own, known, self._scored, written)
        await self._context.offload(
            lambda: _write(path, own, asked, self._scored, self._opened, degraded=degraded), whole=True
        )
        self._scored.discard()
        return written

    @property
    def _blocks(self) -> int:
        return -(-len(self.wanted) // self.size)

    def _records_asked_for(self, ids: Ids) -> Rows:
        """Places in the own table of the records to predict: of all, or of those in the file of ids."""
        if not self._opening.records_file:
            return np.arange(len(ids), dtype=np.int64)
        base = self._config.data
        if base is None:
            raise DataError("a file of records needs `data = FOLDER` in the configuration").at(self._config.name)
        if "\0" in self._opening.records_file:
            raise DataError(f"{self._opening.records_file!r} cannot be a file's name").at(self._config.name)
        path = (base / self._opening.records_file).resolve()
        if not path.is_relative_to(base.resolve()):
            raise DataError(f"{self._opening.records_file} is not below the data folder {base}").at(self._config.name)
        with naming(self._config.name):
            places = ids.places_of(read_ids(path, ids.rules))
            if (places < 0).any():
                first = int(np.argmin(places)) + 1
                raise DataError(f"{path}: id number {first} is not in table {self._opening.table!r}")
            if not len(places):
                raise DataError(f"{path}: names no record")
        return np.sort(places)

    def _places(self, common: Rows) -> tuple[Rows, int]:
        """The places of the records to predict in the aligned order, and the number of those that have a score already.

        `common`: the place in the own table of each record that all parties have.

        Records that some party lacks have no place. If all have their score, the first one is scored again, because a
        protocol needs at least one; the stored score stays.
        """
        asked = np.zeros(len(required(self._own).ids), dtype=bool)
        asked[self._asked_for] = True
        if not asked[common].any():
            raise DataError("none of the records to predict is common to all parties").at(self._config.name)
        first = np.argmin(np.where(asked[common], common, len(asked)))
        scored = self._scored.records()
        asked[scored] = False
        unscored = np.flatnonzero(asked[common]).astype(np.int64)
        self._again = not len(unscored)
        if self._again:
            return np.array([first], dtype=np.int64), len(scored) - 1
        return unscored, len(scored)


def _write(path: Path, own: IdColumns, asked: Rows, scored: ScoreStore, opened: OpenedModel, *, degraded: bool) -> None:
    """Write the predictions, a row per record asked for; empty cells where it is not common to all parties.

    Ids have the name and the type of the party's table, classes the type of the label's column. `degraded`: with a
    column of each record's share of imputed directions. A part of the records is in memory at a time.
    """
    names = ["scores", *(["guessed"] if degraded else [])]
    known = np.intersect1d(asked, scored.records(), assume_unique=True)
    parts = scored.in_order(names, known)
    schema: pa.Schema | None = None
    with ExitStack() as stack:
        done = 0
        for first in range(0, len(known), AT_ONCE):
            part = known[first : first + AT_ONCE]
            stored = next(parts)
            outcome = Outcome.of(opened.objective, opened.classes, stored["scores"])
            predictions = outcome.columns(opened.classes, opened.class_type)
            columns = pa.table(predictions | {name: stored[name] for name in stored if name != "scores"})
            last = len(asked) if first + AT_ONCE >= len(known) else int(np.searchsorted(asked, part[-1])) + 1
            if schema is None:
                schema = pa.schema([*own.fields, *columns.schema])
                file = stack.enter_context(writing_whole(path))
                write = stack.enter_context(table_writer(file, schema, path.suffix[1:]))
            for begin in range(done, last, AT_ONCE):
                here = asked[begin : min(begin + AT_ONCE, last)]
                places = np.searchsorted(part, here)
                places[places == len(part)] = 0
                rows = pa.array(places, mask=part[places] != here)
                write(pa.table([*own.at(here), *columns.take(rows).columns], schema=schema))
            done = last

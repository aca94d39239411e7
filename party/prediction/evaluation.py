"""An evaluated prediction: the recipient compares it with the labels of its own table, as far as that has some.

The document (`treetap.trees.evaluation`) stays beside the predictions. Its measures go to the coordinator, to four
significant digits, if the policy lets METRIC go there; where the party protects its labels, only if the policy says
`evaluate_clean_labels = true`, and then they are noted. The policy also says of how many records there must be labels.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from treetap.errors import DataError, Refused
from treetap.models.durable import write_whole
from treetap.party.defences.clean_labels import LabelRules, Use, read_some
from treetap.party.prediction.opened_model import OpenedModel
from treetap.party.prediction.scores_on_disk import ScoreStore
from treetap.party.protocols import PredictionJob
from treetap.party.runtime.ledger import Kind
from treetap.party.runtime.messages import Rows
from treetap.party.setup.steps import load_table, table_config
from treetap.tables.labels import PartialLabels
from treetap.tables.record_ids import Ids
from treetap.tables.typed import IdColumns
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
        own = named.model_copy(update={"columns": [], "encode": None, "drop_constant": False, "weight": None})
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
        least = self._context.policy.min_evaluated_records
        if len(self._labels.take(records).rows) < least:
            raise Refused(
                f"{self._config.name} does not evaluate: its policy says min_evaluated_records = {least}, and fewer "
                "records common to all parties have a label"
            )

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
            shown = list(_shown(document["measures"]))
            if self._rules.protect:
                await self._context.offload(
                    lambda: self._note(len(known) - document["without_label"], shown), whole=True
                )
            written.metrics.extend(shown)
        elif not self._rules.released:
            log.info(
                "job %s: the evaluation stays in %s: label_dp or label_budget protects the labels, and the policy says "
                "evaluate_clean_labels = false",
                self._context.job, target,
            )  # fmt: skip

    def _note(self, records: int, measures: list[types_pb2.NamedMetric]) -> None:
        names = [measure.name for measure in measures]
        self._context.ledger.enter(Kind.CLEAN_LABELS, records, model=self._opening.model, measures=names)

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
            **evaluate(opened.objective, outcome, labels.values, classes),
        }


def _shown(measures: dict[str, float | None]) -> Iterator[types_pb2.NamedMetric]:
    """Measures as they leave the party; those that are not defined do not."""
    for name, value in measures.items():
        if value is not None and math.isfinite(value):
            yield types_pb2.NamedMetric(name=name, value=float(f"{value:.{DIGITS}g}"))

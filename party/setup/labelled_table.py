"""The label holder's table with its decoded labels, or with the noisy ones that training has in their place."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from party.config import PartyConfig
from party.defences import clean_labels
from party.defences.clean_labels import CleanLabels, LabelRules, Use, read_evaluated
from party.defences.noisy_labels import NoisyLabels
from party.runtime.context import StepContext, required
from party.runtime.messages import Rows
from party.setup.steps import load_job_table, load_records, table_config
from treetap.errors import DataError
from treetap.protocols.job_spec import params_of
from treetap.protocols.registry import training, training_name
from treetap.tables.config import TableConfig
from treetap.tables.evaluated import JobRecords
from treetap.tables.labels import Labels, label_column, learnable
from treetap.tables.reading import Table
from treetap.tables.weights import check_job
from treetap.wire.v2 import setup_pb2

log = logging.getLogger(__name__)
#: In the place of a digest of noisy labels, where a job has none.
AS_THEY_ARE = "as they are"


class Measured(NamedTuple):
    """The records of an eval table: class numbers or targets (M,), and sample weights (M,), if it has some."""

    values: np.ndarray[tuple[int], np.dtype[Any]]
    weights: np.ndarray[tuple[int], np.dtype[np.float64]] | None


@dataclass(frozen=True)
class EvaluatedLabels:
    """`labels`: of the records of an eval table; by its own classes, until `numbered` gives them the training's.

    `where`: the column, for messages. `weights` (M,): their sample weights, if the eval table has some; they weight
    metrics, as in XGBoost.
    """

    labels: Labels
    where: str
    weights: np.ndarray[tuple[int], np.dtype[np.float64]] | None = None

    @classmethod
    def read(cls, table: Table, column: str, objective: str, rules: LabelRules) -> EvaluatedLabels:
        """The labels of an eval table; `DataError` where they do not fit the objective, of one class only they do."""
        read = read_evaluated(table, column, objective, rules).for_use(Use.EVAL_TABLE)
        return cls(read, label_column(table, column), table.weights)

    def take(self, records: Rows) -> EvaluatedLabels:
        """The labels of the records at these places, in this order, and the classes that they have.

        Raises:
            DataError: all of them have weight 0.
        """
        weights = None if self.weights is None else self.weights[records]
        if weights is not None and not weights.any():
            raise DataError(f"{self.where}: all common records of the eval table have sample weight 0")
        return replace(self, labels=self.labels.take(records), weights=weights)

    def numbered(self, classes: list[str]) -> EvaluatedLabels:
        """The same labels by the numbers of the training's classes.

        Raises:
            DataError: a label is none of these.
        """
        if not classes:
            return self
        number = {name: place for place, name in enumerate(classes)}
        if strangers := sum(name not in number for name in self.labels.classes):
            raise DataError(
                f"{self.where}: holds {strangers} class{'es' if strangers > 1 else ''} that no common record of the "
                "training has; an eval table has the classes of the training"
            )
        places = np.array([number[name] for name in self.labels.classes], dtype=np.int64)
        return replace(self, labels=Labels(places[self.labels.values], classes, self.labels.kind))


@dataclass(frozen=True)
class LabelledTable:
    """Records and their labels; `table` is without the label column, and has the weights if there are some.

    `labels`: those that training uses. `clean`: the table's own, with the same class numbers, where `labels` are noisy;
    for files of the label holder alone. `further`: the records of the training and behind them those of the eval table,
    without labels; `evaluated`: the latter's labels.
    """

    party: str
    table: Table
    labels: Labels
    column: str
    objective: str
    clean: CleanLabels[Labels] | None = None
    further: JobRecords | None = None
    evaluated: EvaluatedLabels | None = None

    @property
    def records(self) -> JobRecords:
        """The records of the training, and behind them those of an eval table."""
        return JobRecords.of(self.table, None) if self.further is None else self.further

    @property
    def measured(self) -> Measured | None:
        """The labels and weights of the records of the eval table; None where the job has none."""
        return None if self.evaluated is None else Measured(self.evaluated.labels.values, self.evaluated.weights)

    def take(self, records: Rows) -> LabelledTable:
        """The records at these places, in this order; `DataError` if their labels permit no training.

        With noisy labels the classes stay those of the whole table, and nothing depends on the clean ones.
        """
        whole = records[records < len(self.labels.values)]
        table = self.table.take(whole)
        try:
            if self.clean is not None:
                noisy = self.labels.at(records)
                _check_noisy(noisy, self.table)
                return replace(self, table=table, labels=noisy, clean=self.clean.at(records))
            labels = self.labels.take(whole)
            learnable(labels, self.table, self.column, self.objective)
            if self.further is None or self.evaluated is None:
                return replace(self, table=table, labels=labels)
            places = records[len(whole) :] - len(self.labels.values)
            evaluated = self.evaluated.take(places).numbered(labels.classes)
        except DataError as failure:
            raise failure.at(self.party) from None
        return replace(self, table=table, labels=labels, further=self.further.take(records), evaluated=evaluated)


async def load_labelled_table(
    context: StepContext, config: PartyConfig, spec: setup_pb2.JobSpec, *, missing: float | None, objective: str
) -> LabelledTable:
    """Read the label holder's table of a training job, and decode its labels; with `label_dp` they become noisy.

    Raises:
        DataError: the table, its labels or weights do not fit the job, or the stored trees were grown on other labels.
        Refused: noisy labels would cost more than the policy's budget has left.
    """
    table = await load_job_table(context, config, spec, with_label=True, missing=missing)
    try:
        _check_weights(table_config(config, spec.table), table, spec, bounded=True)
        data = await _as_trained(context, config, spec, table, objective)
        return await _with_eval_table(context, config, spec, data, missing)
    except DataError as failure:
        raise failure.at(context.party) from None


async def _with_eval_table(
    context: StepContext, config: PartyConfig, spec: setup_pb2.JobSpec, data: LabelledTable, missing: float | None
) -> LabelledTable:
    """The same with the job's eval table, if it has one."""
    records, table = await load_records(context, config, spec, data.table, missing)
    if table is None:
        return data
    own = table_config(config, spec.eval_table)
    _check_weights(own, table, spec, bounded=False)
    column = required(own.label)
    rules = LabelRules.of(config.name, config.defences, config.policy)
    evaluated = EvaluatedLabels.read(table, column, data.objective, rules)
    _check_apart(context, spec, data, table, evaluated.labels)
    return replace(data, further=records, evaluated=evaluated)


def _check_apart(
    context: StepContext, spec: setup_pb2.JobSpec, data: LabelledTable, table: Table, labels: Labels
) -> None:
    """Say how many records of the eval table are trained on.

    Raises:
        DataError: all are, with the same labels: its metrics would be the training's.
    """
    places, own = data.table.ids.places_of(table.ids), data.labels
    shared = places >= 0
    if not shared.any():
        return
    said = f"{int(shared.sum())} of {len(places)} records of the eval table are trained on"
    if shared.all() and np.array_equal(own.at(places).named(), labels.named()):
        raise DataError(
            f"{table.path}: {said}, with the same labels: its metrics would be those of the training; name an "
            f"eval_table of other records than table {spec.table!r} has, or leave it out"
        )
    log.warning("job %s: %s", context.job, said)


def _check_weights(own: TableConfig, table: Table, spec: setup_pb2.JobSpec, *, bounded: bool) -> None:
    """Raise `DataError` if a job cannot have the sample weights of its table; `bounded`: they weight what is encrypted.

    Those of an eval table weight metrics alone.
    """
    if table.weights is not None:
        most = params_of(spec).largest_weight
        most = most if bounded or most is None else math.inf
        check_job(table.path, required(own.weight), table.weights, table.rows, training_name(spec), most)


async def _as_trained(
    context: StepContext, config: PartyConfig, spec: setup_pb2.JobSpec, read: Table, objective: str
) -> LabelledTable:
    """The table with the labels that training uses: the same ones as when the stored trees were grown."""
    settings, column = config.defences.label_dp, required(table_config(config, spec.table).label)
    rules = LabelRules.of(config.name, config.defences, config.policy)
    table, clean = replace(read, label=None), clean_labels.read(read, column, objective, rules)
    if settings is None:
        _bind(context, table, AS_THEY_ARE)
        return LabelledTable(context.party, table, clean.for_use(Use.TRAINING), column, objective)
    own_priors, params = required(training(training_name(spec)).own_priors), params_of(spec)
    labels = clean.for_use(Use.NOISE)
    noisy = NoisyLabels(
        context.party,
        config.state,
        settings,
        context.policy.label_budget,
        lambda of, classes: own_priors(of, classes, context.party, params),
    )
    known = await context.offload(lambda: noisy.stored(table, labels))
    _bind(context, table, known.digest if known else "")  # before a draw is charged
    drawn = await context.offload(lambda: noisy.of(table, labels, column))
    _bind(context, table, drawn.digest)
    _check_noisy(drawn.labels, table)
    return LabelledTable(context.party, table, drawn.labels, column, objective, clean)


def _check_noisy(labels: Labels, table: Table) -> None:
    """Raise `DataError` if noisy labels are all of one class; nothing here looks at clean ones."""
    if len(np.unique(labels.values)) < 2:
        raise DataError(
            f"{table.path}: the noisy labels that label_dp has drawn for the records of this job are all of one class; "
            "set a greater epsilon or stages = 1 under [defences], which is a new draw and is charged"
        )


def _bind(context: StepContext, table: Table, digest: str) -> None:
    if not context.store.bind(digest, "labels", AS_THEY_ARE):
        raise DataError(
            f"{table.path}: the stored trees of job {context.job} were grown on other labels: label_dp under "
            "[defences] has changed since, or its noisy labels are gone; restore it, or cancel the job and train again"
        )

"""The label holder's table with its decoded labels, or with the noisy ones that training has in their place."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from treetap.errors import DataError
from treetap.party.config import PartyConfig
from treetap.party.defences import clean_labels
from treetap.party.defences.clean_labels import CleanLabels, LabelRules, Use
from treetap.party.defences.noisy_labels import NoisyLabels
from treetap.party.runtime.context import Rows, StepContext, Untried, required
from treetap.party.setup.evaluated import EvaluatedLabels, Measured, check_weights, load_evaluated
from treetap.party.setup.steps import load_job_table, table_config
from treetap.protocols.job_spec import params_of
from treetap.protocols.registry import training, training_name
from treetap.tables.evaluated import JobRecords
from treetap.tables.labels import Labels, learnable
from treetap.tables.reading import Table
from treetap.wire.v2 import setup_pb2, types_pb2

log = logging.getLogger(__name__)
#: In the place of a digest of noisy labels, where a job has none.
AS_THEY_ARE = "as they are"


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
    def known(self) -> Labels:
        """The labels as they are, for the label holder's own files: training may have noisy ones."""
        return self.labels if self.clean is None else self.clean.for_use(Use.OWN_FILES)

    def metrics(self, values: Mapping[str, float]) -> list[types_pb2.NamedMetric]:
        """Metrics by the labels that training uses, as the coordinator gets them."""
        noisy = self.clean is not None
        return [types_pb2.NamedMetric(name=name, value=value, noisy=noisy) for name, value in values.items()]

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
        check_weights(table_config(config, spec.table), table, spec, bounded=True)
        data = await _as_trained(context, config, spec, table, objective)
        further, evaluated = await load_evaluated(context, config, spec, table, data.labels, objective, missing)
        return replace(data, further=further, evaluated=evaluated)
    except DataError as failure:
        raise failure.at(context.party) from None


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
    own_priors, params = required(training(training_name(spec)).noise.own_priors), params_of(spec)
    labels = clean.for_use(Use.NOISE)
    noisy = NoisyLabels(
        context.party,
        config.state,
        settings,
        context.policy.labels.label_budget,
        lambda of, classes: own_priors(of, classes, context.party, params),
    )
    known = await context.offload(lambda: noisy.stored(table, labels))
    if context.trial and known is None:
        noisy.budget.check(context.party, settings.epsilon)
        raise Untried
    _bind(context, table, known.digest if known else "")  # before a draw is charged
    drawn = await context.offload(lambda: noisy.of(table, labels, column, context.ledger.occasion), whole=True)
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
    if not context.store.bind(digest, "labels"):
        raise DataError(
            f"{table.path}: the stored trees of job {context.job} were grown on other labels: label_dp under "
            "[defences] has changed since, or its noisy labels are gone; restore it, or cancel the job and train again"
        )

"""The label holder's table with its decoded labels, or with the noisy ones that training has in their place."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from treetap.errors import DataError, Malformed, naming
from treetap.names import named_by
from treetap.party.config import PartyConfig
from treetap.party.defences import clean_labels
from treetap.party.defences.clean_labels import CleanLabels, LabelRules, Use, read_evaluated
from treetap.party.defences.noisy_labels import NoisyLabels
from treetap.party.runtime.context import Rows, StepContext, Untried, required
from treetap.party.setup.steps import bind_table, load_job_table, load_table, may_stream, table_config
from treetap.protocols.job_spec import params_of
from treetap.protocols.registry import training, training_name
from treetap.tables.binned import JobRecords
from treetap.tables.config import TableConfig
from treetap.tables.label_columns import check_weight_bound
from treetap.tables.labels import Labels, label_column, learnable
from treetap.tables.normalised import in_words
from treetap.tables.reading import Table
from treetap.trees.growing_tree import with_zeros
from treetap.trees.offsets import Offsets
from treetap.trees.params import TreeParams
from treetap.wire.v2 import setup_pb2, types_pb2

#: The records of an eval table: class numbers or targets (M,), sample weights (M,) and offsets, if it has some.
Measured: TypeAlias = tuple[
    np.ndarray[tuple[int], np.dtype[Any]], np.ndarray[tuple[int], np.dtype[np.float64]] | None, Offsets | None
]


@dataclass(frozen=True)
class EvaluatedLabels:
    """`labels`: of the records of an eval table; by its own classes, until `numbered` gives them the training's.

    `where`: the column, for messages. `weights` (M,): their sample weights, if the eval table has some; they weight
    metrics, as in XGBoost. `offsets`: what their scores begin with.
    """

    labels: Labels
    where: str
    weights: np.ndarray[tuple[int], np.dtype[np.float64]] | None = None
    offsets: Offsets | None = None

    def take(self, records: Rows) -> EvaluatedLabels:
        """The labels of the records at these places, in this order, and the classes that they have.

        Raises:
            DataError: all of them have weight 0.
        """
        weights = None if self.weights is None else self.weights[records]
        if weights is not None and not weights.any():
            raise DataError(f"{self.where}: all common records of the eval table have sample weight 0")
        return replace(
            self,
            labels=self.labels.take(records),
            weights=weights,
            offsets=self.offsets and self.offsets.take(records),
        )

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


async def load_records(
    context: StepContext, config: PartyConfig, spec: setup_pb2.JobSpec, table: Table, missing: float | None
) -> tuple[JobRecords, Table | None]:
    """The records of a job at a feature party or, with the eval table's labels, at its label holder; and that table.

    `table`: the one of the training, whose features, categories and shapes the eval table has too.

    Raises:
        DataError: the eval table cannot be read, lacks a column of the training, or is another one than when the stored
            trees were grown.
    """
    if not spec.eval_table:
        return JobRecords.of(table, None), None
    named = table_config(config, spec.eval_table)
    if absent := [name for name in table.sources if not named_by(named.columns, name)]:
        raise DataError(
            f"table {spec.eval_table!r} of the configuration does not name column {absent[0]!r}, which table "
            f"{spec.table!r} has: an eval table has the columns of the training"
        ).at(context.party)
    if named.key_places != table.ids.keys:
        raise DataError(f"table {spec.eval_table!r} has other keys than table {spec.table!r}: write the same id").at(
            context.party
        )
    if named.rules != table.ids.rules:
        raise DataError(
            f"table {spec.eval_table!r} has {in_words(named.rules)}, and table {spec.table!r} has "
            f"{in_words(table.ids.rules)}: an eval table has the ids of the training"
        ).at(context.party)
    with_label = spec.aggregator == context.party
    wanted = named if with_label else named.without_offsets
    wanted = wanted.model_copy(update={"columns": list(table.sources), "encode": None, "drop_constant": False})
    evaluated = await load_table(
        context,
        wanted,
        with_label=with_label,
        missing=missing,
        categories=table.categories,
        shapes=table.shapes,
        empty=table.empty_columns,
        streams=may_stream(config, spec, with_label=with_label),
    )
    await bind_table(context, evaluated, "eval_table", "eval table with")
    return JobRecords.of(table, evaluated), evaluated


async def load_evaluated(
    context: StepContext,
    config: PartyConfig,
    spec: setup_pb2.JobSpec,
    table: Table,
    labels: Labels,
    objective: str,
    missing: float | None,
) -> tuple[JobRecords | None, EvaluatedLabels | None]:
    """The records of a job with an eval table at the label holder, and the eval table's labels; None without one.

    `table`, `labels`: those of the training.
    """
    records, evaluated = await load_records(context, config, spec, table, missing)
    if evaluated is None:
        return None, None
    own = table_config(config, spec.eval_table)
    check_weights(own, evaluated, spec, bounded=False)
    if (trained := set(table_config(config, spec.table).offsets)) != set(own.offsets):
        raise DataError(
            f"table {spec.table!r} of the configuration has {', '.join(sorted(trained)) or 'no offset'}, and table "
            f"{spec.eval_table!r} {', '.join(sorted(own.offsets)) or 'none'}: an eval table has the same"
        )
    rules = LabelRules.of(config.name, config.defences, config.policy)
    column = required(own.label)
    read = read_evaluated(evaluated, column, objective, labels.classes, rules).for_use(Use.EVAL_TABLE)
    _check_apart(context, spec, table, labels, evaluated, read)
    return records, EvaluatedLabels(read, label_column(evaluated, column), evaluated.weights, evaluated.offsets)


def _check_apart(
    context: StepContext, spec: setup_pb2.JobSpec, trained: Table, own: Labels, table: Table, labels: Labels
) -> None:
    """Say how many records of the eval table are trained on.

    Raises:
        DataError: all are, with the same labels: its metrics would be the training's.
    """
    places = trained.ids.places_of(table.ids)
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


def check_evaluated(context: StepContext, count: int, *, scores: bool) -> None:
    """Raise unless a job's eval table has enough records common to all parties; `scores`: this party scores them.

    `count`: these records, or those of them that have a weight in metrics.

    Raises:
        DataError: it has none.
        Refused: it has fewer than the policy asks for.
    """
    if count == 0:
        raise DataError("no record of the eval table is common to all parties: do all of them hold the same ids there?")
    records = "records of the eval table are common to all parties and have a weight above 0"
    for key in ("min_prediction_records", *(("min_evaluated_records",) if scores else ())):
        context.policy.check(context.party, key, count, records=records)


def check_weights(own: TableConfig, table: Table, spec: setup_pb2.JobSpec, *, bounded: bool) -> None:
    """Raise `DataError` if a job cannot have the sample weights of its table; `bounded`: they weight what is encrypted.

    Those of an eval table weight metrics alone.
    """
    if table.weights is not None and (most := params_of(spec).largest_weight) is not None:
        check_weight_bound(table.path, required(own.weight), table.weights, table.rows, most if bounded else math.inf)


def check_drawn(sender: str, tree: int, *, draws_evaluated: bool) -> None:
    if draws_evaluated:
        raise Malformed(f"{sender} draws a record of the eval table in tree {tree}")


def drawing(spec: setup_pb2.JobSpec, params: TreeParams) -> TreeParams:
    """The parameters by which a job's trees draw records: an eval table is watched, and no record is set aside."""
    return params.none_set_aside() if spec.eval_table else params


def drawn_by_seed(spec: setup_pb2.JobSpec, params: TreeParams, tree: int, training: int, total: int) -> Rows:
    """The number of times that a tree draws each of the records (N,) by the job's seed, those of an eval table never.

    `training`: the number of records of the training.
    """
    return with_zeros(drawing(spec, params).drawn(tree, training), total)


def described(spec: setup_pb2.JobSpec) -> dict[str, str]:
    """The eval table as a model's manifest has it."""
    return {"eval_table": spec.eval_table} if spec.eval_table else {}


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
        """The labels, weights and offsets of the records of the eval table; None where the job has none."""
        own = self.evaluated
        return None if own is None else (own.labels.values, own.weights, own.offsets)

    def take(self, records: Rows) -> LabelledTable:
        """The records at these places, in this order; `DataError` if their labels permit no training.

        With noisy labels the classes stay those of the whole table, and nothing depends on the clean ones.
        """
        whole = records[records < len(self.labels.values)]
        table = self.table.take(whole)
        with naming(self.party):
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
    with naming(context.party):
        check_weights(table_config(config, spec.table), table, spec, bounded=True)
        data = await _as_trained(context, config, spec, table, objective)
        further, evaluated = await load_evaluated(context, config, spec, table, data.labels, objective, missing)
        return replace(data, further=further, evaluated=evaluated)


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

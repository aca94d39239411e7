"""The centralised models beside a federation: of all columns, and of each party's alone that has labels.

It reads the files that the parties read, so that columns of text are encoded alike, in the order of the ids. With
`sorted-ids` that is the federation's own order of records, and the centralised model its model, split for split; with
`psi` the order is another one, and the draws of records differ.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from treetap.arrays import Floats
from treetap.errors import ConfigError, DataError, Defect
from treetap.lab.experiment import joint_model
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.headline import Gain, conclusion, gain_of
from treetap.lab.experiment.joint_model import of_records
from treetap.lab.experiment.party_tables import ID, Split, places, read_as_party, truth
from treetap.lab.experiment.results import Defended, Measures, RunResult
from treetap.models.durable import parse_json
from treetap.models.store import CLEAN_METRICS, COLUMN_PRIVACY, read_manifest
from treetap.neural.defences import FeatureDefences, meaning_of
from treetap.neural.params import SplitnnParams
from treetap.party.defences.checks import check_own, check_own_trees
from treetap.party.defences.settings import Defences
from treetap.party.policy import Policy
from treetap.privacy import column_privacy
from treetap.protocols.exclusions import Feature
from treetap.protocols.job_spec import broken_by
from treetap.protocols.registry import training
from treetap.tables.config import TableConfig
from treetap.tables.features import Held
from treetap.tables.labels import Labels, Rows, read_labels, read_partial_labels
from treetap.tables.reading import Table
from treetap.trees import metrics
from treetap.trees.job_params import JobParams
from treetap.trees.params import BoostingParams, TreeParams
from treetap.trees.pivodl_params import PivodlParams

#: The rows of the metrics by all columns, by the label holder's alone, and by all without the job's defences.
CENTRALISED, ALONE = "centralised, test", "label holder alone, test"
UNDEFENDED = "centralised without defences, test"
#: By the label holder's columns and whether each party has the record, of records that some lack.
MEMBERS = "label holder alone, told who has the record, test"


class Comparison:
    """The tables of an experiment's run as its parties read them, and the centralised model, trained once.

    `trained`, `asked`: party → its table of the job's training records, and of the held-out ones. `learned`: labels of
    the training; `truth`: of the held-out rows. The label holder alone trains on all records that it has.

    Args:
        experiment: the file.
        settings: party → its settings, whose tables `train` and `predict` are read.
        seed: the run's, added to the job's.
        rows: the test rows of the joined table, with labels.
    """

    def __init__(
        self, experiment: ExperimentFile, settings: Mapping[str, Mapping[str, Any]], seed: int, rows: pa.Table
    ) -> None:
        job = experiment.job.model_copy(update={"seed": experiment.job.seed + seed})
        self.params, self._protocol, self._experiment = job.params(), training(job.protocol), experiment
        self._names, label = experiment.in_order, experiment.data.label
        self.trained = {
            name: read_as_party(settings[name]["tables"]["train"], self.params.missing) for name in self._names
        }
        self.asked = {
            name: read_as_party(settings[name]["tables"]["predict"], self.params.missing, self.trained[name])
            for name in self._names
        }
        first = self._names[0]
        self._own = self.trained[first]
        joined = partial(of_records, holder=first, left=experiment.apart)
        self.trained, self.asked = joined(self.trained), joined(self.asked)
        self._ids, self._seed = self.asked[first].ids, seed
        self._rows = places(rows, self._ids)
        self._ownership: dict[str, Rows] | None = None
        if experiment.spread:
            self.learned, self._ownership = joined_labels(self.trained, label, self.params)
        else:
            self.learned = read_labels(self.trained[first], label, self.params.objective)
        self.truth = truth(rows, label, self._ids, self.learned)

    @cached_property
    def _joined(self) -> tuple[Floats, Floats]:
        """Raw scores and outcome by all columns, with the parties' defences."""
        given = self._experiment
        if not given.defended:
            return self._predict(self.trained)
        if self._protocol.grows_trees:
            own = {"withholding": given.defences.withholding, "min_cell_records": given.min_cell_records}
            return self._predict(self.trained, more=own)
        of_columns = {name: own.of_columns for name, own in given.of_columns.items()}
        return self._predict(self.trained, more={"defences": given.defences.of_networks, "of_columns": of_columns})

    @property
    def comparable(self) -> bool:
        """True if the federation's model is this one.

        Aligned by private set intersection, its records are in another order, so that draws of them differ. The
        centralised model has no noise, neither of leaf weights nor of labels nor of sums. A network's private draws are
        known only where they follow from the job's seed, and it has the job's optimiser at every party.
        """
        given = self._experiment
        attacks = any(party.optimizer for party in given.party)
        if self.params.adds_noise or given.defences.label_dp is not None or given.noised or attacks:
            return False
        in_order = given.job.alignment == "sorted-ids"
        if isinstance(self.params, SplitnnParams):
            return in_order and self.params.reproducible
        assert isinstance(self.params, TreeParams)
        return in_order or not self.params.draws_records

    def difference(self, predictions: pa.Table) -> float:
        """The largest difference of raw scores between the file of predictions and the centralised model.

        Raises:
            DataError: the file has other records.
        """
        if self._ids != predictions.column(ID).to_pylist():
            raise DataError("the predictions are of other records than the centralised model's")
        return _apart(predictions, self._joined[0])

    def metrics(self) -> dict[str, Measures]:
        """Test metrics with all parties' columns, and with those and the labels of each party that has both alone."""
        measured = {CENTRALISED: self._measured(self._joined[1])}
        if self._experiment.defended:
            measured[UNDEFENDED] = self._measured(self._predict(self.trained)[1])
        measured |= {
            ALONE if self._ownership is None else f"{name} alone, test": self._measured(outcome)
            for name, outcome in self.alone.items()
        }
        if lacking := [name for name, table in self.trained.items() if (table.rows < 0).any()]:
            first = self._names[0]
            before, after = (
                {first: tables[first], MEMBERS: _members(tables, first, lacking)}
                for tables in (self.trained, self.asked)
            )
            measured[MEMBERS] = self._measured(self._predict(before, after)[1])
        return measured

    def gain(self, outcome: Floats) -> Gain | None:
        """The gain of the federation's outcome of the test rows, in the order of the joined table."""
        weights = self.asked[self._names[0]].weights
        together = outcome[self._rows]
        own = self.params
        return gain_of(own.objective, together, self.alone, self.truth, weights, self._seed, own.to_dict())

    def _measured(self, outcome: Floats) -> Measures:
        """Measures of an outcome of the test rows, which their weights weigh."""
        weights = self.asked[self._names[0]].weights
        return metrics.finite(
            metrics.evaluate(self.params.objective, outcome, self.truth, weights, self.params.to_dict())
        )

    def _predict(
        self,
        before: Mapping[str, Table],
        after: Mapping[str, Table] | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> tuple[Floats, Floats]:
        """Raw scores (n, outputs) and outcome of the test rows, by a model of the tables of `before`.

        `after`: of the test rows, by default the same parties'. `more`: further arguments of the trainer.
        """
        asked = after or {name: self.asked[name] for name in before}
        learned, given, first = self.learned, {**(more or {})}, before[self._names[0]]
        if self._ownership is not None:
            given["ownership"] = self._ownership
        else:
            learned = read_labels(first, self._experiment.data.label, self.params.objective)
        if first.weights is not None:
            given["weights"] = first.weights
        params = self.params
        if isinstance(params, BoostingParams) and params.cycle and len(before) == 1:
            params = replace(params, cycle=tuple(before))  # alone every turn is its own
        return self._protocol.centrally.predict(
            [*before.items()], [*asked.items()], learned.values, len(learned.classes), params, **given
        )

    @cached_property
    def alone(self) -> dict[str, Floats]:
        """Party that has labels → outcome of the test rows by a model of its own columns and labels, if it has both."""
        if self._ownership is None:
            first = self._names[0]
            return {first: self._predict({first: self._own})[1]} if self._own.sources else {}
        learned, outcomes = self.learned, {}
        for name, rows in self._ownership.items():
            before, after = [(name, self.trained[name].take(rows))], [(name, self.asked[name])]
            try:
                _, outcomes[name] = self._protocol.centrally.predict(
                    before, after, learned.values[rows], len(learned.classes), self.params
                )
            except DataError:
                continue  # a column is constant among the rows that the party labels
        return outcomes


def concluded(runs: Sequence[RunResult]) -> list[str]:
    """The meaning of together against alone in sentences: `conclusion` of runs, at least one."""
    gains = [run.gain for run in runs]
    alone = [] if gains[0] is None else list(gains[0].alone)
    others = [name for name in runs[0].columns if name not in alone]
    # the joined table is trained without noise
    row = UNDEFENDED if runs[0].defences else CENTRALISED
    known = [run.metrics.get(row, {}).get(gain.measure) for run in runs if (gain := run.gain) is not None]
    figures, cause = [it for it in known if it is not None], "defences" if runs[0].defences else "noise"
    return conclusion(
        gains,
        f"{alone[0]} alone" if len(alone) == 1 else "a party alone",
        " and ".join(others) or "the other parties",
        (cause, statistics.fmean(figures)) if figures and (runs[0].defences or runs[0].privacy) else None,
    )


def _members(tables: Mapping[str, Table], holder: str, parties: Sequence[str]) -> Table:
    """For each record a column of 0 and 1 for each of these parties: whether it has the record."""
    values = np.column_stack([tables[name].rows >= 0 for name in parties]).astype(np.float64)
    bare: dict[str, Any] = {"categories": {}, "directions": {}, "cuts": {}}
    return replace(tables[holder], columns=[*parties], sources=[*parties], values=Held(values), **bare)


def joined_labels(tables: Mapping[str, Table], column: str, params: JobParams) -> tuple[Labels, dict[str, Rows]]:
    """The labels of all records, joined from the parties' tables of the same records, and who labels which."""
    classes = params.class_names if isinstance(params, PivodlParams) else []
    values = np.zeros(len(next(iter(tables.values())).ids), dtype=np.int64 if classes else np.float64)
    ownership: dict[str, Rows] = {}
    for name, table in tables.items():
        if table.label is not None:
            own = read_partial_labels(table, column, params.objective, classes)
            values[own.rows] = own.values
            ownership[name] = own.rows
    return Labels(values, classes), ownership


#: Most by which scores of the opened shards may differ from those of the federation, relative to the largest: encrypted
#: ones are rounded.
TOLERANCE = 1e-2


def check(file: Path, experiment: ExperimentFile, drawn: Split, classes: int) -> None:
    """Check that the job can have the defences, as its parties would before it starts.

    Raises:
        ConfigError: it cannot have one, by name, with the `file` that asks for it.
    """
    first = experiment.in_order[0]
    data, columns = experiment.data, drawn.columns
    own = TableConfig(path=Path(data.title), id=ID, label=data.label, weight=data.weight, columns=columns[first])
    spec = experiment.spec(experiment.job)
    try:
        check_own(first, experiment.defences, Policy(), own, None, spec)
        params = experiment.job.params()
        if isinstance(params, TreeParams):
            check_own_trees(first, experiment.defences, params, classes)
        for name, given in experiment.of_columns.items():
            other = own.model_copy(update={"label": None, "weight": None, "columns": columns[name]})
            check_own(name, given, Policy(), other, None, spec)
            both = {*experiment.defences.named(), *given.named(columns=True)}
            if rows := broken_by(spec, set(map(Feature, both))):
                raise ConfigError("\n".join(map(str, rows)))
    except ConfigError as refusal:
        raise ConfigError(f"{file}: {refusal}") from None


def defended(
    experiment: ExperimentFile,
    central: Comparison,
    models: Mapping[str, Path],
    predictions: pa.Table,
) -> Defended:
    """The report on the defences of a finished run.

    `central`: has the tables of its parties. `predictions`: of the federation, of the held-out rows.

    Raises:
        Defect: the published model, opened, has other scores than the federation has predicted.
    """
    params, first = experiment.job.params(), experiment.in_order[0]
    sentences = says(experiment.defences, first)
    asked: dict[str, Any] = {
        "table": experiment.defences.model_dump(exclude_defaults=True),
        "parties": {name: own.model_dump(exclude_unset=True) for name, own in experiment.of_columns.items()},
        "says": sentences,
    }
    sentences += says_of_cells(experiment.of_columns)
    if experiment.noised:
        of_sums = read_manifest(models[first]).get(COLUMN_PRIVACY, {})
        sentences += [*column_privacy.sentences(of_sums), "The centralised model is without this noise."]
    if not isinstance(params, TreeParams):
        assert isinstance(params, SplitnnParams)  # the only protocol without trees
        for name, own in experiment.of_columns.items():
            sentences += says_of_columns(own.of_columns, name, params)
        return Defended(**asked)
    features = {name: table.features for name, table in central.asked.items()}
    model = joint_model.open_shards(models)
    scores = joint_model.scores(model.published, model.meaning, features)
    difference = _apart(predictions, scores)
    if not difference <= TOLERANCE * max(1.0, float(np.abs(scores).max())):
        raise Defect(f"the federation's scores differ by {difference:g} from those of its parties' shards together")
    asked |= {**joint_model.hidden(model.published), "max_difference": difference}
    if model.repairs:
        asked["variants"] = {
            name: metrics.evaluate(
                params.objective, variant.outcome(joint_model.scores(variant, model.meaning, features)), central.truth
            )
            for name, variant in {joint_model.AS_TRAINED: model.trained, **model.repairs}.items()
        }
    return Defended(**asked)


def _apart(predictions: pa.Table, scores: Floats) -> float:
    """The largest difference of raw scores between a file of predictions and these of the same records."""
    names = [name for name in predictions.column_names if name == "score" or name.startswith("score_")]
    return float(np.abs(np.column_stack([predictions.column(name) for name in names]) - scores).max())


def true_metrics(models: Mapping[str, Path], first: str) -> dict[str, float] | None:
    """The training's measures by the labels as they are, from the label holder's own file; None without noisy ones."""
    path = models[first] / CLEAN_METRICS
    if not path.is_file():
        return None
    metrics_of_all: dict[str, float] = parse_json(path.read_text(encoding="utf-8"))["training_metrics"]
    return metrics_of_all


def says(defences: Defences, label_holder: str) -> list[str]:
    """The meaning of each defence for the figures, as sentences."""
    sentences = []
    if (limit := defences.id_lmid) is not None:
        counted = "all its records count" if limit.counts == "shown" else "the records that the tree draws count"
        sentences.append(f"ID-LMID: no set of records that is shown exceeds {limit.xi:g} nats in Eq. 6 ({counted}).")
    if (reduced := defences.reduced_leakage) is not None:
        sentences.append(f"Reduced-Leakage: trees grown by the label holder alone: {reduced.trees}, the first.")
    sentences += [
        f"DIMIP with λ = {weight:g} on {name}: what its own model says about the label, not what its log says."
        for name, weight in defences.dimip.items()
    ]
    if (change := defences.gradient) is not None:
        keys = ", ".join(
            f"{key} {value:g}" for key, value in change.model_dump(exclude_none=True).items() if key != "kind"
        )
        sentences.append(f"Gradients that return to feature parties are changed ({change.kind}): {keys}.")
    # a party of a federation has one ledger for all jobs; each run of an experiment begins a new one
    if (noise := defences.label_dp) is not None:
        sentences.append(
            f"Label DP with ε = {noise.epsilon:g}, stages: {noise.stages}. Noisy labels were drawn for this run alone "
            f"and charged to a ledger of its own, in {label_holder}/state below the run's folder; no other ledger has "
            "them. What is sent, and the measures of the training, are by noisy labels; those of the test by true ones."
        )
    if defences.private_values:
        sentences.append(
            "label_dp, label_dp + refit, grafting and grafting + refit are four models of this one training, with the "
            "same noisy labels and the same messages to feature parties; predictions use "
            f"{' + '.join(name for name in ('grafting', 'refit') if getattr(defences, name))}."
        )
    return sentences


def says_of_cells(of_columns: Mapping[str, Defences]) -> list[str]:
    """The meaning of the fewest records that feature parties set, as sentences."""
    cells = [
        f"No sums of one column of {name} in one tree, added or subtracted, are over fewer than {least} drawn records: "
        "smaller bins are merged with their neighbours. The sets of its splits, and many trees together, tell more."
        for name, own in of_columns.items()
        if (least := own.min_cell_records)
    ]
    sides = "No split of {} leaves fewer than {} drawn records on a side."
    return cells + [sides.format(name, m) for name, own in of_columns.items() if (m := own.min_side_records)]


def says_of_columns(defences: FeatureDefences, party: str, params: SplitnnParams) -> list[str]:
    """The meaning of a feature party's defences for the figures, as sentences."""
    sentences = []
    if defences.sensitivity:
        sentences.append(
            f'SensFL at {party} with ε = {defences.sensitivity:g}, norm "{defences.sensitivity_norm}": lowers the '
            "sensitivity of its embeddings to its columns. Smaller embeddings suffice for that, and an attacker who "
            "standardises embeddings undoes a mere rescaling: protection is what an audit of the label holder finds on "
            "standardised ones."
        )
    if defences.dp_sgd is not None:
        sentences.append(f"At {party}, {meaning_of(defences.dp_sgd, params.epochs)}.")
        if params.reproducible:
            sentences.append(
                f"The job is reproducible: the noise of {party} follows from its seed, which all parties know, and "
                "that ε is of the same job with reproducible = false."
            )
    return sentences

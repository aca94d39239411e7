"""The effect of an experiment's defences: their meaning, what the label holder withheld, models it could publish.

It reads the shards of all parties, which no party of a real federation has.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from treetap.errors import ConfigError, Defect
from treetap.lab.experiment import joint_model
from treetap.lab.experiment.baselines import Comparison
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.joined_table import ID, Split
from treetap.lab.experiment.results import Defended
from treetap.models.checksums import parse_json
from treetap.models.kept import CLEAN_METRICS, COLUMN_PRIVACY
from treetap.models.store import read_manifest
from treetap.neural.defences import FeatureDefences, meaning_of
from treetap.neural.params import SplitnnParams
from treetap.party.defences.checks import check_own, check_own_trees
from treetap.party.defences.settings import Defences
from treetap.party.policy import Policy
from treetap.privacy import column_privacy
from treetap.protocols.exclusions import Feature
from treetap.protocols.job_spec import broken_by
from treetap.tables.config import TableConfig
from treetap.trees import metrics
from treetap.trees.params import TreeParams

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
    sentences += says_of_cells(experiment.min_cell_records)
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
    names = [name for name in predictions.column_names if name == "score" or name.startswith("score_")]
    difference = float(np.abs(np.column_stack([predictions.column(name) for name in names]) - scores).max())
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
    for name, weight in defences.dimip.items():
        sentences.append(
            f"DIMIP with λ = {weight:g} on {name}: what its own model says about the label, not what its log says."
        )
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


def says_of_cells(min_cell_records: Mapping[str, int]) -> list[str]:
    """The meaning of that setting of feature parties, as sentences."""
    return [
        f"No sums of one column of {name} in one tree, added or subtracted, are over fewer than {least} drawn records: "
        "smaller bins are merged with their neighbours. The sets of its splits, and many trees together, tell more."
        for name, least in min_cell_records.items()
    ]


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

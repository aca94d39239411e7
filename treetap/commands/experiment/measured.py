"""The held-out rows of a run: their predictions beside their labels, measured and kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from treetap.commands.experiment.experiment_file import ExperimentFile
from treetap.commands.experiment.joined_table import ID, ID_TYPE
from treetap.commands.experiment.results import Evaluation, Measures
from treetap.models.durable import write_whole
from treetap.models.history import read_history
from treetap.tables.labels import class_name
from treetap.tables.typed import named_type, typed
from treetap.tables.written import content_of
from treetap.trees import metrics
from treetap.trees.evaluation import defined, evaluate
from treetap.trees.job_params import BINARY, REGRESSIONS
from treetap.wire.metric_history import merged

Array = npt.NDArray[Any]


def test_metrics(experiment: ExperimentFile, manifest: Mapping[str, Any], scores: pa.Table, rows: pa.Table) -> Measures:
    """Measures of the label holder's predictions against the labels of the same rows, which their weights weigh."""
    objective, prediction, labels, _ = _outcome(experiment, manifest, scores, rows)
    weights = None if experiment.data.weight is None else rows.column(experiment.data.weight).to_numpy()
    with np.errstate(over="ignore", invalid="ignore"):
        return defined(metrics.evaluate(objective, prediction, labels, weights))


def evaluation(experiment: ExperimentFile, manifest: Mapping[str, Any], scores: pa.Table, rows: pa.Table) -> Evaluation:
    """The document about them, which counts each row once whatever its weight.

    `manifest`: of the label holder's model.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return Evaluation.model_validate(evaluate(*_outcome(experiment, manifest, scores, rows)))


def keep_predictions(experiment: ExperimentFile, scores: pa.Table, rows: pa.Table, path: Path) -> None:
    """Write the predictions of the held-out rows with their labels, in the order of the joined table.

    Ids have the type of the joined table, and its name for them if no other column has that; without ids they are the
    numbers of its rows.
    """
    own = experiment.data.label
    label = own if own not in scores.column_names else f"label {own}"
    table = scores.take(pa.array(_order(scores, rows))).append_column(label, rows.column(own))
    kind = named_type(rows.schema.field(ID).metadata[ID_TYPE].decode())
    own_ids = typed(table.column(ID).to_pylist(), kind)
    name = experiment.data.id
    called = ID if name is None or name in table.column_names else name
    table = table.set_column(table.column_names.index(ID), called, own_ids)
    write_whole(path, content_of(table, path.suffix[1:]))


def rounds(models: Mapping[str, Path]) -> list[dict[str, float | None]]:
    """The metrics after each round, by the models of all parties: where labels are spread each has some rounds'."""
    return merged([read_history(folder) for folder in models.values()])


def of_training(measures: Mapping[str, float]) -> Measures:
    """The measures of the records that were trained on, and not of those set aside or of an eval table."""
    own = {name: value for name, value in measures.items() if not name.startswith(("validation_", "eval_"))}
    return {name.removeprefix("train_"): value for name, value in own.items()}


def _outcome(
    experiment: ExperimentFile, manifest: Mapping[str, Any], scores: pa.Table, rows: pa.Table
) -> tuple[str, Array, Array, Sequence[str]]:
    """Objective, predictions as `Ensemble.outcome` has them, labels by number or targets, names of the classes."""
    order = _order(scores, rows)
    label = rows.column(experiment.data.label).to_pylist()
    objective = experiment.job.params().objective
    if objective in REGRESSIONS:
        return objective, scores.column("prediction").to_numpy()[order], np.asarray(label, dtype=np.float64), []
    classes = manifest["classes"]
    known = {name: k for k, name in enumerate(classes)}
    labels = np.array([known[class_name(value)] for value in label], dtype=np.int64)
    if objective in BINARY:
        return objective, scores.column("probability").to_numpy()[order], labels, classes
    columns = [scores.column(f"probability_{name}").to_numpy()[order] for name in classes]
    return objective, np.stack(columns, axis=1), labels, classes


def _order(scores: pa.Table, rows: pa.Table) -> list[int]:
    """The place of each row among the predictions."""
    place = {str(value): i for i, value in enumerate(scores.column(ID).to_pylist())}
    return [place[str(value)] for value in rows.column(ID).to_pylist()]

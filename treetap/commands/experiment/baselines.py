"""The centralised models beside a federation: of all columns, and of the label holder's alone.

It reads the files that the parties read, so that columns of text are encoded alike, in the order of the ids. With
`sorted-ids` that is the federation's own order of records, and the centralised model its model, split for split; with
`psi` the order is another one, and the draws of records differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from treetap.commands.experiment.experiment_file import ExperimentFile
from treetap.commands.experiment.joined_table import ID
from treetap.errors import DataError
from treetap.protocols.registry import training
from treetap.tables.config import TableConfig
from treetap.tables.labels import Labels, class_name, read_labels
from treetap.tables.reading import Table, read_table
from treetap.trees import metrics
from treetap.trees.params import TreeParams

Floats = npt.NDArray[np.float64]


class Comparison:
    """The centralised model of an experiment's run, trained once.

    Args:
        experiment: the file.
        settings: party → its settings, whose tables `train` and `predict` are read.
        seed: the run's, added to the job's.
    """

    def __init__(self, experiment: ExperimentFile, settings: Mapping[str, Mapping[str, Any]], seed: int) -> None:
        job = experiment.job.model_copy(update={"seed": experiment.job.seed + seed})
        self._params, self._alignment = job.params(), job.alignment
        self._protocol = training(job.protocol)
        self._holder = experiment.label_holder
        self._names = [self._holder, *(party.name for party in experiment.party if not party.labels)]
        self._trained = {name: _read(settings[name]["tables"]["train"], self._params) for name in self._names}
        self._asked = {
            name: _read(settings[name]["tables"]["predict"], self._params, self._trained[name]) for name in self._names
        }
        self._learned = read_labels(self._trained[self._holder], experiment.data.label, self._params.objective)
        self._joined = self._predict(self._names)

    @property
    def comparable(self) -> bool:
        """True if the federation's model is this one.

        Aligned by private set intersection, its records are in another order, so that draws of them differ.
        """
        return self._alignment == "sorted-ids" or not self._params.draws_records

    def difference(self, predictions: pa.Table) -> float:
        """The largest difference of raw scores between the label holder's file and the centralised model.

        Raises:
            DataError: the file has other records.
        """
        if self._asked[self._holder].ids != predictions.column(ID).to_pylist():
            raise DataError("the predictions are of other records than the centralised model's")
        names = [name for name in predictions.column_names if name == "score" or name.startswith("score_")]
        scores = np.column_stack([predictions.column(name).to_numpy() for name in names])
        return float(np.abs(scores - self._joined[0]).max())

    def metrics(self) -> dict[str, dict[str, float]]:
        """Test metrics with all parties' columns, and with the label holder's, if it has any."""
        truth = _truth(self._asked[self._holder], self._learned)
        found = {"centralised, test": metrics.evaluate(self._params.objective, self._joined[1], truth)}
        if self._trained[self._holder].columns:
            _, outcome = self._predict([self._holder])
            found["label holder alone, test"] = metrics.evaluate(self._params.objective, outcome, truth)
        return found

    def _predict(self, parties: Sequence[str]) -> tuple[Floats, Floats]:
        """Raw scores (n, outputs) and outcome of the test rows, by a model of the training rows and these columns."""
        before, after = ([(name, tables[name]) for name in parties] for tables in (self._trained, self._asked))
        learned = self._learned
        return self._protocol.predict_centrally(before, after, learned.values, len(learned.classes), self._params)


def _read(config: Mapping[str, Any], params: TreeParams, like: Table | None = None) -> Table:
    table = TableConfig.model_validate(config)
    categories = None if like is None else like.categories
    return read_table(table, with_label=table.label is not None, missing=params.missing, categories=categories)


def _truth(asked: Table, learned: Labels) -> npt.NDArray[Any]:
    """Labels of the test rows, classes by the numbers that they had in training."""
    cells = [] if asked.label is None else asked.label.to_pylist()
    if not learned.classes:
        return np.asarray(cells, dtype=np.float64)
    number = {name: k for k, name in enumerate(learned.classes)}
    return np.array([number[class_name(cell)] for cell in cells], dtype=np.int64)

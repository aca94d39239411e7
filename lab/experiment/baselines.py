"""The centralised models beside a federation: of all columns, and of each party's alone that has labels.

It reads the files that the parties read, so that columns of text are encoded alike, in the order of the ids. With
`sorted-ids` that is the federation's own order of records, and the centralised model its model, split for split; with
`psi` the order is another one, and the draws of records differ.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from treetap.errors import DataError
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.headline import Gain, conclusion, gain_of
from treetap.lab.experiment.joined_table import ID
from treetap.lab.experiment.party_tables import read_as_party
from treetap.lab.experiment.results import Measures, RunResult
from treetap.lab.experiment.spread_labels import truth
from treetap.neural.params import SplitnnParams
from treetap.protocols.registry import training
from treetap.tables.labels import Labels, Rows, read_labels, read_partial_labels
from treetap.tables.reading import Table
from treetap.trees import metrics
from treetap.trees.evaluation import defined
from treetap.trees.job_params import JobParams
from treetap.trees.params import TreeParams
from treetap.trees.pivodl_params import PivodlParams

Floats = npt.NDArray[np.float64]
#: The rows of the metrics by all columns, by the label holder's alone, and by all without the job's defences.
CENTRALISED, ALONE = "centralised, test", "label holder alone, test"
UNDEFENDED = "centralised without defences, test"


class Comparison:
    """The tables of an experiment's run as its parties read them, and the centralised model, trained once.

    `trained`, `asked`: party → its table of the training, and of the held-out rows. `learned`: labels of the training;
    `truth`: of the held-out rows.

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
        self.params, self._alignment = job.params(), job.alignment
        self._protocol = training(job.protocol)
        self._names, label = experiment.in_order, experiment.data.label
        self.trained = {
            name: read_as_party(settings[name]["tables"]["train"], self.params.missing) for name in self._names
        }
        self.asked = {
            name: read_as_party(settings[name]["tables"]["predict"], self.params.missing, self.trained[name])
            for name in self._names
        }
        self._ids, self._seed = self.asked[self._names[0]].ids, seed
        place = {str(record): row for row, record in enumerate(rows.column(ID).to_pylist())}
        self._rows = [place[record] for record in self._ids]
        self._ownership: dict[str, Rows] | None = None
        if experiment.spread:
            self.learned, self._ownership = joined_labels(self.trained, label, self.params)
        else:
            self.learned = read_labels(self.trained[self._names[0]], label, self.params.objective)
        self.truth = truth(rows, ID, label, self._ids, self.learned)
        self._defences, self._defended = experiment.defences, experiment.defended
        self._of_columns = {name: own.of_columns for name, own in experiment.of_columns.items()}
        self._min_cell_records, self._noised = experiment.min_cell_records, experiment.noised
        self._attacks = any(party.optimizer for party in experiment.party)
        self._alone: dict[str, Floats] = {}

    @cached_property
    def _joined(self) -> tuple[Floats, Floats]:
        """Raw scores and outcome by all columns."""
        return self._predict(self._names, self._of_defences())

    @property
    def comparable(self) -> bool:
        """True if the federation's model is this one.

        Aligned by private set intersection, its records are in another order, so that draws of them differ. The
        centralised model has no noise, neither of leaf weights nor of labels nor of sums. A network's private draws are
        known only where they follow from the job's seed, and it has the job's optimiser at every party.
        """
        if self.params.adds_noise or self._defences.label_dp is not None or self._noised or self._attacks:
            return False
        if isinstance(self.params, SplitnnParams):
            return self._alignment == "sorted-ids" and self.params.reproducible
        assert isinstance(self.params, TreeParams)
        return self._alignment == "sorted-ids" or not self.params.draws_records

    def difference(self, predictions: pa.Table) -> float:
        """The largest difference of raw scores between the file of predictions and the centralised model.

        Raises:
            DataError: the file has other records.
        """
        if self._ids != predictions.column(ID).to_pylist():
            raise DataError("the predictions are of other records than the centralised model's")
        names = [name for name in predictions.column_names if name == "score" or name.startswith("score_")]
        scores = np.column_stack([predictions.column(name).to_numpy() for name in names])
        return float(np.abs(scores - self._joined[0]).max())

    def metrics(self) -> dict[str, Measures]:
        """Test metrics with all parties' columns, and with those and the labels of each party that has both alone."""
        measured = {CENTRALISED: self._measured(self._joined[1])}
        if self._defended:
            measured[UNDEFENDED] = self._measured(self._predict(self._names)[1])
        self._alone = self.each_alone()
        for name, outcome in self._alone.items():
            measured[ALONE if self._ownership is None else f"{name} alone, test"] = self._measured(outcome)
        return measured

    def gain(self, outcome: Floats) -> Gain | None:
        """The gain of the federation's outcome of the test rows, in the order of the joined table, after `metrics`."""
        weights = self.asked[self._names[0]].weights
        together = outcome[self._rows]
        return gain_of(self.params.objective, together, self._alone, self.truth, weights, self._seed)

    def _measured(self, outcome: Floats) -> Measures:
        """Measures of an outcome of the test rows, which their weights weigh."""
        weights = self.asked[self._names[0]].weights
        return defined(metrics.evaluate(self.params.objective, outcome, self.truth, weights))

    def _of_defences(self) -> dict[str, Any]:
        """Arguments by which the centralised model of all columns has the parties' defences."""
        if not self._defended:
            return {}
        if self._protocol.grows_trees:
            return {"withholding": self._defences.withholding, "min_cell_records": self._min_cell_records}
        return {"defences": self._defences.of_networks, "of_columns": self._of_columns}

    def _predict(self, parties: Sequence[str], more: Mapping[str, Any] | None = None) -> tuple[Floats, Floats]:
        """Raw scores (n, outputs) and outcome of the test rows, by a model of the training rows and these columns.

        `more`: further arguments of the trainer.
        """
        before, after = ([(name, tables[name]) for name in parties] for tables in (self.trained, self.asked))
        learned, given = self.learned, {**(more or {})}
        if self._ownership is not None:
            given["ownership"] = self._ownership
        if (weights := self.trained[self._names[0]].weights) is not None:
            given["weights"] = weights
        return self._protocol.centrally.predict(
            before, after, learned.values, len(learned.classes), self.params, **given
        )

    def each_alone(self) -> dict[str, Floats]:
        """Party that has labels → outcome of the test rows by a model of its own columns and labels, if it has both."""
        if self._ownership is None:
            first = self._names[0]
            return {first: self._predict([first])[1]} if self.trained[first].sources else {}
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

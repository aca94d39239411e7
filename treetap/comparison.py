"""The centralised model beside a federation: what joining all columns gives, and what the label holder has alone.

It reads the files that the parties read, so that columns of text are encoded alike, in the order of the ids. With
`sorted-ids` that is the federation's own order of records, and the centralised model its model, split for split; with
`psi` the order is another one, and the draws of records differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from party.config import TableConfig
from party.labels import Labels, class_name, read_labels
from party.table import Table, read_table
from treetap.experimentfile import ExperimentFile
from treetap.trees import metrics
from treetap.trees.binning import bin_table
from treetap.trees.centralised import train
from treetap.trees.centralised_forest import train_forest
from treetap.trees.forestparams import ForestParams
from treetap.wire.jobspec import Params

#: Tables by party.
Tables = Sequence[tuple[str, Table]]


def compare(
    experiment: ExperimentFile, settings: Mapping[str, Mapping[str, Any]], seed: int
) -> dict[str, dict[str, float]]:
    """Test metrics of the centralised trainer with all parties' columns, and with the label holder's, if it has any."""
    params = experiment.job.model_copy(update={"seed": experiment.job.seed + seed}).params()
    holder = next(party.name for party in experiment.party if party.labels)
    names = [holder, *(party.name for party in experiment.party if not party.labels)]
    trained = {name: _read(settings[name]["tables"]["train"], params) for name in names}
    asked = {name: _read(settings[name]["tables"]["predict"], params, trained[name]) for name in names}
    learned = read_labels(trained[holder], experiment.data.label, params.objective)
    truth = _truth(asked[holder], learned)

    def measure(*parties: str) -> dict[str, float]:
        before, after = ([(name, tables[name]) for name in parties] for tables in (trained, asked))
        return metrics.evaluate(params.objective, _outcome(before, after, learned, params), truth)

    found = {"centralised, test": measure(*names)}
    if trained[holder].columns:
        found["label holder alone, test"] = measure(holder)
    return found


def _read(config: Mapping[str, Any], params: Params, like: Table | None = None) -> Table:
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


def _outcome(before: Tables, after: Tables, learned: Labels, params: Params) -> npt.NDArray[np.float64]:
    """Probabilities or values of the test rows, by a model of the training rows."""
    binned = [
        (name, bin_table(table.features, table.columns, params.max_bin, may_be_constant=table.made))
        for name, table in before
    ]
    if isinstance(params, ForestParams):
        blocks = [(name, table.features) for name, table in before]
        forest = train_forest(blocks, learned.values, params, len(learned.classes), binned)
        return forest.ensemble.outcome(forest.predict([(name, table.features) for name, table in after]))
    model = train(binned, learned.values, params, len(learned.classes) or None)
    bins = dict(binned)
    return model.predict_proba([(name, bins[name].encode(table.features)) for name, table in after])

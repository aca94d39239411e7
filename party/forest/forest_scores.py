"""A forest's sums of leaf values, from which the label holder computes metrics after each tree."""

from __future__ import annotations

from typing import Any

import numpy as np

from party.growth.label_state import SCORES, Values, finite
from party.runtime.job_store import JobStore
from party.setup.evaluated import Measured
from treetap.errors import DataError
from treetap.tables.labels import Labels
from treetap.trees import metrics
from treetap.trees.ensemble import Ensemble, Tree
from treetap.trees.params import ForestParams

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


class ForestScores:
    """Sums (N, outputs) over the stored trees; their mean is the forest's prediction of its training records.

    Every tree predicts all records, including those it did not draw; so metrics of the training lie between training
    and test error. Those out of bag are of records that some tree has not drawn, by the mean over these trees, as in
    scikit-learn. Sums of an eval table's records are behind those of the training.
    """

    def __init__(
        self,
        params: ForestParams,
        labels: Labels,
        store: JobStore,
        evaluated: Measured | None = None,
        least_out_of_bag: int = 1,
    ) -> None:
        """`evaluated`: the eval table's records, without weights.

        `least_out_of_bag`: the fewest records of which there are metrics out of bag.
        """
        self._params, self._store, self._labels, self._evaluated = params, store, labels, evaluated
        self._least_out_of_bag = least_out_of_bag
        self.planned, self.trees_per_round = params.n_estimators, 1
        self.stopped = False
        self.metrics: dict[str, float] = {}
        self.trees = 0
        classes = len(labels.classes)
        self._outputs = tuple(range(params.outputs(classes)))
        further = 0 if evaluated is None else len(evaluated.values)
        self._sums = np.zeros((len(labels.values) + further, len(self._outputs)))
        self._out_of_bag = np.zeros((len(labels.values), len(self._outputs)))  # sums over the trees that drew it not
        self._left_out = np.zeros(len(labels.values), dtype=np.int64)  # the number of these trees
        self._load()

    def outputs(self, tree: int) -> tuple[int, ...]:  # noqa: ARG002 - each tree predicts everything
        """See `LabelState`."""
        return self._outputs

    def add(self, tree: Tree, values: Floats) -> None:
        """See `LabelState`."""
        self._sums += values
        count = len(self._left_out)
        left_out = self._params.drawn(tree.index, count) == 0
        self._left_out += left_out
        self._out_of_bag[left_out] += values[:count][left_out]
        self.trees += 1
        self.metrics = self.measured(self._labels.values)

    def save(self) -> None:
        """See `LabelState`."""
        out_of_bag = {"out_of_bag": self._out_of_bag, "left_out": self._left_out}
        self._store.save_arrays(SCORES, {"trees": np.array(self.trees), "sums": self._sums, **out_of_bag})

    def used(self, trees: list[Tree]) -> list[Tree]:
        """All trees."""
        return trees

    def summary(self) -> dict[str, Any]:
        """See `LabelState`."""
        return {
            "objective": self._params.objective,
            "averaged": True,
            "base_margin": [0.0] * len(self._outputs),
            "trees_per_round": 1,
            "best_round": None,
            "params": self._params.to_dict(),
            "training_metrics": finite(self.measured(self._labels.values)),
        }

    def continuation(self) -> None:
        """See `LabelState`: the trees of a forest do not depend on each other."""

    def measured(self, labels: Values) -> dict[str, float]:
        """See `LabelState`."""
        ensemble = Ensemble(self._params.objective, len(self._labels.classes), (), (), 1, averaged=True)
        outcome = ensemble.outcome(self._sums / self.trees)
        count = len(self._labels.values)
        parts = {"train": (outcome[:count], labels)}
        if (known := self._left_out > 0).sum() >= self._least_out_of_bag:
            means = self._out_of_bag[known] / self._left_out[known, None]
            parts["oob"] = ensemble.outcome(means), labels[known]
        if self._evaluated is not None:
            parts["eval"] = outcome[count:], self._evaluated.values
        return {
            f"{part}_{name}": value
            for part, scored in parts.items()
            for name, value in metrics.evaluate(self._params.objective, *scored).items()
        }

    def _load(self) -> None:
        arrays = self._store.load_arrays(SCORES)
        if arrays is None:
            return
        if len(arrays["sums"]) != len(self._sums):
            raise DataError(
                f"the table has {len(self._sums)} records, the interrupted job had {len(arrays['sums'])}: "
                "restore that table, or cancel the job and train again"
            )
        self.trees, self._sums = int(arrays["trees"]), arrays["sums"]
        self._out_of_bag, self._left_out = arrays["out_of_bag"], arrays["left_out"]

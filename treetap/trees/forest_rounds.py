"""The predictions of a forest's training, tree by tree: sums over the trees so far, and their metrics.

A label holder and the trainer on a joined table use the same class, which knows nothing of columns and splits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from treetap.arrays import Array, Floats
from treetap.errors import DataError
from treetap.trees import metrics
from treetap.trees.ensemble import Ensemble, Tree
from treetap.trees.params import ForestParams

Labels = Array


class ForestRounds:
    """Sums (N, outputs) over the trees; their mean is the forest's prediction of its training records.

    Every tree predicts all records, including those it did not draw; so metrics of the training lie between training
    and test error. Those out of bag are of records that some tree has not drawn, by the mean over these trees, as in
    scikit-learn. Sums of further records by which the forest is measured are behind those of the training.

    Attributes:
        planned: the most trees.
        trees: the number of trees so far.
        metrics: those after the last tree.
        history: those after each tree that this object has seen.
    """

    trees_per_round, stopped = 1, False

    def __init__(
        self,
        params: ForestParams,
        classes: int,
        labels: Labels,
        evaluated: Labels | None = None,
        least_out_of_bag: int = 1,
    ) -> None:
        """`labels` (N,): of the training's records; `evaluated` (M,): those of further records, if there are any.

        `least_out_of_bag`: the fewest records of which there are metrics out of bag.
        """
        self._params, self._classes, self._labels, self._evaluated = params, classes, labels, evaluated
        self._least_out_of_bag = least_out_of_bag
        self.planned, self.trees = params.n_estimators, 0
        self.metrics: dict[str, float] = {}
        self.history: list[dict[str, float]] = []
        self._outputs = tuple(range(params.outputs(classes)))
        further = 0 if evaluated is None else len(evaluated)
        self._sums = np.zeros((len(labels) + further, len(self._outputs)))
        self._out_of_bag = np.zeros((len(labels), len(self._outputs)))  # sums over the trees that drew it not
        self._left_out = np.zeros(len(labels), dtype=np.int64)  # the number of these trees

    @property
    def records(self) -> int:
        """The number of records that have sums: of the training, and further ones."""
        return len(self._sums)

    def outputs(self, tree: int) -> tuple[int, ...]:  # noqa: ARG002 - each tree predicts everything
        """The columns of the score that a tree adds to."""
        return self._outputs

    def add(self, tree: Tree, values: Floats) -> None:
        """Add a finished tree's values (N + M, outputs), and compute the metrics."""
        self._sums += values
        count = len(self._left_out)
        left_out = self._params.drawn(tree.index, count) == 0
        self._left_out += left_out
        self._out_of_bag[left_out] += values[:count][left_out]
        self.trees += 1
        self.metrics = self.measured(self._labels)
        self.history.append(self.metrics)

    def used(self, trees: list[Tree]) -> list[Tree]:
        """All trees."""
        return trees

    def summary(self) -> dict[str, Any]:
        """The part of the model's manifest beside trees and columns."""
        return {
            "objective": self._params.objective,
            "averaged": True,
            "base_margin": [0.0] * len(self._outputs),
            "trees_per_round": 1,
            "best_round": None,
            "params": self._params.to_dict(),
            "training_metrics": metrics.finite(self.measured(self._labels)),
        }

    def continuation(self) -> None:
        """None: the trees of a forest do not depend on each other."""

    def measured(self, labels: Labels) -> dict[str, float]:
        """Metrics by these labels (N,) of the training's records."""
        ensemble = Ensemble(self._params.objective, self._classes, (), (), 1, averaged=True)
        outcome = ensemble.outcome(self._sums / self.trees)
        count = len(self._labels)
        parts = {"train": (outcome[:count], labels)}
        if (known := self._left_out > 0).sum() >= self._least_out_of_bag:
            means = self._out_of_bag[known] / self._left_out[known, None]
            parts["oob"] = ensemble.outcome(means), labels[known]
        if self._evaluated is not None:
            parts["eval"] = outcome[count:], self._evaluated
        return {
            f"{part}_{name}": value
            for part, scored in parts.items()
            for name, value in metrics.evaluate(self._params.objective, *scored).items()
        }

    def state(self) -> dict[str, Array]:
        """All that changes from tree to tree as arrays, by name."""
        out_of_bag = {"out_of_bag": self._out_of_bag, "left_out": self._left_out}
        return {"trees": np.array(self.trees), "sums": self._sums, **out_of_bag}

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Continue from a state that `state` has returned.

        Raises:
            DataError: it is of other records.
        """
        if len(arrays["sums"]) != len(self._sums):
            raise DataError(
                f"the table has {len(self._sums)} records, the interrupted job had {len(arrays['sums'])}: "
                "restore that table, or cancel the job and train again"
            )
        self.trees, self._sums = int(arrays["trees"]), arrays["sums"]
        self._out_of_bag, self._left_out = arrays["out_of_bag"], arrays["left_out"]

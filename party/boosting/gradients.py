"""The label holder's scores in boosting: gradients of each tree, validation share, early stopping, storage."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from party.growth.base_model import Start
from party.growth.label_state import SCORES, Values, finite
from party.runtime.job_store import JobStore
from party.setup.labelled_table import Measured
from treetap.errors import DataError
from treetap.tables.labels import Labels
from treetap.trees import sampling
from treetap.trees.ensemble import Tree
from treetap.trees.loss import Loss
from treetap.trees.params import BoostingParams
from treetap.trees.record_weights import check_weights

Ints = np.ndarray[tuple[int, ...], np.dtype[np.int64]]
Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
Bools = np.ndarray[tuple[int], np.dtype[np.bool_]]
#: Sample weights (N,); None: all count alike.
Weights = np.ndarray[tuple[int], np.dtype[np.float64]] | None


class BoostingState:
    """Scores (N, outputs) after the last stored tree, and at the start of its round.

    In a round of several trees (softmax, one output per tree) all gradients are computed at the scores of the round's
    start, as in XGBoost; so both are stored.

    Scores of an eval table's records are behind those of the training. Early stopping watches them, if there are some,
    and no record of the training is set aside then.
    """

    def __init__(
        self,
        params: BoostingParams,
        loss: Loss,
        labels: Labels,
        store: JobStore,
        weights: Weights = None,
        evaluated: Measured | None = None,
        start: Start | None = None,
    ) -> None:
        """`weights`: of the training's records (N,). `evaluated`: the records of an eval table, if the job has one.

        `start`: that of a training that continues from a model, which has no eval table.

        Raises:
            DataError: the weights do not fit the job, or the stored scores are of another table.
        """
        self._params, self._loss, self._store = params, loss, store
        self._labels = labels.values if evaluated is None else np.concatenate([labels.values, evaluated.values])
        self._count = len(labels.values)
        self.metrics: dict[str, float] = {}
        self.trees_per_round = params.trees_per_round(len(labels.classes))
        self.planned = params.n_estimators * self.trees_per_round
        self._outputs_per_tree = params.outputs_per_tree(len(labels.classes))
        n, count = len(self._labels), self._count
        in_training = params.training_rows(count) if evaluated is None else np.ones(count, dtype=bool)
        self._training = _padded(in_training, n)
        #: The records of each part, by the word before the names of its metrics; early stopping watches the last one.
        self._parts = {"train": self._training, "validation": _padded(~in_training, n)}
        self._weights = weights
        if weights is not None:
            rules = params if evaluated is None else replace(params, early_stopping_rounds=None)  # none are set aside
            check_weights(weights, labels.values, rules)
        if evaluated is not None:
            self._parts["eval"] = np.arange(n) >= count
            self._weights = _joined(weights, count, evaluated)
        if start is None:
            learned, weighing = self._labels[self._training], self._weights_of(self._training)
            self._base = loss.base_margin(params.base_score, learned, weighing)
        else:
            self._base = start.base_margin
            self.planned += start.trees
        self.trees = 0
        self._best = (np.inf, -1)
        self._best_metrics: dict[str, float] = {}  # of the published model, which ends at the best round
        self._best_scores: Floats | None = None  # with early stopping
        self.stopped = False
        self._scores = np.tile(self._base, (n, 1))
        if start is not None:
            self.trees, self._scores = start.trees, start.scores
        self._round_scores = self._scores.copy()
        self._load(n)

    def outputs(self, tree: int) -> tuple[int, ...]:
        """The columns of the score that a tree adds to."""
        first = (tree % self.trees_per_round) * self._outputs_per_tree
        return tuple(range(first, first + self._outputs_per_tree))

    def derivatives(self, tree: int) -> tuple[Ints, float, Bools]:
        """Fixed-point (g_0.., h_0.., 1) of the training's records, zero if not sampled; the scale of g; the sample."""
        columns, n = list(self.outputs(tree)), self._count
        labels = self._labels[:n]
        factors = self._params.factors(labels, None if self._weights is None else self._weights[:n])
        quantised = self._loss.quantise(*self._loss.gradients(self._round_scores[:n], labels), factors)
        sampled = sampling.rows(self._params.seed, tree, n, self._params.subsample, eligible=self._training[:n])
        one = np.ones((len(sampled), 1), dtype=np.int64)
        values = np.concatenate([quantised.g[:, columns], quantised.h[:, columns], one], axis=1)
        values[~sampled] = 0
        return values, quantised.scale, sampled

    def add(self, tree: Tree, values: Floats) -> None:
        """Add a finished tree's values (N, outputs); after a round, compute metrics and apply early stopping."""
        self._scores[:, list(tree.outputs)] += values
        self.trees += 1
        self.metrics = {}
        if self.trees % self.trees_per_round == 0:
            self._round_scores = self._scores.copy()
            self._close_round(self.trees // self.trees_per_round - 1)

    def save(self) -> None:
        """Store the state atomically."""
        best, best_round = self._best
        best_scores = {} if self._best_scores is None else {"best_scores": self._best_scores}
        self._store.save_arrays(
            SCORES,
            {
                "trees": np.array(self.trees),
                "scores": self._scores,
                "round_scores": self._round_scores,
                "best": np.array([best, best_round]),
                "best_metric_names": np.array(list(self._best_metrics), dtype=np.str_),
                "best_metric_values": np.array(list(self._best_metrics.values()), dtype=np.float64),
                "stopped": np.array(self.stopped),
                **best_scores,
            },
        )

    def used(self, trees: list[Tree]) -> list[Tree]:
        """The trees that predictions use."""
        best_round = self._best_round()
        return trees if best_round is None else trees[: (best_round + 1) * self.trees_per_round]

    def summary(self) -> dict[str, Any]:
        """The part of the model's manifest beside trees and columns."""
        return {
            "objective": self._params.objective,
            "base_margin": [float(value) for value in self._base],
            "trees_per_round": self.trees_per_round,
            "best_round": self._best_round(),
            "params": self._params.to_dict(),
            **({"weighted": True} if self._weights is not None else {}),
            "training_metrics": finite(self._best_metrics or self._measure(self._scores, self._labels)),
        }

    def continuation(self) -> Floats:
        """See `LabelState`: as XGBoost, with the trees after the best round too."""
        return self._scores[: self._count]

    def measured(self, labels: Values) -> dict[str, float]:
        """See `LabelState`."""
        return self._measure(self._scores if self._best_scores is None else self._best_scores, labels)

    def _best_round(self) -> int | None:
        return None if self._params.early_stopping_rounds is None else int(self._best[1])

    def _close_round(self, round_number: int) -> None:
        self.metrics = self._measure(self._scores, self._labels)
        if self._params.early_stopping_rounds is None:
            return
        held = list(self._parts.values())[-1]
        watched = self._loss.watched(self._scores[held], self._labels[held], self._weights_of(held))
        if self._best[1] < 0 or watched < self._best[0]:
            self._best = (watched, round_number)
            self._best_metrics = self.metrics
            self._best_scores = self._scores.copy()
        elif round_number - self._best[1] >= self._params.early_stopping_rounds:
            self.stopped = True

    def _measure(self, scores: Floats, labels: Values) -> dict[str, float]:
        found = {}
        for name, mask in self._parts.items():
            if mask.any():
                metric = self._loss.metric(scores[mask], labels[mask], self._weights_of(mask))
                found.update({f"{name}_{key}": value for key, value in metric.items()})
        return found

    def _weights_of(self, rows: Bools) -> Weights:
        """The weights of some records; None: records have none."""
        return None if self._weights is None else self._weights[rows]

    def _load(self, n: int) -> None:
        arrays = self._store.load_arrays(SCORES)
        if arrays is None:
            return
        if len(arrays["scores"]) != n:
            raise DataError(
                f"the table has {n} records, the interrupted job had {len(arrays['scores'])}: "
                "restore that table, or cancel the job and train again"
            )
        self.trees = int(arrays["trees"])
        self._scores, self._round_scores = arrays["scores"], arrays["round_scores"]
        self._best = (float(arrays["best"][0]), int(arrays["best"][1]))
        values = arrays["best_metric_values"].tolist()
        self._best_metrics = dict(zip(arrays["best_metric_names"].tolist(), values, strict=True))
        self._best_scores = arrays.get("best_scores")
        self.stopped = bool(arrays["stopped"])


def _padded(mask: Bools, records: int) -> Bools:
    """A mask over the training's records as one over all records, those of an eval table behind them left out."""
    return np.concatenate([mask, np.zeros(records - len(mask), dtype=bool)])


def _joined(weights: Weights, count: int, evaluated: Measured) -> Weights:
    """The weights of `count` records of the training and of an eval table's; those of a table without any are 1."""
    if weights is None and evaluated.weights is None:
        return None
    own = np.ones(count) if weights is None else weights
    return np.concatenate([own, np.ones(len(evaluated.values)) if evaluated.weights is None else evaluated.weights])

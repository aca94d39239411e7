"""The scores of a training by boosting, round by round: base margin, derivatives, validation, the best round.

A label holder and the trainer on a joined table use the same class, which knows nothing of columns and splits.

The predictions of a forest's training, tree by tree: sums over the trees so far, and their metrics.

A label holder and the trainer on a joined table use the same class, which knows nothing of columns and splits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from treetap.arrays import Array, Bools, Floats, Ints
from treetap.errors import DataError
from treetap.trees import metrics, sampling
from treetap.trees.ensemble import Ensemble, Tree
from treetap.trees.job_params import COX, REGRESSIONS, SURVIVAL
from treetap.trees.loss import LARGEST_TARGET, QuantileError, Quantised, loss_for
from treetap.trees.metrics import finite
from treetap.trees.offsets import Offsets
from treetap.trees.params import BoostingParams, ForestParams

Labels = Array
#: Sample weights (N,); None: all count alike.
Weights = Floats | None
#: Labels and weights of further records, and their offsets, if the training's have some.
Evaluated = tuple[Labels, Weights, Offsets | None]
#: The parts of the records, by the word before the names of their metrics.
TRAIN, VALIDATION, EVAL = "train", "validation", "eval"


@dataclass(frozen=True)
class Start:
    """The beginning of a continued training: `trees` trees, whose model has the base margin (outputs,).

    `scores`: (N, outputs) of the job's records under these trees.
    """

    trees: int
    base_margin: Floats
    scores: Floats


class BoostingRounds:
    """Scores (N, outputs) after the last tree, and at the start of its round.

    In a round of several trees (softmax, one output per tree) all gradients are computed at the scores of the round's
    start, as in XGBoost. Scores of further records by which the model is measured are behind those of the training; if
    there are some, the best round is that of the smallest loss on them, and no record of the training is set aside.

    Attributes:
        loss: the objective.
        planned: the most trees.
        trees: the number of trees so far.
        base_margin: (outputs,) the scores before the first tree; a record's offset is added to it.
        unit: the scale of h of the last derivatives.
        best_round: the round with the smallest loss on the last part of the records; None without early stopping.
        metrics: those after the last tree, if it ended a round.
        history: those of all rounds that this object has seen.
    """

    def __init__(
        self,
        params: BoostingParams,
        classes: int,
        labels: Labels,
        weights: Weights = None,
        evaluated: Evaluated | None = None,
        start: Start | None = None,
        offsets: Offsets | None = None,
    ) -> None:
        """`labels`, `weights`, `offsets`: of the training's records (N,). `evaluated`: those of further records.

        `start`: that of a training that continues from a model, which has no further records.

        Raises:
            DataError: the weights do not fit the job.
        """
        self._params, self.loss = params, loss_for(params.objective, classes, params.to_dict())
        self.trees_per_round = params.trees_per_round(classes)
        self._width = params.outputs_per_tree(classes)
        self._count = len(labels)
        training = params.training_rows(len(labels)) if evaluated is None else np.ones(len(labels), dtype=bool)
        if weights is not None:
            check_weights(weights, labels, params, training)
        self._labels, self._weights = (
            (labels, weights) if evaluated is None else _joined(labels, weights, *evaluated[:2])
        )
        n = len(self._labels)
        self._parts = {TRAIN: _padded(training, n), VALIDATION: _padded(~training, n)}
        if evaluated is not None:
            self._parts[EVAL] = np.arange(n) >= len(labels)
        self.planned = params.n_estimators * self.trees_per_round
        if start is None:
            learned, weighing = self._of_part(TRAIN)
            before = None if offsets is None else offsets.take(np.flatnonzero(training))
            begin = offsets is not None and offsets.begin
            self.base_margin = (
                np.zeros(self.loss.outputs)
                if begin
                else self.loss.base_margin(params.base_score, learned, weighing, before)
            )
            self.trees, self._scores = 0, np.tile(self.base_margin, (n, 1))
            added = [own.values for own in (offsets, evaluated and evaluated[2]) if own]
            self._scores += np.concatenate(added)[:, None] if added else 0.0
        else:
            self.base_margin = start.base_margin
            self.trees, self._scores = start.trees, start.scores
            self.planned += start.trees
        self._round_scores = self._scores.copy()
        self._of_round: Quantised | None = None  # the derivatives that the trees of a round share
        self.unit, self._sampled = 1.0, np.zeros(self._count, dtype=bool)
        self._watch = params.watch()
        self._best_scores: Floats | None = None  # those after the best round
        self.metrics: dict[str, float] = {}
        self.history: list[dict[str, float]] = []

    @property
    def records(self) -> int:
        """The number of records that have scores: of the training, and further ones."""
        return len(self._labels)

    @property
    def stopped(self) -> bool:
        """True if no further round is to follow, whatever is planned."""
        return self._watch.stopped

    @property
    def best_round(self) -> int | None:
        return self._watch.best_round

    def outputs(self, tree: int) -> tuple[int, ...]:
        """The columns of the score that a tree adds to."""
        first = (tree % self.trees_per_round) * self._width
        return tuple(range(first, first + self._width))

    def derivatives(self, tree: int) -> tuple[Ints, float, Bools]:
        """Summands (g_0.., h_0.., 1) of the training's records, zero if not sampled; the scale of g; the sample."""
        columns, n, params = list(self.outputs(tree)), self._count, self._params
        quantised = self._of_round
        if quantised is None:
            labels, weights = self._labels[:n], None if self._weights is None else self._weights[:n]
            scores, learned = self._round_scores[:n], self._parts[TRAIN][:n]
            if self.loss.objective == COX:  # those set aside are at no risk
                derivatives = np.zeros_like(scores), np.zeros_like(scores)
                for all_of, own in zip(derivatives, self.loss.gradients(scores[learned], labels[learned]), strict=True):
                    all_of[learned] = own
            else:
                derivatives = self.loss.gradients(scores, labels)
            quantised = self.loss.quantise(*derivatives, params.factors(labels, weights), params.least_unit(n))
            self.unit = quantised.unit
        self._of_round = quantised if self.trees_per_round > 1 else None
        sampled = self._sampled = sampling.rows(params.seed, tree, n, params.subsample, eligible=self._parts[TRAIN][:n])
        one = np.ones((n, 1), dtype=np.int64)
        values = np.concatenate([quantised.g[:, columns], quantised.h[:, columns], one], axis=1)
        values[~sampled] = 0
        return values, quantised.scale, sampled

    @property
    def of_records(self) -> Callable[[Ints], Floats] | None:
        """The value (1,) of a leaf by its records, of the tree whose derivatives were the last; None: by their sums."""
        loss, rate = self.loss, self._params.learning_rate
        if not isinstance(loss, QuantileError):
            return None

        def value(rows: Ints) -> Floats:
            drawn = rows[rows < self._count]
            drawn = drawn[self._sampled[drawn]]
            weights = None if self._weights is None else self._weights[drawn]
            return np.array([loss.quantile(self._labels[drawn] - self._round_scores[drawn, 0], weights) * rate])

        return value

    def add(self, tree: Tree, values: Floats) -> None:
        """Add a finished tree's values (N, outputs); after a round, see whether it is the best one."""
        self._scores[:, list(tree.outputs)] += values
        self.trees += 1
        self.metrics = self._metrics(self._scores, self._labels) if self.ends_a_round else {}
        if not self.ends_a_round:
            return
        self.history.append(self.metrics)
        self._round_scores, self._of_round = self._scores.copy(), None
        if self._watch.rounds is None:
            return
        last = list(self._parts)[-1]
        if self._watch.take(self.trees // self.trees_per_round - 1, self.watched(last)):
            self._best_scores = self._scores.copy()

    @property
    def ends_a_round(self) -> bool:
        """True if the last tree was the last of its round."""
        return self.trees % self.trees_per_round == 0

    def watched(self, part: str) -> float:
        """The loss on a part of the records after the last tree, by which the best round is found."""
        return self.loss.watched(self._scores[self._parts[part]], *self._of_part(part))

    def measured(self, labels: Labels | None = None) -> dict[str, float]:
        """Metrics of each part of the records by the trees up to the best round.

        `labels` (N,): others than those of the training.
        """
        scores = self._scores if self._best_scores is None else self._best_scores
        return self._metrics(scores, self._labels if labels is None else labels)

    def continuation(self) -> Floats:
        """The scores (N, outputs) of the training's records after all trees, from which XGBoost continues too."""
        return self._scores[: self._count]

    def state(self) -> dict[str, Array]:
        """All that changes from tree to tree as arrays, by name."""
        best = {} if self._best_scores is None else {"best_scores": self._best_scores}
        scores = {"scores": self._scores, "round_scores": self._round_scores, **best}
        return {"trees": np.array(self.trees), **scores, **self._watch.state()}

    def load(self, arrays: dict[str, Array]) -> None:
        """Continue from a state that `state` has returned.

        Raises:
            DataError: it is of other records.
        """
        _check_same_records(self._scores, arrays["scores"])
        self.trees = int(arrays["trees"])
        self._scores, self._round_scores = arrays["scores"], arrays["round_scores"]
        self._best_scores = arrays.get("best_scores")
        self._watch.load(arrays)

    def _metrics(self, scores: Floats, labels: Labels) -> dict[str, float]:
        metrics = {}
        for name, rows in self._parts.items():
            if rows.any():
                of_part = self.loss.metric(scores[rows], labels[rows], self._of_part(name)[1])
                metrics.update({f"{name}_{key}": value for key, value in of_part.items()})
        return metrics

    def _of_part(self, part: str) -> tuple[Labels, Weights]:
        """The labels and weights of a part of the records; None: records have no weights."""
        rows = self._parts[part]
        return self._labels[rows], None if self._weights is None else self._weights[rows]

    def used(self, trees: list[Tree]) -> list[Tree]:
        """The trees that predictions use."""
        return trees if self.best_round is None else trees[: (self.best_round + 1) * self.trees_per_round]

    def summary(self) -> dict[str, Any]:
        """The part of the model's manifest beside trees and columns."""
        return {
            "objective": self._params.objective,
            "base_margin": self.base_margin.tolist(),
            "trees_per_round": self.trees_per_round,
            "best_round": self.best_round,
            "params": self._params.to_dict(),
            **({"weighted": True} if self._weights is not None else {}),
            "training_metrics": finite(self.measured()),
        }


def check_weights(weights: Floats, labels: Labels, params: BoostingParams, training: Bools) -> None:
    """Check weights of the records of a job, with their labels (N,); 0 leaves a record out of sums, as in XGBoost.

    `training`: the records (N,) that are not set aside.

    Raises:
        DataError: one is no finite number from 0 to `max_sample_weight`, or all records to train on, or all of the
            validation share, have 0; or targets and weights are so large that sums of squares overflow.
    """
    if not ((weights >= 0) & (weights <= params.max_sample_weight)).all():
        raise DataError(
            f"sample weights must be numbers from 0 to max_sample_weight = {params.max_sample_weight:g} of the job"
        )
    for rows, what in ((training, "to train on"), (~training, "of the validation share")):
        if rows.any() and not weights[rows].any():
            raise DataError(f"all records {what} have sample weight 0")
    sized = params.objective in REGRESSIONS and params.objective not in SURVIVAL
    if sized and np.abs(labels).max() * max(1.0, weights.max()) > LARGEST_TARGET:
        raise DataError(f"targets times sample weights must not exceed {LARGEST_TARGET:g}")


def _padded(rows: Bools, records: int) -> Bools:
    """A mask over the training's records as one over all records, further ones left out."""
    return np.concatenate([rows, np.zeros(records - len(rows), dtype=bool)])


def _joined(labels: Labels, weights: Weights, further: Labels, of_further: Weights) -> tuple[Labels, Weights]:
    """Labels and weights of the training's records and of further ones; where some have no weights, these are 1."""
    joined = np.concatenate([labels, further])
    if weights is None and of_further is None:
        return joined, None
    both = ((weights, len(labels)), (of_further, len(further)))
    return joined, np.concatenate([np.ones(count) if own is None else own for own, count in both])


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
        _check_same_records(self._sums, arrays["sums"])
        self.trees, self._sums = int(arrays["trees"]), arrays["sums"]
        self._out_of_bag, self._left_out = arrays["out_of_bag"], arrays["left_out"]


def _check_same_records(own: Array, stored: Array) -> None:
    """`DataError` for the state of another table."""
    if len(stored) != len(own):
        raise DataError(
            f"the table has {len(own)} records, the interrupted job had {len(stored)}: "
            "restore that table, or cancel the job and train again"
        )

"""The trainer on a joined table: the federation must equal it, node for node; demo and experiments compare with it.

Parties are named, because columns are sampled per party and ties go to the lowest one: the label holder first, then the
feature parties in the job's order.

A round: (1) derivatives of all outputs at the scores of the round's start; (2) each tree of the round is grown level by
level on its own sample of records; (3) scores of all records, unsampled and validation ones too, are updated at the
round's end; (4) with early stopping the validation loss decides whether another round follows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from treetap.errors import ConfigError, DataError
from treetap.trees import sampling
from treetap.trees.binning import BinnedTable, FeatureBins
from treetap.trees.boosting_criterion import BoostingCriterion
from treetap.trees.candidates import Candidate, column_goes_left
from treetap.trees.ensemble import Ensemble, Importance, Split, Tree, importance, route
from treetap.trees.grower import Entry, GrownTree, grown
from treetap.trees.growing_tree import GrowingTree
from treetap.trees.local_values import reached_values
from treetap.trees.loss import Loss, check_sums, loss_for
from treetap.trees.missing_party import scores_without
from treetap.trees.params import BoostingParams, TreeParams
from treetap.trees.record_weights import check_weights
from treetap.trees.tree_bins import GlobalBins
from treetap.trees.withholding import NOTHING, Withholding

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Tables = Sequence[tuple[str, BinnedTable]]
Labels = npt.NDArray[Any]


class CentralTrees(Protocol):
    """A model trained on the joined table, with all parties' split tables."""

    @property
    def ensemble(self) -> Ensemble:
        """The trees."""
        ...

    @property
    def params(self) -> TreeParams:
        """The parameters of its training."""
        ...

    @property
    def divisible(self) -> tuple[frozenset[int], ...]:
        """Per tree, the nodes that the stopping rules would let split."""
        ...

    def entry(self, split: Split) -> Entry:
        """Candidate and threshold of a split."""
        ...


@dataclass(frozen=True)
class CentralModel:
    """A model with all parties' split tables: `splits[owner][handle]` is the candidate, by the owner's own column.

    `thresholds[owner][handle]` is the value below which a record goes left; `divisible` names, per tree, the nodes that
    the stopping rules would let split.
    """

    ensemble: Ensemble
    params: BoostingParams
    splits: dict[str, list[Candidate]]
    thresholds: dict[str, list[float]]
    history: tuple[dict[str, float], ...]
    divisible: tuple[frozenset[int], ...]

    def entry(self, split: Split) -> Entry:
        """Candidate and threshold of a split."""
        return self.splits[split.owner][split.handle], self.thresholds[split.owner][split.handle]

    def predict(self, tables: Tables) -> Floats:
        """Scores (N, outputs) of records encoded in the training bins, tables by party name."""
        n, goes_left = self._router(tables)
        trees = self.ensemble.used_trees
        values = (reached_values(tree, route(tree.splits, n, goes_left), goes_left) for tree in trees)
        return self.ensemble.summed(values, n)

    def predict_without(self, tables: Tables, away: Collection[str]) -> tuple[Floats, Floats]:
        """Scores (N, outputs) without the parties that are `away`, and the share of each path that was guessed (N,)."""
        n, goes_left = self._router(tables)
        return scores_without(self.ensemble, n, goes_left, away)

    def _router(self, tables: Tables) -> tuple[int, Callable[[Split, npt.NDArray[Any]], Bools]]:
        """N, and the records that go left at a split."""
        codes = {name: table.codes for name, table in tables}
        n_bins = {name: [feature.n_bins for feature in table.features] for name, table in tables}
        n = len(next(iter(codes.values())))

        def goes_left(split: Split, rows: npt.NDArray[Any]) -> Bools:
            candidate = self.splits[split.owner][split.handle]
            column = codes[split.owner][rows, candidate.feature]
            return column_goes_left(column, candidate, n_bins[split.owner][candidate.feature])

        return n, goes_left

    def predict_proba(self, tables: Tables) -> Floats:
        """Probabilities (N,) or (N, C), or values (N,) for regression."""
        return loss_for(self.ensemble.objective, self.ensemble.classes).transform(self.predict(tables))

    def importance(self, names: dict[str, Sequence[str]]) -> dict[str, Importance]:
        """XGBoost's importances by feature name; `names[party]` names that party's columns."""
        return importance(self.ensemble.used_trees, lambda s: names[s.owner][self.splits[s.owner][s.handle].feature])


def train(
    tables: Tables,
    labels: Labels,
    params: BoostingParams,
    classes: int | None = None,
    withholding: Withholding = NOTHING,
    weights: Floats | None = None,
    base: CentralModel | None = None,
) -> CentralModel:
    """Train on the parties' tables, given in tie order, and labels (N,).

    `classes` defaults to the largest label plus one (softmax). `withholding`: by the first party. `weights`: of the
    records (N,). `base`: a model of the same parties and bins from which training continues, with all of its trees.
    Raises ConfigError, or DataError if tables, labels, weights and base do not fit together.
    """
    params.validate()
    withholding.check_leaves(params.max_leaves)
    y = np.asarray(labels)
    n = len(y)
    for name, table in tables:
        if len(table.codes) != n:
            raise DataError(f"party {name!r} has {len(table.codes)} records, the labels {n}")
    if classes is None:
        classes = int(y.max()) + 1 if params.objective == "multi:softprob" else 2
    loss = loss_for(params.objective, classes)
    loss.check(y)
    check_sums(params.objective, n, params.largest_factor)
    if weights is not None:
        check_weights(weights, y, params)
    if any(table.directions is not None for _, table in tables):
        params.check_monotone()
    training = params.training_rows(n)
    splits: dict[str, list[Entry]] = {name: [] for name, _ in tables} if base is None else _continued(base, tables)
    job = _Job(tables, y, weights, params, classes, loss, training, withholding, splits)

    if base is None:
        margin = loss.base_margin(params.base_score, y[training], job.weights_of(training))
        scores = np.tile(margin, (n, 1))
    else:
        margin, scores = np.array(base.ensemble.base_margin), _unstopped(base).predict(tables)
    trees: list[Tree] = [] if base is None else list(base.ensemble.trees)
    divisible: list[frozenset[int]] = [] if base is None else list(base.divisible)
    history: list[dict[str, float]] = [] if base is None else list(base.history)
    best_round: int | None = None
    for round_number in range(len(history), len(history) + params.n_estimators):
        for made, nodes in _round(job, scores, len(trees)):
            scores[:, list(made.tree.outputs)] += made.values
            trees.append(made.tree)
            divisible.append(nodes)
        history.append({"training": loss.watched(scores[training], y[training], job.weights_of(training))})
        if params.early_stopping_rounds is not None:
            history[-1]["validation"] = loss.watched(scores[~training], y[~training], job.weights_of(~training))
            if best_round is None or history[-1]["validation"] < history[best_round]["validation"]:
                best_round = round_number
            elif round_number - best_round >= params.early_stopping_rounds:
                break
    ensemble = Ensemble(
        objective=params.objective,
        classes=classes,
        base_margin=tuple(float(value) for value in margin),
        trees=tuple(trees),
        trees_per_round=params.trees_per_round(classes),
        best_round=best_round,
    )
    candidates = {name: [candidate for candidate, _ in entries] for name, entries in job.splits.items()}
    thresholds = {name: [cut for _, cut in entries] for name, entries in job.splits.items()}
    return CentralModel(ensemble, params, candidates, thresholds, tuple(history), tuple(divisible))


def _unstopped(model: CentralModel) -> CentralModel:
    """The model with all trees in use, as XGBoost continues it."""
    return replace(model, ensemble=replace(model.ensemble, best_round=None))


def _continued(base: CentralModel, tables: Tables) -> dict[str, list[Entry]]:
    """The splits of the base model; `ConfigError` unless they are cuts of these bins."""
    binned = dict(tables)
    found: dict[str, list[Entry]] = {}
    for name, candidates in base.splits.items():
        found[name] = list(zip(candidates, base.thresholds[name], strict=True))
        features = binned[name].features if name in binned else ()
        if not all(
            each.feature < len(features) and _is_cut(each, at, features[each.feature]) for each, at in found[name]
        ):
            raise ConfigError("the base model was trained on other bins")
    return {**{name: [] for name in binned}, **found}


def _is_cut(candidate: Candidate, threshold: float, feature: FeatureBins) -> bool:
    """True if a split at this threshold, or of these categories, is one of a column's bins."""
    if candidate.right is not None:
        return max(candidate.right) < feature.categories
    if candidate.bin < 0:  # missing values alone on the left, as monotone constraints allow
        return feature.has_missing and not feature.categories and threshold == -math.inf
    cuts = (*feature.cuts, math.inf)
    return not feature.categories and candidate.bin < len(cuts) and bool(cuts[candidate.bin] == threshold)


@dataclass(frozen=True)
class _Job:
    """The state that trees share; only `splits` grows."""

    tables: Tables
    labels: Labels
    weights: Floats | None
    params: BoostingParams
    classes: int
    loss: Loss
    training: Bools
    withholding: Withholding
    splits: dict[str, list[Entry]]

    def weights_of(self, rows: Bools) -> Floats | None:
        """The weights of some records; None: records have none."""
        return None if self.weights is None else self.weights[rows]


def _round(job: _Job, scores: Floats, first_tree: int) -> list[tuple[GrownTree, frozenset[int]]]:
    """The trees of one round, each with its divisible nodes."""
    factors = job.params.factors(job.labels, job.weights)
    quantised = job.loss.quantise(*job.loss.gradients(scores, job.labels), factors)
    one = np.ones((len(scores), 1), dtype=np.int64)
    params = job.params
    width = params.outputs_per_tree(job.classes)
    criterion = BoostingCriterion(quantised.scale, params)
    trees = []
    for k in range(params.trees_per_round(job.classes)):
        index, outputs = first_tree + k, tuple(range(k * width, (k + 1) * width))
        values = np.concatenate([quantised.g[:, outputs], quantised.h[:, outputs], one], axis=1)
        sampled = sampling.rows(params.seed, index, len(values), params.subsample, job.training)
        values[~sampled] = 0
        values, limit = job.withholding.counted(values, job.labels, job.classes, sampled)
        bins = []
        for name, table in job.tables:
            if not params.takes_part(index, name):
                continue
            kept = sampling.columns(params.seed, index, name, len(table.features), params.colsample_bytree)
            bins.append((name, GlobalBins(table, kept)))
        alone = job.withholding.grows_alone(index)
        tree = GrowingTree(values, criterion, params.expansion, subtract=True, limit=limit, alone=alone)
        trees.append((grown(tree, bins[:1] if alone else bins, job.splits, index, outputs), tree.divisible))
    return trees

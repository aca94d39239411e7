"""The trainer on a joined table: the federation must equal it, node for node; demo and experiments compare with it.

Parties are named, because columns are sampled per party and ties go to the lowest one: the label holder first, then the
feature parties in the job's order.

A round: (1) derivatives of all outputs at the scores of the round's start; (2) each tree of the round is grown on its
own sample of records; (3) scores of all records, unsampled and validation ones too, are updated; (4) with early
stopping the validation loss decides whether another round follows. See `treetap.trees.boosting_rounds`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from treetap.arrays import Array, Bools, Floats
from treetap.errors import ConfigError, DataError
from treetap.trees.binning import BinnedTable, FeatureBins
from treetap.trees.boosting_criterion import BoostingCriterion
from treetap.trees.boosting_rounds import TRAIN, VALIDATION, BoostingRounds, Start
from treetap.trees.candidates import Candidate, column_goes_left
from treetap.trees.cell_merging import bins_of
from treetap.trees.ensemble import Ensemble, Split, Tree
from treetap.trees.grower import CentralTrees, Entry, grown
from treetap.trees.growing_tree import GrowingTree, with_zeros
from treetap.trees.loss import check_sums, loss_for
from treetap.trees.missing_party import scores_without
from treetap.trees.noised_sums import NoisedParty
from treetap.trees.params import BoostingParams
from treetap.trees.withholding import NOTHING, Withholding

Tables = Sequence[tuple[str, BinnedTable]]
Labels = Array


@dataclass(frozen=True)
class CentralModel(CentralTrees):
    """A boosted model, and the losses after each round, by part of the records."""

    params: BoostingParams
    history: tuple[dict[str, float], ...]

    def predict(self, tables: Tables) -> Floats:
        """Scores (N, outputs) of records encoded in the training bins, tables by party name."""
        return self.scores(*self._router(tables))

    def predict_without(self, tables: Tables, away: Collection[str]) -> tuple[Floats, Floats]:
        """Scores (N, outputs) without the parties that are `away`, and the share of each path that was guessed (N,)."""
        n, goes_left = self._router(tables)
        return scores_without(self.ensemble, n, goes_left, away)

    def _router(self, tables: Tables) -> tuple[int, Callable[[Split, Array], Bools]]:
        """N, and the records that go left at a split."""
        codes = {name: table.codes for name, table in tables}
        n_bins = {name: [feature.n_bins for feature in table.features] for name, table in tables}
        n = len(next(iter(codes.values())))

        def goes_left(split: Split, rows: Array) -> Bools:
            candidate, _ = self.entry(split)
            column = codes[split.owner][rows, candidate.feature]
            return column_goes_left(column, candidate, n_bins[split.owner][candidate.feature])

        return n, goes_left


def train(
    tables: Tables,
    labels: Labels,
    params: BoostingParams,
    classes: int | None = None,
    withholding: Withholding = NOTHING,
    weights: Floats | None = None,
    base: CentralModel | None = None,
    min_cell_records: Mapping[str, int] | None = None,
    rounds: BoostingRounds | None = None,
    noised: Mapping[str, NoisedParty] | None = None,
) -> CentralModel:
    """Train on the parties' tables, given in tie order, and labels (N,).

    `classes` defaults to the largest label plus one (softmax). `withholding`: by the first party. `weights`: of the
    records (N,). `base`: a model of the same parties and bins from which training continues, with all of its trees.
    `min_cell_records`: of feature parties, by name; the first party's own columns need none. `rounds`: those of the
    training, of these labels and weights, before its first tree; if they measure further records, these are behind
    those of the labels in all tables. `noised`: feature parties whose sums have noise, which is drawn elsewhere.
    Raises ConfigError, or DataError if tables, labels, weights and base do not fit together.
    """
    params.validate()
    withholding.check_leaves(params.max_leaves)
    y = np.asarray(labels)
    n = len(y)
    total = n if rounds is None else rounds.records
    for name, table in tables:
        if len(table.codes) != total:
            raise DataError(f"party {name!r} has {len(table.codes)} records, the labels {total}")
    if classes is None:
        classes = int(y.max()) + 1 if params.objective == "multi:softprob" else 2
    loss_for(params.objective, classes).check(y)
    check_sums(params.objective, n, params.largest_factor)
    least = min_cell_records or {}
    splits: dict[str, list[Entry]] = {name: [] for name, _ in tables} if base is None else _continued(base, tables)
    if rounds is None:
        rounds = BoostingRounds(params, classes, y, weights, start=None if base is None else _start(base, tables))
    trees: list[Tree] = [] if base is None else list(base.ensemble.trees)
    divisible: list[frozenset[int]] = [] if base is None else list(base.divisible)
    history: list[dict[str, float]] = [] if base is None else list(base.history)
    while rounds.trees < rounds.planned and not rounds.stopped:
        index, outputs = rounds.trees, rounds.outputs(rounds.trees)
        values, scale, sampled = rounds.derivatives(index)
        values, limit = withholding.counted(values, y, classes, sampled)
        # Parties are in tie order: the first is the label holder, whose columns such a tree has alone.
        alone = withholding.grows_alone(index)
        bins = [
            (name, bins_of(table, params.columns(index, name, len(table.features)), least.get(name, 0)))
            for name, table in tables
            if params.takes_part(index, name)
        ]
        criterion = BoostingCriterion(scale, params)
        subtract = all(own.additive for _, own in bins)
        values = with_zeros(values, total)
        tree = GrowingTree(values, criterion, params.expansion, subtract=subtract, limit=limit, alone=alone)
        for place, (name, _) in enumerate([] if alone else bins):
            if noised is not None and name in noised:
                tree.expect_noise(place, noised[name].noise, partial(noised[name].drawn, index))
        finished, added = grown(tree, bins[:1] if alone else bins, splits, index, outputs)
        rounds.add(finished, added)
        trees.append(finished)
        divisible.append(tree.divisible)
        # All trees of a round are grown at the scores of its start, so losses are of whole rounds.
        if rounds.ends_a_round:
            set_aside = params.sets_aside and total == n  # else further records are watched
            losses = {"training": TRAIN, "validation": VALIDATION} if set_aside else {"training": TRAIN}
            history.append({name: rounds.watched(part) for name, part in losses.items()})
    ensemble = Ensemble(
        objective=params.objective,
        classes=classes,
        base_margin=tuple(rounds.base_margin.tolist()),
        trees=tuple(trees),
        trees_per_round=params.trees_per_round(classes),
        best_round=rounds.best_round,
    )
    return CentralModel(ensemble, params, splits, tuple(divisible), tuple(history))


def _start(model: CentralModel, tables: Tables) -> Start:
    """The beginning of a training that continues from a model, with all trees in use, as in XGBoost."""
    whole = replace(model, ensemble=replace(model.ensemble, best_round=None))
    return Start(len(whole.ensemble.trees), np.array(whole.ensemble.base_margin), whole.predict(tables))


def _continued(base: CentralModel, tables: Tables) -> dict[str, list[Entry]]:
    """The splits of the base model; `ConfigError` unless they are cuts of these bins."""
    binned = dict(tables)
    for name, entries in base.splits.items():
        features = binned[name].features if name in binned else ()
        if not all(
            candidate.feature < len(features) and _is_cut(candidate, at, features[candidate.feature])
            for candidate, at in entries
        ):
            raise ConfigError("the model to continue from was trained on other bins")
    return {**{name: [] for name in binned}, **{name: list(entries) for name, entries in base.splits.items()}}


def _is_cut(candidate: Candidate, threshold: float, feature: FeatureBins) -> bool:
    """True if a split at this threshold, or of these categories, is one of a column's bins."""
    if candidate.right is not None:
        return max(candidate.right) < feature.categories
    if candidate.bin < 0:  # missing values alone on the left, as monotone constraints allow
        return feature.has_missing and not feature.categories and threshold == -math.inf
    cuts = (*feature.cuts, math.inf)
    return not feature.categories and candidate.bin < len(cuts) and bool(cuts[candidate.bin] == threshold)

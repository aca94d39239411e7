"""The trainer on a joined table: what the federation must equal, node for node, and what demo and experiments compare.

Parties are named, because columns are sampled per party and ties go to the lowest one: the label holder first, then the
feature parties in the job's order.

A round: (1) derivatives of all outputs at the scores of the round's start; (2) each tree of the round is grown level by
level on its own sample of records; (3) scores of all records, unsampled and validation ones too, are updated at the
round's end; (4) with early stopping the validation loss decides whether another round follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from treetap.errors import DataError
from treetap.trees import gain, sampling
from treetap.trees.binning import BinnedTable
from treetap.trees.candidates import Candidate, CandidateList, column_goes_left
from treetap.trees.ensemble import Ensemble, Importance, Leaf, Split, Tree, importance, route
from treetap.trees.histogram import left_sums
from treetap.trees.loss import Loss, loss_for
from treetap.trees.params import BoostingParams

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Tables = Sequence[tuple[str, BinnedTable]]
Labels = npt.NDArray[Any]


@dataclass(frozen=True)
class CentralModel:
    """A model whose split tables lie open: `splits[owner][handle]` is the candidate, by the owner's own column."""

    ensemble: Ensemble
    params: BoostingParams
    splits: dict[str, list[Candidate]]
    history: tuple[dict[str, float], ...]

    def predict(self, tables: Tables) -> Floats:
        """Scores (N, outputs) of records encoded in the training bins, tables by party name."""
        codes = {name: table.codes for name, table in tables}
        n_bins = {name: [feature.n_bins for feature in table.features] for name, table in tables}
        n = len(next(iter(codes.values())))

        def goes_left(split: Split, rows: Ints) -> Bools:
            candidate = self.splits[split.owner][split.handle]
            column = codes[split.owner][rows, candidate.feature]
            return column_goes_left(column, candidate, n_bins[split.owner][candidate.feature])

        return self.ensemble.scores((route(tree, n, goes_left) for tree in self.ensemble.used_trees), n)

    def predict_proba(self, tables: Tables) -> Floats:
        """Probabilities (N,) or (N, C), or values (N,) for regression."""
        return loss_for(self.ensemble.objective, self.ensemble.classes).transform(self.predict(tables))

    def importance(self, names: dict[str, Sequence[str]]) -> dict[str, Importance]:
        """XGBoost's importances by feature name; `names[party]` names that party's columns."""
        return importance(self.ensemble.used_trees, lambda s: names[s.owner][self.splits[s.owner][s.handle].feature])


def train(tables: Tables, labels: Labels, params: BoostingParams, classes: int | None = None) -> CentralModel:
    """Train on the parties' tables, given in tie order, and labels (N,).

    `classes` defaults to the largest label plus one (softmax). Raises ConfigError, or DataError if tables and labels do
    not fit together.
    """
    params.validate()
    y = np.asarray(labels)
    n = len(y)
    for name, table in tables:
        if len(table.codes) != n:
            raise DataError(f"party {name!r} has {len(table.codes)} records, the labels {n}")
    if classes is None:
        classes = int(y.max()) + 1 if params.objective == "multi:softprob" else 2
    loss = loss_for(params.objective, classes)
    loss.check(y)
    training = np.ones(n, dtype=bool)
    if params.early_stopping_rounds is not None:
        training = ~sampling.validation_rows(params.seed, n, params.validation_share)
    job = _Job(tables, y, params, classes, loss, training, {name: [] for name, _ in tables})

    base = loss.base_margin(params.base_score, y[training])
    scores = np.tile(base, (n, 1))
    trees: list[Tree] = []
    history: list[dict[str, float]] = []
    best_round: int | None = None
    for round_number in range(params.n_estimators):
        for tree, reached in _round(job, scores, len(trees)):
            scores[:, list(tree.outputs)] += tree.values(reached)
            trees.append(tree)
        history.append({"training": loss.watched(scores[training], y[training])})
        if params.early_stopping_rounds is not None:
            history[-1]["validation"] = loss.watched(scores[~training], y[~training])
            if best_round is None or history[-1]["validation"] < history[best_round]["validation"]:
                best_round = round_number
            elif round_number - best_round >= params.early_stopping_rounds:
                break
    ensemble = Ensemble(
        objective=params.objective,
        classes=classes,
        base_margin=tuple(float(value) for value in base),
        trees=tuple(trees),
        trees_per_round=params.trees_per_round(classes),
        best_round=best_round,
    )
    return CentralModel(ensemble, params, job.splits, tuple(history))


@dataclass(frozen=True)
class _Job:
    """What stays the same from tree to tree; `splits` is the one thing that grows."""

    tables: Tables
    labels: Labels
    params: BoostingParams
    classes: int
    loss: Loss
    training: Bools
    splits: dict[str, list[Candidate]]


def _round(job: _Job, scores: Floats, first_tree: int) -> list[tuple[Tree, Ints]]:
    """The trees of one round, each with the leaf that every record reached (N,)."""
    quantised = job.loss.quantise(*job.loss.gradients(scores, job.labels))
    one = np.ones((len(scores), 1), dtype=np.int64)
    width = job.params.outputs_per_tree(job.classes)
    grown = []
    for k in range(job.params.trees_per_round(job.classes)):
        outputs = tuple(range(k * width, (k + 1) * width))
        values = np.concatenate([quantised.g[:, outputs], quantised.h[:, outputs], one], axis=1)
        grown.append(_Grower(job, first_tree + k, values, quantised.scale).grow(outputs))
    return grown


class _Grower:
    """Grows tree number `tree`, level by level.

    State per node of the frontier: `members` all its records, `sums` over its sampled records, `lefts` the left sums of
    every candidate, party by party. A sibling's sums come by subtraction, which integers make exact.
    """

    def __init__(self, job: _Job, tree: int, values: Ints, scale: float) -> None:
        params = job.params
        self.tree, self.values, self.scale, self.params, self.splits = tree, values, scale, params, job.splits
        self.sampled = sampling.rows(params.seed, tree, len(values), params.subsample, job.training)
        self.names = [name for name, _ in job.tables]
        self.columns: list[Ints] = []
        self.codes: list[npt.NDArray[np.int32]] = []
        self.candidates: list[CandidateList] = []
        for name, table in job.tables:
            kept = sampling.columns(params.seed, tree, name, len(table.features), params.colsample_bytree)
            self.columns.append(kept)
            self.codes.append(table.codes[:, kept])
            self.candidates.append(CandidateList([table.shapes[j] for j in kept]))
        self.members: dict[int, Ints] = {1: np.arange(len(values))}
        self.sums: dict[int, Ints] = {1: values[self.sampled].sum(axis=0)}
        self.lefts: dict[int, list[Ints]] = {1: [part[0] for part in self._count([self.members[1]])]}

    def grow(self, outputs: tuple[int, ...]) -> tuple[Tree, Ints]:
        """The tree and the leaf that every record reached (N,)."""
        reached = np.ones(len(self.values), dtype=np.int64)
        splits: list[Split] = []
        leaves: list[Leaf] = []
        frontier = [1]
        for depth in range(self.params.max_depth + 1):
            chosen = self._choose(frontier) if frontier and depth < self.params.max_depth else {}
            for node in frontier:
                cover = float(gain.cover(self.sums[node]))
                if node in chosen:
                    party, k, change = chosen[node]
                    splits.append(Split(node, self.names[party], self._file(party, k), change, cover))
                    self._divide(node, party, k)
                    for child in (2 * node, 2 * node + 1):
                        reached[self.members[child]] = child
                else:
                    weights = gain.leaf_weights(self.sums[node], self.scale, self.params)
                    leaves.append(Leaf(node, tuple(float(w) for w in weights), cover))
            if depth + 1 < self.params.max_depth:
                self._count_children(sorted(chosen))
            frontier = [child for node in sorted(chosen) for child in (2 * node, 2 * node + 1)]
        return Tree(self.tree, outputs, tuple(splits), tuple(leaves)), reached

    def _count(self, nodes: Sequence[Ints]) -> list[Ints]:
        """Per party the left sums (nodes, candidates, slots) over the sampled ones of these records."""
        rows = [node[self.sampled[node]] for node in nodes]
        return [
            left_sums(codes, candidates, self.values, rows)
            for codes, candidates in zip(self.codes, self.candidates, strict=True)
        ]

    def _choose(self, frontier: Sequence[int]) -> dict[int, tuple[int, int, float]]:
        """node → (party, candidate, loss change) for the nodes that split."""
        parents = np.stack([self.sums[node] for node in frontier])
        changes = [
            gain.loss_changes(
                np.stack([self.lefts[node][party] for node in frontier]), parents, self.scale, self.params
            )
            for party in range(len(self.names))
        ]
        chosen: dict[int, tuple[int, int, float]] = {}
        for i, node in enumerate(frontier):
            decision = gain.choose([part[i] for part in changes], self.params)
            if decision is not None:
                party, tied = decision
                chosen[node] = (party, int(tied[0]), float(changes[party][i, tied[0]]))
        return chosen

    def _file(self, party: int, k: int) -> int:
        """Enter candidate k in its owner's split table, by the owner's own column; returns the handle."""
        local = self.candidates[party].at(k)
        table = self.splits[self.names[party]]
        table.append(Candidate(int(self.columns[party][local.feature]), local.bin, local.missing_left))
        return len(table) - 1

    def _divide(self, node: int, party: int, k: int) -> None:
        """Members and sums of the children."""
        rows = self.members.pop(node)
        candidates = self.candidates[party]
        candidate = candidates.at(k)
        column = self.codes[party][rows, candidate.feature]
        left = column_goes_left(column, candidate, candidates.shapes[candidate.feature][0])
        self.members[2 * node], self.members[2 * node + 1] = rows[left], rows[~left]
        self.sums[2 * node] = self.lefts[node][party][k]
        self.sums[2 * node + 1] = self.sums[node] - self.sums[2 * node]

    def _count_children(self, parents: Sequence[int]) -> None:
        """Left sums of the smaller children by counting, of the larger ones by subtraction."""
        small = [2 * node + int(self.sums[2 * node][-1] > self.sums[2 * node + 1][-1]) for node in parents]
        counted = self._count([self.members[child] for child in small])
        for i, (node, child) in enumerate(zip(parents, small, strict=True)):
            whole = self.lefts.pop(node)
            self.lefts[child] = [part[i] for part in counted]
            self.lefts[child ^ 1] = [total - part[i] for total, part in zip(whole, counted, strict=True)]

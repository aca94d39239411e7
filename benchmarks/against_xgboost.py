"""Drawn trainings beside XGBoost's `hist` with a bin for each value: trees are the same, or a rule explains why not.

    python -m tests.campaign xgboost --count 2000 --first 0

A seed draws a frame (`tests.campaign.drawn_frames`), labels, weights and parameters. The frame becomes bins as an
estimator's does, the trainer that a federation equals node for node trains on them, and XGBoost on the places of the
cells among their columns' different ones. Margins of each round agree to 2e-5, of all records with a weight above 0
(values of others have no cut in XGBoost); or the first nodes at which trees part are explained by one of the `RULES`,
with the loss changes in exact sums. What no rule explains is a finding, and the smallest case in which it is still
there is written with both trees.
"""

from __future__ import annotations

import json
import math
import random
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xgboost

from tests.campaign.drawn_frames import Frame, drawn_frame
from tests.xgboost_releases import otherwise
from treetap.errors import TreetapError
from treetap.lab.api import party_tables
from treetap.lab.api.frames import ID, arrow_of
from treetap.lab.experiment.party_tables import read_as_party
from treetap.lab.local_federation import keep_table
from treetap.tables.binned import bin_columns
from treetap.trees.binning import BinnedTable, bin_table
from treetap.trees.boosting_criterion import FREE, LEAST_LOSS_CHANGE, Within, loss_changes, node_weights
from treetap.trees.boosting_rounds import BoostingRounds
from treetap.trees.candidates import column_goes_left
from treetap.trees.centralised import CentralModel, train
from treetap.trees.params import BoostingParams

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
#: Margins that differ by no more are equal, by the size of the largest one where that is above 1.
SAME = 2e-5
#: What XGBoost's 32 bits leave open, as a share: of gains, and of weights.
GAIN_BITS, WEIGHT_BITS = 2e-6, 1e-6
#: Parts of a fixed-point sum below which 32 bits of floating point round.
_FEW_BITS = 2**12
#: Runs that making one case small takes at most.
MOST_RUNS = 150
_SHARED = ("objective", "max_depth", "learning_rate", "reg_lambda", "reg_alpha", "gamma", "min_child_weight",
           "max_delta_step", "max_leaves", "grow_policy", "scale_pos_weight", "max_cat_to_onehot", "max_cat_threshold",
           "multi_strategy", "base_score")  # fmt: skip
#: Differences that are no finding, and the page or the arithmetic that they follow from.
RULES = {
    "tie": "both divisions have one gain within the rounding of 32 bits",
    "threshold": "a loss change or a weight equals its threshold in the reals (docs/xgboost.md)",
    "order of splits": "of two nodes with one loss change the other is split first, and leaves run out",
    "order of categories": "categories have one weight in the reals, which is rounded to either side",
    "direction": "both sides of a constrained split have one weight in the reals",
}


@dataclass(frozen=True)
class Case:
    """A training: places (N, d) of the cells, NaN where missing, and all that goes with them.

    `parties`: the columns of each; `directions`: 1, -1 or 0 of each column.
    """

    X: Floats
    categorical: tuple[bool, ...]
    directions: tuple[int, ...]
    parties: Mapping[str, tuple[int, ...]]
    labels: npt.NDArray[Any]
    weights: Floats | None
    classes: int
    params: BoostingParams

    def without(self, *, column: int | None = None, rows: slice | None = None) -> Case:
        """The same without a column, or without some records."""
        if rows is not None:
            kept = np.delete(np.arange(len(self.X)), rows)
            weights = None if self.weights is None else self.weights[kept]
            return replace(self, X=self.X[kept], labels=self.labels[kept], weights=weights)
        left = [j for j in range(self.X.shape[1]) if j != column]
        parties = {name: tuple(left.index(j) for j in own if j != column) for name, own in self.parties.items()}
        flags = tuple(self.categorical[j] for j in left)
        signs = tuple(self.directions[j] for j in left)
        return replace(self, X=self.X[:, left], categorical=flags, directions=signs, parties=parties)

    def tables(self) -> list[tuple[str, BinnedTable]]:
        """The parties' columns in bins, without a frame."""
        made = []
        for name, own in self.parties.items():
            names = [str(j) for j in own]
            split = [j for j in own if self.categorical[j] and self.params.splits_categories]
            counts = {str(j): int(np.nanmax(self.X[:, j])) + 1 for j in split}
            bins = bin_table(self.X[:, list(own)], names, 4096, may_be_constant=names, categories=counts,
                             max_cat_to_onehot=self.params.max_cat_to_onehot)  # fmt: skip
            made.append((name, replace(bins, directions=self._signs(own))))
        return made

    def _signs(self, own: tuple[int, ...]) -> Ints | None:
        signs = np.array([self.directions[j] for j in own], dtype=np.int64)
        return signs if signs.any() else None


# ---- drawing


def drawn(seed: int) -> tuple[Frame, Case]:
    """The frame of a seed, and the training on it."""
    draw, rng = random.Random(seed), np.random.default_rng(seed)
    n, width = draw.choice((16, 40, 80, 150, 250)), draw.randint(2, 7)
    frame = drawn_frame(draw, n, width)
    columns = list(frame.columns.values())
    X = np.column_stack([column.places for column in columns])
    categorical = tuple(column.categorical for column in columns)
    objective = draw.choice(("binary:logistic", "reg:squarederror", "multi:softprob"))
    params, classes = _params(draw, objective, draw.randint(3, 4) if objective == "multi:softprob" else 2)
    directions = tuple(
        0 if draw.random() < 0.6 or flag or params.multi_strategy != "one_output_per_tree" else draw.choice((1, -1))
        for flag in categorical
    )
    if draw.random() < 0.4:
        directions = (0,) * width
    signal = sum(
        rng.normal(size=int(np.nanmax(column)) + 2)[np.nan_to_num(column, nan=-1).astype(int)] for column in X.T
    )
    signal = signal + rng.normal(size=n)
    if objective == "reg:squarederror":
        labels: Any = signal * 10.0 ** draw.randint(-2, 3)
    else:
        labels = np.minimum((signal.argsort().argsort() * classes) // n, classes - 1)
    weights = None
    if draw.random() < 0.4:
        weights = rng.choice([0.0, 0.25, 1.0, 2.0, 3.5], n) if draw.random() < 0.5 else rng.uniform(0.1, 3, n)
        params = replace(params, max_sample_weight=4.0)
    first = draw.randint(0, width - 1)
    parties = {"a": tuple(range(first)), "b": tuple(range(first, width))}
    return frame, Case(X, categorical, directions, parties, labels, weights, classes, params)


def _params(draw: random.Random, objective: str, classes: int) -> tuple[BoostingParams, int]:
    def maybe(usual: Any, *others: Any) -> Any:
        return draw.choice((usual, usual, *others))

    own: dict[str, Any] = {}
    if objective == "multi:softprob":
        own["multi_strategy"] = maybe("one_output_per_tree", "one_output_per_tree", "multi_output_tree")
    if objective == "binary:logistic":
        own["scale_pos_weight"] = maybe(1.0, 0.3, 2.5)
    base = {"binary:logistic": maybe(0.5, 0.2, 0.8), "reg:squarederror": maybe(None, 0.0, 1.5)}.get(objective, 0.5)
    return BoostingParams(
        objective=objective, n_estimators=draw.randint(1, 4), max_depth=draw.randint(1, 5), max_bin=4096,
        learning_rate=maybe(0.3, 0.1, 1.0), reg_lambda=maybe(1.0, 0.0, 0.1, 5.0), reg_alpha=maybe(0.0, 0.2, 1.0),
        gamma=maybe(0.0, 0.3), min_child_weight=maybe(1.0, 0.0, 0.5, 3.0), max_delta_step=maybe(0.0, 0.0, 0.3),
        max_leaves=maybe(0, 4, 7), grow_policy=draw.choice(("depthwise", "lossguide")), base_score=base,
        max_cat_to_onehot=maybe(4, 1, 8), max_cat_threshold=maybe(64, 3), **own,
    ), classes  # fmt: skip


# ---- from the frame to bins


def read(frame: Frame, case: Case) -> list[tuple[str, BinnedTable]]:
    """The frame as the parties' tables in bins, by the way of an estimator.

    Raises:
        TreetapError: it is refused.
    """
    names, missing = list(frame.columns), frame.missing
    columns = {party: [names[j] for j in own] for party, own in case.parties.items()}
    data = party_tables.of_one(frame.data, arrow_of(frame.data), columns)
    splits = case.params.splits_categories
    encode = dict(frame.encode) | {
        name: "ordinal" for name, it in frame.columns.items() if it.categorical and not splits
    }
    data = party_tables.settled(data, encode, frame.date_format, missing=missing, categorical=splits, has_ids=False)
    made = []
    with tempfile.TemporaryDirectory() as folder:
        for party, records in data.tables.items():
            path = Path(folder) / f"{party}.parquet"
            keep_table(records, path)
            signs = {names[j]: case.directions[j] for j in case.parties[party] if case.directions[j]}
            keys = {"path": str(path), "id": ID, "columns": columns[party], "monotone_constraints": signs}
            table = read_as_party({**keys, **data.keys(party)}, missing)
            made.append((party, bin_columns(table, case.params.max_bin, case.params.one_hot_below)))
    return made


def misread(frame: Frame, case: Case, tables: list[tuple[str, BinnedTable]]) -> list[str]:
    """The columns whose bins are not the places of their cells."""
    found = []
    for party, table in tables:
        for place, j in enumerate(case.parties[party]):
            bins, own = table.features[place].n_bins, case.X[:, j]
            expected = np.where(np.isnan(own), bins, np.nan_to_num(own))
            if not np.array_equal(table.codes[:, place], expected):
                column = list(frame.columns.values())[j]
                found.append(f"{column.kind} as {column.spelling} of {frame.library}")
    return found


# ---- two models


class Recorded(BoostingRounds):
    """Keeps the derivatives (N, 2K+1) and the scale of each tree."""

    def derivatives(self, tree: int) -> Any:
        found = super().derivatives(tree)
        self.kept = [*getattr(self, "kept", []), (np.asarray(found[0]), float(found[1]))]
        return found


class Inner(NamedTuple):
    """A split of the records at a node: those that go left, the column, and the categories that go right."""

    left: Ints
    column: int
    right: frozenset[int] | None


Divided = dict[int, Inner]


@dataclass
class Pair:
    """Both models of one case."""

    case: Case
    tables: list[tuple[str, BinnedTable]]

    def __post_init__(self) -> None:
        case, weights = self.case, self.case.weights
        self.heavy = np.ones(len(case.X), dtype=bool) if weights is None else weights > 0
        self.rounds = Recorded(case.params, case.classes, case.labels, weights)
        self.ours: CentralModel = train(
            self.tables, case.labels, case.params, case.classes, weights=weights, rounds=self.rounds
        )
        settings = {name: getattr(case.params, name) for name in _SHARED}
        settings = {name: value for name, value in settings.items() if value is not None}
        settings |= {"tree_method": "hist", "max_bin": 4096, "nthread": 1, "verbosity": 0}
        settings |= {"num_class": case.classes} if case.params.objective == "multi:softprob" else {}
        settings |= {"monotone_constraints": case.directions} if any(case.directions) else {}
        if case.params.objective != "binary:logistic":
            del settings["scale_pos_weight"]
        splits = case.params.splits_categories
        kinds = ["c" if flag and splits else "q" for flag in case.categorical]
        self.data = xgboost.DMatrix(case.X, case.labels, weight=weights, feature_types=kinds, enable_categorical=True)
        self.theirs = xgboost.train(settings, self.data, case.params.n_estimators)

    def margins(self, rounds: int) -> tuple[Floats, Floats]:
        """Margins (N, outputs) after so many rounds, ours and theirs."""
        trees = self.ours.ensemble.trees[: rounds * self.ours.ensemble.trees_per_round]
        ours = replace(self.ours, ensemble=replace(self.ours.ensemble, trees=trees)).predict(self.tables)
        theirs = self.theirs.predict(self.data, output_margin=True, iteration_range=(0, rounds))
        return ours, np.asarray(theirs, dtype=np.float64).reshape(ours.shape)

    @cached_property
    def apart(self) -> tuple[int, float] | None:
        """The first tree whose margins differ, and the largest difference before its round; None: all agree."""
        before, per_round = 0.0, self.ours.ensemble.trees_per_round
        for number in range(1, self.case.params.n_estimators + 1):
            ours, theirs = self.margins(number)
            gaps = np.abs(ours - theirs)[self.heavy].max(axis=0)
            same = SAME * max(1.0, np.abs(ours).max())
            if gaps.max() > same:
                wrong = int(np.argmax(gaps > same))
                return (number - 1) * per_round + (wrong if per_round > 1 else 0), before
            before = float(gaps.max())
        return None

    def our_tree(self, index: int) -> Divided:
        """The splits of a tree by heap number."""
        tree, tables, found = self.ours.ensemble.trees[index], dict(self.tables), Divided()
        splits, rows = {split.node: split for split in tree.splits}, {1: np.flatnonzero(self.heavy)}
        for node in sorted(splits):
            candidate, _ = self.ours.entry(splits[node])
            owner = splits[node].owner
            codes = tables[owner].codes[rows[node], candidate.feature]
            mask = column_goes_left(codes, candidate, tables[owner].features[candidate.feature].n_bins)
            right = None if candidate.right is None else frozenset(candidate.right)
            found[node] = Inner(rows[node][mask], self.case.parties[owner][candidate.feature], right)
            rows[2 * node], rows[2 * node + 1] = rows[node][mask], rows[node][~mask]
        return found

    def their_tree(self, index: int) -> Divided:
        """The same of XGBoost's."""
        model = json.loads(bytes(self.theirs.save_raw("json")))["learner"]["gradient_booster"]["model"]
        tree, found = model["trees"][index], Divided()
        sets = dict(
            zip(
                tree["categories_nodes"],
                zip(tree["categories_segments"], tree["categories_sizes"], strict=True),
                strict=True,
            )
        )
        waiting = [(0, 1, np.flatnonzero(self.heavy))]
        while waiting:
            place, node, rows = waiting.pop()
            if (left := tree["left_children"][place]) < 0:
                continue
            column, right = tree["split_indices"][place], None
            cells = self.case.X[rows, column]
            if place in sets:
                first, size = sets[place]
                right = frozenset(tree["categories"][first : first + size])
                mask = ~np.isin(cells, list(right))
            else:
                mask = cells < np.float32(tree["split_conditions"][place])
            mask = np.where(np.isnan(cells), bool(tree["default_left"][place]), mask)
            found[node] = Inner(rows[mask], column, right)
            waiting += [(left, 2 * node, rows[mask]), (tree["right_children"][place], 2 * node + 1, rows[~mask])]
        return found


class Part(NamedTuple):
    """A node at which two trees part: its records, the bounds of its weights, both splits or None, and their gains."""

    node: int
    rows: Ints
    within: Within | None
    ours: Inner | None
    theirs: Inner | None
    gains: tuple[float, float]


@dataclass
class Judge:
    """Explains the difference of a pair at its first tree that is another one."""

    pair: Pair

    def __post_init__(self) -> None:
        assert self.pair.apart is not None
        self.index, self.before = self.pair.apart
        self.values, self.scale = self.pair.rounds.kept[self.index]
        self.case, self.params = self.pair.case, self.pair.case.params
        self.parts = list(self._parting(1, np.arange(len(self.case.X)), FREE if any(self.case.directions) else None))

    def verdict(self) -> str:
        """The rules that explain all nodes at which the trees part, or "unexplained"."""
        reasons = [self._reason(part) for part in self.parts]
        if self.params.max_leaves and any(reasons):  # a node is split in the place of one whose split is another
            there = [part.ours is not None and part.theirs is not None for part in self.parts]
            reasons = [it or ("" if both else "order of splits") for it, both in zip(reasons, there, strict=True)]
        return "unexplained" if not reasons or "" in reasons else " and ".join(sorted(set(reasons)))

    def _parting(self, node: int, rows: Ints, within: Within | None) -> Iterator[Part]:
        ours, theirs = self.trees[0].get(node), self.trees[1].get(node)
        if ours is None and theirs is None:
            if self._at_least_weight(rows):  # an output of the leaf has weight 0 or not
                yield Part(node, rows, within, None, None, (0.0, 0.0))
            return
        if (
            ours is None
            or theirs is None
            or set(ours.left) != set(theirs.left)
            or self._bound(ours) != self._bound(theirs)
        ):
            gains = tuple(
                -math.inf if split is None else self._gain(rows, split.left, within) for split in (ours, theirs)
            )
            yield Part(node, rows, within, ours, theirs, gains)  # type: ignore[arg-type]
            return
        left, right = self._bounds(rows, ours, within)
        yield from self._parting(2 * node, ours.left, left)
        yield from self._parting(2 * node + 1, np.setdiff1d(rows, ours.left), right)

    def _bound(self, split: Inner) -> int:
        """The direction by which a split bounds what is below it: of tied columns treetap takes constrained ones."""
        return 0 if split.right is not None else self.case.directions[split.column]

    @cached_property
    def trees(self) -> tuple[Divided, Divided]:
        """Ours and theirs."""
        return self.pair.our_tree(self.index), self.pair.their_tree(self.index)

    def _sums(self, rows: Ints) -> Ints:
        total: Ints = self.values[rows].sum(axis=0)
        return total

    def _gain(self, rows: Ints, left: Ints, within: Within | None) -> float:
        sums = self._sums(left)[None, None], self._sums(rows)[None]
        several = self.values.shape[1] > 3  # where lighter outputs count 0; else a side may be too light by a rounding
        free = self.params if several else replace(self.params, min_child_weight=0.0)
        return float(loss_changes(*sums, self.scale, free, within)[0, 0])

    def _weight(self, rows: Ints, within: Within | None = None) -> Floats:
        return node_weights(self._sums(rows), self.scale, self.params, within)

    def _bounds(self, rows: Ints, split: Inner, within: Within | None) -> tuple[Within | None, Within | None]:
        sign = self._bound(split)
        if within is None or sign == 0:
            return within, within
        sides = (split.left, np.setdiff1d(rows, split.left))
        middle = sum(float(self._weight(side, within)[0]) for side in sides) / 2
        below, above = (within[0], middle), (middle, within[1])
        return (below, above) if sign == 1 else (above, below)

    # ---- the rules

    def _reason(self, part: Part) -> str:
        """The rule by which the trees part at a node; empty: none."""
        splits = [split for split in (part.ours, part.theirs) if split is not None]
        if not splits:
            return "threshold"
        open_ = max(self._rounding(part, split) for split in splits)
        if len(splits) == 2 and abs(part.gains[0] - part.gains[1]) <= open_:
            return "tie"
        best = splits[0] if len(splits) == 1 or part.gains[0] > part.gains[1] else splits[1]
        if self._at_threshold(part, best, open_):
            return "threshold"
        if len(splits) == 1 and self._out_of_leaves(part, open_):
            return "order of splits"
        if best.right is not None and self._categories_tie(part, best):
            return "order of categories"
        if part.within is not None and self.case.directions[best.column]:
            weights = [self._weight(side, part.within)[0] for side in self._sides(part, best)]
            if abs(weights[0] - weights[1]) <= WEIGHT_BITS * (1 + abs(weights[0])) + self.before:
                return "direction"
        return ""

    def _sides(self, part: Part, split: Inner) -> list[Ints]:
        return [split.left, np.setdiff1d(part.rows, split.left)]

    def _rounding(self, part: Part, split: Inner) -> float:
        """The part of a loss change that follows from the rounding of derivatives and of gains."""
        outputs = (self.values.shape[1] - 1) // 2
        total = 0.0
        for side in (part.rows, *self._sides(part, split)):
            weights = np.abs(self._weight(side, part.within))
            g = np.abs(self.values[side, :outputs]).sum(axis=0) * self.scale / 2.0**32
            h = self.values[side, outputs:-1].sum(axis=0) / 2.0**32
            total += float((weights * (GAIN_BITS * (g + h) + self.before * h)).sum())
        return total + GAIN_BITS * LEAST_LOSS_CHANGE

    def _at_threshold(self, part: Part, split: Inner, open_: float) -> bool:
        """Whether a loss change or a side's weight is the least that splits."""
        change = part.gains[0] if split is part.ours else part.gains[1]
        light = any(self._at_least_weight(side) for side in self._sides(part, split))
        return light or min(abs(change - LEAST_LOSS_CHANGE), abs(change - self.params.gamma)) <= open_

    def _at_least_weight(self, rows: Ints) -> bool:
        """Whether the weight of records is `min_child_weight` but for a rounding; sums of few bits have none."""
        least, h = self.params.min_child_weight, self.values[rows, (self.values.shape[1] - 1) // 2 : -1]
        gap = np.abs(h.sum(axis=0) / 2.0**32 - least).min(initial=math.inf)
        return bool(gap <= 1e-5 * max(1.0, least) + self.before and (h % _FEW_BITS).any())

    def _out_of_leaves(self, part: Part, open_: float) -> bool:
        """Whether another node, split in the other tree only, has the same loss change."""
        mine = max(part.gains)
        others = [each for each in self.parts if (each.ours is None) != (part.ours is None)]
        return bool(self.params.max_leaves) and any(abs(max(each.gains) - mine) <= open_ for each in others)

    def _categories_tie(self, part: Part, split: Inner) -> bool:
        """Whether the border of a partition lies between categories whose weights are one within their rounding."""
        cells = self.case.X[part.rows, split.column]
        count = int(np.nanmax(self.case.X[:, split.column])) + 1
        members = [part.rows[cells == code] for code in range(count)]
        if any(self._at_least_weight(rows) for rows in members):
            return True
        weights = np.array([self._weight(rows)[0] for rows in members])
        right = np.isin(np.arange(count), list(split.right or ()))
        rounding = WEIGHT_BITS * (1 + np.abs(weights).max()) + 2 * self.before
        return bool(abs(weights[right].max() - weights[~right].min()) <= rounding)


# ---- a case made small, and told


def unexplained(case: Case) -> bool:
    """True if both models part here and now, and no rule says why."""
    try:
        pair = Pair(case, case.tables())
        return pair.apart is not None and Judge(pair).verdict() == "unexplained"
    except (TreetapError, ValueError, xgboost.core.XGBoostError):  # it is no training any more
        return False


def shrunk(case: Case) -> Case:
    """The smallest case found in which the difference is still unexplained."""
    runs, smaller = 0, True
    while smaller and runs < MOST_RUNS:
        smaller = False
        for candidate in _smaller(case):
            runs += 1
            if runs > MOST_RUNS:
                break
            if unexplained(candidate):
                case, smaller = candidate, True
                break
    return case


def _smaller(case: Case) -> Iterator[Case]:
    n, width = case.X.shape
    if case.params.n_estimators > 1:
        yield replace(case, params=replace(case.params, n_estimators=case.params.n_estimators - 1))
    for column in range(width) if width > 1 else ():
        yield case.without(column=column)
    for size in (n // 2, n // 4, n // 10):
        for first in range(0, n, size) if size > 1 else ():
            yield case.without(rows=slice(first, first + size))


def told(case: Case) -> dict[str, Any]:
    """A case with both trees at the nodes where they part, as plain JSON types."""
    pair = Pair(case, case.tables())
    usual = BoostingParams()
    given = {
        name: value for name, value in vars(case.params).items() if value != getattr(usual, name) and name != "missing"
    }
    content = {"X": case.X, "labels": case.labels, "weights": case.weights}
    plain = {name: None if value is None else np.asarray(value).tolist() for name, value in content.items()}
    found: dict[str, Any] = {"params": given, "directions": case.directions, "categorical": case.categorical, **plain}
    if pair.apart is not None:
        judge = Judge(pair)
        found |= {"tree": judge.index, "trees": [_plain(tree) for tree in judge.trees]}
        found["parts"] = [
            {"node": part.node, "records": part.rows.tolist(), "gains": part.gains} for part in judge.parts
        ]
    return found


def _plain(tree: Divided) -> dict[int, Any]:
    return {
        node: {"column": split.column, "left": split.left.tolist(), "right": split.right and sorted(split.right)}
        for node, split in sorted(tree.items())
    }


def outcome(seed: int) -> tuple[str, Any]:
    """The fate of a seed's training: "equal", a rule's name, or "finding" with what is to be said of it."""
    frame, case = drawn(seed)
    if rule := otherwise(case.params, case.directions, categories=any(case.categorical)):
        return f"of another release: {rule}", None
    found: dict[str, Any] = {}
    try:
        tables = read(frame, case)
        if wrong := misread(frame, case, tables):
            found["misread"], tables = wrong, case.tables()
    except TreetapError as failure:
        spelled = [f"{it.kind} as {it.spelling}" for it in frame.columns.values()]
        found["refused"], tables = {"said": str(failure), "library": frame.library, "columns": spelled}, case.tables()
    pair = Pair(case, tables)
    verdict = "equal" if pair.apart is None else Judge(pair).verdict()
    if verdict == "unexplained":
        found["unexplained"] = told(shrunk(case))
    return ("finding", found) if found else (verdict, None)

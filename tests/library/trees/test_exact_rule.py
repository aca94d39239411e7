"""The integer rule against fractions, the form of it that shared sums compute, and what is not its business."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from treetap.arrays import Floats, Ints
from treetap.trees import exact_rule
from treetap.trees.binning import bin_table
from treetap.trees.boosting_criterion import BoostingCriterion
from treetap.trees.centralised import train
from treetap.trees.exact_rule import ExactRule, NodeBound, sum_bits
from treetap.trees.forest_criterion import ForestCriterion, Targets
from treetap.trees.growing_tree import GrowingTree
from treetap.trees.loss import UNIT
from treetap.trees.params import BoostingParams, ForestParams

#: Most records of a node.
RECORDS = 40
LEAST_LOSS_CHANGE = 1e-6
_BOUNDED = BoostingParams(max_delta_step=1.0)
Winner = tuple[int, list[int]] | None


@dataclass(frozen=True)
class Node:
    """A node, and the left sums (candidates, S) by party."""

    criterion: BoostingCriterion | ForestCriterion
    whole: Ints
    lefts: list[Ints]

    @property
    def rule(self) -> ExactRule:
        """The rule of its tree."""
        found = self.criterion.exact_rule(len(self.whole))
        assert found is not None
        return found

    @property
    def gains(self) -> list[Floats]:
        """By party, in floats."""
        return [self.criterion.gains(left[None], self.whole[None])[0] for left in self.lefts]

    def found(self, parties: int | None = None) -> Winner:
        """The winner among the first parties by the rule."""
        best = self.rule.best(self.gains[:parties], self.lefts[:parties], self.whole)
        return None if best is None else (best[0], best[1].tolist())

    def expected(self) -> Winner:
        """The same by fractions, written out."""
        gains = [[self.gain(left.tolist()) for left in part] for part in self.lefts]
        top = max((gain for part in gains for gain in part if gain is not None), default=None)
        if top is None or not self.kept(top):
            return None
        party = next(number for number, part in enumerate(gains) if top in part)
        return party, [place for place, gain in enumerate(gains[party]) if gain == top]

    def gain(self, left: list[int]) -> Fraction | None:
        """Of a candidate; None: it is not allowed."""
        criterion = self.criterion
        whole: list[int] = self.whole.tolist()
        right = [total - part for total, part in zip(whole, left, strict=True)]
        if isinstance(criterion, ForestCriterion):
            if min(left[-1], right[-1]) < criterion.params.min_samples_leaf:
                return None
            squares = [Fraction(sum(v * v for v in part[:-1]), part[-1]) for part in (left, right, whole)]
            return (squares[0] + squares[1] - squares[2]) / (whole[-1] * criterion.targets.largest**2)
        lightest = min(left[1], right[1])
        if lightest < 1 or lightest < Fraction(criterion.params.min_child_weight) * UNIT:
            return None
        penalty = max(1, round(Fraction(criterion.params.reg_lambda) * UNIT))
        squares = [Fraction(g * g, h + penalty) for g, h, _ in (left, right, whole)]
        return (squares[0] + squares[1] - squares[2]) * Fraction(criterion.scale) ** 2 / UNIT

    def kept(self, gain: Fraction) -> bool:
        """Whether it is large enough for a split."""
        if isinstance(self.criterion, BoostingCriterion):
            return gain > LEAST_LOSS_CHANGE and gain >= self.criterion.params.gamma
        return gain > (0 if self.criterion.targets.criterion == "gini" else 1e-12)

    def shared(self) -> Winner:
        """The first of two parties chooses alone, then the second's candidates are compared as shared sums are."""
        own, outputs = self.found(1), self.rule.outputs
        bits = sum_bits(self.criterion.params, outputs, max(RECORDS, int(self.whole[-1])))
        bound = self.rule.to_beat(self.whole, None if own is None else self.lefts[0][own[1][0]], bits)
        num, den, winner = bound.N0, bound.D0, own
        assert bound.T <= bound.D0 < 1 << 2 * bits.h
        assert abs(num) < 1 << 2 * bits.g + bits.h + 1
        for place, left in enumerate(self.lefts[1]):
            own_num, own_den = self.rule.score(bound, left)
            assert 0 <= own_num < 1 << 2 * bits.g + bits.h + 1
            assert 0 <= own_den < 1 << 2 * bits.h
            assert sum(map(abs, left[:outputs].tolist())) < 1 << bits.g
            if own_den >= bound.T and (lead := own_num * den - num * own_den) >= 0:
                if lead:
                    num, den, winner = own_num, own_den, (1, [])
                if winner is not None and winner[0] == 1:
                    winner[1].append(place)
        return winner


def _drawn_parts(rng: np.random.Generator, values: Ints) -> list[Ints]:
    """Left sums of two parties, with equal sets, complements, and sides without records."""
    n = int(rng.integers(2, 24))
    masks = rng.random((n, len(values))) < rng.random((n, 1))
    masks[rng.integers(0, n, n // 6)] = rng.integers(0, 2) == 1
    copied, others = rng.integers(0, n, (2, n // 2))
    masks[copied] = masks[others]
    copied, others = rng.integers(0, n, (2, n // 4))
    masks[copied] = ~masks[others]
    lefts = masks.astype(np.int64) @ values
    cut = int(rng.integers(1, n))
    return [lefts[:cut], lefts[cut:]]


def _boosted(rng: np.random.Generator) -> Node:
    """Records of any size, of one size as in a first tree, of a few units, at full width, and some of factor 0."""
    n, kind = int(rng.integers(2, RECORDS + 1)), int(rng.integers(5))
    if kind == 0:
        g, h = rng.integers(-UNIT, UNIT + 1, n), rng.integers(0, UNIT + 1, n)
    elif kind == 1:
        g, h = rng.choice([-UNIT // 2, UNIT // 2], n), np.full(n, UNIT // 4)
    elif kind == 2:
        g, h = rng.integers(-2, 3, n), rng.integers(1, 3, n)
    else:
        n = RECORDS if kind == 3 else 2
        g, h = rng.choice([-UNIT, UNIT], n), np.full(n, UNIT)
    heavy, factor = rng.random(n) < 0.9, int(rng.choice([1, 1 << 22]))
    values = np.stack([np.where(heavy, g, 0), np.where(heavy, h * factor, 0), np.ones(n, dtype=np.int64)], axis=1)
    params = BoostingParams(
        objective="reg:squarederror",
        reg_lambda=float(rng.choice([0, 0.1, 0.75, 1, 2.0**-32])),
        min_child_weight=float(rng.choice([0, 0.3, 1, 2.0**-31])),
        gamma=float(rng.choice([0, 0, 1e-9, 1, 1e12])),
        max_sample_weight=float(factor),
    )
    criterion = BoostingCriterion(float(rng.choice([2.0**-9, 1, 2.0**20])), params)
    return Node(criterion, values.sum(axis=0), _drawn_parts(rng, values))


def _forest(rng: np.random.Generator) -> Node:
    n, classes = int(rng.integers(2, RECORDS + 1)), int(rng.choice([1, 2, 3, 10]))
    if classes > 1:
        own, criterion = np.eye(classes, dtype=np.int64)[rng.integers(0, classes, n)], "gini"
    else:
        own, criterion = rng.integers(-UNIT, UNIT + 1, (n, 1)) >> int(rng.integers(0, 20)), "squared_error"
    params = ForestParams(criterion=criterion, min_samples_leaf=int(rng.integers(1, 4)))
    values = np.concatenate([own, np.ones((n, 1), dtype=np.int64)], axis=1)
    made = ForestCriterion(Targets(own, criterion, 1.0, 0.0), params)
    return Node(made, values.sum(axis=0), _drawn_parts(rng, values))


def _borders() -> Iterator[Node]:
    """One candidate of the loss change 3/4 and a side of 1, at γ and `min_child_weight` around these.

    Besides a decrease of impurity of 5e-13, and candidates that tie with λ = 0 and not with one unit, and as fractions
    and not as floats.
    """
    left, whole = np.array([-UNIT, UNIT, 1]), np.array([0, 4 * UNIT, 4])  # 1/2 + 1/4 - 0
    none = np.zeros((0, 3), dtype=np.int64)
    for gamma in (0.75, math.nextafter(0.75, 1.0), math.nextafter(0.75, 0.0)):
        for least in (1.0, 1.0 + 2.0**-32, 1.0 - 2.0**-32, 1.0 - 2.0**-40, 1.0 + 2.0**-40):
            params = BoostingParams(objective="reg:squarederror", gamma=gamma, min_child_weight=least)
            for lefts in ([left[None], none], [none, left[None]]):
                yield Node(BoostingCriterion(1.0, params), whole, lefts)
    params = BoostingParams(objective="reg:squarederror", reg_lambda=0.0)
    lefts = [np.array([[3 * UNIT, UNIT, 5]]), np.array([[4 * UNIT, 2 * UNIT, 5]])]  # 9/1 + 9/9, 16/2 + 16/8
    yield Node(BoostingCriterion(1.0, params), np.array([0, 10 * UNIT, 10]), lefts)
    classes = ForestCriterion(Targets(none, "gini", 1.0, 0.0), ForestParams())
    yield Node(classes, np.array([2, 2001, 2003]), [none, np.array([[1, 1000, 1001]])])
    yield Node(classes, np.array([12, 4, 16]), [np.array([[9, 1, 10]]), np.array([[0, 1, 1]])])  # 672/60, 168/15


def _wrong(count: int) -> tuple[int, int, int]:
    """Of drawn nodes those with another winner than by fractions; as shared sums find it; and those with one at all."""
    rng = np.random.default_rng(11)
    nodes = [*_borders(), *(make(rng) for make in (_boosted, _forest) for _ in range(count // 2))]
    found, expected = [node.found() for node in nodes], [node.expected() for node in nodes]
    shared = [node.shared() for node in nodes]
    wrong, wrong_shared = (sum(a != b for a, b in zip(part, expected, strict=True)) for part in (found, shared))
    return wrong, wrong_shared, sum(winner is not None for winner in expected)


def test_the_rule_is_that_of_fractions() -> None:
    """Winners and all their ties are those of exact arithmetic, by opened and by shared sums, within stated widths."""
    wrong, wrong_shared, won = _wrong(3_000)
    assert (wrong, wrong_shared) == (0, 0)
    assert won > 1_500


def _plus(bound: NodeBound, units: int) -> NodeBound:
    return bound._replace(N0=bound.N0 + units)


def _shifted(lightest: Callable[[BoostingParams], int], units: int) -> property:
    return property(lambda params: lightest(params) + units)


def _last_party_first(self: ExactRule, near: Any, lefts: Any, bound: NodeBound) -> tuple[int, Ints] | None:
    found = _EXACTLY(self, near[::-1], lefts[::-1], bound)
    return None if found is None else (len(near) - 1 - found[0], found[1])


_EXACTLY, _BOUND = ExactRule._exactly, ExactRule.bound
_LIGHTEST = vars(BoostingParams)["lightest_side"].fget
MUTANTS: dict[str, tuple[Any, str, Any]] = {
    "ties go to the last party": (ExactRule, "_exactly", _last_party_first),
    "floats decide": (exact_rule, "MARGIN", 0.0),
    "more than gamma": (ExactRule, "bound", lambda *at: _plus(_BOUND(*at), 1)),
    "a bit less than gamma": (ExactRule, "bound", lambda *at: _plus(found := _BOUND(*at), -(found.N0 >> 50))),
    "a side lighter by a unit": (BoostingParams, "lightest_side", _shifted(_LIGHTEST, -1)),
    "a side heavier by a unit": (BoostingParams, "lightest_side", _shifted(_LIGHTEST, 1)),
    "no penalty": (BoostingParams, "penalty", property(lambda params: round(params.reg_lambda * UNIT))),
    "a larger penalty": (BoostingParams, "penalty", _shifted(lambda params: round(params.reg_lambda * UNIT), 2)),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another order of ties, another rounding, no penalty: nodes are won by others, or by a division by 0."""
    monkeypatch.setattr(*MUTANTS[name])
    try:
        wrong, wrong_shared, _ = _wrong(400)
    except (AssertionError, ZeroDivisionError):
        return
    assert wrong + wrong_shared > 0


def test_floats_decide_where_there_is_no_such_form() -> None:
    """α, δ and trees of several outputs; a tree of one output without them has the rule."""
    rules = [BoostingCriterion(1.0, params).exact_rule(3) for params in (BoostingParams(reg_alpha=0.1), _BOUNDED)]
    assert [*rules, BoostingCriterion(1.0, BoostingParams()).exact_rule(5)] == [None] * 3
    assert BoostingCriterion(1.0, BoostingParams()).exact_rule(3) is not None


#: Table → its label.
TABLES = {
    "credit_default": "default.payment.next.month",
    "bank_marketing": "y",
    "give_me_some_credit": "SeriousDlqin2yrs",
    "appliances_energy": "Appliances",
    "obesity": "NObeyesdad",
    "fars": "target",
}


@pytest.mark.second_tier
@pytest.mark.skipif("TREETAP_DATA" not in os.environ, reason="needs TREETAP_DATA, the public tables")
@pytest.mark.parametrize("name", TABLES)
def test_models_of_public_tables_are_those_of_floats(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees, gains and weights of some hundred nodes."""
    table = pq.read_table(Path(os.environ["TREETAP_DATA"]) / f"{name}.parquet").slice(0, 30_000)
    columns = {column: _codes(table.column(column)) for column in table.column_names}
    labels = columns.pop(TABLES[name])
    objective = "reg:squarederror"
    if name != "appliances_energy":
        labels = np.unique(labels, return_inverse=True)[1].astype(float)
        objective = "binary:logistic" if labels.max() == 1 else "multi:softprob"
    names = [column for column, cells in columns.items() if len(np.unique(cells[~np.isnan(cells)])) > 1]
    halves = {"own": names[: len(names) // 2], "other": names[len(names) // 2 :]}
    tables = [
        (party, bin_table(np.stack([columns[column] for column in own], axis=1), own, 32))
        for party, own in halves.items()
    ]
    for rounds, depth in ((5, 3), (10, 4), (5, 6)):
        params = BoostingParams(n_estimators=rounds, max_depth=depth, objective=objective)
        ours = train(tables, labels, params)
        with monkeypatch.context() as floats:
            floats.setattr(GrowingTree, "exact_rule", None)
            assert train(tables, labels, params) == ours
        assert sum(len(tree.splits) for tree in ours.ensemble.trees) > 30


def _codes(column: Any) -> Floats:
    """Numbers, or the places of texts among all texts."""
    cells = column.to_pandas()
    return cells.to_numpy(float) if cells.dtype.kind in "if" else np.unique(cells, return_inverse=True)[1].astype(float)

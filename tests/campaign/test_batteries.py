"""The batteries find what is planted and make it small, and a rule explains what 32 bits leave open."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.campaign import table_pairs
from treetap.trees import boosting_criterion
from treetap.trees.params import BoostingParams

pytest.importorskip("xgboost")
pytest.importorskip("polars")
from benchmarks import against_xgboost
from benchmarks.against_xgboost import Case, Judge, Pair
from tests.library.trees.boosters import AS_BEFORE

pytestmark = pytest.mark.second_tier


def of_categories(codes: Any, labels: Any, params: BoostingParams, classes: int = 2) -> Case:
    """A training on one column of categories."""
    X = np.array(codes, dtype=float)[:, None]
    return Case(X, (True,), (0,), {"a": (0,), "b": ()}, np.array(labels), None, classes, params)


@AS_BEFORE
def test_categories_of_one_weight_in_the_reals_come_in_either_order() -> None:
    """Category 4 is light, hence at 0, and G of category 5 is 0 in the reals; XGBoost rounds that below 0, treetap
    above. Where no category is light both are the same.
    """
    params = BoostingParams(
        objective="multi:softprob", n_estimators=1, max_depth=1, base_score=0.5, min_child_weight=0.5, max_bin=8
    )
    case = of_categories([1, 4, 5, 2, 2, 5, 5], [2, 1, 2, 1, 1, 1, 2], params, 3)
    judge = Judge(Pair(case, case.tables()))
    assert judge.verdict() == "order of categories"
    (part,) = judge.parts
    assert part.ours is not None
    assert part.theirs is not None
    assert (part.ours.right, part.theirs.right) == ({0, 1, 3, 4, 5}, {0, 1, 5})
    assert part.gains == pytest.approx((0.3000, 1.0786), abs=1e-4)
    assert Pair(replace(case, params=replace(params, min_child_weight=0.0)), case.tables()).apart is None


def test_another_order_of_categories_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Categories in the order of their codes are not XGBoost's."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 8, 80)
    case = of_categories(codes, rng.normal(size=8)[codes] + rng.normal(size=80) / 9, BoostingParams(
        objective="reg:squarederror", n_estimators=2, max_depth=2, max_bin=80))  # fmt: skip
    assert not against_xgboost.unexplained(case)
    monkeypatch.setattr(boosting_criterion, "category_order", lambda sums, *_: np.arange(len(sums)))
    assert against_xgboost.unexplained(case)
    monkeypatch.setattr(against_xgboost, "MOST_RUNS", 40)
    small = against_xgboost.shrunk(case)
    assert len(small.X) < 40
    assert against_xgboost.told(small)["parts"]


@AS_BEFORE
def test_some_trainings() -> None:
    """A sample of the battery."""
    assert {against_xgboost.outcome(seed)[0] for seed in (1, 2, 4)} == {"equal"}


def test_some_pairs_of_tables() -> None:
    """A sample of the battery."""
    assert {table_pairs.outcome(seed)[0] for seed in (0, 2, 3)} <= {"right", "refused"}

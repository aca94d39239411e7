"""Monotone constraints are XGBoost's: directions, bounds, gains under them, missing values, whole models."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.library.trees.tables import differences, encoded, labels_for, signal, table
from tests.library.trees.test_categorical import KINDS, LEVELS, binned, mixed
from tests.library.trees.test_xgboost_predictions import SAFE_LEAD, as_input, xgb_scores
from tests.oracle import oracle_train
from treetap.errors import Malformed
from treetap.trees.binning import BinnedTable
from treetap.trees.centralised import train
from treetap.trees.params import BoostingParams

xgb = pytest.importorskip("xgboost")
STUMP = BoostingParams(
    objective="reg:squarederror", n_estimators=1, max_depth=1, base_score=0.0, min_child_weight=0.0, learning_rate=1.0
)


def constrained(tables: list[tuple[str, BinnedTable]], directions: list[list[int]]) -> list[tuple[str, BinnedTable]]:
    """Tables with directions of their columns."""
    return [
        (name, replace(each, directions=np.array(own) if any(own) else None))
        for (name, each), own in zip(tables, directions, strict=True)
    ]


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("alpha", [0.0, 0.3])
def test_stumps_of_few_values_and_missing_ones(alpha: float) -> None:
    """Missing values take the side that the direction allows, also alone on the left of all present ones."""
    rng, mirrored, params = np.random.default_rng(0), 0, replace(STUMP, reg_alpha=alpha)
    for _ in range(40):
        X, y = rng.integers(0, 4, (8, 1)).astype(float), rng.normal(size=8)
        X[rng.random(8) < 0.3] = np.nan
        X[:2, 0] = 0, 3
        for direction in (1, -1):
            tables = constrained(encoded([("p", X)], 12), [[direction]])
            model = train(tables, y, params)
            _, theirs = xgb_scores(as_input(tables), y, params, 1, directions=[[direction]])
            np.testing.assert_allclose(model.predict(tables), theirs, atol=1e-5)
            mirrored += any(cut == -np.inf for _, cut in model.splits["p"])
    assert mirrored > 0


def test_a_base_model_with_missing_values_alone_on_the_left_is_continued() -> None:
    """Such a split is one of the column's bins, so the trees are those of one longer training; as xgboost has them."""
    rng, continued = np.random.default_rng(0), 0
    for _ in range(10):
        X, y = rng.integers(0, 4, (12, 2)).astype(float), rng.normal(size=12)
        X[rng.random((12, 2)) < 0.3] = np.nan
        X[:2] = [[0, 0], [3, 3]]
        tables = constrained(encoded([("p", X)], 12), [[1, -1]])
        base = train(tables, y, STUMP)
        further = train(tables, y, STUMP, base=base)
        whole = replace(STUMP, n_estimators=2)
        assert further.ensemble.trees == train(tables, y, whole).ensemble.trees
        _, theirs = xgb_scores(as_input(tables), y, whole, 1, directions=[[1, -1]])
        np.testing.assert_allclose(further.predict(tables), theirs, atol=1e-5)
        continued += any(cut == -np.inf for _, cut in base.splits["p"])
    assert continued > 0


SHAPES: list[tuple[dict[str, Any], dict[str, Any], list[list[int]]]] = [
    ({"seed": 9, "n": 150, "widths": [2, 2], "missing": 0.1}, {"reg_alpha": 0.5}, [[0, 0], [-1, 1]]),
    ({"seed": 3, "n": 150, "widths": [2, 2]}, {"max_delta_step": 0.3, "reg_alpha": 0.2}, [[1, -1], [-1, 1]]),
    (
        {"seed": 2, "n": 150, "widths": [2, 2], "missing": 0.15},
        {"grow_policy": "lossguide", "max_leaves": 6},
        [[1, -1], [-1, 1]],
    ),
]


@pytest.mark.second_tier(but=3)
@pytest.mark.parametrize(
    ("objective", "shape"),
    [*((each, shape) for each in ("binary:logistic", "reg:squarederror") for shape in range(3)), ("multi:softprob", 1)],
)
def test_scores_equal_xgboost(objective: str, shape: int) -> None:
    """Margins agree to 1e-5 and trees are the naive trainer's; some leaf is bounded that would not be without."""
    columns, options, directions = SHAPES[shape]
    parties, classes = table(**columns), 3 if objective == "multi:softprob" else 2
    labels = labels_for(objective, signal(parties, 20 + columns["seed"]), classes)
    params = BoostingParams(objective=objective, n_estimators=4, max_depth=4, max_bin=12, base_score=0.5)
    params = replace(params, **options)
    marked = {name: own for (name, _), own in zip(parties, directions, strict=True) if any(own)}
    oracle = oracle_train(parties, labels, params, classes, monotone=marked)
    assert oracle.ties == 0
    assert oracle.lead > SAFE_LEAD
    tables = constrained(encoded(parties, params.max_bin), directions)
    model = train(tables, labels, params, classes)
    assert differences(model, oracle) == ""
    _, theirs = xgb_scores(as_input(tables), labels, params, classes, directions=directions)
    np.testing.assert_allclose(model.predict(tables), theirs, atol=1e-5)
    free = train(encoded(parties, params.max_bin), labels, params, classes)
    assert not np.allclose(free.predict(encoded(parties, params.max_bin)), theirs, atol=1e-3)


def test_a_split_bounds_all_weights_below_it_by_the_mean_of_its_children() -> None:
    """The left subtree of an increasing split stays below the mean, the right one above it, by xgboost alike."""
    x = np.repeat(np.arange(4.0), 4)[:, None]
    z = np.tile([0.0, 0.0, 1.0, 1.0], 4)[:, None]
    y = 10 * x[:, 0] + np.where(x[:, 0] < 2, 60, -60) * z[:, 0]  # z turns the order of x round where it counts
    params = replace(STUMP, max_depth=3, reg_lambda=0.0)
    tables = constrained(encoded([("p", np.hstack([x, z]))], 12), [[1, 0]])
    model = train(tables, y, params)
    scores = model.predict(tables)[:, 0]
    _, theirs = xgb_scores(as_input(tables), y, params, 1, directions=[[1, 0]])
    np.testing.assert_allclose(scores[:, None], theirs, atol=1e-4)
    for value in (0.0, 1.0):
        assert (np.diff(scores[z[:, 0] == value]) >= 0).all()
    assert not np.allclose(scores, train(encoded([("p", np.hstack([x, z]))], 12), y, params).predict(tables)[:, 0])


def test_leaves_of_several_weights_have_no_constraints() -> None:
    """Xgboost refuses them too."""
    X, y = np.arange(8.0)[:, None], np.arange(8) % 3
    params = BoostingParams(objective="multi:softprob", multi_strategy="multi_output_tree", n_estimators=1)
    with pytest.raises(Malformed, match="boosted trees whose leaves have one weight"):
        train(constrained(encoded([("p", X)], 8), [[1]]), y, params, 3)
    settings = {"objective": "multi:softprob", "num_class": 3, "multi_strategy": "multi_output_tree"}
    with pytest.raises(xgb.core.XGBoostError, match="not yet implemented"):
        xgb.train({**settings, "tree_method": "hist", "monotone_constraints": "(1)"}, xgb.DMatrix(X, label=y), 1)


@pytest.mark.parametrize("missing", [0.0, 0.15])
def test_columns_of_categories_beside_constrained_ones(missing: float) -> None:
    """Categories keep their order by weights without bounds, their gains are bounded; xgboost and the oracle agree."""
    parties, labels = mixed(5, n=120, missing=missing)
    directions = [[0, 0, 1], [0, -1, 0, 1]]
    params = BoostingParams(objective="reg:squarederror", n_estimators=3, max_depth=4, base_score=0.5, reg_alpha=0.3)
    marked = {name: own for (name, _), own in zip(parties, directions, strict=True)}
    oracle = oracle_train(parties, list(labels), params, 2, categories=LEVELS, monotone=marked)
    tables = constrained(binned(parties, params), directions)
    model = train(tables, labels, params)
    assert differences(model, oracle) == ""
    columns = np.hstack([X for _, X in parties])
    _, theirs = xgb_scores(columns, labels, params, 1, directions=directions, kinds=KINDS)
    assert oracle.lead > SAFE_LEAD
    np.testing.assert_allclose(model.predict(tables), theirs, atol=1e-4)

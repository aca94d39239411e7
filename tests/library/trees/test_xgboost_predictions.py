"""Predictions and rounds are XGBoost's.

- The centralised trainer predicts what xgboost predicts on the same bins, where no split ties.
- Rules of XGBoost about the rounds of a training, found by experiment: samples, base score, weights, when it ends.

  Every test states what xgboost does and that this library's rule says the same.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.library.trees.boosters import as_input, boosted, matrix, stored_trees, told_apart
from tests.library.trees.tables import Parties, drawn_weights, encoded, labels_for, signal, table
from tests.oracle import oracle_predict
from treetap.errors import ConfigError, DataError
from treetap.trees import metrics, sampling
from treetap.trees.binning import bin_table
from treetap.trees.boosting_criterion import BoostingCriterion
from treetap.trees.centralised import train
from treetap.trees.ensemble import importance
from treetap.trees.loss import UNIT, loss_for
from treetap.trees.params import BoostingParams

xgb = pytest.importorskip("xgboost")
#: A table on which no split of the weighted models ties.
WEIGHTED = 13
#: The same of continued ones.
CONTINUED = 1
NAN = float("nan")


KINDS = [
    ("binary:logistic", "one_output_per_tree", 2),
    ("reg:squarederror", "one_output_per_tree", 2),
    ("count:poisson", "one_output_per_tree", 2),
    ("reg:gamma", "one_output_per_tree", 2),
    ("reg:tweedie", "one_output_per_tree", 2),
    ("survival:cox", "one_output_per_tree", 2),
    ("survival:aft", "one_output_per_tree", 2),
    ("multi:softprob", "one_output_per_tree", 3),
    ("multi:softprob", "multi_output_tree", 3),
]

SHAPES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"seed": 9, "n": 100, "widths": [2, 3]}, {}),
    ({"seed": 2, "n": 150, "widths": [3, 2], "missing": 0.2}, {}),
    ({"seed": 2, "n": 120, "widths": [2, 2]}, {"gamma": 0.5, "reg_lambda": 3.0, "learning_rate": 0.7}),
    ({"seed": 2, "n": 160, "widths": [4, 2], "missing": 0.1}, {"min_child_weight": 4.1, "max_bin": 16}),
    ({"seed": 1, "n": 120, "widths": [2, 3]}, {"reg_alpha": 1.3}),
    ({"seed": 15, "n": 120, "widths": [2, 3]}, {"max_delta_step": 0.4, "learning_rate": 0.8}),
    ({"seed": 11, "n": 140, "widths": [3, 2], "missing": 0.1}, {"reg_alpha": 0.6, "max_delta_step": 0.5}),
    ({"seed": 4, "n": 200, "widths": [3, 2], "missing": 0.1}, {"max_leaves": 5, "max_depth": 4}),
    ({"seed": 1, "n": 200, "widths": [2, 3]}, {"grow_policy": "lossguide", "max_leaves": 5, "max_depth": 4}),
]


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind[0]}-{kind[1]}")
@pytest.mark.parametrize("shape", range(len(SHAPES)))
def test_scores_equal_xgboost(kind: tuple[str, str, int], shape: int) -> None:
    """Margins agree to 1e-5 on random continuous columns; the oracle vouches that no split tied."""
    objective, strategy, classes = kind
    columns, options = SHAPES[shape]
    parties: Parties = table(**columns)
    labels = labels_for(objective, signal(parties, 20 + columns["seed"]), classes)
    params = replace(
        BoostingParams(objective=objective, multi_strategy=strategy, n_estimators=4, max_depth=3, max_bin=12),
        base_score=0.5,
        **options,
    )
    told_apart(parties, labels, params, classes)
    tables = encoded(parties, params.max_bin)
    model = train(tables, labels, params, classes)
    _, theirs = boosted(matrix(as_input(tables), labels), params, classes)
    np.testing.assert_allclose(model.predict(tables), theirs, atol=1e-5)


def test_importance_equals_xgboost() -> None:
    """Weight, gain and cover per feature are xgboost's."""
    parties = table(seed=2, n=150, widths=[2, 3])
    labels = labels_for("binary:logistic", signal(parties, 22), 2)
    params = BoostingParams(n_estimators=4, max_depth=3, max_bin=12, base_score=0.5)
    told_apart(parties, labels, params)
    tables = encoded(parties, params.max_bin)
    model, first = train(tables, labels, params), {"p0": 0, "p1": 2}
    ours = importance(model.ensemble.used_trees, lambda s: f"f{first[s.owner] + model.entry(s)[0].feature}")
    booster, _ = boosted(xgb.DMatrix(as_input(tables), label=labels), params)
    for kind in ("weight", "gain", "cover", "total_gain", "total_cover"):
        theirs = booster.get_score(importance_type=kind)
        assert {name: getattr(value, kind) for name, value in ours.items()} == pytest.approx(theirs, rel=1e-4)


def test_raw_thresholds_route_new_records_as_xgboost_does() -> None:
    """Few-valued raw columns (each value its own bin): unseen records with missing values get xgboost's score."""
    rng = np.random.default_rng(3)
    X = rng.integers(0, 40, size=(300, 4)).astype(float)
    X[:, 0][rng.random(300) < 0.15] = np.nan
    labels = 2.0 * np.nan_to_num(X[:, 0], nan=60.0) + X[:, 1] + rng.normal(size=300)
    params = BoostingParams(objective="reg:squarederror", n_estimators=3, max_depth=3, max_bin=64, base_score=0.0)
    told_apart([("p", X)], labels, params)
    tables = encoded([("p", X)], 64)
    model = train(tables, labels, params)
    booster, theirs = boosted(xgb.DMatrix(X, label=labels), params)
    np.testing.assert_allclose(model.predict(tables), theirs, rtol=1e-5)
    fresh = rng.permuted(X, axis=0)
    fresh[:, 1][rng.random(300) < 0.3] = np.nan  # a column that was complete in training
    expected = booster.predict(xgb.DMatrix(fresh), output_margin=True)
    ours = model.predict([("p", tables[0][1].encode(fresh))])[:, 0]
    np.testing.assert_allclose(ours, expected, rtol=1e-5)


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize(
    ("kind", "positive"),
    [*((kind, 1.0) for kind in KINDS), (KINDS[0], 3.0)],
    ids=lambda each: each if isinstance(each, float) else f"{each[0]}-{each[1]}",
)
def test_weighted_scores_equal_xgboost(kind: tuple[str, str, int], positive: float) -> None:
    """Sample weights, 0 among them, and the weight of the second class multiply g and h as in xgboost."""
    objective, strategy, classes = kind
    parties = table(seed=WEIGHTED, n=130, widths=[2, 3], missing=0.1)
    labels = labels_for(objective, signal(parties, 20 + WEIGHTED), classes)
    weights = drawn_weights(130, 5.0)
    params = BoostingParams(
        objective=objective, multi_strategy=strategy, n_estimators=4, max_depth=3, max_bin=12, min_child_weight=2.0,
        base_score=None if objective == "reg:squarederror" else 0.5, max_sample_weight=5.0, scale_pos_weight=positive,
    )  # fmt: skip
    told_apart(parties, labels, params, classes, weights=weights)
    tables = encoded(parties, params.max_bin)
    model = train(tables, labels, params, classes, weights=weights)
    _, theirs = boosted(matrix(as_input(tables), labels, weight=weights), params, classes)
    np.testing.assert_allclose(model.predict(tables), theirs, atol=1e-5)
    plain = train(tables, labels, replace(params, scale_pos_weight=1.0), classes)
    assert np.abs(plain.predict(tables) - theirs).max() > 0.05


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind[0]}-{kind[1]}")
def test_continued_scores_equal_xgboost(kind: tuple[str, str, int]) -> None:
    """Further rounds after those of a base model, which keeps its base score; as by the naive oracle."""
    objective, strategy, classes = kind
    parties = table(seed=CONTINUED, n=120, widths=[2, 3])
    labels = labels_for(objective, signal(parties, 20 + CONTINUED), classes)
    before = BoostingParams(
        objective=objective, multi_strategy=strategy, n_estimators=2, max_depth=3, max_bin=12, base_score=0.4
    )
    after = replace(before, n_estimators=3, max_depth=2, learning_rate=0.2, base_score=None)
    first = told_apart(parties, labels, before, classes)
    oracle = told_apart(parties, labels, after, classes, base=first)
    tables = encoded(parties, before.max_bin)
    base = train(tables, labels, before, classes)
    model = train(tables, labels, after, classes, base=base)
    data = matrix(as_input(tables), labels)
    booster, _ = boosted(data, before, classes)
    continued, theirs = boosted(data, after, classes, base=booster)
    assert continued.num_boosted_rounds() == 5
    np.testing.assert_allclose(model.predict(tables), theirs, atol=1e-5)
    np.testing.assert_allclose(model.predict(tables), oracle_predict(oracle, parties), atol=1e-9)
    with pytest.raises(ConfigError, match="the model to continue from was trained on other bins"):
        train(encoded(parties, 5), labels, after, classes, base=base)


def root_covers(objective: str, y: npt.NDArray[Any], rounds: int, **options: Any) -> npt.NDArray[np.float64]:
    """Σ H at every root that xgboost grows."""
    X = np.random.default_rng(1).normal(size=(len(y), 3))
    settings = {"objective": objective, "tree_method": "hist", "max_depth": 2, "nthread": 1, **options}
    booster = xgb.train(settings, xgb.DMatrix(X, label=y), rounds)
    return np.array([tree["sum_hessian"][0] for tree in stored_trees(booster)])


def test_subsample_is_bernoulli_per_record_and_tree() -> None:
    """Xgboost's sample sizes vary between trees, also between the trees of one round, around the rate: so do ours."""
    y = np.random.default_rng(0).integers(0, 3, 1000)
    covers = root_covers("multi:softprob", y, 1, num_class=3, subsample=0.5, base_score=0.5)
    theirs = np.rint(covers / (2 * 2 / 9))
    assert len(set(theirs)) > 1
    assert (np.abs(theirs - 500) < 80).all()
    ours = [int(sampling.rows(0, tree, 1000, 0.5, np.ones(1000, dtype=bool)).sum()) for tree in range(3)]
    assert len(set(ours)) > 1
    assert (np.abs(np.array(ours) - 500) < 80).all()


def test_softmax_hessian_is_twice_p_one_minus_p() -> None:
    """At equal scores of three classes a record weighs 4/9 in each class tree, 4/3 in a multi-output tree's cover."""
    y = np.random.default_rng(0).integers(0, 3, 300)
    np.testing.assert_allclose(root_covers("multi:softprob", y, 1, num_class=3, base_score=0.5) / 300, 4 / 9, rtol=1e-5)
    joint = root_covers("multi:softprob", y, 1, num_class=3, base_score=0.5, multi_strategy="multi_output_tree")
    assert joint / 300 == pytest.approx([4 / 3])
    ours = BoostingCriterion(1.0, BoostingParams()).cover(np.array([0, 0, 0, *3 * [4 * UNIT // 9], 1]))
    assert ours == pytest.approx(4 / 3)


def test_colsample_rounds_down_but_keeps_one() -> None:
    """Of ten columns a rate of 0.67 leaves six and a rate of 0.05 one."""
    rng = np.random.default_rng(0)
    data = xgb.DMatrix(rng.normal(size=(800, 10)), label=rng.normal(size=800))
    for rate, count in ((0.67, 6), (0.99, 9), (0.05, 1)):
        settings = {"objective": "reg:squarederror", "colsample_bytree": rate, "max_depth": 8, "min_child_weight": 0}
        assert len(xgb.train({**settings, "tree_method": "hist"}, data, 1).get_score()) == count
        assert len(sampling.columns(0, 0, "p", 10, rate)) == count


def test_base_score_is_a_probability_a_margin_or_a_mean() -> None:
    """Logistic: the margin is its logit. Softmax: added to every class. Regression: by default the mean label."""
    X = np.arange(6.0)[:, None]
    y = np.array([0.0, 0, 1, 0, 1, 1])
    data = xgb.DMatrix(X, label=y + 3)
    logistic = xgb.train({"objective": "binary:logistic", "base_score": 0.3}, xgb.DMatrix(X, label=y), 0)
    assert logistic.predict(data, output_margin=True) == pytest.approx(np.full(6, math.log(0.3 / 0.7)), abs=1e-6)
    given = {"objective": "multi:softprob", "num_class": 3, "base_score": 0.3}
    softmax = xgb.train(given, xgb.DMatrix(X, label=[0, 0, 1, 1, 2, 2]), 0)
    assert softmax.predict(data, output_margin=True) == pytest.approx(np.full((6, 3), 0.3), abs=1e-6)
    booster = xgb.train({"objective": "reg:squarederror", "tree_method": "hist"}, data, 1)
    assert base_of(booster) == pytest.approx(3.5)
    assert loss_for("reg:squarederror", 1).base_margin(None, y + 3) == pytest.approx([3.5])
    assert loss_for("binary:logistic", 2).base_margin(0.3, y) == pytest.approx([math.log(0.3 / 0.7)])
    assert loss_for("multi:softprob", 3).base_margin(0.3, y) == pytest.approx([0.3] * 3)


def base_of(booster: Any) -> float:
    """The base score that xgboost has taken."""
    raw = json.loads(booster.save_config())["learner"]["learner_model_param"]["base_score"].strip("[]")
    return float(raw)


def test_weights_weigh_the_mean_and_the_metrics_and_scale_pos_weight_does_not() -> None:
    """The default base score of a regression is the weighted mean; metrics have sample weights alone as weights."""
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(60, 3)), rng.uniform(0.2, 3.0, 60)
    w[5] = 0.0
    y = (X[:, 0] + rng.normal(size=60) > 0).astype(int)
    regression = xgb.train({"objective": "reg:squarederror"}, xgb.DMatrix(X, label=3.0 * X[:, 1], weight=w), 1)
    ours = loss_for("reg:squarederror", 1).base_margin(None, 3.0 * X[:, 1], w)
    assert ours == pytest.approx([base_of(regression)], rel=1e-6)
    data, found = xgb.DMatrix(X, label=y, weight=w), {}
    settings = {"objective": "binary:logistic", "base_score": 0.4, "max_depth": 2, "scale_pos_weight": 3.0}
    booster = xgb.train(
        {**settings, "eval_metric": ["logloss", "error", "auc"]}, data, 2, evals=[(data, "e")], evals_result=found,
        verbose_eval=False,
    )  # fmt: skip
    ours = metrics.evaluate("binary:logistic", booster.predict(data), y, w)
    theirs = {name: values[-1] for name, values in found["e"].items()}
    assert ours["logloss"] == pytest.approx(theirs["logloss"], rel=1e-6)
    assert ours["accuracy"] == pytest.approx(1 - theirs["error"], rel=1e-6)
    assert ours["auc"] == pytest.approx(theirs["auc"], rel=1e-6)
    assert ours["auc"] != pytest.approx(metrics.auc(booster.predict(data), y), rel=1e-3)


@pytest.mark.parametrize("weight", [-1.0, NAN, math.inf])
def test_weights_are_finite_and_not_negative(weight: float) -> None:
    """Xgboost refuses these, and takes 0."""
    X, w = np.arange(6.0)[:, None], np.ones(6)
    w[0] = weight
    with pytest.raises(xgb.core.XGBoostError, match="Weights must be positive"):
        xgb.DMatrix(X, label=X[:, 0], weight=w)
    table = [("p", bin_table(X, ["a"], 8))]
    params = BoostingParams(objective="reg:squarederror", n_estimators=1)
    with pytest.raises(DataError, match="from 0 to max_sample_weight = 1 of the job"):
        train(table, X[:, 0], params, weights=w)
    w[0] = 0.0
    train(table, X[:, 0], params, weights=w)
    xgb.DMatrix(X, label=X[:, 0], weight=w)


def test_scale_pos_weight_is_for_two_classes() -> None:
    """Xgboost ignores it with softmax, and with squared error multiplies records whose target is 1; here both are
    refused, before a job starts.
    """
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(60, 2)), np.where(rng.random(60) < 0.5, 1.0, rng.normal(size=60))
    scores = [
        xgb.train({"objective": "reg:squarederror", "base_score": 0.0, **more}, xgb.DMatrix(X, label=y), 1).predict(
            xgb.DMatrix(X)
        )
        for more in ({}, {"scale_pos_weight": 3.0})
    ]
    assert np.abs(scores[0] - scores[1]).max() > 0.05
    for objective in ("reg:squarederror", "multi:softprob"):
        BoostingParams(objective=objective).validate()
        with pytest.raises(ConfigError, match="scale_pos_weight multiplies the second of two classes"):
            BoostingParams(objective=objective, scale_pos_weight=3.0).validate()


def test_training_continues_from_all_trees_and_counts_rounds_on() -> None:
    """Xgboost's `xgb_model`: n_estimators further rounds after all of the model's, those after its best one too; the
    best round is one of the further ones, counted from the first of all. Rounds are those of a longer training.

    A base_score that is given replaces the model's, so that old trees change their meaning: refused here.
    """
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 3)), (rng.random(200) < 0.4).astype(int)
    data, held = xgb.DMatrix(X, label=y), xgb.DMatrix(X[:60], label=1 - y[:60])
    settings = {"objective": "binary:logistic", "learning_rate": 0.9, "max_depth": 2, "base_score": 0.5}
    watching = {"evals": [(held, "h")], "verbose_eval": False}
    base = xgb.train(settings, data, 30, early_stopping_rounds=3, **watching)
    assert base.best_iteration < base.num_boosted_rounds() - 1
    losses: dict[str, Any] = {}
    again = xgb.train(settings, data, 30, xgb_model=base, early_stopping_rounds=3, evals_result=losses, **watching)
    first = base.num_boosted_rounds()
    assert again.best_iteration == first + int(np.argmin(losses["h"]["logloss"]))
    assert again.num_boosted_rounds() == again.best_iteration + 1 + 3
    plain = [xgb.train(settings, data, 2), xgb.train(settings, data, 5)]
    further = xgb.train({**settings, "base_score": 0.5}, data, 3, xgb_model=plain[0])
    assert stored_trees(further) == stored_trees(plain[1])
    moved = xgb.train({**settings, "base_score": 0.8}, data, 3, xgb_model=plain[0])
    assert base_of(moved) == pytest.approx(0.8)


def test_early_stopping_needs_strict_improvement_and_keeps_the_first_best_round() -> None:
    """Xgboost stops `rounds` rounds after the first minimum, and its scikit-learn front predicts with that round."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 3)), (rng.random(400) < 0.3).astype(int)
    losses: dict[str, Any] = {}
    booster = xgb.train(
        {"objective": "binary:logistic", "base_score": 0.5, "learning_rate": 0.5, "max_depth": 2},
        xgb.DMatrix(X[:300], label=y[:300]), 50, evals=[(xgb.DMatrix(X[300:], label=y[300:]), "held")],
        early_stopping_rounds=3, evals_result=losses, verbose_eval=False,
    )  # fmt: skip
    held = losses["held"]["logloss"]
    assert booster.best_iteration == int(np.argmin(held))
    assert len(held) == booster.best_iteration + 1 + 3
    table = [("p", bin_table(X, list("abc"), 32))]
    model = train(table, y, BoostingParams(n_estimators=50, learning_rate=0.5, max_depth=2, early_stopping_rounds=3))
    ours = [entry["validation"] for entry in model.history]
    assert model.ensemble.best_round == int(np.argmin(ours))
    assert len(ours) == int(np.argmin(ours)) + 1 + 3
    assert len(model.ensemble.used_trees) == int(np.argmin(ours)) + 1

"""Metrics against scikit-learn and scipy-free hand counts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from treetap.trees import metrics

sklearn_metrics = pytest.importorskip("sklearn.metrics")


@pytest.mark.parametrize("decimals", [1, 8])
def test_binary_measures_equal_scikit_learn(decimals: int) -> None:
    """AUC, KS, accuracy and logloss, with many tied scores and with none."""
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, 500)
    p = np.round(np.clip(0.3 * y + rng.random(500) * 0.7, 0, 1), decimals)
    found = metrics.evaluate("binary:logistic", p, y)
    fpr, tpr, _ = sklearn_metrics.roc_curve(y, p, drop_intermediate=False)
    assert found["auc"] == pytest.approx(sklearn_metrics.roc_auc_score(y, p), abs=1e-12)
    assert found["ks"] == pytest.approx(np.max(tpr - fpr), abs=1e-12)
    assert found["accuracy"] == pytest.approx(sklearn_metrics.accuracy_score(y, p > 0.5))
    assert found["logloss"] == pytest.approx(sklearn_metrics.log_loss(y, p))
    assert metrics.evaluate("binary:logistic", p[:, None], y) == found


def test_multi_class_measures_equal_scikit_learn() -> None:
    """Accuracy, logloss and macro one-versus-rest AUC."""
    rng = np.random.default_rng(2)
    y = rng.integers(0, 4, 300)
    raw = rng.random((300, 4)) + 0.5 * np.eye(4)[y]
    p = raw / raw.sum(axis=1, keepdims=True)
    found = metrics.evaluate("multi:softprob", p, y)
    assert found["auc"] == pytest.approx(sklearn_metrics.roc_auc_score(y, p, multi_class="ovr", average="macro"))
    assert found["accuracy"] == pytest.approx(sklearn_metrics.accuracy_score(y, p.argmax(axis=1)))
    assert found["logloss"] == pytest.approx(sklearn_metrics.log_loss(y, p))


def test_one_class_has_no_ranking() -> None:
    """AUC and KS are undefined when a class is absent; the macro mean leaves such classes out."""
    assert math.isnan(metrics.auc(np.array([0.1, 0.2]), np.array([1, 1])))
    assert math.isnan(metrics.ks(np.array([0.1, 0.2]), np.array([0, 0])))
    p = np.array([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.5, 0.4, 0.1]])
    assert metrics.macro_auc(p, np.array([0, 1, 0])) == 1.0


def test_certainty_that_is_wrong_costs_a_finite_amount() -> None:
    """Probabilities of exactly 0 and 1 are clipped before the logarithm."""
    assert 30 < metrics.logloss(np.array([0.0]), np.array([1])) < 40


def test_population_stability_by_hand_and_of_shifted_scores() -> None:
    """By hand with ten bins; the same scores have none, and a shift by one standard deviation counts as shifted."""
    before, now = np.arange(100.0), np.concatenate([np.arange(90.0), np.zeros(10)])
    p = 10.5 / 105
    by_hand = ((20.5 / 105) - p) * math.log(20.5 / 10.5) + ((0.5 / 105) - p) * math.log(0.5 / 10.5)
    assert metrics.population_stability(before, now) == pytest.approx(by_hand)
    drawn = np.random.default_rng(3).normal(size=(2, 4000))
    assert metrics.population_stability(drawn[0], drawn[0]) == 0.0
    assert metrics.population_stability(*drawn) < 0.02
    assert metrics.population_stability(drawn[0], drawn[1] + 1) > 0.25

"""Losses against finite differences, and the fixed point."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from treetap.errors import ConfigError, DataError
from treetap.trees.loss import FRACTION_BITS, UNIT, Loss, loss_for

RNG = np.random.default_rng(0)
LOSSES: list[tuple[Loss, npt.NDArray[Any]]] = [
    (loss_for("binary:logistic", 2), RNG.integers(0, 2, 50)),
    (loss_for("multi:softprob", 4), RNG.integers(0, 4, 50)),
    (loss_for("reg:squarederror", 1), RNG.normal(scale=5.0, size=50)),
]
IDS = [loss.objective for loss, _ in LOSSES]


def value(loss: Loss, scores: npt.NDArray[Any], labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The loss of every record (N,)."""
    p = loss.transform(scores)
    if loss.objective == "reg:squarederror":
        return 0.5 * (p - labels) ** 2
    if loss.objective == "binary:logistic":
        return -np.log(np.where(labels == 1, p, 1 - p))
    return -np.log(p[np.arange(len(labels)), labels])


@pytest.mark.parametrize(("loss", "labels"), LOSSES, ids=IDS)
def test_derivatives_are_those_of_the_loss(loss: Loss, labels: npt.NDArray[Any]) -> None:
    """g is the slope; h the curvature, doubled for softmax as xgboost has it."""
    scores = RNG.normal(size=(50, loss.outputs))
    g, h = loss.gradients(scores, labels)
    assert g.shape == h.shape == scores.shape
    step = 1e-4
    for k in range(loss.outputs):
        move = step * np.eye(loss.outputs)[k]
        up, here, down = (value(loss, scores + d, labels) for d in (move, 0 * move, -move))
        np.testing.assert_allclose(g[:, k], (up - down) / (2 * step), atol=1e-6)
        factor = 2.0 if loss.objective == "multi:softprob" else 1.0
        np.testing.assert_allclose(h[:, k], factor * (up - 2 * here + down) / step**2, atol=1e-5)


@pytest.mark.parametrize(("loss", "labels"), LOSSES, ids=IDS)
def test_fixed_point_stays_in_bounds_and_near(loss: Loss, labels: npt.NDArray[Any]) -> None:
    """Integers keep within `bounds`, even for saturated scores, and mean the derivatives to half a unit."""
    for spread in (1.0, 800.0):
        g, h = loss.gradients(RNG.normal(scale=spread, size=(50, loss.outputs)), labels)
        q = loss.quantise(g, h)
        g_max, h_max = loss.bounds()
        assert q.g.dtype == q.h.dtype == np.int64
        assert np.abs(q.g).max() <= g_max
        assert q.h.min() >= 1
        assert q.h.max() <= h_max
        np.testing.assert_allclose(q.g * q.scale / UNIT, g, atol=0.5 * q.scale / UNIT)
        np.testing.assert_allclose(q.h / UNIT, h, atol=1.0 / UNIT)


def test_squared_error_scale_is_the_next_power_of_two() -> None:
    """The scale is the smallest power of two that no |g| exceeds; no error at all gives 1."""
    loss = loss_for("reg:squarederror", 1)
    for largest, scale in ((0.75, 1.0), (1.0, 1.0), (1.01, 2.0), (0.25, 0.25), (0.26, 0.5), (3e9, 2.0**32), (0.0, 1.0)):
        q = loss.quantise(np.array([[-largest], [largest / 3]]), np.ones((2, 1)))
        assert q.scale == scale
        assert abs(int(q.g[0, 0])) == round(largest / scale * UNIT)
        assert (q.h == UNIT).all()


def test_rounding_is_half_to_even() -> None:
    """Half a unit goes to the even neighbour, as Python's round does."""
    loss = loss_for("binary:logistic", 2)
    g = np.array([[0.5], [1.5], [2.5], [-0.5], [-1.5]]) / UNIT
    assert loss.quantise(g, np.full((5, 1), 0.25)).g[:, 0].tolist() == [0, 2, 2, 0, -2]
    assert FRACTION_BITS == 32


def test_base_margins() -> None:
    """Logit for logistic, the same number for all classes, mean training label or the given number for regression."""
    y = np.array([0.0, 1.0, 5.0])
    assert loss_for("binary:logistic", 2).base_margin(None, y).tolist() == [0.0]
    assert loss_for("binary:logistic", 2).base_margin(0.2, y) == pytest.approx([math.log(0.25)])
    assert loss_for("multi:softprob", 3).base_margin(None, y).tolist() == [0.5, 0.5, 0.5]
    assert loss_for("reg:squarederror", 1).base_margin(None, y).tolist() == [2.0]
    assert loss_for("reg:squarederror", 1).base_margin(-1.0, y).tolist() == [-1.0]


@pytest.mark.parametrize("weighted", [False, True])
def test_a_mean_label_hangs_on_no_order(weighted: bool) -> None:
    """Records in any order have one base margin, to the last bit, the mean of exact sums."""
    rng = np.random.default_rng(3)
    y, w = 2000 + rng.normal(size=80).round(2), rng.random(80) if weighted else None
    orders = [np.arange(80), *(rng.permutation(80) for _ in range(20))]
    loss = loss_for("reg:squarederror", 1)
    found = {float(loss.base_margin(None, y[order], None if w is None else w[order])[0]) for order in orders}
    each = np.ones(80) if w is None else w
    products = sum(map(Fraction, (each * y).tolist()), Fraction(0))
    assert found == {float(products) / float(sum(map(Fraction, each.tolist()), Fraction(0)))}


def test_probabilities_do_not_overflow() -> None:
    """Scores of any size give probabilities from 0 to 1 that sum to 1, without a warning."""
    with np.errstate(all="raise", under="ignore"):
        p = loss_for("binary:logistic", 2).transform(np.array([[-1e4], [0.0], [1e4]]))
        q = loss_for("multi:softprob", 3).transform(np.array([[1e4, -1e4, 0.0], [5.0, 5.0, 5.0]]))
    assert p.tolist() == [0.0, 0.5, 1.0]
    assert q.sum(axis=1) == pytest.approx([1.0, 1.0])


def test_metric_reads_scores_not_probabilities() -> None:
    """A loss turns scores into probabilities before it measures."""
    scores = np.array([[-2.0], [-1.0], [3.0]])
    found = loss_for("binary:logistic", 2).metric(scores, np.array([0, 1, 1]))
    assert found["accuracy"] == pytest.approx(2 / 3)
    assert found["auc"] == 1.0
    assert found["logloss"] == pytest.approx(loss_for("binary:logistic", 2).watched(scores, np.array([0, 1, 1])))


@pytest.mark.parametrize(
    ("objective", "classes", "labels", "words"),
    [
        ("binary:logistic", 2, [0, 1, 2], "from 0 to 1"),
        ("binary:logistic", 2, [1, 1, 1], "one class only"),
        ("multi:softprob", 3, [0, 1.5, 2], "from 0 to 2"),
        ("reg:squarederror", 1, [0.0, float("nan")], "finite"),
    ],
)
def test_labels_that_do_not_fit_are_refused(objective: str, classes: int, labels: list[float], words: str) -> None:
    """The message says what the labels should be."""
    with pytest.raises(DataError, match=words):
        loss_for(objective, classes).check(np.array(labels))


@pytest.mark.parametrize(("objective", "classes"), [("binary:logistic", 3), ("multi:softprob", 1), ("hinge", 2)])
def test_objective_and_classes_must_fit(objective: str, classes: int) -> None:
    """A wrong number of classes or an unknown objective is an error of configuration."""
    with pytest.raises(ConfigError):
        loss_for(objective, classes)

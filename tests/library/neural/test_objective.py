"""Objectives: losses and scores against calculations by hand."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs treetap[neural]")

from treetap.errors import DataError  # noqa: E402
from treetap.neural.params import SplitnnParams  # noqa: E402
from treetap.neural.sides import Objective  # noqa: E402
from treetap.trees.number_metrics import rmse  # noqa: E402

pytestmark = pytest.mark.second_tier


def objective(name: str, classes: int, labels: list[float]) -> Objective:
    """The objective of a job whose training labels are these."""
    return Objective.of(SplitnnParams(objective=name), classes, np.array(labels))


@pytest.mark.parametrize(
    ("name", "known", "outputs", "labels", "loss", "metrics"),
    [
        # the mean of −log softmax at the true class
        (
            "multi:softprob",
            [0, 1, 2],
            [[0.0, np.log(2.0), 0.0], [1.0, 1.0, 1.0]],
            [1, 2],
            (-np.log(2 / 4) - np.log(1 / 3)) / 2,
            {"accuracy": 0.5},
        ),
        # the mean of log(1 + exp(∓score)); one column of scores, the margin of the second class
        (
            "binary:logistic",
            [0, 1],
            [[0.0], [np.log(3.0)], [np.log(3.0)]],
            [0, 1, 0],
            (np.log(2) + np.log(4 / 3) + np.log(4)) / 3,
            {"accuracy": 2 / 3, "auc": 0.75},
        ),
    ],
)
def test_classes(
    name: str,
    known: list[float],
    outputs: list[list[float]],
    labels: list[int],
    loss: float,
    metrics: dict[str, float],
) -> None:
    """Scores are the margins; the loss, and metrics of probabilities, by hand."""
    found, given, true = objective(name, len(known), known), torch.tensor(outputs), np.array(labels)
    assert found.outputs == given.shape[1]
    assert float(found.loss(given, true)) == pytest.approx(loss, rel=1e-6)
    scores = found.scores(given)
    assert scores == pytest.approx(given.numpy())
    told = found.metrics(scores, true)
    assert told == pytest.approx({**told, **metrics, "logloss": loss}, rel=1e-6)
    assert found.watched(scores, true) == told["logloss"]


def test_regression_learns_standardised_targets_and_answers_in_raw_units() -> None:
    """Targets of mean 20 and deviation 10 are ∓1 to the network; an output of 0.5 is 25."""
    found = objective("reg:squarederror", 0, [10.0, 30.0])
    assert (found.centre, found.spread, found.outputs) == (20.0, 10.0, 1)
    outputs, labels = torch.tensor([[0.5], [1.0]]), np.array([10.0, 30.0])
    assert float(found.loss(outputs, labels)) == pytest.approx((1.5**2 + 0.0) / 2)
    scores = found.scores(outputs)
    assert scores.tolist() == [[25.0], [30.0]]
    assert scores.dtype == np.float64
    assert found.metrics(scores, labels) == {"rmse": pytest.approx(rmse(np.array([25.0, 30.0]), labels))}
    assert found.watched(scores, labels) == pytest.approx(15 / np.sqrt(2))


@pytest.mark.parametrize("value", [0.1, 0.0, -3e300])
def test_equal_targets(value: float) -> None:
    """Rounding would give them a deviation; the network learns 0 and answers the value."""
    found = objective("reg:squarederror", 0, [value] * 1000)
    assert (found.centre, found.spread) == (value, 1.0)
    assert float(found.loss(torch.zeros(3, 1), np.full(3, value))) == 0.0
    assert found.scores(torch.zeros(1, 1)).tolist() == [[value]]


def test_huge_targets() -> None:
    """Targets of 1e100 are learned as small numbers; those whose squares have no float64 are refused."""
    found = objective("reg:squarederror", 0, [1e100, 3e100])
    assert float(found.loss(torch.zeros(2, 1), np.array([1e100, 3e100]))) == pytest.approx(1.0)
    with pytest.raises(DataError, match="the label: the numbers are too large to standardise; rescale them"):
        objective("reg:squarederror", 0, [1e300, -1e300])


def chances(margins: np.ndarray) -> np.ndarray:
    return np.asarray(np.exp(margins) / np.exp(margins).sum(axis=1, keepdims=True))


@pytest.mark.parametrize(
    ("name", "classes", "known", "outputs", "labels", "expected"),
    [
        (
            "multi:softprob",
            3,
            [0, 1, 2],
            [[0.2, -0.4, 1.0], [0.0, 0.5, 0.1]],
            [2, 0],
            lambda each: chances(each) - np.eye(3)[[2, 0]],
        ),
        ("binary:logistic", 2, [0, 1], [[0.3], [-2.0]], [1, 0], lambda each: 1 / (1 + np.exp(-each)) - [[1], [0]]),
        ("reg:squarederror", 0, [-1.0, 1.0], [[0.3], [-2.0]], [1.0, -1.0], lambda each: 2 * (each - [[1], [-1]])),
    ],
)
def test_gradients_are_those_of_the_mean(
    name: str,
    classes: int,
    known: list[float],
    outputs: list[list[float]],
    labels: list[float],
    expected: Callable[[np.ndarray], np.ndarray],
) -> None:
    """(softmax − one-hot) / n, (σ − y) / n and 2 (output − target) / n."""
    given = torch.tensor(outputs, requires_grad=True)
    objective(name, classes, known).loss(given, np.array(labels)).backward()
    assert given.grad.numpy() == pytest.approx(expected(given.detach().numpy()) / 2, abs=1e-6)


@pytest.mark.parametrize(
    "each", [objective("reg:squarederror", 0, [0.1, 0.7, 0.2]), objective("multi:softprob", 4, [0, 3])]
)
def test_an_objective_survives_its_manifest(each: Objective) -> None:
    """JSON and back, to the last bit."""
    assert Objective(**json.loads(json.dumps(each.to_dict()))) == each

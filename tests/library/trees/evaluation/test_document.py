"""Documents of evaluations, compared with scikit-learn."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn import metrics as sk
from sklearn.calibration import calibration_curve

from treetap.trees.evaluation import MOST_CLASSES, MOST_POINTS, evaluate, roc_points


def _binary(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, n)
    return np.clip(0.3 * labels + 0.7 * rng.random(n), 0, 1), labels


def test_binary_document_equals_scikit_learn() -> None:
    """Measures, confusion, figures per class and calibration are scikit-learn's."""
    chance, labels = _binary(500)
    found = evaluate("binary:logistic", chance, labels, ["no", "yes"])
    predicted = chance > 0.5
    assert found["measures"]["auc"] == pytest.approx(sk.roc_auc_score(labels, chance))
    assert found["measures"]["logloss"] == pytest.approx(sk.log_loss(labels, chance))
    assert found["confusion"] == sk.confusion_matrix(labels, predicted).tolist()
    precision, recall, f1, support = sk.precision_recall_fscore_support(labels, predicted)
    for k, row in enumerate(found["per_class"]):
        assert row["class"] == ["no", "yes"][k]
        assert [row["precision"], row["recall"], row["f1"]] == pytest.approx([precision[k], recall[k], f1[k]])
        assert row["support"] == support[k]
    macro = sk.precision_recall_fscore_support(labels, predicted, average="macro")[:3]
    assert list(found["averages"]["macro"].values()) == pytest.approx(macro)
    (curve,) = found["calibration"]
    observed, mean = calibration_curve(labels, chance, n_bins=10)
    filled = [row for row in curve["bins"] if row["records"]]
    assert [row["observed"] for row in filled] == pytest.approx(observed)
    assert [row["mean"] for row in filled] == pytest.approx(mean)
    assert sum(row["records"] for row in curve["bins"]) == 500
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    (roc,) = evaluate("binary:logistic", chance.round(1), labels, ["no", "yes"])["roc"]
    assert roc["average_precision"] == pytest.approx(sk.average_precision_score(labels, chance.round(1)))


@pytest.mark.parametrize("decimals", [1, 2, 6])
def test_roc_corners_make_scikit_learns_curve(decimals: int) -> None:
    """Ties of scores make slanted parts; points between the corners of one are left out, and lie on the line."""
    chance, labels = _binary(150, seed=decimals)
    chance = chance.round(decimals)
    found = roc_points(chance, labels)
    false, true, thresholds = sk.roc_curve(labels, chance, drop_intermediate=False)
    every = {(x, y): at for x, y, at in zip(false, true, thresholds, strict=True)}
    for row in found[1:]:
        assert every[row["false"], row["true"]] == row["threshold"]
    assert found[0] == {"false": 0.0, "true": 0.0, "threshold": None}
    length = np.array([row["false"] + row["true"] for row in found])
    for name, whole in (("false", false), ("true", true)):
        assert np.interp(false + true, length, [row[name] for row in found]) == pytest.approx(whole)
    assert len(found) < len(false)


def test_long_roc_keeps_its_area() -> None:
    """Of thousands of corners at most `MOST_POINTS` stay, both ends among them."""
    chance, labels = _binary(20_000)
    found = roc_points(chance, labels)
    assert 100 < len(found) <= MOST_POINTS
    assert (found[-1]["false"], found[-1]["true"]) == (1.0, 1.0)
    area = np.trapezoid([row["true"] for row in found], [row["false"] for row in found])
    assert area == pytest.approx(sk.roc_auc_score(labels, chance), abs=1e-3)


def test_multiclass_document_equals_scikit_learn() -> None:
    """Weighted averages, and a curve of each class against the rest; a class without records has none."""
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 3, 400)
    chances = rng.dirichlet(np.ones(4), 400)
    chances[np.arange(400), labels] += 0.4
    chances /= chances.sum(axis=1, keepdims=True)
    found = evaluate("multi:softprob", chances, labels, ["a", "b", "c", "none"])
    predicted = chances.argmax(axis=1)
    assert found["confusion"] == sk.confusion_matrix(labels, predicted, labels=range(4)).tolist()
    weighted = sk.precision_recall_fscore_support(labels, predicted, average="weighted", zero_division=0)[:3]
    assert list(found["averages"]["weighted"].values()) == pytest.approx(weighted)
    macro = sk.precision_recall_fscore_support(labels, predicted, average="macro", zero_division=0)[:3]
    assert list(found["averages"]["macro"].values()) == pytest.approx(macro)
    assert [row["class"] for row in found["roc"]] == ["a", "b", "c", "none"]
    for k in range(3):
        assert found["roc"][k]["auc"] == pytest.approx(sk.roc_auc_score(labels == k, chances[:, k]))
    assert found["roc"][3] == {"class": "none", "auc": None, "average_precision": None, "points": []}
    json.dumps(found, allow_nan=False)


def test_one_class_alone_has_no_area() -> None:
    """Labels of one class leave auc and ks undefined, which JSON has as null."""
    found = evaluate("binary:logistic", np.array([0.2, 0.7]), np.array([0, 0]), ["no", "yes"])
    assert found["measures"]["auc"] is None
    assert found["measures"]["accuracy"] == 0.5
    assert found["confusion"] == [[1, 1], [0, 0]]


def test_many_classes_have_no_matrix() -> None:
    """The document stays small: figures per class only."""
    classes = MOST_CLASSES + 1
    chances = np.full((200, classes), 1 / classes)
    found = evaluate("gini", chances, np.arange(200) % classes, [str(k) for k in range(classes)])
    assert found["confusion"] is None
    assert found["roc"] == found["calibration"] == []
    assert len(found["per_class"]) == classes


def test_half_is_the_first_class() -> None:
    """A probability of exactly one half counts alike in accuracy and in the confusion matrix."""
    found = evaluate("binary:logistic", np.array([0.5, 0.5]), np.array([0, 1]), ["no", "yes"])
    assert found["confusion"] == [[1, 0], [1, 0]]
    assert found["measures"]["accuracy"] == 0.5


def test_regression_document_equals_scikit_learn() -> None:
    """Rmse, mae, r2 and quantiles of residuals."""
    rng = np.random.default_rng(3)
    truth = rng.normal(size=200)
    values = truth + rng.normal(size=200)
    found = evaluate("reg:squarederror", values, truth, [])
    assert found["measures"]["rmse"] == pytest.approx(sk.root_mean_squared_error(truth, values))
    assert found["measures"]["mae"] == pytest.approx(sk.mean_absolute_error(truth, values))
    assert found["measures"]["r2"] == pytest.approx(sk.r2_score(truth, values))
    assert [row["value"] for row in found["residuals"]] == pytest.approx(
        np.quantile(truth - values, [row["share"] for row in found["residuals"]])
    )
    assert evaluate("squared_error", values, np.ones(200), [])["measures"]["r2"] is None

"""An evaluation of predictions as one plain JSON document, in numpy alone.

Files of evaluated predictions and the reports of experiments have it. The document of a classification, in which names
and formulas are scikit-learn's:

    version, objective, records, classes     the number of the format; N; names of the classes
    measures                                 name → number: those of `treetap.trees.metrics.evaluate`
    confusion                                C rows by true class, C columns by predicted class: numbers of records
    per_class                                for each class: precision, recall, f1, support, predicted
    averages                                 macro and weighted: precision, recall, f1
    roc                                      for each class shown: auc, average_precision, points of {false, true,
                                             threshold}
    calibration                              for each class shown: ten bins of {low, high, records, mean, observed}

and of a regression: version, objective, records, measures (those, mae, r2, and of counts and amounts deviance and d2)
and `residuals`, the quantiles of the label less the prediction; of survival its loss and the index of
concordance. A figure that is not defined is null.

Two classes show the curves of one alone: of the second, unless the first is rare. More classes show those of each
against the rest. Where one is looked for, its curves are the only ones. Above `MOST_CLASSES` classes `confusion` is
null and, unless one is looked for, `roc` and `calibration` are empty.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from treetap.arrays import Array, Floats, Ints
from treetap.trees import metrics
from treetap.trees.job_params import COX, REGRESSIONS, SURVIVAL
from treetap.trees.number_metrics import explained
from treetap.trees.survival import concordance

Json = dict[str, Any]
Row = dict[str, float | int]
#: Format of the document.
VERSION = 2
#: Most classes of which a document has the confusion matrix and curves.
MOST_CLASSES = 50
#: Below this share of the records the first of two classes is rare: the one that is looked for, as frauds are.
RARE = 0.25
#: Figures of a class that `averages` averages.
AVERAGED = ("precision", "recall", "f1")
#: Most points of a ROC curve.
MOST_POINTS = 200
#: Bins of equal width of the predicted probability.
CALIBRATION_BINS = 10
#: Shares at which a document has the quantiles of residuals.
QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)


def evaluate(
    objective: str,
    prediction: Array,
    labels: Array,
    classes: Sequence[str],
    positive: str | None = None,
    options: Mapping[str, Any] = MappingProxyType({}),
) -> Json:
    """The document of N predictions.

    `prediction`: what `Ensemble.outcome` returns: (N,) probabilities of the second class for binary:logistic, (N, C)
    for multi:softprob and gini, (N,) values of a regression. `labels`: (N,) numbers of `classes`, or targets.
    `classes`: their names; none for a regression. `positive`: the one that is looked for. `options`: see
    `metrics.evaluate`. N is at least 1.
    """
    predicted = np.asarray(prediction, dtype=np.float64)
    measures = metrics.evaluate(objective, predicted, labels, options=options)
    head: Json = {"version": VERSION, "objective": objective, "records": len(labels)}
    if objective in REGRESSIONS:
        values, truth = predicted.reshape(-1), np.asarray(labels, dtype=np.float64)
        if objective in SURVIVAL:  # their labels are no numbers to come near to
            measures["concordance"] = concordance(-values if objective == COX else values, truth)
            return {**head, "measures": metrics.finite(measures), "residuals": []}
        measures |= {"mae": float(np.mean(np.abs(values - truth))), "r2": r2(values, truth)}
        measures |= explained(objective, values, truth, options)
        quantiles = zip(QUANTILES, np.quantile(truth - values, QUANTILES), strict=True)
        residuals = [{"share": share, "value": float(value)} for share, value in quantiles]
        return {**head, "measures": metrics.finite(measures), "residuals": residuals}
    truth = np.asarray(labels).astype(np.int64)
    chances = predicted if predicted.ndim == 2 else np.stack([1.0 - predicted, predicted], axis=1)
    # a probability of exactly one half is of the first class, as `metrics.evaluate` counts it
    confusion = confusion_of(truth, chances.argmax(axis=1), len(classes))
    rows = per_class(confusion)
    if positive in classes:
        shown = [list(classes).index(str(positive))]
    elif len(classes) == 2:
        shown = [looked_for(int(np.count_nonzero(truth == 0)), len(truth))]
    else:
        shown = [] if len(classes) > MOST_CLASSES else list(range(len(classes)))
    return {
        **head,
        "classes": list(classes),
        "measures": metrics.finite(measures),
        "confusion": confusion.tolist() if len(classes) <= MOST_CLASSES else None,
        "per_class": [{"class": name, **row} for name, row in zip(classes, rows, strict=True)],
        "averages": averages(rows),
        "roc": [_roc(classes[k], chances[:, k], truth == k) for k in shown],
        "calibration": [{"class": classes[k], "bins": calibration_bins(chances[:, k], truth == k)} for k in shown],
    }


def looked_for(first: int, records: int) -> int:
    """The number of the class, of two, that is looked for; `first`: the records of the first one."""
    return 0 if 0 < first < RARE * records else 1


def _roc(name: str, chance: Array, positive: Array) -> Json:
    areas = {"auc": metrics.auc(chance, positive), "average_precision": average_precision(chance, positive)}
    return {"class": name, **metrics.finite(areas), "points": roc_points(chance, positive)}


def confusion_of(labels: Array, predicted: Array, classes: int) -> Ints:
    """Numbers of records (C, C) by true class, in rows, and predicted class; both (N,) class numbers."""
    pairs = np.asarray(labels, dtype=np.int64) * classes + np.asarray(predicted, dtype=np.int64)
    return np.bincount(pairs, minlength=classes * classes).reshape(classes, classes).astype(np.int64)


def per_class(confusion: Ints) -> list[Row]:
    """Of each class precision, recall and F1, the records that it has and those predicted to be of it.

    A quotient of no records is 0, as with scikit-learn's `zero_division=0`.
    """
    right, support, predicted = np.diag(confusion), confusion.sum(axis=1), confusion.sum(axis=0)
    precision, recall, f1 = _share(right, predicted), _share(right, support), _share(2 * right, support + predicted)
    columns = (precision.tolist(), recall.tolist(), f1.tolist(), support.tolist(), predicted.tolist())
    names = (*AVERAGED, "support", "predicted")
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def averages(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """Means over the classes, plain and weighted by support.

    As in scikit-learn a class that has no record and is predicted for none does not count.
    """
    present = [row for row in rows if row["support"] or row["predicted"]]
    weights = {"macro": None, "weighted": [row["support"] for row in present]}
    return {
        kind: {name: float(np.average([row[name] for row in present], weights=weight)) for name in AVERAGED}
        for kind, weight in weights.items()
    }


def _share(part: Ints, whole: Ints) -> Floats:
    return np.divide(part, whole, out=np.zeros(len(part)), where=whole > 0)


def average_precision(chance: Array, positive: Array) -> float:
    """Mean over the positives of the precision at each one's score, as scikit-learn has it; NaN without positives.

    `chance` (N,), `positive` (N,) bool.
    """
    _, place = np.unique(np.asarray(chance, dtype=np.float64), return_inverse=True)
    hits, flagged = np.bincount(place, weights=positive)[::-1], np.bincount(place)[::-1]
    precision = np.cumsum(hits) / np.cumsum(flagged)
    return float((hits * precision).sum() / hits.sum()) if hits.any() else math.nan


def roc_points(chance: Array, positive: Array) -> list[Json]:
    """Points of the ROC curve from (0, 0) to (1, 1): shares of negatives and of positives at or above a threshold.

    `chance` (N,), `positive` (N,) bool. Corners alone are kept, points between two on one line are not; of more than
    `MOST_POINTS` corners those that divide the length of the curve evenly. The first point has no threshold. No points
    where a class is absent.
    """
    truth = np.asarray(positive).astype(bool)
    positives = int(truth.sum())
    negatives = len(truth) - positives
    if not positives or not negatives:
        return []
    values, place = np.unique(np.asarray(chance, dtype=np.float64), return_inverse=True)
    hits = np.cumsum(np.bincount(place, weights=truth)[::-1])
    alarms = np.cumsum(np.bincount(place, weights=~truth)[::-1])
    hits, alarms = np.r_[0.0, hits], np.r_[0.0, alarms]
    thresholds = np.r_[math.inf, values[::-1]]
    turn = np.diff(hits)[:-1] * np.diff(alarms)[1:] != np.diff(hits)[1:] * np.diff(alarms)[:-1]
    kept = np.flatnonzero(np.r_[True, turn, True])
    if len(kept) > MOST_POINTS:
        length = alarms[kept] / negatives + hits[kept] / positives
        wanted = np.searchsorted(length, np.linspace(0.0, length[-1], MOST_POINTS))
        kept = kept[np.unique(np.minimum(wanted, len(kept) - 1))]
    return [
        {
            "false": float(alarms[k] / negatives),
            "true": float(hits[k] / positives),
            "threshold": float(thresholds[k]) if math.isfinite(thresholds[k]) else None,
        }
        for k in kept
    ]


def calibration_bins(chance: Array, positive: Array) -> list[Json]:
    """`CALIBRATION_BINS` bins of predicted probabilities (N,), the upper bound in the last one only.

    Of each its bounds, its number of records, their mean probability, and the share that is of the class; the last two
    are null where there is no record.
    """
    given, truth = np.asarray(chance, dtype=np.float64), np.asarray(positive).astype(bool)
    number = np.minimum((given * CALIBRATION_BINS).astype(np.int64), CALIBRATION_BINS - 1)
    count = np.bincount(number, minlength=CALIBRATION_BINS)
    total = np.bincount(number, weights=given, minlength=CALIBRATION_BINS)
    observed = np.bincount(number, weights=truth, minlength=CALIBRATION_BINS)
    return [
        {
            "low": k / CALIBRATION_BINS,
            "high": (k + 1) / CALIBRATION_BINS,
            "records": int(count[k]),
            "mean": float(total[k] / count[k]) if count[k] else None,
            "observed": float(observed[k] / count[k]) if count[k] else None,
        }
        for k in range(CALIBRATION_BINS)
    ]


def r2(predicted: Floats, targets: Floats) -> float:
    """Coefficient of determination: 1 less the squared error over that of the mean target; NaN if targets are equal."""
    spread = float(((targets - targets.mean()) ** 2).sum())
    return float("nan") if spread == 0 else 1.0 - float(((targets - predicted) ** 2).sum()) / spread

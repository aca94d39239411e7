"""An evaluation of predictions as one plain JSON document, in numpy alone.

Files of evaluated predictions and the reports of experiments have it. The document of a classification:

    version, objective, records, classes     the number of the format; N; names of the classes
    measures                                 name → number: those of `treetap.trees.metrics.evaluate`
    confusion                                C rows by true class, C columns by predicted class: numbers of records
    per_class                                for each class: precision, recall, f1, support, predicted
    averages                                 macro and weighted: precision, recall, f1
    roc                                      for each class shown: auc, points of {false, true, threshold}
    calibration                              for each class shown: ten bins of {low, high, records, mean, observed}

and of a regression: version, objective, records, measures (rmse, mae, r2) and `residuals`, the quantiles of the label
less the prediction. A figure that is not defined is null.

Two classes show the curves of the second one alone, more classes those of each against the rest. Above `MOST_CLASSES`
classes `confusion` is null and `roc` and `calibration` are empty.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from treetap.trees import metrics
from treetap.trees.evaluation.classification import averages, confusion_of, per_class
from treetap.trees.evaluation.curves import calibration_bins, roc_points
from treetap.trees.evaluation.regression import mae, r2, residual_quantiles
from treetap.trees.job_params import REGRESSIONS

Json = dict[str, Any]
Array = npt.NDArray[Any]
#: Format of the document.
VERSION = 1
#: Most classes of which a document has the confusion matrix and curves.
MOST_CLASSES = 50


def evaluate(objective: str, prediction: Array, labels: Array, classes: Sequence[str]) -> Json:
    """The document of N predictions.

    `prediction`: what `Ensemble.outcome` returns: (N,) probabilities of the second class for binary:logistic, (N, C)
    for multi:softprob and gini, (N,) values of a regression. `labels`: (N,) numbers of `classes`, or targets.
    `classes`: their names; none for a regression. N is at least 1.
    """
    found = np.asarray(prediction, dtype=np.float64)
    measures = metrics.evaluate(objective, found, labels)
    head: Json = {"version": VERSION, "objective": objective, "records": len(labels)}
    if objective in REGRESSIONS:
        values, truth = found.reshape(-1), np.asarray(labels, dtype=np.float64)
        measures |= {"mae": mae(values, truth), "r2": r2(values, truth)}
        return {**head, "measures": defined(measures), "residuals": residual_quantiles(values, truth)}
    truth = np.asarray(labels).astype(np.int64)
    chances = found if found.ndim == 2 else np.stack([1.0 - found, found], axis=1)
    # a probability of exactly one half is of the first class, as `metrics.evaluate` counts it
    confusion = confusion_of(truth, chances.argmax(axis=1), len(classes))
    rows = per_class(confusion)
    shown = [] if len(classes) > MOST_CLASSES else [1] if len(classes) == 2 else list(range(len(classes)))
    return {
        **head,
        "classes": list(classes),
        "measures": defined(measures),
        "confusion": confusion.tolist() if shown else None,
        "per_class": [{"class": name, **row} for name, row in zip(classes, rows, strict=True)],
        "averages": averages(rows),
        "roc": [_roc(classes[k], chances[:, k], truth == k) for k in shown],
        "calibration": [{"class": classes[k], "bins": calibration_bins(chances[:, k], truth == k)} for k in shown],
    }


def defined(measures: Mapping[str, float]) -> dict[str, float | None]:
    """Figures as JSON has them: one that is no finite number is null."""
    return {name: value if math.isfinite(value) else None for name, value in measures.items()}


def _roc(name: str, chance: Array, positive: Array) -> Json:
    area = metrics.auc(chance, positive)
    return {"class": name, **defined({"auc": area}), "points": roc_points(chance, positive)}

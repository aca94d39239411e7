"""Measures of a prediction, in numpy alone: importing scikit-learn costs a party's process 155 MB.

`weights` (N,): of the records, as XGBoost weighs its metrics; None: all count alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from treetap.arrays import Array
from treetap.trees.job_params import REGRESSIONS
from treetap.trees.number_metrics import mean, of_numbers

# Probabilities are kept this far from 0 and 1 before a logarithm (double precision's unit, as scikit-learn does).
_CLIP = float(np.finfo(np.float64).eps)


def finite(measures: Mapping[str, float]) -> dict[str, float | None]:
    """Measures as a file has them: one that is no finite number is null."""
    return {name: value if np.isfinite(value) else None for name, value in measures.items()}


def auc(score: Array, positive: Array, weights: Array | None = None) -> float:
    """Area under the ROC curve by average ranks (Mann–Whitney). NaN if only one class is present.

    `score` (N,) any order-preserving score, `positive` (N,) truth as 0/1 or bool. With weights a pair of records of the
    two classes counts the product of theirs.
    """
    return auc_of(score, positive)(weights)


def auc_of(score: Array, positive: Array) -> Callable[[Array | None], float]:
    """`auc` by weights: the scores are sorted once."""
    cells = _cells(score, positive)
    return lambda weights: _area(_weighed(cells, weights))


def ks(score: Array, positive: Array, weights: Array | None = None) -> float:
    """Kolmogorov–Smirnov distance between the scores of the two classes, in [0, 1]. NaN if one class is absent."""
    return _distance(_weighed(_cells(score, positive), weights))


def population_stability(before: Array, now: Array) -> float:
    """Population stability index of scores (n,) beside earlier ones (m,), by ten bins with as many of the earlier each.

    Σ (q − p) ln(q / p) over bins, p and q: the shares of the two (Siddiqi 2006). Equal earlier scores can make fewer
    bins; half a record more in each keeps an empty one finite. Around 0.1 and below scores count as stable, above 0.25
    as shifted.
    """
    edges = np.unique(np.quantile(before, np.linspace(0, 1, 11)[1:-1]))
    shares = []
    for scores in (before, now):
        counts = np.bincount(np.searchsorted(edges, scores, side="right"), minlength=len(edges) + 1) + 0.5
        shares.append(counts / counts.sum())
    earlier, later = shares
    return float(((later - earlier) * np.log(later / earlier)).sum())


#: Weights of positive and of negative records by distinct score, ascending.
_Weights = tuple[Array, Array]


def _cells(score: Array, positive: Array) -> Array:
    """Twice the number of each record's distinct score (N,), ascending, and 1 more of a positive one.

    One sort serves all measures of an order.
    """
    place = np.unique(np.asarray(score, dtype=np.float64), return_inverse=True)[1]
    return np.asarray(2 * place + np.asarray(positive).astype(bool))


def _weighed(cells: Array, weights: Array | None) -> _Weights | None:
    """The weights by distinct score; None if a class has none."""
    others, ours = np.bincount(cells, weights, 2 * (int(cells.max(initial=0)) // 2 + 1)).reshape(-1, 2).T
    return (ours, others) if ours.any() and others.any() else None


def _area(of_class: _Weights | None) -> float:
    if of_class is None:
        return float("nan")
    ours, others = of_class
    below = np.cumsum(others) - others
    return float((ours * (below + others / 2.0)).sum() / (ours.sum() * others.sum()))


def _distance(of_class: _Weights | None) -> float:
    if of_class is None:
        return float("nan")
    share_positive, share_negative = (np.cumsum(of_one) / of_one.sum() for of_one in of_class)
    return float(np.abs(share_positive - share_negative).max())


def accuracy(predicted: Array, labels: Array, weights: Array | None = None) -> float:
    """Share of equal entries of two (N,) arrays of class numbers."""
    return mean(np.asarray(predicted) == np.asarray(labels), weights)


def logloss(probability: Array, labels: Array, weights: Array | None = None) -> float:
    """Mean negative log-likelihood (natural logarithm).

    `probability` is (N,) for P(label = 1), or (N, C) with rows summing to 1; `labels` (N,) class numbers.
    """
    chance = np.clip(np.asarray(probability, dtype=np.float64), _CLIP, 1.0 - _CLIP)
    truth = np.asarray(labels).astype(np.int64)
    given = np.where(truth == 1, chance, 1.0 - chance) if chance.ndim == 1 else chance[np.arange(len(truth)), truth]
    return -mean(np.log(given), weights)


def macro_auc(probability: Array, labels: Array, weights: Array | None = None) -> float:
    """Mean over classes of one-versus-rest AUC; classes without positives or negatives are left out."""
    areas = [auc(probability[:, c], np.asarray(labels) == c, weights) for c in range(probability.shape[1])]
    known = [value for value in areas if not np.isnan(value)]
    return float(np.mean(known)) if known else float("nan")


def evaluate(
    objective: str,
    prediction: Array,
    labels: Array,
    weights: Array | None = None,
    options: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, float]:
    """The measures that fit an objective; `options`: the parameters of the training, by name.

    `prediction` is what `Ensemble.outcome` returns: (N,) probabilities for binary:logistic, (N, C) for multi:softprob
    and gini, (N,) values of numbers. Binary: auc, ks, accuracy (threshold ½), logloss. Multi: accuracy, logloss, auc
    (macro, one versus rest). Numbers: `number_metrics`. A forest for two classes has the binary ones.
    """
    predicted = np.asarray(prediction, dtype=np.float64)
    if objective in REGRESSIONS:
        return of_numbers(objective, predicted.reshape(-1), labels, weights, options)
    if objective == "gini" and predicted.shape[1] == 2:
        predicted = predicted[:, 1]
    elif objective in ("multi:softprob", "gini"):
        return {
            "accuracy": accuracy(predicted.argmax(axis=1), labels, weights),
            "logloss": logloss(predicted, labels, weights),
            "auc": macro_auc(predicted, labels, weights),
        }
    chance = predicted.reshape(-1)
    of_class = _weighed(_cells(chance, labels), weights)
    return {
        "auc": _area(of_class),
        "ks": _distance(of_class),
        "accuracy": accuracy((chance > 0.5).astype(np.int64), np.asarray(labels).astype(np.int64), weights),
        "logloss": logloss(chance, labels, weights),
    }


def watched(
    objective: str,
    prediction: Array,
    labels: Array,
    weights: Array | None = None,
    options: Mapping[str, Any] = MappingProxyType({}),
) -> float:
    """The loss that early stopping watches, lower is better: XGBoost's default metric of the objective."""
    predicted = np.asarray(prediction, dtype=np.float64)
    if objective in REGRESSIONS:
        return next(iter(of_numbers(objective, predicted.reshape(-1), labels, weights, options).values()))
    return logloss(predicted, labels, weights)

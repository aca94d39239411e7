"""Measures of a prediction, in numpy alone: importing scikit-learn costs a party's process 155 MB.

`weights` (N,): of the records, as XGBoost weighs its metrics; None: all count alike.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from treetap.arrays import Array
from treetap.trees.job_params import REGRESSIONS

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
    truth = np.asarray(positive).astype(bool)
    if weights is not None:
        of_class = _by_score(score, truth, weights)
        if of_class is None:
            return float("nan")
        ours, others = of_class
        below = np.cumsum(others) - others
        return float((ours * (below + others / 2.0)).sum() / (ours.sum() * others.sum()))
    n_positive = int(truth.sum())
    n_negative = len(truth) - n_positive
    if n_positive == 0 or n_negative == 0:
        return float("nan")
    _, group, size = np.unique(np.asarray(score, dtype=np.float64), return_inverse=True, return_counts=True)
    last = np.cumsum(size)
    rank = (last - (size - 1) / 2.0)[group]
    return float((rank[truth].sum() - n_positive * (n_positive + 1) / 2.0) / (n_positive * n_negative))


def ks(score: Array, positive: Array, weights: Array | None = None) -> float:
    """Kolmogorov–Smirnov distance between the scores of the two classes, in [0, 1]. NaN if one class is absent."""
    truth = np.asarray(positive).astype(bool)
    of_class = _by_score(score, truth, np.ones(len(truth)) if weights is None else weights)
    if of_class is None:
        return float("nan")
    share_positive, share_negative = (np.cumsum(of_one) / of_one.sum() for of_one in of_class)
    return float(np.abs(share_positive - share_negative).max())


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


def _by_score(score: Array, truth: Array, weights: Array) -> tuple[Array, Array] | None:
    """Weights of positive and of negative records by distinct score, ascending; None if a class has none."""
    _, group = np.unique(np.asarray(score, dtype=np.float64), return_inverse=True)
    positive = np.bincount(group, weights=weights * truth)
    negative = np.bincount(group, weights=weights * ~truth)
    return (positive, negative) if positive.any() and negative.any() else None


def accuracy(predicted: Array, labels: Array, weights: Array | None = None) -> float:
    """Share of equal entries of two (N,) arrays of class numbers."""
    return _mean(np.asarray(predicted) == np.asarray(labels), weights)


def logloss(probability: Array, labels: Array, weights: Array | None = None) -> float:
    """Mean negative log-likelihood (natural logarithm).

    `probability` is (N,) for P(label = 1), or (N, C) with rows summing to 1; `labels` (N,) class numbers.
    """
    chance = np.clip(np.asarray(probability, dtype=np.float64), _CLIP, 1.0 - _CLIP)
    truth = np.asarray(labels).astype(np.int64)
    given = np.where(truth == 1, chance, 1.0 - chance) if chance.ndim == 1 else chance[np.arange(len(truth)), truth]
    return -_mean(np.log(given), weights)


def rmse(predicted: Array, labels: Array, weights: Array | None = None) -> float:
    """Root of the mean squared difference of two (N,) arrays."""
    return float(np.sqrt(_mean((np.asarray(predicted) - np.asarray(labels)) ** 2, weights)))


def _mean(values: Array, weights: Array | None) -> float:
    """The mean of values (N,); NaN if no record has a weight."""
    if weights is None:
        return float(np.mean(values))
    return float(np.average(values, weights=weights)) if np.any(weights) else float("nan")


def macro_auc(probability: Array, labels: Array, weights: Array | None = None) -> float:
    """Mean over classes of one-versus-rest AUC; classes without positives or negatives are left out."""
    areas = [auc(probability[:, c], np.asarray(labels) == c, weights) for c in range(probability.shape[1])]
    known = [value for value in areas if not np.isnan(value)]
    return float(np.mean(known)) if known else float("nan")


def evaluate(objective: str, prediction: Array, labels: Array, weights: Array | None = None) -> dict[str, float]:
    """The measures that fit an objective.

    `prediction` is what `Ensemble.outcome` returns: (N,) probabilities for binary:logistic, (N, C) for multi:softprob
    and gini, (N,) values for reg:squarederror and squared_error. Binary: auc, ks, accuracy (threshold ½), logloss.
    Multi: accuracy, logloss, auc (macro, one versus rest). Regression: rmse. A forest for two classes has the binary
    ones.
    """
    predicted = np.asarray(prediction, dtype=np.float64)
    if objective in REGRESSIONS:
        return {"rmse": rmse(predicted.reshape(-1), labels, weights)}
    if objective == "gini" and predicted.shape[1] == 2:
        predicted = predicted[:, 1]
    elif objective in ("multi:softprob", "gini"):
        return {
            "accuracy": accuracy(predicted.argmax(axis=1), labels, weights),
            "logloss": logloss(predicted, labels, weights),
            "auc": macro_auc(predicted, labels, weights),
        }
    chance = predicted.reshape(-1)
    return {
        "auc": auc(chance, labels, weights),
        "ks": ks(chance, labels, weights),
        "accuracy": accuracy((chance > 0.5).astype(np.int64), np.asarray(labels).astype(np.int64), weights),
        "logloss": logloss(chance, labels, weights),
    }


def watched(objective: str, prediction: Array, labels: Array, weights: Array | None = None) -> float:
    """The loss that early stopping watches, lower is better: XGBoost's default metric of the objective."""
    predicted = np.asarray(prediction, dtype=np.float64)
    if objective in REGRESSIONS:
        return rmse(predicted.reshape(-1), labels, weights)
    return logloss(predicted, labels, weights)

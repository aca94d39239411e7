"""Measures of predicted numbers (N,) against labels (N,), by objective, as XGBoost has them (its hyphens underscores).

Means are weighted by `weights` (N,); None: all count alike. A deviance is scikit-learn's, twice what the logarithm of
the likelihood falls short of a perfect prediction's; D² is the part of the mean label's deviance that is explained.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from treetap.arrays import Array, Floats
from treetap.trees import survival
from treetap.trees.job_params import AFT, COX

#: XGBoost's least prediction of a count in a logarithm, and what it adds to both sides of a ratio.
_LEAST_COUNT, _BESIDE = 1e-16, 1e-6
#: Objective → the power p of the variance, which is in proportion to the mean^p; None: a parameter says it.
_POWERS = {"count:poisson": 1.0, "reg:gamma": 2.0, "reg:tweedie": None}


def mean(values: Array, weights: Array | None) -> float:
    """The mean of values (N,); NaN if no record has a weight."""
    if weights is None:
        return float(np.mean(values))
    return float(np.average(values, weights=weights)) if np.any(weights) else float("nan")


def rmse(predicted: Array, labels: Array, weights: Array | None = None) -> float:
    """Root of the mean squared difference of two (N,) arrays."""
    return float(np.sqrt(mean((np.asarray(predicted) - np.asarray(labels)) ** 2, weights)))


def of_numbers(
    objective: str, predicted: Floats, labels: Array, weights: Array | None, options: Mapping[str, Any]
) -> dict[str, float]:
    """The measures that fit an objective of numbers, first the loss that early stopping watches."""
    if objective == COX:
        return {"cox_nloglik": survival.hazard_loss(predicted, labels)}
    if objective == AFT:
        losses = survival.time_losses(np.log(predicted), labels, options)
        within = (labels[:, 0] <= predicted) & (predicted <= labels[:, 1])
        return {"aft_nloglik": mean(losses, weights), "interval_regression_accuracy": mean(within, weights)}
    y, error = np.asarray(labels, dtype=np.float64), {"rmse": rmse(predicted, labels, weights)}
    if objective == "count:poisson":
        counts, places = np.unique(y, return_inverse=True)
        factorials = np.array([math.lgamma(count + 1.0) for count in counts.tolist()])[places]
        rate = np.maximum(predicted, _LEAST_COUNT)
        return {"poisson_nloglik": mean(factorials + rate - np.log(rate) * y, weights), **error}
    if objective == "reg:gamma":
        shown, given = predicted + _BESIDE, y + _BESIDE
        deviance = 2.0 * mean(np.log(shown / given) + given / shown - 1.0, weights)
        return {"gamma_deviance": deviance, "gamma_nloglik": mean(y / predicted + np.log(predicted), weights), **error}
    if objective == "reg:tweedie":
        power, logs = float(options["tweedie_variance_power"]), np.log(predicted)
        losses = np.exp((2.0 - power) * logs) / (2.0 - power) - y * np.exp((1.0 - power) * logs) / (1.0 - power)
        return {"tweedie_nloglik": mean(losses, weights), **error}
    if objective == "reg:quantileerror":
        share, short = float(options["quantile_alpha"]), y - predicted
        error = {"quantile": mean(np.where(short >= 0, share, share - 1.0) * short, weights), **error}
    return error


def explained(objective: str, predicted: Floats, labels: Array, options: Mapping[str, Any]) -> dict[str, float]:
    """`deviance`, and `d2` by the mean label's; of an objective that has a deviance of its own."""
    if objective not in _POWERS:
        return {}
    power, y = _POWERS[objective] or float(options["tweedie_variance_power"]), np.asarray(labels, dtype=np.float64)
    own, least = _deviance(power, predicted, y), _deviance(power, np.full(len(y), y.mean()), y) if y.any() else 0.0
    return {"deviance": own, "d2": 1.0 - own / least if least else float("nan")}


def _deviance(power: float, predicted: Floats, y: Floats) -> float:
    """The mean deviance of a Tweedie distribution with a power of 1, of 2, or between them."""
    if power == 1:
        logs = np.log(np.divide(y, predicted, out=np.ones_like(y), where=y > 0))
        return 2.0 * mean(y * logs - y + predicted, None)
    if power == 2:
        return 2.0 * mean(np.log(predicted / y) + y / predicted - 1.0, None)
    perfect = y ** (2.0 - power) / ((1.0 - power) * (2.0 - power))
    own = predicted ** (2.0 - power) / (2.0 - power) - y * predicted ** (1.0 - power) / (1.0 - power)
    return 2.0 * mean(perfect + own, None)

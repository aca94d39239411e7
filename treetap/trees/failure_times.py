"""Accelerated failure times, as XGBoost has them: the logarithm of a time is the score plus noise by a distribution.

Labels are bounds (N, 2) of times above 0: equal ones are the time of an event, an upper one of infinity is a record
censored at the lower one. With z = (ln t − score) / σ, F and f the noise's distribution and density, the likelihood of
an event is f(z) / (σ·t), of other records F(z_upper) − F(z_lower) (Barnwal, Cho and Hocking 2022). Differences of F,
limits and bounds of derivatives are XGBoost's, so that far from the bounds both say the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from treetap.arrays import Array, Floats

#: Bounds of both derivatives, and the least likelihood and denominator.
_LARGEST, _LEAST_H, _EPS = 15.0, 1e-16, 1e-12
#: The largest z, either way: beyond it F is 0 or 1 and exponentials overflow.
_FARTHEST = 300.0


class Noise(NamedTuple):
    """Of a distribution at z: F, its density f, the density's derivative, and −(ln f)″."""

    total: Floats
    density: Floats
    slope: Floats
    curve: Floats


def _normal(z: Floats) -> Noise:
    density = np.exp(-z * z / 2.0) / math.sqrt(2.0 * math.pi)
    below = np.frompyfunc(math.erf, 1, 1)(z / math.sqrt(2.0)).astype(np.float64)
    return Noise(0.5 * (1.0 + below), density, -z * density, np.ones_like(z))


def _logistic(z: Floats) -> Noise:
    below, above = (1.0 / (1.0 + np.exp(side * z)) for side in (-1.0, 1.0))
    density = below * above
    return Noise(below, density, density * (above - below), 2.0 * density)


def _extreme(z: Floats) -> Noise:
    w = np.exp(z)
    density = w * np.exp(-w)
    return Noise(1.0 - np.exp(-w), density, (1.0 - w) * density, w)


#: Name → the distribution, and its limits of g and h where z is far above 0, and where it is far below of 1/σ.
_NOISES = {
    "normal": (_normal, lambda of: ((-_LARGEST, of * of), (_LARGEST, of * of))),
    "logistic": (_logistic, lambda of: ((-of, _LEAST_H), (of, _LEAST_H))),
    "extreme": (_extreme, lambda of: ((-_LARGEST, _LARGEST), (of, _LEAST_H))),
}
DISTRIBUTIONS = tuple(_NOISES)


def noise_in(options: Mapping[str, Any]) -> tuple[str, float]:
    """The distribution and its scale σ among the parameters of a training."""
    return options["aft_loss_distribution"], options["aft_loss_distribution_scale"]


def _places(scores: Floats, bounds: Array, scale: float) -> tuple[Floats, Floats]:
    """z (N,) of the lower and of the upper bounds."""
    lower, upper = np.clip((np.log(bounds) - scores[:, None]) / scale, -_FARTHEST, _FARTHEST).T
    return lower, upper


def derivatives(scores: Floats, bounds: Array, distribution: str, scale: float) -> tuple[Floats, Floats]:
    """First and second derivative (N,) of the loss in each of the scores (N,); `scale`: σ."""
    noise, limits = _NOISES[distribution]
    lower, upper = _places(scores, bounds, scale)
    event, censored = bounds[:, 0] == bounds[:, 1], np.isinf(bounds[:, 1])
    low, high = noise(lower), noise(upper)
    total, density, slope = (above - below for above, below in zip(high[:3], low[:3], strict=True))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        g = np.where(event, low.slope / low.density, density / total) / scale
        h = np.where(event, low.curve, (density / total) ** 2 - slope / total) / scale**2
    above = np.where(censored, lower, upper) > 0
    (g_above, h_above), (g_below, h_below) = limits(1.0 / scale)
    g_limit = np.where(above, g_above, np.where(censored, 0.0, g_below))
    h_limit = np.where(above, h_above, np.where(censored, _LEAST_H, h_below))
    g, h = np.where(np.isfinite(g), g, g_limit), np.where(np.isfinite(h), h, h_limit)
    return np.clip(g, -_LARGEST, _LARGEST), np.clip(h, _LEAST_H, _LARGEST)


def losses(scores: Floats, bounds: Array, distribution: str, scale: float) -> Floats:
    """The negative logarithm of each record's likelihood (N,), at most −ln 1e-12."""
    noise, _ = _NOISES[distribution]
    low, high = map(noise, _places(scores, bounds, scale))
    of_event = low.density / (scale * bounds[:, 0])
    likelihood = np.where(bounds[:, 0] == bounds[:, 1], of_event, high.total - low.total)
    return np.asarray(-np.log(np.maximum(likelihood, _EPS)))

"""Losses of times to an event, and how far predictions have the order of times.

**Cox's partial likelihood** by Breslow's rule: all whose times tie are at risk at that time. A label (N,) is the time
of an event, or less than 0 where a record was censored at that time, as XGBoost has it. Of events that tie, XGBoost
counts for a record those of earlier rows only; here all count, whatever the order of rows.

**Accelerated failure times**: the logarithm of a time is the score plus noise by a distribution. Labels are bounds
(N, 2) of times above 0: equal ones are the time of an event, an upper one of infinity is a record censored at the lower
one. With z = (ln t − score) / σ, F and f the noise's distribution and density, the likelihood of an event is
f(z) / (σ·t), of other records F(z_upper) − F(z_lower) (Barnwal, Cho and Hocking 2022). Differences of F, limits and
bounds of derivatives are XGBoost's, so that far from the bounds both say the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from treetap.arrays import Array, Bools, Floats, Ints

#: Bounds of both derivatives, and the least likelihood and denominator.
_LARGEST, _LEAST_H, _EPS = 15.0, 1e-16, 1e-12
#: The largest z, either way: beyond it F is 0 or 1 and exponentials overflow.
_FARTHEST = 300.0
#: Of a distribution at z: F, its density f, the density's derivative, and −(ln f)″.
_Noise = tuple[Floats, Floats, Floats, Floats]


class _Ordered(NamedTuple):
    """Records (N,) by time: `places`, hazards, events, the sum of hazards at risk then, the last place that ties."""

    places: Array
    hazards: Floats
    events: Bools
    at_risk: Floats
    last: Array

    @classmethod
    def of(cls, hazards: Floats, labels: Array) -> _Ordered:
        """`hazards`: relative ones, above 0. Equal records are interchangeable, so that sums are of one order."""
        y, times = np.asarray(labels, dtype=np.float64), np.abs(labels)
        places = np.lexsort((hazards, y > 0, times))
        ascending, own = times[places], hazards[places]
        beyond = np.cumsum(own[::-1])[::-1]
        first, last = (np.searchsorted(ascending, ascending, side) for side in ("left", "right"))
        return cls(places, own, y[places] > 0, beyond[first], last - 1)


def hazard_derivatives(scores: Floats, labels: Array) -> tuple[Floats, Floats]:
    """First and second derivative (N,) of Cox's loss in each of the scores (N,)."""
    of = _Ordered.of(np.exp(scores - scores.max(initial=0.0)), labels)
    once, twice = (np.cumsum(of.events / of.at_risk**power)[of.last] for power in (1, 2))
    g, h = np.empty(len(scores)), np.empty(len(scores))
    g[of.places] = of.hazards * once - of.events
    h[of.places] = of.hazards * once - of.hazards**2 * twice
    return g, np.maximum(h, 0.0)


def hazard_loss(hazards: Floats, labels: Array) -> float:
    """The negative logarithm of the likelihood for each event; NaN without events."""
    of = _Ordered.of(hazards, labels)
    return float(-np.mean(np.log(of.hazards / of.at_risk)[of.events])) if of.events.any() else float("nan")


def _normal(z: Floats) -> _Noise:
    density = np.exp(-z * z / 2.0) / math.sqrt(2.0 * math.pi)
    below = np.asarray(np.frompyfunc(math.erf, 1, 1)(z / math.sqrt(2.0)), dtype=np.float64)
    return 0.5 * (1.0 + below), density, -z * density, np.ones_like(z)


def _logistic(z: Floats) -> _Noise:
    below, above = 1.0 / (1.0 + np.exp(-z)), 1.0 / (1.0 + np.exp(z))
    return below, below * above, below * above * (above - below), 2.0 * below * above


def _extreme(z: Floats) -> _Noise:
    w = np.exp(z)
    return 1.0 - np.exp(-w), w * np.exp(-w), (1.0 - w) * w * np.exp(-w), w


#: Name → the distribution, and the limits of g and h where z is far above 0, and where it is far below, by 1/σ.
_NOISES: dict[str, tuple[Callable[[Floats], _Noise], Callable[[float], tuple[float, float, float, float]]]] = {
    "normal": (_normal, lambda of: (-_LARGEST, of * of, _LARGEST, of * of)),
    "logistic": (_logistic, lambda of: (-of, _LEAST_H, of, _LEAST_H)),
    "extreme": (_extreme, lambda of: (-_LARGEST, _LARGEST, of, _LEAST_H)),
}
DISTRIBUTIONS = tuple(_NOISES)


def _noise(scores: Floats, bounds: Array, options: Mapping[str, Any]) -> tuple[Floats, _Noise]:
    """z of the lower and of the upper bounds (2, N), and the distribution there."""
    z = np.clip((np.log(bounds.T) - scores) / options["aft_loss_distribution_scale"], -_FARTHEST, _FARTHEST)
    return z, _NOISES[options["aft_loss_distribution"]][0](z)


def time_derivatives(scores: Floats, bounds: Array, options: Mapping[str, Any]) -> tuple[Floats, Floats]:
    """First and second derivative (N,) of the loss in each of the scores (N,); `options`: the training's parameters."""
    z, (total, density, slope, curve) = _noise(scores, bounds, options)
    event, censored, scale = (
        bounds[:, 0] == bounds[:, 1],
        np.isinf(bounds[:, 1]),
        options["aft_loss_distribution_scale"],
    )
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        within, ratio = total[1] - total[0], (density[1] - density[0]) / (total[1] - total[0])
        g = np.where(event, slope[0] / density[0], ratio) / scale
        h = np.where(event, curve[0], ratio**2 - (slope[1] - slope[0]) / within) / scale**2
    above = np.where(censored, z[0], z[1]) > 0
    g_above, h_above, g_below, h_below = _NOISES[options["aft_loss_distribution"]][1](1.0 / scale)
    g = np.where(np.isfinite(g), g, np.where(above, g_above, np.where(censored, 0.0, g_below)))
    h = np.where(np.isfinite(h), h, np.where(above, h_above, np.where(censored, _LEAST_H, h_below)))
    return np.clip(g, -_LARGEST, _LARGEST), np.clip(h, _LEAST_H, _LARGEST)


def time_losses(scores: Floats, bounds: Array, options: Mapping[str, Any]) -> Floats:
    """The negative logarithm of each record's likelihood (N,), at most −ln 1e-12."""
    _, (total, density, *_) = _noise(scores, bounds, options)
    of_event = density[0] / (options["aft_loss_distribution_scale"] * bounds[:, 0])
    likelihood = np.where(bounds[:, 0] == bounds[:, 1], of_event, total[1] - total[0])
    return np.asarray(-np.log(np.maximum(likelihood, _EPS)))


def concordance(expected: Floats, labels: Array) -> float:
    """Harrell's index: the share of comparable pairs of records whose expected times (N,) are in the order of times.

    Labels are those of either loss. A pair is comparable if the upper bound of one is not above the lower bound of the
    other, and they are no two events of one time. Equal expectations count half. NaN without such pairs. O(N log N).
    """
    times, count = np.asarray(labels, dtype=np.float64), len(expected)
    lower, upper = times.T if times.ndim > 1 else (np.abs(times), np.where(times > 0, times, np.inf))
    # each record as the later one of pairs, and those that ended as the earlier one too; from the last time on
    rows = np.r_[np.arange(count), np.flatnonzero(np.isfinite(upper))]
    first = np.arange(len(rows)) >= count
    order = np.lexsort((first, ~first & (upper > lower)[rows], np.where(first, upper[rows], lower[rows])))[::-1]
    values, first = np.asarray(expected)[rows[order]], first[order]
    pairs = int(np.cumsum(~first)[first].sum())
    wrong = sum(_out_of_order(np.lexsort((tied, values)), first) for tied in (first, ~first)) / 2
    return 1.0 - wrong / pairs if pairs else float("nan")


def _out_of_order(places: Ints, first: Bools) -> int:
    """The pairs of a later record before an earlier one, both by places 0..M−1 and in the order (M,) that they have.

    Places are sorted bit by bit from the highest: of a block that has its higher bits in common one half comes before
    the other, and in each the order is kept.
    """
    total, position = 0, np.arange(len(places))
    for bit in reversed(range(len(places).bit_length())):
        begin, right, earlier = places >> (bit + 1) << (bit + 1), (places >> bit & 1).astype(bool), first[places]
        reached = np.r_[0, np.cumsum(~right & ~earlier)]
        total += int((reached[1:] - reached[begin])[right & earlier].sum())
        lefts, own = np.cumsum(~right) - begin // 2, places
        places = np.empty_like(own)
        places[np.where(right, position + (1 << bit) - lefts, begin + lefts - 1)] = own
    return total

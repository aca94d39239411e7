"""Lower bounds of ε by canaries: what a mechanism that was carried out cannot be more private than.

In a distinguishing game a mechanism runs many times on each of two neighbours, and an attacker scores every output. Of
numbers (d,) the score is the likelihood ratio of Gaussian noise with their measured covariance (`Whitening`, on runs of
its own): a combination of them in which the noise cancels weighs as much as it gives away. A threshold, chosen on
further runs, makes a guess of a score; whatever the score is, the bounds hold. Clopper and Pearson (1934) bound the
rate TPR of right alarms from below and the rate FPR of false ones from above. An (ε, δ)-private mechanism has both
TPR ≤ e^ε FPR + δ and 1 − FPR ≤ e^ε (1 − TPR) + δ, so that with the same two bounds

    ε ≥ max(ln((TPR − δ)/FPR), ln((1 − FPR − δ)/(1 − TPR)))

Of Gaussian noise, whose scale alone is in doubt, all thresholds say one thing: μ = Φ⁻¹(TPR) − Φ⁻¹(FPR) (Dong, Roth and
Su 2022; Nasr et al. 2023, "Tight Auditing of Differentially Private Machine Learning"), and ε follows from δ =
Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ) (Balle, Wang 2018): rare events, which no number of runs shows, are inferred. Where
neighbours are drawn, rates are means over them; both bounds are convex in the rates, so that they hold for means too.

In one run each of m canaries is there or not by a fair coin, and an attacker guesses r of the coins, v of them rightly.
Steinke, Nasr and Jagielski 2023, "Privacy Auditing with One (1) Training Run", Theorem 5.2: with W ~
Binomial(r, e^ε/(1 + e^ε)) the probability of v or more right guesses is

    p ≤ P[W ≥ v] + 2mδ · max over i = 1 … m of P[v > W ≥ v − i]/i

The least ε at which the right side reaches the level is the bound. `level`: the probability that a bound is above ε.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, log_ndtr
from scipy.stats import beta, binom, norm

from treetap.arrays import Array, Floats

#: The share of runs that choose the threshold.
CHOOSING = 0.25
#: Thresholds, at even shares of the scores, of which the best is chosen.
_CANDIDATES = 33
_HALVINGS = 60
#: Least variance of a combination of numbers, as a share of the greatest and in their units: below it are roundings.
_SHARE, _LEAST = 1e-11, 1e-18


@dataclass(frozen=True)
class Whitening:
    """The noise of the numbers (d,) that an attacker sees of a run, as measured.

    Attributes:
        mean: (d,) of the neighbour without the canary.
        change: (d,) what the canary adds, as measured; 0 where no run with it was given.
        inverse: (d, d) of the covariance.
    """

    mean: Floats
    change: Floats
    inverse: Floats

    @classmethod
    def of(cls, without: Floats, given: Floats) -> Whitening:
        """Of runs (n, d) on each neighbour; of `given` there may be none."""
        mean = without.mean(axis=0)
        variances, axes = np.linalg.eigh(np.atleast_2d(np.cov(without, rowvar=False)))
        variances = np.maximum(variances, max(_SHARE * variances[-1], _LEAST))
        return cls(mean, given.mean(axis=0) - mean if len(given) else 0 * mean, (axes / variances) @ axes.T)

    def scores(self, numbers: Floats, change: Floats) -> Floats:
        """(n,) log-likelihood ratios of numbers (n, d) by what the canary adds to them, (d,)."""
        return np.asarray((numbers - self.mean - change / 2) @ (self.inverse @ change))

    def plain(self) -> dict[str, Any]:
        """The arrays as lists."""
        return {"mean": self.mean.tolist(), "change": self.change.tolist(), "inverse": self.inverse.tolist()}

    @classmethod
    def from_plain(cls, line: dict[str, Sequence[Any]]) -> Whitening:
        """The inverse of `plain`."""
        return cls(*(np.array(line[name], dtype=np.float64) for name in ("mean", "change", "inverse")))


@dataclass(frozen=True)
class Rates:
    """The bounds of one threshold: of `of` runs on each neighbour, `true` and `false` alarms, and the rates' bounds."""

    threshold: float
    of: int
    true: int
    false: int
    tpr: float
    fpr: float


def rates(without: Floats, given: Floats, delta: float, level: float, *, gaussian: bool) -> Rates | None:
    """The rates of the best threshold; None of fewer than two runs on a neighbour.

    Args:
        without, given: (n,) scores of runs on the two neighbours, greater where the canary is there.
        gaussian: the threshold is that for μ, midway between the means; otherwise that of the greatest ratio.
    """
    chosen = math.ceil(len(given) * CHOOSING)
    rest = min(len(without), len(given)) - chosen
    if rest < 1:
        return None
    first = np.concatenate([without[:chosen], given[:chosen]])
    threshold = float(first.mean())
    if not gaussian:
        thresholds = np.unique(np.quantile(first, np.linspace(0, 1, _CANDIDATES), method="inverted_cdf"))
        true, false = (np.sum(scores[:chosen, None] >= thresholds, axis=0) for scores in (given, without))
        tpr, fpr = _bounds(np.round(true * rest / chosen), np.round(false * rest / chosen), rest, level)
        threshold = float(thresholds[np.argmax(_ratio(tpr, fpr, delta))])
    alarms = [np.sum(scores[chosen:, None] >= threshold, axis=0) for scores in (given, without)]
    low, high = _bounds(alarms[0], alarms[1], rest, level)
    return Rates(threshold, rest, int(alarms[0][0]), int(alarms[1][0]), float(low[0]), float(high[0]))


def by_ratio(of: Rates, delta: float) -> float:
    """The bound of ε, whatever the mechanism is."""
    return max(0.0, float(_ratio(np.array([of.tpr]), np.array([of.fpr]), delta)[0]))


def by_mu(of: Rates, delta: float) -> float:
    """The bound of ε if the noise is Gaussian, of whatever scale."""
    return gaussian_epsilon(float(norm.ppf(of.tpr) - norm.ppf(of.fpr)), delta)


def _bounds(true: Array, false: Array, of: int, level: float) -> tuple[Floats, Floats]:
    """TPR from below and FPR from above, both at once with probability 1 − level."""
    low = np.where(true > 0, beta.ppf(level / 2, np.maximum(true, 1), of - true + 1), 0.0)
    high = np.where(false < of, beta.ppf(1 - level / 2, false + 1, np.maximum(of - false, 1)), 1.0)
    return low, high


def _ratio(tpr: Floats, fpr: Floats, delta: float) -> Floats:
    with np.errstate(divide="ignore"):  # a rate of no more than δ says nothing
        right = np.log(np.maximum(tpr - delta, 0.0)) - np.log(fpr)
        wrong = np.log(np.maximum(1.0 - fpr - delta, 0.0)) - np.log1p(-tpr)
    return np.asarray(np.maximum(right, wrong))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """ε at δ of Gaussian noise that is 1/μ times what a neighbour changes; 0 for μ ≤ 0."""
    if mu <= 0:
        return 0.0

    def above(epsilon: float) -> bool:
        first, second = log_ndtr(mu / 2 - epsilon / mu), log_ndtr(-mu / 2 - epsilon / mu) + epsilon
        return bool(math.exp(first) - math.exp(min(second, 0.0)) > delta)

    return _least(above)


def p_value(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """The most that Theorem 5.2 gives the probability of as many right guesses under (ε, δ)."""
    q = expit(epsilon)
    p = binom.sf(right - 1, guesses, q)
    if delta and right:
        inside = np.cumsum(binom.pmf(np.arange(right - 1, -1, -1), guesses, q))
        p += 2 * canaries * delta * np.max(inside / np.arange(1, right + 1))
    return min(1.0, float(p))


def in_one_run(canaries: int, guesses: int, right: int, delta: float, level: float) -> float:
    """The bound of ε by one run: the least ε of which the p-value reaches the level."""
    return _least(lambda epsilon: p_value(canaries, guesses, right, epsilon, delta) < level)


def _least(above: Callable[[float], bool]) -> float:
    """The least ε ≥ 0 of which `above` is not true, from below."""
    if not above(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while above(high):
        low, high = high, 2 * high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if above(middle) else (low, middle)
    return low

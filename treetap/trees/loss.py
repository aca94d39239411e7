"""Losses: base margin, gradients, fixed point, and the meaning of a score.

Fixed point. A first or second derivative x is the integer rint(x / scale · 2^32), half to even. `scale` is 1 for the
classifiers, whose derivatives never exceed 1. For numbers that of g is the smallest power of two ≥ max|g|, and where h
has no bound before the training, as for counts, h has one of its own. Both are computed anew for each round, and are
private to the label holder: nothing that another party gets or computes depends on them but the integers, which are
encrypted. Being powers of two makes the division exact. Sums are exact integers: |Σ| ≤ N · F · 2^32 with F the largest
factor of a record (its sample weight and scale_pos_weight; 1 where there are scales), so int64 holds them for
N · F < 2^30, which `check_sums` verifies.

XGBoost keeps the second derivative of its classifiers at 1e-16 or more, so that no record has weight zero. Here the
least is one unit, 2^-32, for the same reason: a side of a split has H = 0 only if all its records have factor 0.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from treetap.arrays import Array, Bools, Floats, Ints
from treetap.errors import ConfigError, DataError
from treetap.trees import metrics, survival
from treetap.trees.job_params import AFT, COX
from treetap.trees.offsets import Offsets

FRACTION_BITS = 32
UNIT = 1 << FRACTION_BITS
#: Of a regression; beyond it the square of a residual overflows.
LARGEST_TARGET = 1e150


@dataclass(frozen=True)
class Quantised:
    """Fixed-point derivatives: g, h (N, K) int64; a sum of g means Σ · scale / 2^32, of h Σ · unit / 2^32."""

    g: Ints
    h: Ints
    scale: float
    unit: float = 1.0


#: An objective's own parameters by name, as `BoostingParams.to_dict` has them.
Options = Mapping[str, Any]
NO_OPTIONS: Options = MappingProxyType({})


class _Loss(ABC):
    """One objective over scores of shape (N, outputs).

    Each has beside this:

    * `base_margin`: the score (outputs,) before the first tree; labels, weights (N,) and offsets are those of the
      training records;
    * `gradients`: first and second derivative of the loss in the score: g, h, each (N, outputs);
    * `bounds`: the largest |g| and the largest h as integers, from which slot widths follow; `factor`: of any record.
    """

    objective: str

    def __init__(self, outputs: int, options: Options = NO_OPTIONS) -> None:
        self.outputs, self.options = outputs, options

    @abstractmethod
    def transform(self, scores: Floats) -> Floats:
        """Scores (N, outputs) as P(label = 1) (N,), class probabilities (N, C) or values (N,)."""

    def check(self, labels: Array) -> None:
        """Raise `DataError` if labels (N,) do not fit: classes are whole numbers from 0, at least two of them there."""
        check_classes(labels, max(self.outputs, 2), self.objective)

    def quantise(self, g: Floats, h: Floats, factors: Floats | None = None, least_unit: float = 0.0) -> Quantised:
        """Derivatives (N, K) in fixed point, each record's multiplied by its factor (N,).

        `least_unit`: the least scale of an h that has one.

        Raises:
            DataError: a derivative is not finite.
        """
        least: Ints | int = 1
        if factors is not None:
            g, h, least = g * factors[:, None], h * factors[:, None], (factors > 0).astype(np.int64)[:, None]
        if not (np.isfinite(g).all() and np.isfinite(h).all()):
            raise DataError(
                f"derivatives of {self.objective} are beyond all numbers after some rounds: lower learning_rate, or "
                "set max_delta_step = 0.7"
            )
        scale, unit = self._scale(g), self._unit(h, least_unit)
        return Quantised(
            g=np.rint(g / scale * UNIT).astype(np.int64),
            h=np.maximum(np.rint(h / unit * UNIT).astype(np.int64), least),
            scale=scale,
            unit=unit,
        )

    def _scale(self, g: Floats) -> float:  # noqa: ARG002 - squared error looks at g
        return 1.0

    def _unit(self, h: Floats, least: float) -> float:  # noqa: ARG002 - an unbounded one looks at h
        return 1.0

    def metric(self, scores: Floats, labels: Array, weights: Floats | None = None) -> dict[str, float]:
        """Measures of scores (N, outputs) against labels (N,), weighted by the weights: see `metrics.evaluate`."""
        return metrics.evaluate(self.objective, self.transform(scores), labels, weights, self.options)

    def watched(self, scores: Floats, labels: Array, weights: Floats | None = None) -> float:
        """The loss that early stopping watches, lower is better."""
        return metrics.watched(self.objective, self.transform(scores), labels, weights, self.options)


class Logistic(_Loss):
    """binary:logistic. p = σ(ŷ), g = p − y, h = p(1−p)."""

    objective = "binary:logistic"

    def base_margin(
        self,
        base_score: float | None,
        labels: Array,  # noqa: ARG002
        weights: Floats | None = None,  # noqa: ARG002
        offsets: Offsets | None = None,  # noqa: ARG002
    ) -> Floats:
        """logit(base_score); None means ½, hence 0."""
        share = 0.5 if base_score is None else base_score
        return np.array([math.log(share / (1.0 - share))])

    def gradients(self, scores: Floats, labels: Array) -> tuple[Floats, Floats]:
        p = self.transform(scores)[:, None]
        return p - np.asarray(labels, dtype=np.float64)[:, None], p * (1.0 - p)

    def transform(self, scores: Floats) -> Floats:
        """P(label = 1), (N,); written so that no exponential overflows."""
        s = scores[:, 0]
        e = np.exp(-np.abs(s))
        return np.where(s >= 0, 1.0 / (1.0 + e), e / (1.0 + e))

    def bounds(self, factor: float = 1.0) -> tuple[int, int]:
        """|g| ≤ 1, h ≤ ¼."""
        return math.ceil(factor * UNIT), math.ceil(factor * (UNIT >> 2))


class Softmax(_Loss):
    """multi:softprob. g_c = p_c − y_c and, as XGBoost has it, h_c = 2·p_c(1−p_c)."""

    objective = "multi:softprob"

    def base_margin(
        self,
        base_score: float | None,
        labels: Array,  # noqa: ARG002
        weights: Floats | None = None,  # noqa: ARG002
        offsets: Offsets | None = None,  # noqa: ARG002
    ) -> Floats:
        """The same number for every class, which cancels in the softmax; None means ½."""
        return np.full(self.outputs, 0.5 if base_score is None else float(base_score))

    def gradients(self, scores: Floats, labels: Array) -> tuple[Floats, Floats]:
        p = self.transform(scores)
        hit = np.asarray(labels).astype(np.int64)[:, None] == np.arange(self.outputs)
        return p - hit, 2.0 * p * (1.0 - p)

    def transform(self, scores: Floats) -> Floats:
        e = np.exp(scores - scores.max(axis=1, keepdims=True))
        total: Floats = e / e.sum(axis=1, keepdims=True)
        return total

    def bounds(self, factor: float = 1.0) -> tuple[int, int]:
        """|g| ≤ 1, h ≤ ½."""
        return math.ceil(factor * UNIT), math.ceil(factor * (UNIT >> 1))


class SquaredError(_Loss):
    """reg:squarederror. g = ŷ − y, h = 1."""

    objective = "reg:squarederror"

    def base_margin(
        self,
        base_score: float | None,
        labels: Array,
        weights: Floats | None = None,
        offsets: Offsets | None = None,  # noqa: ARG002
    ) -> Floats:
        """base_score, or the weighted mean of the training labels.

        Its sums are rounded once, so that no order of records nor a way of summing decides about the last bit, which
        can alter a fixed-point derivative and so a split.
        """
        if base_score is not None:
            return np.array([float(base_score)])
        y = np.asarray(labels, dtype=np.float64)
        w = np.ones_like(y) if weights is None else weights
        return np.array([math.fsum((w * y).tolist()) / math.fsum(w.tolist())])

    def gradients(self, scores: Floats, labels: Array) -> tuple[Floats, Floats]:
        g = scores - np.asarray(labels, dtype=np.float64)[:, None]
        return g, np.ones_like(g)

    def transform(self, scores: Floats) -> Floats:
        return scores[:, 0]

    def bounds(self, factor: float = 1.0) -> tuple[int, int]:
        """|g| ≤ 1 after scaling, h = 1 times the factor."""
        return UNIT, math.ceil(factor * UNIT)

    def _scale(self, g: Floats) -> float:
        return power_of_two_scale(g)

    def check(self, labels: Array) -> None:
        """Labels are finite numbers whose squares are finite too."""
        check_targets(labels, self.objective)


class QuantileError(SquaredError):
    """reg:quantileerror with α = `quantile_alpha`. g = 1 − α where ŷ ≥ y, else −α; h = 1. Leaves are quantiles."""

    objective = "reg:quantileerror"

    def base_margin(
        self,
        base_score: float | None,
        labels: Array,
        weights: Floats | None = None,
        offsets: Offsets | None = None,  # noqa: ARG002
    ) -> Floats:
        """base_score, or the quantile of the training labels."""
        return np.array([self.quantile(np.asarray(labels), weights) if base_score is None else float(base_score)])

    def gradients(self, scores: Floats, labels: Array) -> tuple[Floats, Floats]:
        share = self.options["quantile_alpha"]
        g = np.where(scores >= np.asarray(labels, dtype=np.float64)[:, None], 1.0 - share, -share)
        return g, np.ones_like(g)

    def quantile(self, values: Array, weights: Floats | None) -> float:
        """That of labels, or of residuals, (n,)."""
        return quantile(values.astype(np.float64), self.options["quantile_alpha"], weights)

    def bounds(self, factor: float = 1.0) -> tuple[int, int]:
        """|g| ≤ 1, h = 1 times the factor."""
        return math.ceil(factor * UNIT), math.ceil(factor * UNIT)

    def _scale(self, g: Floats) -> float:  # noqa: ARG002 - it has a bound
        return 1.0


class LogLinked(_Loss):
    """An objective of a number above 0 whose logarithm is the score ŷ; neither g nor h has a bound."""

    def base_margin(
        self,
        base_score: float | None,
        labels: Array,
        weights: Floats | None = None,
        offsets: Offsets | None = None,
    ) -> Floats:
        """The logarithm of base_score, or of the mean of the training labels, weighted; of each unit of exposure.

        Raises:
            DataError: all of them are 0.
        """
        if base_score is not None:
            return np.array([math.log(base_score)])
        y = np.asarray(labels, dtype=np.float64)
        w = np.ones_like(y) if weights is None else weights
        exposed = w if offsets is None else w * np.exp(offsets.values)
        if not (events := math.fsum((w * y).tolist())):
            raise DataError(f"labels of {self.objective} are 0 in all records to train on: nothing can be learned")
        return np.array([math.log(events / math.fsum(exposed.tolist()))])

    def transform(self, scores: Floats) -> Floats:
        with np.errstate(over="ignore"):  # `quantise` refuses what is beyond all numbers
            predicted: Floats = np.exp(scores[:, 0])
        return predicted

    def bounds(self, factor: float = 1.0) -> tuple[int, int]:  # noqa: ARG002 - scales have it
        """|g| ≤ 1 and h ≤ 1 after scaling."""
        return UNIT, UNIT

    def _scale(self, g: Floats) -> float:
        return power_of_two_scale(g)

    def _unit(self, h: Floats, least: float) -> float:
        return power_of_two_scale(np.append(h, least))

    def check(self, labels: Array) -> None:
        """Labels are finite, and not negative; of gamma above 0."""
        check_targets(labels, self.objective)


class Poisson(LogLinked):
    """count:poisson. μ = e^ŷ, g = μ − y, and, as XGBoost has it, h = e^(ŷ + δ) with δ = `max_delta_step`."""

    objective = "count:poisson"

    def gradients(self, scores: Floats, labels: Array) -> tuple[Floats, Floats]:
        step = largest_step(self.objective, self.options.get("max_delta_step"))
        with np.errstate(over="ignore"):
            return np.exp(scores) - np.asarray(labels, dtype=np.float64)[:, None], np.exp(scores + step)


class Gamma(LogLinked):
    """reg:gamma. g = 1 − y·e^−ŷ, h = y·e^−ŷ."""

    objective = "reg:gamma"

    def gradients(self, scores: Floats, labels: Array) -> tuple[Floats, Floats]:
        with np.errstate(over="ignore"):
            ratio = np.asarray(labels, dtype=np.float64)[:, None] * np.exp(-scores)
        return 1.0 - ratio, ratio


class Tweedie(LogLinked):
    """reg:tweedie with ρ = `tweedie_variance_power`. g = e^((2−ρ)ŷ) − y·e^((1−ρ)ŷ), h its derivative."""

    objective = "reg:tweedie"

    def gradients(self, scores: Floats, labels: Array) -> tuple[Floats, Floats]:
        power, y = self.options["tweedie_variance_power"], np.asarray(labels, dtype=np.float64)[:, None]
        with np.errstate(over="ignore"):
            mean, events = np.exp((2.0 - power) * scores), y * np.exp((1.0 - power) * scores)
        return mean - events, (2.0 - power) * mean - (1.0 - power) * events


class Cox(LogLinked):
    """survival:cox. Derivatives of the partial likelihood, to which all training records belong, drawn or not."""

    objective, usual_base = COX, 1.0

    def base_margin(
        self,
        base_score: float | None,
        labels: Array,  # noqa: ARG002
        weights: Floats | None = None,  # noqa: ARG002
        offsets: Offsets | None = None,  # noqa: ARG002
    ) -> Floats:
        """The logarithm of base_score, or of a constant; of hazards nothing depends on it."""
        return np.array([math.log(base_score or self.usual_base)])

    def gradients(self, scores: Floats, labels: Array) -> tuple[Floats, Floats]:
        g, h = survival.hazard_derivatives(scores[:, 0], labels)
        return g[:, None], h[:, None]


class FailureTimes(Cox):
    """survival:aft with `aft_loss_distribution` and its scale; labels are bounds (N, 2) of times: see `survival`."""

    objective, usual_base = AFT, 0.5

    def gradients(self, scores: Floats, labels: Array) -> tuple[Floats, Floats]:
        g, h = survival.time_derivatives(scores[:, 0], labels, self.options)
        return g[:, None], h[:, None]

    def check(self, labels: Array) -> None:
        """Bounds are finite numbers above 0, upper ones not below them."""
        if (
            np.ndim(labels) != 2
            or not (np.isfinite(labels[:, 0]) & (labels[:, 0] > 0) & (labels[:, 0] <= labels[:, 1])).all()
        ):
            raise DataError(
                f"labels of {AFT} are bounds (N, 2): finite lower ones above 0, and upper ones not below them"
            )


Loss = Logistic | Softmax | SquaredError | Poisson | Gamma | Tweedie | Cox
#: Objectives of one output.
_OF_ONE: dict[str, type[SquaredError | Poisson | Gamma | Tweedie | Cox]] = {
    of.objective: of for of in (SquaredError, QuantileError, Poisson, Gamma, Tweedie, Cox, FailureTimes)
}


def largest_step(objective: str, stated: float | None) -> float:
    """XGBoost's `max_delta_step` of an objective, 0.7 of counts, unless another one is stated."""
    return stated if stated is not None else 0.7 if objective == Poisson.objective else 0.0


def record_bounds(objective: str, factor: float = 1.0) -> tuple[int, int]:
    """The largest |g| and h of a record as integers, from which slot widths follow; `factor`: of any record."""
    return loss_for(objective, 2).bounds(factor)  # the same for any number of classes


def check_sums(objective: str, records: int, factor: float) -> None:
    """`ConfigError` unless sums over N records, each with a factor up to `factor`, fit 63 bits."""
    width = (records * max(record_bounds(objective, factor))).bit_length() + 1
    if width > 63:
        raise ConfigError(
            f"sums over {records} records whose derivatives are multiplied by up to {factor:g} need {width} bits, and "
            "there are 63: give a smaller max_sample_weight or scale_pos_weight, or train on fewer records"
        )


def quantile(values: Floats, share: float, weights: Floats | None = None) -> float:
    """XGBoost's quantile: the value that a share of values (n,) does not exceed; 0 of none.

    Without weights it lies between the values of rank ⌊x⌋ and ⌈x⌉ with x = share · (n + 1), within 1..n. With weights
    (n,) it is the first at which the weights of all up to it reach the share of their sum.
    """
    if not len(values):
        return 0.0
    # equal records are interchangeable, so that sums of weights are of one order
    order = np.argsort(values, kind="stable") if weights is None else np.lexsort((weights, values))
    ascending, last = values[order], len(values) - 1
    if weights is not None:
        reached = np.cumsum(weights[order])
        return float(ascending[min(int(np.searchsorted(reached, reached[-1] * share)), last)])
    rank = min(max(share * (len(values) + 1), 1.0), float(len(values)))
    below = math.floor(rank) - 1
    return float(ascending[below] + (rank - 1 - below) * (ascending[min(below + 1, last)] - ascending[below]))


def power_of_two_scale(values: Floats) -> float:
    """The smallest power of two ≥ max|values|; 1 if all are 0."""
    largest = float(np.abs(values).max(initial=0.0))
    if largest == 0.0:
        return 1.0
    mantissa, exponent = math.frexp(largest)  # largest = mantissa · 2^exponent, mantissa in [½, 1)
    return math.ldexp(1.0, exponent - 1 if mantissa == 0.5 else exponent)


def check_targets(labels: Array, objective: str) -> None:
    """DataError unless the targets of a regression are finite numbers whose squares are finite too, and fit it."""
    values = np.asarray(labels, dtype=np.float64)
    if not np.isfinite(values).all():
        raise DataError(f"labels of {objective} must be finite numbers")
    if np.abs(values).max(initial=0.0) > LARGEST_TARGET:
        raise DataError(f"labels of {objective} must lie between -{LARGEST_TARGET:g} and {LARGEST_TARGET:g}")
    if (unfit := unfit_targets(values, objective)).any():
        raise DataError(f"{int(unfit.sum())} labels of {objective} are {UNFIT[objective]}")


#: What a label of an objective must not be.
UNFIT = {
    **dict.fromkeys(("count:poisson", "reg:tweedie"), "negative, and it takes numbers from 0"),
    COX: "0: a time of an event is above 0, and that of a censored record below",
    AFT: "0 or negative: a time's lower bound is above 0, and near 0 where only its upper one is known",
    "reg:gamma": "0 or negative, and it takes numbers above 0: use reg:tweedie where some records have none",
}


def unfit_targets(values: Floats, objective: str) -> Bools:
    """The targets (N,) that an objective does not take."""
    if objective not in UNFIT:
        return np.zeros(len(values), dtype=bool)
    rules: dict[str, Bools] = {**dict.fromkeys(("reg:gamma", AFT), values <= 0), COX: values == 0}
    return rules.get(objective, values < 0)


def loss_for(objective: str, classes: int, options: Options = NO_OPTIONS) -> Loss:
    """The loss of an objective. `classes` is 2 for binary:logistic, ≥ 2 for multi:softprob, ignored for regression.

    `options`: the objective's own, which derivatives and measures need.

    Raises ConfigError if they do not fit.
    """
    if objective in _OF_ONE:
        return _OF_ONE[objective](1, options)
    if objective == "binary:logistic":
        if classes != 2:
            raise ConfigError(f"objective binary:logistic needs 2 classes, not {classes}")
        return Logistic(1)
    if objective == "multi:softprob":
        if classes < 2:
            raise ConfigError(f"objective multi:softprob needs at least 2 classes, not {classes}")
        return Softmax(classes)
    raise ConfigError(f"unknown objective {objective!r}")


def outcome_of(objective: str, classes: int, scores: Floats) -> Floats:
    """Scores (n, outputs) of a model as P(label = 1) (n,), class probabilities (n, C) or values (n,).

    The scores of a forest are means already: class probabilities by `gini`, values by `squared_error`.
    """
    if objective == "gini":
        return scores
    if objective == "squared_error":
        return scores[:, 0]
    return loss_for(objective, classes).transform(scores)


def check_classes(labels: Array, classes: int, objective: str) -> None:
    """DataError unless labels are class numbers 0..classes−1, two of them present."""
    present = np.unique(np.asarray(labels, dtype=np.float64))
    if not np.isin(present, np.arange(classes)).all():
        shown = ", ".join(f"{value:g}" for value in present[:6])
        raise DataError(f"labels of {objective} must be whole numbers from 0 to {classes - 1}; found {shown}")
    if len(present) < 2:
        raise DataError(f"labels of {objective} hold one class only: nothing can be learned")

"""Losses: base margin, gradients, fixed point, and the meaning of a score.

Fixed point. A first or second derivative x is the integer rint(x / scale · 2^32), half to even. `scale` is 1 for the
classifiers, whose derivatives never exceed 1. For squared error it is the smallest power of two ≥ max|g|: it is private
to the label holder, applies to g alone, and being a power of two makes the division exact. Sums are exact integers:
|Σ| ≤ N · F · 2^32 with F the largest factor of a record (its sample weight and scale_pos_weight), so int64 holds them
for N · F < 2^30, which `check_sums` verifies.

XGBoost keeps the second derivative of its classifiers at 1e-16 or more, so that no record has weight zero. Here the
least is one unit, 2^-32, for the same reason: a side of a split has H = 0 only if all its records have factor 0.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from treetap.arrays import Array, Floats, Ints
from treetap.errors import ConfigError, DataError
from treetap.trees import metrics

FRACTION_BITS = 32
UNIT = 1 << FRACTION_BITS
#: Of a regression; beyond it the square of a residual overflows.
LARGEST_TARGET = 1e150


@dataclass(frozen=True)
class Quantised:
    """Fixed-point derivatives: g, h (N, K) int64; a sum of g means Σ · scale / 2^32, a sum of h means Σ / 2^32."""

    g: Ints
    h: Ints
    scale: float


class _Loss(ABC):
    """One objective over scores of shape (N, outputs).

    Each has beside this:

    * `base_margin`: the score (outputs,) before the first tree; labels, weights (N,) are those of the training records;
    * `gradients`: first and second derivative of the loss in the score: g, h, each (N, outputs);
    * `bounds`: the largest |g| and the largest h as integers, from which slot widths follow; `factor`: of any record.
    """

    objective: str

    def __init__(self, outputs: int) -> None:
        self.outputs = outputs

    @abstractmethod
    def transform(self, scores: Floats) -> Floats:
        """Scores (N, outputs) as P(label = 1) (N,), class probabilities (N, C) or values (N,)."""

    def check(self, labels: Array) -> None:
        """Raise `DataError` if labels (N,) do not fit: classes are whole numbers from 0, at least two of them there."""
        check_classes(labels, max(self.outputs, 2), self.objective)

    def quantise(self, g: Floats, h: Floats, factors: Floats | None = None) -> Quantised:
        """Derivatives (N, K) in fixed point, each record's multiplied by its factor (N,)."""
        least: Ints | int = 1
        if factors is not None:
            g, h, least = g * factors[:, None], h * factors[:, None], (factors > 0).astype(np.int64)[:, None]
        scale = self._scale(g)
        return Quantised(
            g=np.rint(g / scale * UNIT).astype(np.int64),
            h=np.maximum(np.rint(h * UNIT).astype(np.int64), least),
            scale=scale,
        )

    def _scale(self, g: Floats) -> float:  # noqa: ARG002 - squared error looks at g
        return 1.0

    def metric(self, scores: Floats, labels: Array, weights: Floats | None = None) -> dict[str, float]:
        """Measures of scores (N, outputs) against labels (N,), weighted by the weights: see `metrics.evaluate`."""
        return metrics.evaluate(self.objective, self.transform(scores), labels, weights)

    def watched(self, scores: Floats, labels: Array, weights: Floats | None = None) -> float:
        """The loss that early stopping watches, lower is better."""
        return metrics.watched(self.objective, self.transform(scores), labels, weights)


class Logistic(_Loss):
    """binary:logistic. p = σ(ŷ), g = p − y, h = p(1−p)."""

    objective = "binary:logistic"

    def base_margin(
        self,
        base_score: float | None,
        labels: Array,  # noqa: ARG002
        weights: Floats | None = None,  # noqa: ARG002
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

    def base_margin(self, base_score: float | None, labels: Array, weights: Floats | None = None) -> Floats:
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


Loss = Logistic | Softmax | SquaredError


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


def power_of_two_scale(values: Floats) -> float:
    """The smallest power of two ≥ max|values|; 1 if all are 0."""
    largest = float(np.abs(values).max(initial=0.0))
    if largest == 0.0:
        return 1.0
    mantissa, exponent = math.frexp(largest)  # largest = mantissa · 2^exponent, mantissa in [½, 1)
    return math.ldexp(1.0, exponent - 1 if mantissa == 0.5 else exponent)


def check_targets(labels: Array, objective: str) -> None:
    """DataError unless the targets of a regression are finite numbers whose squares are finite too."""
    values = np.asarray(labels, dtype=np.float64)
    if not np.isfinite(values).all():
        raise DataError(f"labels of {objective} must be finite numbers")
    if np.abs(values).max(initial=0.0) > LARGEST_TARGET:
        raise DataError(f"labels of {objective} must lie between -{LARGEST_TARGET:g} and {LARGEST_TARGET:g}")


def loss_for(objective: str, classes: int) -> Loss:
    """The loss of an objective. `classes` is 2 for binary:logistic, ≥ 2 for multi:softprob, ignored for regression.

    Raises ConfigError if they do not fit.
    """
    if objective == "reg:squarederror":
        return SquaredError(1)
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

"""The loss of a job whose labels are spread over parties: every scale is public, so that each computes the same alone.

The labels of a regression are scaled, (y − base_score) / label_scale, and scores, gradients, weights and the clip bound
are in these units. Gradients of a regression are fixed point at a scale of 2^12 for every party, those of a classifier
at 1; see `treetap.trees.loss`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from treetap.arrays import Array, Floats, Ints
from treetap.errors import DataError
from treetap.trees.loss import UNIT, loss_for, power_of_two_scale
from treetap.trees.pivodl_params import GRADIENT_SCALE, PivodlParams

#: Largest label that the secure sums of y and y² take.
LARGEST_LABEL = 2.0**40


@dataclass(frozen=True)
class Moments:
    """Exact sums of labels in fixed point: Σ rint(y · 2^32), the sum of the squares of these, and how many."""

    total: int
    squares: int
    count: int

    @staticmethod
    def of(labels: Floats) -> Moments:
        """The moments of some labels; `DataError` counts those that are too large, and names none."""
        if over := int((~(np.abs(labels) <= LARGEST_LABEL)).sum()):
            raise DataError(
                f"{over} of {len(labels)} labels are beyond ±{LARGEST_LABEL:g}; state label_scale and base_score in "
                "the job, or use a smaller unit"
            )
        whole = [round(float(label) * UNIT) for label in labels]
        return Moments(sum(whole), sum(number * number for number in whole), len(whole))

    def mean(self) -> float:
        """The mean label, correctly rounded."""
        return float(Fraction(self.total, self.count * UNIT))

    def scale(self) -> float:
        """The smallest power of two that is not below the labels' standard deviation."""
        variance = Fraction(self.squares, self.count) - Fraction(self.total, self.count) ** 2
        return power_of_two_scale(np.array([math.sqrt(float(variance / UNIT**2))]))


class SharedLabelLoss:
    """Gradients at one party, whichever records it labels.

    Attributes:
        scale: of fixed-point g; public.
        base: the score before the first tree, (outputs,), in scaled units.
        label_scale, base_score: of a regression; 1 and 0 of a classifier.
        moments: those of all labels, where these two follow from them.
    """

    def __init__(self, params: PivodlParams, moments: Moments | None = None) -> None:
        """`moments`: of all labels, where the parameters leave scale or base of a regression open."""
        self.params, self.moments = params, moments
        self._loss = loss_for(params.objective, max(len(params.class_names), 2))
        self.label_scale, self.base_score, self.scale = 1.0, 0.0, 1.0
        if params.regression:
            self.scale = GRADIENT_SCALE
            self.label_scale = params.label_scale if params.label_scale is not None else _known(moments).scale()
            self.base_score = params.base_score if params.base_score is not None else _known(moments).mean()
            self.base: Floats = np.zeros(1)
        else:
            self.base = self._loss.base_margin(params.base_score, np.zeros(0))

    def scaled(self, labels: Array) -> Array:
        """Labels (n,) in the units of scores; `DataError` counts those too large for a gradient, and names none."""
        if not self.params.regression:
            return labels
        scaled = (np.asarray(labels, dtype=np.float64) - self.base_score) / self.label_scale
        self._check(scaled, "labels")
        return scaled

    def gradients(self, scores: Floats, labels: Array) -> Ints:
        """g and h in fixed point, (n, 2K), of scaled labels (n,) at scores (n, K)."""
        g, h = self._loss.gradients(scores, labels)
        if self.params.regression:
            self._check(g, "gradients")
        fixed_g = np.rint(g / self.scale * UNIT).astype(np.int64)
        return np.concatenate([fixed_g, np.maximum(np.rint(h * UNIT).astype(np.int64), 1)], axis=1)

    def figures(self, scores: Floats, labels: Array) -> tuple[float, float]:
        """Sums over records of losses (log-loss, or squared error of scaled labels) and of correct classes."""
        if not len(labels):
            return 0.0, 0.0
        if self.params.regression:
            return float(((scores[:, 0] - labels) ** 2).sum()), 0.0
        outcome = self._loss.transform(scores)
        if self.params.width == 1:
            right = np.where(np.asarray(labels) == 1, outcome, 1.0 - outcome)
            correct = (outcome >= 0.5) == (np.asarray(labels) == 1)
        else:
            right = outcome[np.arange(len(labels)), np.asarray(labels)]
            correct = outcome.argmax(axis=1) == np.asarray(labels)
        return float(-np.log(np.maximum(right, 1e-15)).sum()), float(correct.sum())

    def outcome(self, scores: Floats) -> Floats:
        """Scores (n, K) as P(second class) (n,), class probabilities (n, C), or values in the label's own unit (n,)."""
        outcome = self._loss.transform(scores)
        return outcome * self.label_scale + self.base_score if self.params.regression else outcome

    def _check(self, values: Floats, what: str) -> None:
        if over := int((~(np.abs(values) <= self.scale)).sum()):
            raise DataError(
                f"{over} of {len(values)} {what} are beyond ±{self.scale:g} in units of label_scale = "
                f"{self.label_scale:g}; use a larger label_scale"
            )


def _known(moments: Moments | None) -> Moments:
    assert moments is not None, "the moments of the labels have not been shared"
    return moments

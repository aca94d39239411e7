"""Gain of a split and value of a leaf in a random forest, in one stated order of float64 operations.

Sums are int64 with slots (S_0..S_{K−1}, n): for `gini` S_c counts the drawn records of class c, for `squared_error` S_0
is Σ of (y − centre) / scale in fixed point. With u = 1 for gini and 2^-32 for squared error:

1. m_k = float(S_k) · u / float(n)
2. q(node) = 0 + m_0·m_0 + m_1·m_1 + …
3. gain = (float(n_L) / float(n) · q(L) + float(n_R) / float(n) · q(R)) − q(parent)

For classes this is the purity gain Σ_c n_L/n (n_L^c/n_L)² + n_R/n (n_R^c/n_R)² − (n^c/n)² of Takahashi, Liu and Liu
(2023), that is the decrease of Gini impurity. For numbers it is the decrease of the variance, in units of scale².

A split is kept if its gain is above `LEAST_GAIN`, which is more than rounding can make of 0: with labels of magnitude 1
an error of step 3 stays below (K + 6) · 2^-52, under 1e-13 for 400 classes. Where two gains, or one and 0, nearly tie
`treetap.trees.exact_rule` decides, by exact gains of classes above 0; floats do so alone where sums have noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from treetap.arrays import Array, Floats, Ints
from treetap.trees.candidates import largest
from treetap.trees.exact_rule import ExactRule
from treetap.trees.loss import UNIT, check_classes, check_targets, power_of_two_scale
from treetap.trees.params import ForestParams

LEAST_GAIN = 1e-12


@dataclass(frozen=True)
class Targets:
    """Labels as whole numbers (N, K) that can be added up: m_k · scale + centre is a mean in the labels' own units.

    `largest` bounds their magnitude. For gini the rows are one-hot, scale is 1 and centre 0.
    """

    values: Ints
    criterion: str
    scale: float
    centre: float

    @property
    def largest(self) -> int:
        """The largest magnitude that a value can have."""
        return 1 if self.criterion == "gini" else UNIT


def check_labels(labels: Array, criterion: str, classes: int) -> None:
    """DataError if labels (N,) do not fit the criterion."""
    if criterion == "gini":
        check_classes(labels, classes, criterion)
    else:
        check_targets(labels, criterion)


def targets(labels: Array, criterion: str, classes: int) -> Targets:
    """Labels (N,) as a forest adds them up.

    Numbers are centred at their mean, which changes no variance and loses no digits where it is large, and divided by
    the smallest power of two that covers them. Both are the label holder's own.
    """
    if criterion == "gini":
        hot = np.asarray(labels).astype(np.int64)[:, None] == np.arange(classes)
        return Targets(hot.astype(np.int64), criterion, 1.0, 0.0)
    y = np.asarray(labels, dtype=np.float64)
    centre = math.fsum(y.tolist()) / len(y)
    scale = power_of_two_scale(y - centre)
    return Targets(np.rint((y - centre) / scale * UNIT).astype(np.int64)[:, None], criterion, scale, centre)


@dataclass(frozen=True)
class ForestCriterion:
    """These formulas for the trees of one forest: see `BoostingCriterion`."""

    targets: Targets
    params: ForestParams

    #: The rule by which categories are partitioned: none.
    partitions: ClassVar[None] = None

    def ranges(self, slots: int) -> tuple[Ints, Ints]:
        """0..1 of a class, ± the largest of a number."""
        most = np.full(slots - 1, self.targets.largest)
        return (np.zeros_like(most) if self.targets.criterion == "gini" else -most), most

    def gains(self, left: Ints, parent: Ints) -> Floats:
        """Step 3 for every candidate; −∞ where a side has fewer than `min_samples_leaf` drawn records."""
        whole = parent[:, None, :]
        right = whole - left
        n_l, n_r, n = left[..., -1], right[..., -1], whole[..., -1].astype(np.float64)
        least = self.params.min_samples_leaf
        allowed = (n_l >= least) & (n_r >= least)
        of = np.where(n > 0, n, 1.0)
        sides = n_l.astype(np.float64) / of * self.purity(left) + n_r.astype(np.float64) / of * self.purity(right)
        return np.where(allowed, sides - self.purity(whole), -np.inf)

    def exact_rule(self, slots: int) -> ExactRule:
        """The integers that decide between candidates."""
        params, unit = self.params, Fraction(1, self.targets.largest**2)
        least = math.nextafter(LEAST_GAIN, 1.0)
        return ExactRule(slots - 1, params.penalty, params.lightest_side, unit, True, least)

    def choose(self, gains: Sequence[Floats]) -> tuple[int, Ints] | None:
        """By floats the lowest party with the largest gain, if that is above `LEAST_GAIN`."""
        best = largest(gains)
        return None if best is None or not best[2] > LEAST_GAIN else best[:2]

    def shown(self, gain: float) -> float:
        """A decrease of variance in the square of the labels' own unit; of Gini impurity as it is."""
        return gain * self.targets.scale * self.targets.scale

    def may_split(self, sums: Ints) -> bool:
        """True if both sides can have `min_samples_leaf` records and, for classes, more than one class is present."""
        pure = self.targets.criterion == "gini" and int(sums[:-1].max()) == int(sums[-1])
        return int(sums[-1]) >= 2 * self.params.min_samples_leaf and not pure

    def leaf(self, sums: Ints, _rows: Ints | None = None) -> Floats:
        """Class frequencies (C,) or the mean (1,) of the drawn records."""
        return self._means(sums) * self.targets.scale + self.targets.centre

    def cover(self, sums: Ints) -> float:
        """The number of drawn records."""
        return float(sums[-1])

    def _means(self, sums: Ints) -> Floats:
        """Step 1: m (..., K); 0 where there is no record."""
        n = sums[..., -1:].astype(np.float64)
        unit = 1.0 if self.targets.criterion == "gini" else 1.0 / UNIT
        return sums[..., :-1].astype(np.float64) * unit / np.where(n > 0, n, 1.0)

    def purity(self, sums: Ints) -> Floats:
        """Step 2: q (...)."""
        means = self._means(sums)
        total = np.zeros(means.shape[:-1])
        for k in range(means.shape[-1]):
            total = total + means[..., k] * means[..., k]
        return total

"""Sums with noise in a growing tree: their size, and what a gain that is made of them is worth.

docs/column-privacy.md has the mechanism and its proof. A feature party adds noise to its left sums; the label holder
knows its deviation and nothing else of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from treetap.arrays import Floats, Ints
from treetap.trees.boosting_criterion import BoostingCriterion, open_sums
from treetap.trees.forest_criterion import ForestCriterion

#: Gains, stopping rules and leaves of one tree.
Criterion = BoostingCriterion | ForestCriterion
#: Deviations of its noise that Σ h of a side must reach, and the factor of the handicap.
FLOOR, HANDICAP = 3.0, 6.0
#: −log2 of the chance that a slot of an attempt does not hold all sums.
SAFE_BITS = 40
#: Noise of the left sums (candidates, S) of a node, in the canonical order.
Drawn = Callable[[int], Ints]


@dataclass(frozen=True)
class SumNoise:
    """The noise on each cell of a party's sums: a discrete Gaussian with σ = z · B(s).

    Attributes:
        variance: z².
        bounds: B(s) of each slot: the largest size of a record's number there.
        most_bins: W, the most bins of a column.
        numbers: M, the most numbers that the party sends in an attempt: sums times slots.
        counted: True if a tree has a further slot, the number of records, which is the sum of the others.
    """

    variance: Fraction
    bounds: tuple[int, ...]
    most_bins: int
    numbers: int
    counted: bool = False

    @property
    def rooms(self) -> tuple[int, ...]:
        """By slot of a tree the size of noise that no sum of an attempt exceeds but for a chance of 2^−SAFE_BITS.

        z · B(s) · √(2W · ln(2^41 · M)) + W: a sum of u of W cells has noise of a variance below W · σ², with tails no
        heavier than a Gaussian's; W is for the rounding of parts that cells give up. A slot that is the sum of others
        has their rooms together.
        """
        logarithm = (SAFE_BITS + 1) * math.log(2) + math.log(self.numbers)
        factor = math.sqrt(float(self.variance) * 2 * self.most_bins * logarithm)
        rooms = tuple(math.ceil(factor * bound) + self.most_bins for bound in self.bounds)
        return (*rooms, sum(rooms)) if self.counted else rooms

    def deviation(self, slot: int) -> float:
        """D of a slot of a tree: z · B(s) · √(W / 4), the largest deviation of a left sum's noise."""
        one = math.sqrt(float(self.variance) * self.most_bins / 4)
        if slot == len(self.bounds):
            return one * math.sqrt(sum(bound * bound for bound in self.bounds))
        return one * self.bounds[slot]

    def in_tree(self, drawn: Ints) -> Ints:
        """Noise (sums, S) in the slots of a tree."""
        return np.concatenate([drawn, drawn.sum(axis=1, keepdims=True)], axis=1) if self.counted else drawn


#: A party's noise in a training by all columns at hand, and what is drawn of it by tree and node.
NoisedParty = tuple[SumNoise, Callable[[int, int], Ints]]


def fair_gains(gains: Floats, left: Ints, parent: Ints, criterion: Criterion, noise: SumNoise) -> Floats:
    """Gains (nodes, candidates) of noised sums, left (nodes, candidates, S), as they are compared with exact ones."""
    if isinstance(criterion, ForestCriterion):
        return fair_decreases(gains, left, parent, criterion, noise)
    return fair_changes(gains, left, parent, criterion, noise)


def fair_decreases(gains: Floats, left: Ints, parent: Ints, criterion: ForestCriterion, noise: SumNoise) -> Floats:
    """Decreases of impurity (nodes, candidates) less their handicap; −∞ where a side has too few drawn records.

    With m the node's means, exact, a decrease is Σ_k (S_k − n_L · m_k)² · (1/n_L + 1/n_R) / n. Where sides are alike,
    noise of the deviations D_k of S_k and D_n of n_L makes the sum of squares on average

    - for classes, whose noises add up to that of n, (C − 2 + C · Σ_k m_k²) · D², C of them;
    - for a number, D_0² + m_0² · D_n².
    """
    outputs, whole = parent.shape[-1] - 1, parent[:, None, :]
    n_L, n_R, n = left[..., -1], (whole - left)[..., -1], np.maximum(whole[..., -1], 1).astype(np.float64)
    squares = criterion.purity(whole)
    if noise.counted:
        expected = noise.deviation(0) ** 2 * (outputs - 2 + outputs * squares)
    else:
        expected = (noise.deviation(0) / criterion.targets.largest) ** 2 + squares * noise.deviation(1) ** 2
    least = noise.deviation(outputs)
    sides = 1.0 / np.maximum(n_L, least) + 1.0 / np.maximum(n_R, least)
    allowed = (n_L >= FLOOR * least) & (n_R >= FLOOR * least)
    return np.where(allowed, gains - HANDICAP * expected * sides / n, -np.inf)


def fair_changes(changes: Floats, left: Ints, parent: Ints, criterion: BoostingCriterion, noise: SumNoise) -> Floats:
    """Loss changes (nodes, candidates) of noised sums less their handicap; −∞ where a side's Σ h is too small.

    left (nodes, candidates, 2K+1), parent (nodes, 2K+1). Of K outputs each must reach the floor, and the handicaps add
    up.
    """
    outputs = (left.shape[-1] - 1) // 2
    least = np.array([noise.deviation(slot) for slot in range(left.shape[-1])])
    whole = parent[:, None, :]
    _, H_L, _ = open_sums(left, criterion.scale)
    _, H_R, _ = open_sums(whole - left, criterion.scale)
    # deviations in the units of the criterion, by the same function as the sums
    D_g, D_h, _ = open_sums(least, criterion.scale)
    allowed = (FLOOR * D_h <= H_L).all(axis=-1) & (FLOOR * D_h <= H_R).all(axis=-1)
    handicap = np.zeros(changes.shape)
    for k in range(outputs):
        sides = (1.0 / (np.maximum(side[..., k], D_h[k]) + criterion.params.reg_lambda) for side in (H_L, H_R))
        handicap = handicap + HANDICAP * (D_g[k] * D_g[k]) * sum(sides)
    return np.where(allowed, changes - handicap * criterion.unit, -np.inf)

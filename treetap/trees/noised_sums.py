"""Sums with noise in a growing tree: their size, and what a gain that is made of them is worth.

docs/column-privacy.md has the mechanism and its proof. A feature party adds noise to its left sums; the label holder
knows its deviation and nothing else of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from treetap.trees.boosting_criterion import BoostingCriterion, open_sums

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
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
    """

    variance: Fraction
    bounds: tuple[int, ...]
    most_bins: int
    numbers: int

    @property
    def rooms(self) -> tuple[int, ...]:
        """By slot the size of noise that no sum of an attempt exceeds but for a chance of 2^−SAFE_BITS.

        z · B(s) · √(2W · ln(2^41 · M)) + W: a sum of u of W cells has noise of a variance below W · σ², with tails no
        heavier than a Gaussian's; W is for the rounding of parts that cells give up.
        """
        logarithm = (SAFE_BITS + 1) * math.log(2) + math.log(self.numbers)
        factor = math.sqrt(float(self.variance) * 2 * self.most_bins * logarithm)
        return tuple(math.ceil(factor * bound) + self.most_bins for bound in self.bounds)

    def deviation(self, slot: int) -> float:
        """D of a slot: z · B(s) · √(W / 4), the largest deviation of a left sum's noise."""
        return math.sqrt(float(self.variance) * self.most_bins / 4) * self.bounds[slot]


class NoisedParty(NamedTuple):
    """A party's noise in a training by all columns at hand: `drawn` by tree and node."""

    noise: SumNoise
    drawn: Callable[[int, int], Ints]


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
    return np.where(allowed, changes - handicap, -np.inf)

"""Exact draws of the discrete Gaussian distribution: P(x) proportional to exp(−x² / 2σ²) over all integers x.

Canonne, Kamath and Steinke 2020, "The Discrete Gaussian for Differential Privacy", Algorithms 1 to 3. Whole numbers
with this noise have the same ρ of zero-concentrated differential privacy as real numbers with Gaussian noise of that σ
(Theorem 4 there). Floating-point noise has not: the low bits of a sum of floats can tell which value was under it
(Mironov 2012). The variance is below σ², by less than 10⁻⁶ of it for σ ≥ 1. Time depends on what is drawn.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import numpy.typing as npt

#: Returns a uniform whole number below its argument.
RandBelow = Callable[[int], int]


def discrete_gaussian(variance: Fraction, randbelow: RandBelow = secrets.randbelow) -> int:
    """One draw with the parameter σ² = `variance` > 0 (Algorithm 3); from the operating system's randomness."""
    scale = math.isqrt(math.floor(variance)) + 1
    while True:
        drawn = _discrete_laplace(scale, randbelow)
        if _below_exp((abs(drawn) - variance / scale) ** 2 / (2 * variance), randbelow):
            return drawn


def discrete_gaussians(count: int, variance: Fraction) -> npt.NDArray[np.int64]:
    """Many draws (count,) from the operating system's randomness."""
    return np.array([discrete_gaussian(variance) for _ in range(count)], dtype=np.int64)


def _discrete_laplace(scale: int, randbelow: RandBelow) -> int:
    """P(x) proportional to exp(−|x| / scale) (Algorithm 2, with s = 1)."""
    while True:
        low = randbelow(scale)
        if not _below_exp(Fraction(low, scale), randbelow):
            continue
        high = 0
        while _below_exp(Fraction(1), randbelow):
            high += 1
        size = low + scale * high
        negative = randbelow(2) == 1
        if not (negative and size == 0):  # else zero would come twice as often
            return -size if negative else size


def _below_exp(exponent: Fraction, randbelow: RandBelow) -> bool:
    """True with the probability exp(−exponent), exponent ≥ 0 (Algorithm 1)."""
    while exponent > 1:
        if not _below_exp(Fraction(1), randbelow):
            return False
        exponent -= 1
    turns = 1
    while randbelow(exponent.denominator * turns) < exponent.numerator:
        turns += 1
    return turns % 2 == 1

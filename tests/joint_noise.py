"""Whether noise has the joint distribution that is stated of it, not only the right size in each place."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

Floats = npt.NDArray[np.float64]


def contrasts(cells: int) -> Floats:
    """(cells − 1, cells) orthonormal rows: what they make of cells that give up their mean is independent noise."""
    rows = np.array([[1.0] * k + [-k] + [0.0] * (cells - k - 1) for k in range(1, cells)])
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def assert_independent(noise: npt.NDArray[Any], alpha: float, rounding: float = 0.02) -> None:
    """Assert that numbers (n, d) are independent standard normal ones, in a test that errs with probability `alpha`.

    All variances and covariances of the d. A variance is a chi-square; of the mean of n products of two such numbers
    P(|mean| ≥ x) ≤ 2 exp(−n (sx + ln(1 − s²)/2)), at s = (√(1 + 4x²) − 1)/2x (Chernoff). `rounding`: the most by
    which whole numbers are off, as a share.
    """
    n, d = noise.shape
    of_each = alpha / (d * (d + 1) / 2)
    low, high = stats.chi2.ppf([of_each / 2, 1 - of_each / 2], n) / n
    covariances = noise.T @ noise / n
    variances = np.diag(covariances)
    assert (variances > low * (1 - rounding)).all(), variances.min()
    assert (variances < high * (1 + rounding)).all(), variances.max()
    others = np.abs(covariances - np.diag(variances))
    x = np.linspace(0.001, 4, 4000)
    s = (np.sqrt(1 + 4 * x * x) - 1) / (2 * x)
    most = x[np.argmax(2 * np.exp(-n * (s * x + np.log1p(-s * s) / 2)) <= of_each)]
    assert others.max() < most + rounding, np.unravel_index(others.argmax(), others.shape)

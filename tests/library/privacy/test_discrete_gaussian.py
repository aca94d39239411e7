"""The discrete Gaussian: exact probabilities at a small σ, the stated variance at a large one.

Bounds have a false-alarm rate of 1e-9 per test on the operating system's randomness; seeded draws are always the same.
"""

from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from treetap.privacy.discrete_gaussian import RandBelow, discrete_gaussian

ALPHA = 1e-9


def test_draws_have_the_stated_probabilities() -> None:
    """A chi-square test over the integers −4..4 and the two tails, at σ² = 2.5."""
    below: RandBelow = random.Random(5).randrange
    draws = Counter(discrete_gaussian(Fraction(5, 2), below) for _ in range(20_000))
    support = np.arange(-60, 61)
    density = np.exp(-(support**2) / 5.0)
    density /= density.sum()
    inner = range(-4, 5)
    expected = [float(density[60 + each]) for each in inner] + [float(density[:56].sum()), float(density[65:].sum())]
    observed = [draws[each] for each in inner]
    observed += [sum(n for x, n in draws.items() if x < -4), sum(n for x, n in draws.items() if x > 4)]
    assert stats.chisquare(observed, 20_000 * np.array(expected)).pvalue > ALPHA


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("sigma", [0.3, 20.0, 2.0**43])
def test_draws_of_the_operating_system_have_the_stated_variance(sigma: float) -> None:
    """Σx²/σ² is chi-square with as many degrees of freedom as draws; below σ = 1 the discrete variance is smaller."""
    count = 3000
    draws = [discrete_gaussian(Fraction(sigma) ** 2) for _ in range(count)]
    support = np.arange(-500, 501)
    density = np.exp(-(support**2) / (2 * sigma**2))
    variance = sigma**2 if sigma > 100 else float((density * support**2).sum() / density.sum())
    statistic = float(sum(Fraction(each) ** 2 for each in draws) / Fraction(variance))
    if sigma < 1:  # too far from normal for chi-square; the share of zeros has an exact test
        zeros = sum(each == 0 for each in draws)
        assert stats.binomtest(zeros, count, float(density[500] / density.sum())).pvalue > ALPHA
    else:
        assert stats.chi2.ppf(ALPHA / 2, count) < statistic < stats.chi2.ppf(1 - ALPHA / 2, count)

"""Lower bounds of ε: figures of the papers, and exact probabilities that a bound is too high."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from tests.attacks.present import present
from treetap.attacks.epsilon import Whitening, by_mu, by_ratio, gaussian_epsilon, in_one_run, p_value, rates
from treetap.neural.defences import DpSgd, epsilon


@pytest.mark.parametrize(
    ("run", "bound"), [((1000, 100, 75, 1e-4, 0.05), 0.673), ((100_000, 1510, 1439, 1e-5, 0.05), 2.6758)]
)
def test_bounds_of_one_run_are_the_papers(run: tuple[int, int, int, float, float], bound: float) -> None:
    """Appendix D (page 46) and Section 7 (Figure 11) of Steinke et al. 2023."""
    assert in_one_run(*run) == pytest.approx(bound, abs=1e-4)


def test_the_correction_of_one_run_is_that_of_the_theorem() -> None:
    """The maximum over i, term by term as it is printed."""
    m, r, v, of, delta = 40, 12, 9, 0.7, 1e-3
    w = stats.binom(r, 1 / (1 + math.exp(-of)))
    largest = max(sum(w.pmf(k) for k in range(v - i, v)) / i for i in range(1, m + 1))
    assert p_value(m, r, v, of, delta) == pytest.approx(w.sf(v - 1) + 2 * m * delta * largest)


@pytest.mark.parametrize("level", [0.05, 1e-6])
@pytest.mark.parametrize("claimed", [0.5, 1.0, 4.0])
def test_one_run_accuses_randomised_response_no_more_often_than_it_says(claimed: float, level: float) -> None:
    """Guesses that are as often right as ε permits: the exact probability that the bound is above ε."""
    r = 1000
    right = np.arange(r + 1)
    too_high = [v for v in right.tolist() if p_value(r, r, v, claimed, 0.0) < level]
    assert in_one_run(r, r, too_high[0], 0.0, level) > claimed > in_one_run(r, r, too_high[0] - 1, 0.0, level)
    probability = stats.binom.sf(too_high[0] - 1, r, 1 / (1 + math.exp(-claimed)))
    assert 0 < probability <= level


@pytest.mark.second_tier
@pytest.mark.campaign(but=1)
@pytest.mark.parametrize("level", [0.05, 1e-6])
def test_repeated_runs_accuse_no_more_often_than_they_say(level: float) -> None:
    """All outcomes of 60 runs on each neighbour beside their probability, of the tightest mechanism of ε and δ.

    With δ both outcomes name the neighbour, otherwise they are randomised response.
    """
    chosen, rest, of, delta = 20, 60, 1.0, 0.1
    tpr = delta + (1 - delta) / (1 + math.exp(-of))
    too_high = 0.0
    likely = [stats.binom(rest, share).pmf(np.arange(rest + 1)) for share in (tpr, 1 - tpr)]
    first = [np.zeros(chosen), np.ones(chosen)]
    for true in range(rest + 1):
        for false in range(true + 1):
            scores = [
                np.concatenate([start, np.arange(rest) < k]) for start, k in zip(first, (false, true), strict=True)
            ]
            bound = present(rates(scores[0], scores[1], delta, level, gaussian=False))
            assert bound.threshold == 1.0
            if by_ratio(bound, delta) > of:
                too_high += likely[0][true] * likely[1][false]
    assert too_high <= level
    assert too_high > 0


def test_the_epsilon_of_gaussian_noise_is_that_of_the_accountant() -> None:
    """A different computation of the same function, over strong and weak noise."""
    for noise in (0.1, 0.5, 1.0, 5.0, 20.0):
        assert gaussian_epsilon(1 / noise, 1e-5) == pytest.approx(epsilon(DpSgd(1.0, noise), 1, 1e-5), rel=1e-9)
    assert gaussian_epsilon(-1.0, 1e-5) == gaussian_epsilon(0.0, 1e-5) == 0.0
    assert gaussian_epsilon(1e-3, 1e-2) == 0.0  # δ alone covers it


def test_a_bound_nears_epsilon_from_below() -> None:
    """Gaussian scores one deviation apart: of many runs the bound is near, of the ratio farther, and both below."""
    rng = np.random.default_rng(1)
    without, given = rng.normal(size=200_000), rng.normal(size=200_000) + 1.0
    exact = gaussian_epsilon(1.0, 1e-5)
    mu, ratio = (rates(without, given, 1e-5, 1e-6, gaussian=gaussian) for gaussian in (True, False))
    assert mu is not None
    assert ratio is not None
    assert 0.9 * exact < by_mu(mu, 1e-5) < exact
    assert 1.5 < by_ratio(ratio, 1e-5) < exact
    assert rates(without[:1], given[:1], 1e-5, 0.05, gaussian=False) is None


@pytest.mark.parametrize(
    ("shared", "change"), [(0.0, (1.0, 1.0)), (1.0, (1.0, 0.0)), (1.0, (1.0, 1.0)), (0.5, (1.0, -1.0))]
)
def test_a_score_weighs_a_sum_by_how_little_noise_is_left_in_it(shared: float, change: tuple[float, float]) -> None:
    """Scores are apart by v' C^-1 v, and vary as much; without bound where v has a part in which the noise cancels."""
    covariance, v = np.array([[1.0, shared], [shared, 1.0]]), np.array(change)
    generator = np.random.default_rng(1)
    noise, more = (generator.multivariate_normal([3.0, -2.0], covariance, 20_000) for _ in range(2))
    measured = Whitening.of(noise, more + v)
    assert measured.change == pytest.approx(v, abs=0.05)
    assert (Whitening.from_plain(measured.plain()).inverse == measured.inverse).all()
    scores = [measured.scores(seen, v) for seen in (noise, more + v)]
    if shared == 1.0 and change == (1.0, 0.0):
        assert scores[0].max() < scores[1].min()
        return
    expected = float(v @ np.linalg.pinv(covariance) @ v)
    assert scores[1].mean() - scores[0].mean() == pytest.approx(expected, rel=0.05)
    assert scores[0].var() == pytest.approx(expected, rel=0.05)

"""Batches of the discrete Gaussian: exact probabilities, comparisons that float64 leaves open, and its error bounds.

Bounds have a false-alarm rate of 1e-6 per test on the operating system's randomness; seeded draws are always the same.

RRWithPrior by its exact matrix and by its draws; parts of LP-MST.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats

from treetap.privacy import discrete_gaussian as module
from treetap.privacy.discrete_gaussian import discrete_gaussian, discrete_gaussians, exp_bounds
from treetap.privacy.label_dp import likeliest, other_weight, rr_with_prior, staged

ALPHA = 1e-6
#: One unit of the analysis in the module's docstring.
U = 2.0**-53


def _probabilities(variance: float, bound: int) -> np.ndarray[Any, Any]:
    """P(x) for |x| < bound, before it that of the lower tail and after it that of the upper one."""
    support = np.arange(-400, 401)
    density = np.exp(-(support**2) / (2 * variance))
    density /= density.sum()
    inner = np.abs(support) < bound
    tail = density[support >= bound].sum()
    return np.concatenate([[tail], density[inner], [tail]])


def _counts(draws: np.ndarray[Any, Any], bound: int) -> np.ndarray[Any, Any]:
    return np.bincount(np.clip(draws, -bound, bound) + bound, minlength=2 * bound + 1)


def _sequence(parts: list[bytes], then: Callable[[int], bytes] = os.urandom) -> Callable[[int], bytes]:
    """A source of the given parts, one a call, and then of another source."""
    left: Iterator[bytes] = iter(parts)

    def source(count: int) -> bytes:
        part = next(left, None)
        if part is None:
            return then(count)
        assert len(part) == count
        return part

    return source


def _proposals(lows: list[int], highs: list[int], uniforms: list[int]) -> bytes:
    return np.array([lows, highs, uniforms], dtype="<u8").tobytes()


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize(
    ("variance", "bound"),
    [("1/10", 2), ("1", 4), ("5/2", 6), ("9", 12), ("225/16", 14), ("2500/9", 55), ("256", 55)],
)
def test_draws_have_the_stated_probabilities(variance: str, bound: int) -> None:
    """A chi-square test over the integers of which more than a handful are drawn, and the two tails."""
    count = 400_000
    draws = discrete_gaussians(count, Fraction(variance))
    expected = count * _probabilities(float(Fraction(variance)), bound)
    assert stats.chisquare(_counts(draws, bound), expected).pvalue > ALPHA


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(("variance", "bound"), [("5/2", 5), ("1/10", 2)])
def test_single_draws_have_the_stated_probabilities(variance: str, bound: int) -> None:
    """The same test of the draws that are written as the algorithms are; a variance a fifth too large is noticed."""
    below = random.Random(5).randrange
    draws = np.array([discrete_gaussian(Fraction(variance), below) for _ in range(20_000)])
    for factor, fits in ((1.0, True), (1.2, False)):
        expected = 20_000 * _probabilities(factor * float(Fraction(variance)), bound)
        assert (stats.chisquare(_counts(draws, bound), expected).pvalue > ALPHA) == fits


def test_a_variance_that_is_two_percent_wrong_is_noticed() -> None:
    """The chi-square test above has that power."""
    draws = discrete_gaussians(400_000, Fraction(9), random.Random(1).randbytes)
    assert stats.chisquare(_counts(draws, 12), 400_000 * _probabilities(9.18, 12)).pvalue < ALPHA


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("sigma", [3.0, 17.5, 2.0**40])
def test_batches_are_distributed_as_single_draws(sigma: float) -> None:
    """A two-sample test, in cells of σ/2: the one-by-one sampler shares nothing with the batches."""
    singles = np.array([discrete_gaussian(Fraction(sigma) ** 2) for _ in range(3000)])
    batch = discrete_gaussians(200_000, Fraction(sigma) ** 2)
    table = [_counts(np.floor(draws / (sigma / 2)).astype(np.int64), 6) for draws in (singles, batch)]
    assert stats.chi2_contingency(np.array(table)).pvalue > ALPHA


@pytest.mark.parametrize("sigma", [1e6 + 0.5, 3 * 2.0**32, 2.0**40, 2.0**45])
def test_draws_of_a_great_sigma_are_normal(sigma: float) -> None:
    """Mean, Σx²/σ², the fourth moment and all quantiles; the lowest bits are uniform."""
    count = 100_000
    draws = discrete_gaussians(count, Fraction(sigma) ** 2)
    scaled = draws / sigma
    limit = stats.norm.isf(ALPHA / 10)
    assert abs(scaled.mean()) * math.sqrt(count) < limit
    assert abs((scaled**2).mean() - 1) < limit * math.sqrt(2 / count)
    assert abs((scaled**4).mean() - 3) < 1.2 * limit * math.sqrt(96 / count)
    assert stats.kstest(scaled, "norm").pvalue > ALPHA / 5
    assert stats.chisquare(np.bincount(draws & 7)).pvalue > ALPHA / 5


@pytest.mark.parametrize("variance", [Fraction(1, 10), Fraction(9), Fraction(2.0**40 + 0.5) ** 2, Fraction(1 << 90)])
def test_the_arrays_decide_as_exact_arithmetic_does(variance: Fraction) -> None:
    """Each proposal of a batch alone, from the same bits, in whole numbers."""
    words = random.Random(3).randbytes(24 * 600)
    batch = module._Proposals(variance, _sequence([words])).accepted(600)
    scale = math.isqrt(math.floor(variance)) + 1
    alone = []
    proposals = module._Proposals(variance, os.urandom)
    for first, high, uniform in np.frombuffer(words, "<u8").reshape(3, 600).T.tolist():
        size = proposals._decided(first % (2 * scale) >> 1, high, uniform)
        negative = first % 2 == 1
        if size is not None and not (negative and size == 0) and first < (1 << 64) // (2 * scale) * 2 * scale:
            alone.append(-size if negative else size)
    assert batch.tolist() == alone
    assert len(alone) > 150


def test_a_comparison_that_float64_leaves_open_is_decided_by_further_bits() -> None:
    """U agrees with exp(−x) in 64 bits, then in 128: the next bits decide, of either side."""
    variance, low = Fraction(2.0**33 + 0.25) ** 2, 123_456_789
    scale = math.isqrt(math.floor(variance)) + 1
    exponent = (low - variance / scale) ** 2 / (2 * variance) + Fraction(low, scale)
    threshold = exp_bounds(exponent, 256)[0]
    first, second = threshold >> 192, threshold >> 128 & (1 << 64) - 1
    words = _proposals([2 * low], [(1 << 64) - 1], [first])
    asked = []

    def accepted(*further: int) -> list[np.int64]:
        parts = [words] + [word.to_bytes(8, "little") for word in further]

        def none(count: int) -> bytes:
            raise AssertionError("more bits than needed")

        source = _sequence(parts, none)
        asked.append(len(further))
        return list(module._Proposals(variance, source).accepted(1))

    assert accepted(second - 1) == [low]
    assert accepted(second + 1) == []
    assert accepted(second, 0) == [low]
    assert accepted(second, (1 << 64) - 1) == []


def test_float64_is_not_asked_near_the_threshold() -> None:
    """Whatever U is within the undecided band, the outcome is that of its 64 bits against the exact threshold."""
    variance, low = Fraction(10**12 + 1, 7), 54_321
    scale = math.isqrt(math.floor(variance)) + 1
    exponent = (low - variance / scale) ** 2 / (2 * variance) + Fraction(low, scale)
    threshold = exp_bounds(exponent, 64)[0]
    offsets = [sign * (1 << shift) for sign in (-1, 1) for shift in range(1, 30)]
    words = _proposals(
        [2 * low] * len(offsets), [(1 << 64) - 1] * len(offsets), [threshold + offset for offset in offsets]
    )
    accepted = module._Proposals(variance, _sequence([words])).accepted(len(offsets))
    assert accepted.tolist() == [low] * sum(offset < 0 for offset in offsets)


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize("high", [1, 2, 30, 44, 45, 46])
def test_a_high_on_a_threshold_is_decided_by_further_bits(high: int) -> None:
    """64 bits equal to ⌊2⁶⁴ exp(−h)⌋: the next ones tell h from h − 1, also beyond the table."""
    threshold = exp_bounds(Fraction(high), 256)[0]
    first, second, third = (threshold >> shift & (1 << 64) - 1 for shift in (192, 128, 64))
    variance, uniform = Fraction(10**8), 0  # U = 0 in its first bits: accepted, however small exp(−x) is, or undecided

    def decided(last: int) -> int:
        further = [second.to_bytes(8, "little"), last.to_bytes(8, "little")]
        source = _sequence([_proposals([0], [first], [uniform]), *further], bytes)
        return int(module._Proposals(variance, source).accepted(1)[0]) // 10_001

    assert (decided(third - 1), decided(third + 1)) == (high, high - 1)


def _decimal_exp(exponent: Fraction) -> Decimal:
    """exp(−exponent) to 90 digits, by another algorithm."""
    with localcontext() as context:
        context.prec = 120
        return (-(Decimal(exponent.numerator) / Decimal(exponent.denominator))).exp()


def test_the_exponential_function_is_within_its_bound() -> None:
    """3u from a hundred digits of another algorithm; beyond the cut, both are below 2⁻⁶³."""
    # Random ones, the ends of steps of the table and what is next to them, and beyond the cut.
    draw = random.Random(4).uniform
    ends = [step / 64 for step in (0, 1, 2, 3, 64, 100, 1000, 2815, 2816)]
    near = [math.nextafter(end, side) for end in ends for side in (0.0, 100.0)]
    small = [draw(0, 1) * 2.0**-power for power in range(0, 70, 3)] + [5e-324]
    arguments = np.array(ends + near + small + [draw(0, 46) for _ in range(1000)] + [44.5, 700.0, 1e300, math.inf])
    values = module._exp(arguments.copy())
    for argument, value in zip(arguments.tolist(), values.tolist(), strict=True):
        exact = Fraction(_decimal_exp(Fraction(argument))) if argument < 1000 else Fraction(0)
        if argument >= 44:
            assert value < 2.0**-63
            assert exact < Fraction(2.0**-63)
        assert abs(Fraction(value) - exact) < 3 * Fraction(U)


@pytest.mark.parametrize(
    "variance",
    [Fraction(1, 1 << 40), Fraction(1, 7), Fraction(1), Fraction(10, 3), Fraction(1 << 89), Fraction(1 << 90)],
)
def test_the_probability_of_acceptance_is_within_its_bound(variance: Fraction) -> None:
    """16u of the exact one, with offsets near the centre, where they cancel, and far from it."""
    scale = math.isqrt(math.floor(variance)) + 1
    draw = random.Random(5).randrange
    pairs = [(draw(scale), draw(4)) for _ in range(300)] + [(draw(scale), high) for high in range(46)]
    pairs += [(low, high) for low in {0, scale - 1, scale // 2} for high in (0, 1, 45)]
    lows = np.array([low for low, _ in pairs], dtype=np.int64)
    sizes = np.array([low + scale * high for low, high in pairs], dtype=np.int64)
    values = module._Proposals(variance, os.urandom)._probabilities(sizes, lows)
    for low, size, value in zip(lows.tolist(), sizes.tolist(), values.tolist(), strict=True):
        exponent = (size - variance / scale) ** 2 / (2 * variance) + Fraction(low, scale)
        least, most = exp_bounds(exponent, 120)
        error = max(Fraction(most, 1 << 120) - Fraction(value), Fraction(value) - Fraction(least, 1 << 120))
        assert error < 16 * Fraction(U)


def test_bounds_of_exp_hold() -> None:
    """Against a hundred digits of another algorithm: they hold, and are as near as is said."""
    draw = random.Random(6)
    exponents = [Fraction(draw.randrange(1 << 70), 1 << draw.randrange(66, 100)) for _ in range(100)]
    exponents += [
        Fraction(1, 10**30),
        Fraction(1),
        Fraction(45),
        Fraction(63),
        Fraction(64),
        Fraction(129),
        Fraction(1000),
    ]
    for exponent in exponents:
        exact = Fraction(_decimal_exp(exponent))
        for bits in (64, 128):
            least, most = exp_bounds(exponent, bits)
            assert least <= exact * (1 << bits) <= most
            assert 1 <= most - least <= 2
    assert exp_bounds(Fraction(0), 64) == (1 << 64, 1 << 64)


def test_the_thresholds_are_the_whole_parts() -> None:
    """⌊2⁶⁴ exp(−h)⌋, and the table is correctly rounded."""
    for place, threshold in enumerate(module._HIGHS.tolist()):
        assert threshold == math.floor(_decimal_exp(Fraction(45 - place)) * (1 << 64))
    assert module._TABLE.tolist() == [float(_decimal_exp(Fraction(n, 64))) for n in range(44 * 64 + 1)]


def test_draws_follow_from_the_source() -> None:
    """The same bytes give the same draws; zero, of either sign, is as likely as it should be."""
    one, same, other = (
        discrete_gaussians(50_000, Fraction(1 << 60), random.Random(seed).randbytes) for seed in (7, 7, 8)
    )
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)
    assert one.dtype == np.int64
    assert one.shape == (50_000,)
    assert discrete_gaussians(0, Fraction(4)).shape == (0,)


@pytest.mark.parametrize("variance", [Fraction(0), Fraction(-1), Fraction(1, (1 << 40) + 1), Fraction((1 << 90) + 1)])
def test_a_variance_out_of_bounds_is_refused(variance: Fraction) -> None:
    """σ is between 2⁻²⁰ and 2⁴⁵."""
    with pytest.raises(ValueError, match="2\\^-40 to 2\\^90"):
        discrete_gaussians(1, variance)


def test_what_int64_cannot_hold_is_an_error() -> None:
    """An enormous `high`, of bits that no source ever draws, is no wrapped number."""
    proposals = module._Proposals(Fraction(1 << 90), os.urandom)
    proposals._decided = lambda *_: 1 << 63  # type: ignore[method-assign]
    proposals._source = _sequence([_proposals([0], [0], [0])])
    with pytest.raises(OverflowError):
        proposals.accepted(1)


Matrix = list[list[Fraction]]
#: The unit of probabilities is 2^-128.
UNIT = 1 << 128
EPSILONS = (1e-6, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 64.0)


def transition(prior: Sequence[float], epsilon: float) -> Matrix:
    """The mechanism for one prior (C,): row y has the exact probabilities (C,) of the outputs for label y."""
    order, ks = likeliest(np.array([prior], dtype=np.float64), epsilon)
    k = int(ks[0])
    top = order[0, :k].tolist()
    other = other_weight(k, epsilon)
    rows = [[Fraction(0)] * len(prior) for _ in prior]
    for label, row in enumerate(rows):
        for output in top:
            kept = UNIT - (k - 1) * other if output == label else other
            row[output] = Fraction(kept, UNIT) if label in top else Fraction(1, k)
    return rows


def ratio(matrix: Matrix) -> float:
    """The largest ratio of an output's probabilities under two labels; infinite where one label excludes it."""
    found = [Fraction(0)]
    for outputs in zip(*matrix, strict=True):
        if any(outputs) and not all(outputs):
            return math.inf
        if any(outputs):
            found.append(max(outputs) / min(outputs))
    return float(max(found))


def priors(count: int, seed: int) -> list[list[float]]:
    """Random priors of 2 to 8 classes, flat and steep ones, some with zeros."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        prior = rng.dirichlet(np.full(rng.integers(2, 9), rng.choice([0.05, 0.5, 5.0])))
        prior[rng.random(len(prior)) < 0.1] = 0.0
        made.append(prior.tolist())
    return made


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_no_output_is_more_than_e_to_epsilon_times_as_likely_under_another_label(epsilon: float) -> None:
    """The exact ratio over all outputs and pairs of labels is at most e^ε; it is e^ε where several classes are kept."""
    several = 0
    for prior in [[1 / 3] * 3, *priors(60, seed=3)]:
        matrix = transition(prior, epsilon)
        assert all(sum(row) == 1 for row in matrix)
        assert ratio(matrix) <= math.exp(epsilon) * (1 + 1e-12)
        if likeliest(np.array([prior]), epsilon)[1][0] >= 2:
            several += 1
            assert ratio(matrix) >= math.exp(epsilon) * (1 - 1e-9)
    assert several


def test_a_draw_from_all_classes_for_an_unlikely_label_is_not_private() -> None:
    """Two public implementations draw so; the test above would find them."""
    wrong = 0
    for prior in priors(60, seed=3):
        order, ks = likeliest(np.array([prior]), 1.0)
        matrix, unlikely = transition(prior, 1.0), order[0, ks[0] :].tolist()
        for label in unlikely:
            matrix[label] = [Fraction(1, len(prior))] * len(prior)
        if unlikely:
            wrong += 1
            assert ratio(matrix) > math.exp(1.0) * (1 + 1e-12)
    assert wrong > 20


def test_as_many_classes_are_kept_as_make_a_kept_label_likeliest() -> None:
    """k* is the least k with the greatest e^ε/(e^ε+k−1) times the sum of the k largest priors, by fractions."""
    for prior in priors(100, seed=5):
        for epsilon in (0.1, 1.0, 4.0):
            e = Fraction(math.exp(epsilon))
            sums = [sum(map(Fraction, sorted(prior, reverse=True)[:k])) for k in range(1, len(prior) + 1)]
            worth = [e / (e + k) * each for k, each in enumerate(sums)]
            k = int(likeliest(np.array([prior]), epsilon)[1][0])
            assert float(worth[k - 1]) == pytest.approx(float(max(worth)), rel=1e-12)


def test_draws_have_the_probabilities_of_the_matrix() -> None:
    """Every source of chance gives its share exactly: draws are counted over an even grid of what may be drawn."""
    prior, epsilon, cells = [0.5, 0.1, 0.3, 0.1], 1.0, 20_000
    matrix = transition(prior, epsilon)
    for label in range(4):
        grid = iter(range(cells))

        def even(below: int, grid: Iterator[int] = grid) -> int:
            return next(grid) * below // cells

        noisy = rr_with_prior(np.full(cells, label), np.tile(prior, (cells, 1)), epsilon, even)
        shares = np.bincount(noisy, minlength=4) / cells
        assert shares == pytest.approx([float(p) for p in matrix[label]], abs=2 / cells)


def test_each_record_has_its_own_prior() -> None:
    """With ε so great that likely labels are kept, a label that its prior excludes becomes the likeliest class."""
    given = np.array([[0.9, 0.1, 0.0], [0.0, 1.0, 0.0], [0.3, 0.3, 0.4]])
    assert rr_with_prior(np.array([2, 0, 2]), given, 60.0, random.Random(1).randrange).tolist()[1:] == [1, 2]


def test_a_prior_depends_on_noisy_labels_of_earlier_parts_alone() -> None:
    """Another label of one record leaves its own prior, and those of its part and of earlier ones, as they were."""
    n, classes, stages = 60, 3, 4
    labels = np.random.default_rng(0).integers(0, classes, n)

    def asked(changed: int | None) -> list[tuple[list[int], list[int], list[float]]]:
        """The records of each further part, those before it, and the priors."""
        found = []

        def by_share(before: np.ndarray, noisy: np.ndarray, part: np.ndarray) -> np.ndarray:
            share = (np.bincount(noisy, minlength=classes) + 1) / (len(noisy) + classes)
            found.append((part.tolist(), before.tolist(), share.tolist()))
            return np.tile(share, (len(part), 1))

        own = labels.copy()
        if changed is not None:
            own[changed] = (own[changed] + 1) % classes
        staged(own, classes, 8.0, stages, by_share, random.Random(7).randrange)
        return found

    as_it_was = asked(None)
    assert [len(part) for part, _, _ in as_it_was] == [15, 15, 15]
    for stage, (part, before, _) in enumerate(as_it_was):
        assert not set(part) & set(before)
        for record in part[:3]:
            assert asked(record)[: stage + 1] == as_it_was[: stage + 1]
        assert any(asked(record)[stage] != as_it_was[stage] for record in before)


def test_parts_are_disjoint_and_cover_all_records() -> None:
    """With ε so great that nothing changes, the noisy labels of any number of stages are the labels."""
    labels = np.random.default_rng(1).integers(0, 5, 101)
    for stages in (1, 2, 5, 16):
        found = staged(labels, 5, 64.0, stages, lambda _, __, part: np.full((len(part), 5), 0.2))
        assert found.tolist() == labels.tolist()

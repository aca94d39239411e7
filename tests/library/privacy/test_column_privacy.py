"""Column privacy: its sensitivity over all neighbours, its ρ in exact probabilities, its noise, and the room for it."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from tests.joint_noise import assert_independent, contrasts
from treetap.privacy import column_privacy
from treetap.privacy.column_privacy import ColumnPrivacy, drawn_cells, drawn_sums
from treetap.privacy.zcdp import epsilon_of, rho_of
from treetap.trees.binning import bin_table, encode
from treetap.trees.candidates import CandidateList, Kind, Shape
from treetap.trees.noised_sums import SAFE_BITS, SumNoise
from treetap.trees.params import BoostingParams

#: Chance that a statistical test fails on right code.
ALPHA = 1e-6
PRIVACY = ColumnPrivacy(4.0, 1e-6, 100)
SMALL = SumNoise(Fraction(9), (2, 1, 1), 4, 1000)


def _cells(codes: np.ndarray, values: np.ndarray, bins: int) -> np.ndarray:
    """Cells (columns, bins, S) of a table of codes (n, d)."""
    cells = np.zeros((codes.shape[1], bins, values.shape[1]), dtype=np.int64)
    for row, value in zip(codes, values, strict=True):
        for column, code in enumerate(row):
            cells[column, code] += value
    return cells


@pytest.mark.parametrize(("records", "columns", "bins"), [(2, 2, 3), (3, 1, 3)])
def test_no_neighbour_changes_more_than_is_accounted_for(records: int, columns: int, bins: int) -> None:
    """Δ² over all tables, all neighbours and all values at their bounds is 2S / z², and d times that for a record."""
    bounds = np.array(SMALL.bounds)
    tables = [
        np.array(codes).reshape(records, columns) for codes in itertools.product(range(bins), repeat=records * columns)
    ]
    worst = {1: 0.0, columns: 0.0}
    for values in ([bounds] * records, [bounds * (-1) ** i for i in range(records)], [bounds // 2] * records):
        summed = [_cells(codes, np.array(values), bins) for codes in tables]
        for one, other in itertools.combinations(range(len(tables)), 2):
            differ = tables[one] != tables[other]
            if differ.any(axis=1).sum() == 1:
                change = ((summed[one] - summed[other]) / bounds) ** 2 / float(SMALL.variance)
                changed = int(differ.sum())
                worst[changed] = max(worst.get(changed, 0.0), float(change.sum()))
    slots = len(bounds)
    for changed, squared in worst.items():
        assert squared == pytest.approx(changed * 2 * slots / float(SMALL.variance))
        # ρ = Δ² / 2 = S / z² for one column


def test_one_raw_value_changes_one_code_at_most() -> None:
    """Of fixed cuts: all pairs of values, missing ones too, in each cell of a table; no other cell changes its bin."""
    values = np.array([[0.0, 1.0], [2.0, np.nan], [1.0, 0.0], [np.nan, 2.0], [2.0, 2.0]])
    features = bin_table(values, ["a", "b"], 3).features
    before = encode(values, features).codes
    for row, column in itertools.product(range(5), range(2)):
        for other in (-1.0, 0.0, 0.5, 1.0, 1.5, 2.0, 9.0, np.nan):
            changed = values.copy()
            changed[row, column] = other
            differ = encode(changed, features).codes != before
            assert not np.delete(differ.ravel(), 2 * row + column).any()


def test_the_likelihoods_of_two_neighbours_have_the_stated_rho() -> None:
    """Rényi divergences D_α ≤ αρ of the exact probabilities of two changed cells, for the discrete Gaussian."""
    sigma, bound = 3.0, 2
    support = np.arange(-120, 121)
    density = np.exp(-(support**2) / (2 * (sigma * bound) ** 2))
    density /= density.sum()
    moved = np.roll(density, bound)
    inner = slice(10, -10)
    for order in (1.5, 2.0, 4.0):
        divergence = math.log(float((density[inner] ** order * moved[inner] ** (1 - order)).sum())) / (order - 1)
        assert 2 * divergence <= order * 1 / sigma**2 * (1 + 1e-9)  # two cells, one slot: ρ = 1 / z²
        assert 2 * divergence >= 0.9 * order / sigma**2


def test_epsilon_and_rho_are_each_others_inverse() -> None:
    """ρ + 2√(ρ ln(1/δ)) of the ρ is ε, and z² is what one attempt's nodes cost together, rounded up."""
    for epsilon, delta in ((0.1, 1e-5), (4.0, 1e-6), (64.0, 1e-9)):
        assert epsilon_of(rho_of(epsilon, delta), delta) == pytest.approx(epsilon)
    variance = PRIVACY.variance(100 * 6 * 3)
    assert 0 <= PRIVACY.rho - 100 * 6 * 3 / float(variance) < 1e-9


def test_hiding_of_a_lattice_adds_a_hundredth_of_delta_at_most() -> None:
    """(1 + e^ε) · 2^−h ≤ δ / 100, and one bit less would not do; 64 bits do up to ε = 25."""
    for epsilon in (0.1, 1.0, 4.0, 16.0, 25.0):
        bits = ColumnPrivacy(epsilon, 1e-6, 1).hiding_bits
        added = [(1 + math.exp(epsilon)) * 2.0**-h for h in (bits, bits - 1)]
        assert added[0] <= 1e-8 < added[1]
        assert bits <= 64
    assert ColumnPrivacy(26.0, 1e-6, 1).hiding_bits == 65
    assert ColumnPrivacy(1e6, 1e-6, 1).hiding_bits > 64


def test_noise_of_a_column_is_zero_in_all_and_independent_of_all_else() -> None:
    """Each column's cells add up to 0, others have none; of two nodes all slots and columns are drawn apart."""
    candidates = CandidateList([Shape(4, False), Shape(3, True), Shape(1, False), Shape(3, False, Kind.ONE_HOT)])
    bounds, plays, seen = np.array(SMALL.bounds)[:, None, None, None], 4000, []
    cells = drawn_cells(candidates, SMALL, 2 * plays).reshape(len(SMALL.bounds), plays, 2, -1)
    for column, shape in enumerate(candidates.shapes):
        here = cells[..., candidates.cell[column] : candidates.cell[column + 1]]
        assert not here.sum(axis=-1).any()
        assert shape.has_missing or not here[..., -1].any()
        if (used := shape.n_bins + shape.has_missing) > 1:
            seen.append(here[..., :used] / bounds @ contrasts(used).T / math.sqrt(SMALL.variance))
    joined = np.concatenate(seen, axis=-1)  # (slots, plays, nodes of a play, cells)
    assert_independent(np.moveaxis(joined, 1, 0).reshape(plays, -1), ALPHA, rounding=0.05)


def test_each_cell_has_draws_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many draws as cells, bins and slots, empty bins too; with σ = z times each slot's bound."""
    asked: list[tuple[int, Fraction]] = []

    def draws(count: int, variance: Fraction) -> np.ndarray:
        asked.append((count, variance))
        return np.zeros(count, dtype=np.int64)

    candidates = CandidateList([Shape(4, False), Shape(3, True)])
    assert not drawn_sums(candidates, SMALL, 5, draws).any()
    assert asked == [(5 * 8, Fraction(9) * bound**2) for bound in SMALL.bounds]


def test_the_room_holds_all_sums_of_an_attempt_but_for_the_stated_chance() -> None:
    """M · 2 exp(−t² / 2σ²W/4) ≤ 2^−40 for the room without its part for rounding; no draw of a test is beyond it."""
    noise = PRIVACY.noise(BoostingParams(max_depth=6, max_bin=32), 1)
    for room, bound in zip(noise.rooms, noise.bounds, strict=True):
        most = float(noise.variance) * bound**2 * noise.most_bins / 4
        beyond = math.log(noise.numbers) + math.log(2) - (room - noise.most_bins) ** 2 / (2 * most)
        assert beyond <= -SAFE_BITS * math.log(2)
    candidates = CandidateList([Shape(4, False)] * 5)
    sums = drawn_sums(candidates, SMALL, 200)
    assert (np.abs(sums) <= np.array(SMALL.rooms)).all()
    assert SMALL.deviation(0) == pytest.approx(2 * 3 * 1.0)
    assert column_privacy.MOST_SUMS >= 4096 * 2 * 2049

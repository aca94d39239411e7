"""Left sums against the definition."""

from __future__ import annotations

import numpy as np
import pytest

from treetap.trees.candidates import CandidateList
from treetap.trees.tree_bins import left_sums

SHAPES = [(4, False), (3, True), (1, True), (2, False)]


def table(n: int) -> np.ndarray:
    """Random bin numbers; missing codes only where a feature has missing values."""
    rng = np.random.default_rng(0)
    return np.stack([rng.integers(0, bins + missing, n) for bins, missing in SHAPES], axis=1).astype(np.int32)


@pytest.mark.parametrize("magnitude", [1, 2**32, 2**52])
def test_left_sums_are_what_their_name_says(magnitude: int) -> None:
    """Each is the exact sum over the records that the candidate sends left, far beyond a double's 53 bits."""
    rng = np.random.default_rng(1)
    codes = table(200)
    values = rng.integers(-magnitude, magnitude, size=(200, 3), endpoint=True)
    nodes = [np.arange(200), rng.choice(200, 50, replace=False), np.array([7]), np.zeros(0, dtype=np.int64)]
    candidates = CandidateList(SHAPES)
    found = left_sums(codes, candidates, values, nodes)
    assert found.shape == (4, len(candidates), 3)
    assert found.dtype == np.int64
    for u, rows in enumerate(nodes):
        for k in range(len(candidates)):
            left = rows[candidates.goes_left(codes[rows], candidates.at(k))]
            expected = [sum(int(v) for v in values[left, s]) for s in range(3)]
            assert found[u, k].tolist() == expected


def test_sums_over_many_features_do_not_overflow() -> None:
    """The running sum over all features exceeds int64 here; every left sum is exact all the same."""
    codes = np.zeros((4, 64), dtype=np.int32)
    codes[0] = 1
    values = np.full((4, 1), 2**60)
    found = left_sums(codes, CandidateList([(2, False)] * 64), values, [np.arange(4)])
    assert (found == 3 * 2**60).all()


def test_nothing_in_nothing_out() -> None:
    """No features or no nodes give empty sums of the right shape."""
    values = np.ones((5, 3), dtype=np.int64)
    assert left_sums(np.zeros((5, 0), dtype=np.int32), CandidateList([]), values, [np.arange(5)]).shape == (1, 0, 3)
    assert left_sums(np.zeros((5, 1), dtype=np.int32), CandidateList([(2, False)]), values, []).shape == (0, 1, 3)

"""Gains, leaves, draws and bins of a forest, against values made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from treetap.trees import sampling
from treetap.trees.binning import bin_table, fit
from treetap.trees.candidates import Shape
from treetap.trees.forest_criterion import LEAST_GAIN, ForestCriterion, targets
from treetap.trees.params import ForestParams
from treetap.trees.tree_bins import GlobalBins, NodeBins, goes_left, left_sums_of


def _criterion(labels: list[float], criterion: str = "gini", classes: int = 2, **options: int) -> ForestCriterion:
    return ForestCriterion(targets(np.array(labels), criterion, classes), ForestParams(criterion=criterion, **options))


def _sums(*rows: list[int]) -> np.ndarray:
    return np.array([rows], dtype=np.int64)


def test_gini_gain_by_hand() -> None:
    """Six of class 0 and four of class 1, parted 5 | 1 + 4: the decrease of impurity is 0.32."""
    found = _criterion([0, 1]).gains(_sums([5, 0, 5]), np.array([[6, 4, 10]]))
    assert found[0, 0] == pytest.approx(0.5 * 1 + 0.5 * (0.04 + 0.64) - (0.36 + 0.16))


def test_variance_gain_by_hand() -> None:
    """Targets 1, 2, 3, 10 parted 3 | 1: the decrease of the variance, in their own unit, is that of numpy."""
    y = np.array([1.0, 2.0, 3.0, 10.0])
    criterion = _criterion(y.tolist(), "squared_error", 0)
    values = np.hstack([criterion.targets.values, np.ones((4, 1), dtype=np.int64)])
    gain = criterion.gains(values[:3].sum(axis=0)[None, None], values.sum(axis=0)[None])[0, 0]
    assert criterion.shown(float(gain)) == pytest.approx(y.var() - 0.75 * y[:3].var())
    assert criterion.leaf(values[:3].sum(axis=0)) == pytest.approx([2.0])


def test_rounding_is_no_gain() -> None:
    """Splits that keep all proportions are never kept, whatever rounding makes of their gain."""
    criterion = _criterion([0, 1, 2], classes=3)
    noise = 0.0
    for n in range(1, 400):
        left = np.array([n, 2 * n, 3 * n, 6 * n])
        gains = criterion.gains(left[None, None], (left * 7)[None])
        noise = max(noise, abs(float(gains[0, 0])))
        assert criterion.choose([gains[0]]) is None
    assert 0 < noise < LEAST_GAIN / 10


def test_sides_that_are_too_small() -> None:
    """Fewer drawn records than a leaf must have on either side: not allowed; just as many: allowed."""
    criterion = _criterion([0, 1], min_samples_leaf=3)
    whole = np.array([[6, 4, 10]])
    assert np.isneginf(criterion.gains(_sums([2, 0, 2], [6, 2, 8], [0, 0, 0]), whole)).all()
    assert np.isfinite(criterion.gains(_sums([3, 0, 3], [6, 1, 7]), whole)).all()


def test_what_may_be_split() -> None:
    """Two leaves' worth of records of more than one class; numbers are never pure to a rule that has only their sum."""
    criterion = _criterion([0, 1], min_samples_leaf=2)
    assert [criterion.may_split(np.array(sums)) for sums in ([2, 2, 4], [4, 0, 4], [2, 1, 3])] == [True, False, False]
    assert _criterion([1.0, 2.0], "squared_error", 0).may_split(np.array([0, 2]))


def test_a_leaf_without_records_has_values_all_the_same() -> None:
    """Unsampled records may reach a leaf that no drawn record reaches only in theory; it holds numbers, not NaN."""
    assert np.isfinite(_criterion([0, 1]).leaf(np.array([0, 0, 0]))).all()


@pytest.mark.parametrize("bootstrap", [False, True])
def test_draws(bootstrap: bool) -> None:
    """As many as asked for, the same again for the same tree, others for another; repeated only with replacement."""
    first = sampling.drawn(1, 0, 100, 0.8, bootstrap=bootstrap)
    assert (first.sum(), first.dtype) == (80, np.int64)
    assert (first.max() == 1) != bootstrap
    assert first.tolist() == sampling.drawn(1, 0, 100, 0.8, bootstrap=bootstrap).tolist()
    assert first.tolist() != sampling.drawn(1, 1, 100, 0.8, bootstrap=bootstrap).tolist()
    assert sampling.drawn(1, 0, 3, 0.1, bootstrap=bootstrap).sum() == 1


def test_every_node_offers_as_many_candidates() -> None:
    """A node with fewer values than the column has the same candidates; those beyond its cuts part nothing."""
    values = np.array([[0.0], [1.0], [2.0], [3.0], [np.nan]])
    bins = NodeBins(values, np.array([0]), np.array([1, 1, 1, 0, 1]), 8)
    assert bins.candidates.shapes == (Shape(4, True),)
    rows = np.array([0, 1, 3, 4])  # of which 3 is not drawn
    ones = np.ones((5, 1), dtype=np.int64) * np.array([1, 1, 1, 0, 1])[:, None]
    counts = left_sums_of(bins, ones, [5], [rows])[0, :, 0]
    assert counts.tolist() == [1, 2, 2, 3, 2, 3, 2]
    for k in range(len(bins.candidates)):
        candidate = bins.candidates.at(k)
        raw = np.where(np.isnan(values[rows, 0]), candidate.missing_left, values[rows, 0] < bins.cut(5, candidate))
        assert goes_left(bins, 5, rows, candidate).tolist() == raw.tolist()


def test_quantiles_of_a_node_count_draws() -> None:
    """A record drawn often moves the cut: of two bins the median of the draws decides."""
    values = np.array([[1.0], [2.0], [3.0], [4.0]])
    cuts = []
    for drawn in ([1, 1, 1, 1], [5, 1, 1, 1], [1, 1, 2, 2], [0, 0, 1, 1]):
        bins = NodeBins(values, np.array([0]), np.array(drawn), 2)
        bins.see(1, np.arange(4))
        cuts.append(bins.cut(1, bins.candidates.at(0)))
    assert cuts == [2.5, 1.5, 3.5, 3.5]


def test_a_column_that_may_be_constant_offers_no_split() -> None:
    """One category that all records share is no fault, and no candidate."""
    table = bin_table(np.array([[1.0, 0.0], [1.0, 1.0]]), ["a", "b"], 8, may_be_constant={"a"})
    assert [feature.n_bins for feature in table.features] == [1, 2]
    assert GlobalBins(table, np.array([0, 1])).candidates.feature.tolist() == [1]
    assert fit(np.array([np.nan, np.nan]), 8, may_be_constant=True).shape == Shape(1, True)

"""Quantile bins."""

from __future__ import annotations

import numpy as np
import pytest

from tests.oracle import bin_cuts
from treetap.errors import DataError
from treetap.trees.binning import bin_table, fit
from treetap.trees.candidates import Shape

NAN = float("nan")


def test_few_values_get_a_bin_each() -> None:
    """Cuts lie midway, a value's code is the number of cuts at or below it."""
    bins = fit(np.array([3.0, 1.0, 1.0, 2.0]), 8)
    assert bins.cuts.tolist() == [1.5, 2.5]
    assert (bins.n_bins, bins.has_missing) == (3, False)
    assert bins.codes(np.array([1.0, 2.0, 3.0, 1.5, 1.4999, -9.0, 9.0, NAN])).tolist() == [0, 1, 2, 1, 0, 0, 2, 3]
    assert bins.codes(np.array([1.0])).dtype == np.int32


@pytest.mark.parametrize("max_bin", [2, 5, 32])
def test_many_values_get_equal_bins(max_bin: int) -> None:
    """Distinct values fill exactly `max_bin` bins of nearly equal size."""
    x = np.random.default_rng(0).normal(size=1000)
    bins = fit(x, max_bin)
    sizes = np.bincount(bins.codes(x), minlength=bins.n_bins)
    assert bins.n_bins == max_bin
    assert sizes.max() - sizes.min() <= 1


def test_heavy_values_do_not_break_quantiles() -> None:
    """A value that holds most records is a bin alone, and the others share the further ones; as in the oracle."""
    rng = np.random.default_rng(1)
    x = np.where(rng.random(500) < 0.7, 0.0, np.round(rng.normal(size=500), 2))
    x[:50] = NAN
    bins = fit(x, 10)
    assert bins.n_bins == 10
    assert bins.has_missing
    assert bins.cuts.tolist() == bin_cuts(x.tolist(), 10)
    assert (np.diff(bins.cuts) > 0).all()


def test_neighbouring_floats_are_told_apart() -> None:
    """Where no number lies between two values the upper one is the cut."""
    low = 1.0
    high = np.nextafter(low, 2.0)
    tiny = np.nextafter(0.0, 1.0)
    for pair in ((low, high), (0.0, tiny), (-tiny, 0.0), (-1.7e308, 1.7e308), (1.6e308, 1.7e308)):
        bins = fit(np.array(pair), 4)
        assert bins.codes(np.array(pair)).tolist() == [0, 1]
        assert np.isfinite(bins.cuts).all()


def test_a_single_value_with_missing_ones_is_a_feature() -> None:
    """Missing or not is information: one bin and the missing code."""
    bins = fit(np.array([5.0, NAN, 5.0]), 4)
    assert bins.shape == Shape(1, True)
    assert bins.codes(np.array([5.0, NAN, 7.0])).tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("column", "words"),
    [([2.0, 2.0], "constant"), ([NAN, NAN], "no value"), ([1.0, float("inf")], "infinite"), ([], "no value")],
)
def test_useless_columns_are_named(column: list[float], words: str) -> None:
    """The error names the column and what is wrong with it."""
    with pytest.raises(DataError, match=f"'income'.*{words}"):
        fit(np.array(column), 4, name="income")


def test_tables_are_encoded_column_by_column() -> None:
    """A table's codes are those of its columns, also of new records."""
    X = np.array([[1.0, NAN], [2.0, 0.0], [3.0, 4.0]])
    table = bin_table(X, ["a", "b"], 4)
    assert table.shapes == [Shape(3, False), Shape(2, True)]
    assert table.codes.tolist() == [[0, 2], [1, 0], [2, 1]]
    new = table.encode(np.array([[NAN, 9.0], [NAN, NAN]]))
    assert new.codes.tolist() == [[3, 1], [3, 2]]
    assert new.shapes == table.shapes


def test_wrong_shapes_are_refused() -> None:
    """Names, columns and bins must match in number."""
    X = np.arange(6.0).reshape(3, 2)
    with pytest.raises(DataError, match="2 columns but 1 names"):
        bin_table(X, ["a"], 4)
    with pytest.raises(DataError, match="1 columns but bins for 2"):
        bin_table(X, ["a", "b"], 4).encode(X[:, :1])
    with pytest.raises(DataError, match="records by columns"):
        bin_table(X[:, 0], ["a"], 4)

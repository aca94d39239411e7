"""The summary of a column: its rank error against exact ranks, in any order of values, and what it keeps exactly."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.library.trees.rank_error import rank_error
from treetap.trees.binning import BLOCK, QuantileSketch, quantile_cuts

Floats = npt.NDArray[np.float64]


def of(values: Floats, size: int, few: int = 4, parts: int = 1) -> QuantileSketch:
    sketch = QuantileSketch(few, size)
    for part in np.array_split(values, parts):
        sketch.add(part)
    return sketch


def worst_rank(values: Floats, sketch: QuantileSketch) -> float:
    """The largest error of an estimated number of values ≤ t or < t, over all t, as a share of the values."""
    present, counts = sketch.weighted()
    assert counts.sum() == len(values) == sketch.count
    assert (np.diff(present) > 0).all()
    assert np.isin(present, values).all()
    assert (present[0], present[-1], counts.min() > 0) == (values.min(), values.max(), True)
    estimated = np.concatenate([[0], np.cumsum(counts)])
    ordered, every = np.sort(values), np.unique(values)
    return max(
        np.abs(estimated[np.searchsorted(present, every, side=side)] - np.searchsorted(ordered, every, side=side)).max()
        / len(values)
        for side in ("left", "right")
    )


@settings(max_examples=60, deadline=None)
@given(
    numbers=st.lists(st.integers(-20, 20) | st.integers(-(10**6), 10**6), min_size=1, max_size=600),
    size=st.sampled_from([2, 4, 8, 32]),
    parts=st.integers(1, 9),
    scale=st.sampled_from([1.0, 1e-300, 1e300 / 10**6]),
)
def test_the_rank_error_is_within_its_bound(numbers: list[int], size: int, parts: int, scale: float) -> None:
    """For any values with any ties; and the ways in which they come in parts decide nothing."""
    values = np.array(numbers) * scale
    sketch = of(values, size, parts=parts)
    assert worst_rank(values, sketch) <= rank_error(len(values), size)
    for one, other in zip(sketch.weighted(), of(values, size).weighted(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert (sketch.least, sketch.largest) == (values.min(), values.max())


def orders(n: int) -> dict[str, Floats]:
    rng = np.random.default_rng(5)
    ascending = np.arange(n, dtype=np.float64)
    outside_in = np.empty(n)
    outside_in[0::2], outside_in[1::2] = ascending[: (n + 1) // 2], ascending[::-1][: n // 2]
    return {
        "sorted": ascending,
        "reversed": ascending[::-1],
        "zoomed in": outside_in,
        "zoomed out": outside_in[::-1],
        "teeth": np.arange(n) % 997 * 1.0,
        "shuffled": rng.permutation(ascending),
        "tied": np.where(rng.random(n) < 0.9, 0.0, rng.normal(size=n)),
        "alternating": np.where(np.arange(n) % 2 == 0, ascending, -ascending),
    }


@pytest.mark.parametrize("order", orders(1))
def test_orders_made_to_mislead(order: str) -> None:
    """Sorted, reversed, narrowing towards one value, in teeth: the bound holds with many levels."""
    values = orders(100_003)[order]
    assert worst_rank(values, of(values, 64)) <= rank_error(len(values), 64)


def test_the_bound_for_tables_of_practice() -> None:
    """Up to 2⁴¹ values no more than 10⁻⁴, and no error while there are fewer than two blocks."""
    assert rank_error(2 * BLOCK - 1) == 0
    assert rank_error(10**7) < 4e-5
    assert rank_error(2**41 - 1) <= 1e-4 < rank_error(2**42)
    values = np.random.default_rng(0).normal(size=300)
    present, counts = of(values, 200).weighted()
    np.testing.assert_array_equal(present, np.sort(values))
    assert (counts == 1).all()


def test_cuts_have_the_rank_that_is_asked_for() -> None:
    """Each cut of 32 bins leaves its share of the values below, up to the bound and the weight of one value."""
    values, size = np.random.default_rng(2).lognormal(size=50_000), 512
    sketch = of(values, size)
    present, counts = sketch.weighted()
    cuts = quantile_cuts(present, counts, 32)
    share = np.searchsorted(np.sort(values), cuts) / len(values)
    assert np.abs(share - np.arange(1, 32) / 32).max() <= rank_error(len(values), size) + counts.max() / len(values)


def test_few_values_are_kept_exactly_at_any_length() -> None:
    """As many distinct values as are few, rare ones too; one more, and there are none."""
    values = np.tile([3.0, -1.0, 7.5], 40_000)
    values[[17, 99_999]] = [0.25, -8.0]
    for few, kept in ((5, [-8.0, -1.0, 0.25, 3.0, 7.5]), (4, None)):
        found = of(values, 64, few, 3).distinct()
        assert (None if found is None else found.tolist()) == kept

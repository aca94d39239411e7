"""The bound of ID-LMID and the information in a signature, against sums done by hand."""

from __future__ import annotations

from itertools import permutations
from math import log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treetap.attacks.sections import chance_information
from treetap.trees.information import class_counts, class_entropy, mutual_information, node_bounds, numbered


def test_the_bound_by_hand() -> None:
    """Ten records, six of class 0: a node with (3, 1) and its complement with (3, 3)."""
    bounds = node_bounds([[3, 1]], [6, 4])
    assert bounds.node[0] == pytest.approx(0.75 * log(0.75 / 0.6) + 0.25 * log(0.25 / 0.4), abs=1e-12)
    assert bounds.complement[0] == pytest.approx(0.5 * log(0.5 / 0.6) + 0.5 * log(0.5 / 0.4), abs=1e-12)
    assert bounds.larger[0] == bounds.node[0] == pytest.approx(0.0498559, abs=1e-6)


def test_zero_times_the_logarithm_of_zero_is_zero() -> None:
    """A pure node tells ln(N / N^c); its complement is judged apart and may be the worse one."""
    bounds = node_bounds([[2, 0, 0], [4, 4, 0]], [5, 4, 1])
    assert bounds.node[0] == pytest.approx(log(10 / 5), abs=1e-12)
    assert bounds.complement[1] == pytest.approx(0.5 * log(0.5 / 0.5) + 0.5 * log(0.5 / 0.1), abs=1e-12)
    assert bounds.larger[1] == bounds.complement[1] > bounds.node[1]


def test_nodes_that_say_nothing() -> None:
    """The root, an empty node, and one with everybody's shares have bound 0; so has a class that nobody has."""
    bounds = node_bounds([[6, 4, 0], [0, 0, 0], [3, 2, 0]], [6, 4, 0])
    assert bounds.larger == pytest.approx([0.0, 0.0, 0.0], abs=1e-15)
    assert (bounds.larger >= 0).all()
    assert node_bounds(np.zeros((0, 2), dtype=np.int64), [1, 1]).larger.shape == (0,)


@pytest.mark.parametrize(
    ("counts", "totals"), [([[7, 0]], [6, 4]), ([[-1, 0]], [6, 4]), ([1, 0], [6, 4]), ([[1]], [6, 4])]
)
def test_impossible_counts_are_a_bug(counts: list[list[int]], totals: list[int]) -> None:
    """More records of a class than there are, fewer than none, or other classes."""
    with pytest.raises(ValueError, match=r"cannot hold|are needed"):
        node_bounds(counts, totals)


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=60))
def test_the_bound_bounds_what_the_indicator_tells(records: list[tuple[int, bool]]) -> None:
    """I(Y; S_w) never exceeds it (Theorem 2), for any node of any records."""
    labels = np.array([label for label, _ in records])
    within = np.array([inside for _, inside in records])
    bound = node_bounds([class_counts(labels[within], 4)], class_counts(labels, 4)).larger[0]
    assert mutual_information(labels, within.astype(np.int64)) <= bound + 1e-12


def test_information_by_hand() -> None:
    """Groups that are the label tell all of it, one group tells nothing, a quarter's noise leaves the rest."""
    labels = np.array([0, 0, 1, 1], dtype=np.int64)
    assert class_entropy([2, 2]) == pytest.approx(log(2))
    assert mutual_information(labels, np.array([-5, -5, 9, 9])) == pytest.approx(log(2))
    assert mutual_information(labels, np.zeros(4, dtype=np.int64)) == pytest.approx(0.0, abs=1e-15)
    assert mutual_information(labels, np.array([0, 0, 0, 1])) == pytest.approx(
        log(2) - 0.75 * (2 / 3 * log(3 / 2) + 1 / 3 * log(3)), abs=1e-12
    )
    assert mutual_information(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)) == 0.0
    with pytest.raises(ValueError, match="one label and one group per record"):
        mutual_information(labels, np.array([0, 1]))


def test_two_silent_sets_can_tell_the_label_together() -> None:
    """Exclusive or: each node's bound is 0, the signature of both tells everything. Bounds do not add up."""
    first, second = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    labels = first ^ second
    for one in (first, second):
        assert node_bounds([class_counts(labels[one == 1], 2)], class_counts(labels, 2)).larger[0] == 0.0
    assert mutual_information(labels, 2 * first + second) == pytest.approx(class_entropy([2, 2]))


def test_information_by_chance_is_the_mean_over_all_orders() -> None:
    """Six records: the mean of the information over all 720 orders of the labels; all of it where groups are single."""
    labels, groups = np.array([0, 0, 0, 1, 1, 2]), np.array([7, 7, 3, 3, 3, 5])
    orders = [mutual_information(np.array(order), groups) for order in permutations(labels.tolist())]
    assert chance_information(labels, groups) == pytest.approx(sum(orders) / len(orders), abs=1e-12)
    assert chance_information(labels, np.arange(6)) == pytest.approx(class_entropy([3, 2, 1]))
    assert chance_information(labels, np.zeros(6, dtype=np.int64)) == pytest.approx(0.0, abs=1e-15)
    assert chance_information(labels[:0], groups[:0]) == 0.0


@pytest.mark.parametrize("spread", [1, 40, 160, 10**6, 2**60])
@pytest.mark.parametrize("lowest", [0, -3])
def test_numbers_near_and_far_apart_are_numbered_alike(spread: int, lowest: int) -> None:
    """As numpy sorts them, whether they are counted one by one or sorted."""
    values = np.random.default_rng(spread).integers(lowest, lowest + spread, 10)
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    for got, expected in zip(numbered(values), (places, counts), strict=True):
        np.testing.assert_array_equal(got, expected)
        assert got.dtype == np.int64

"""The attack by the sides of own winning splits: it succeeds where they carry the label, and fails elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from treetap.attacks.id2graph.clustering import OwnCut, left_out, signatures
from treetap.attacks.id2graph.schema import Settings
from treetap.attacks.registry import OWN_CUTS, attack
from treetap.attacks.scores import score
from treetap.errors import BadInput


def halved(left: np.ndarray[tuple[int], np.dtype[np.bool_]], node: int) -> OwnCut:
    """A split of all records."""
    return OwnCut(node, np.flatnonzero(left), np.flatnonzero(~left))


def reached(labels: np.ndarray[tuple[int], np.dtype[np.int64]], *, informed: float) -> float:
    """The V-measure of the attack on four trees; a share of the splits follows the label, a few records apart."""
    draw, trees = np.random.default_rng(3), []
    for _ in range(4):
        tree = []
        for node in (2, 5, 7):
            side = labels == draw.integers(3) if draw.random() < informed else draw.random(len(labels)) < 0.5
            tree.append(halved(side ^ (draw.random(len(labels)) < 0.05), node))
        trees.append(tree)
    found = attack(OWN_CUTS, [[] for _ in trees], len(labels), None, 3, Settings(), trees)
    assert found.groups is not None
    assert found.parameters.keys() == {"discount", "max_entries", "starts", "iterations", "kmeans_tolerance", "seed"}
    return score(labels, found.clusters).v_measure


def test_sides_that_carry_the_label_give_it_away_and_random_ones_do_not() -> None:
    """Without a leaf, and without own columns."""
    labels = np.random.default_rng(1).integers(0, 3, 600)
    assert reached(labels, informed=1.0) > 0.8
    assert reached(labels, informed=0.0) < 0.02


def test_weights_fall_by_tree_and_depth_and_equal_splits_are_one() -> None:
    """Discount to the power of the tree times a half to that of the depth; a record outside of the node has 0."""
    half = np.array([True, True, False, False])
    first, again, part = halved(half, 1), halved(half, 2), OwnCut(3, np.array([2]), np.array([3]))
    points = signatures([[first], [again, part]], 4, 0.6, 100)
    weights = [1 + 0.6 / 2, 0.6 / 2]
    assert points == pytest.approx(np.array([[-1, 0], [-1, 0], [1, -1], [1, 1]]) * np.sqrt(weights))
    assert signatures([[first], [again, part]], 4, 0.6, 4).shape == (4, 1)  # the heaviest fits
    assert left_out([[first], [again, part]], 4, 4) == "uses the 1 heaviest of 2 own splits: max_entries allows 4"
    assert left_out([[first], [again, part]], 4, 8) == ""


def test_what_cannot_be_used_is_refused() -> None:
    """A record that does not exist; without any split all records are one group."""
    assert set(attack(OWN_CUTS, [], 9, None, 2).clusters) == {0}
    with pytest.raises(BadInput, match=r"node 6: names a record outside 0\.\.3"):
        signatures([[OwnCut(6, np.array([4]), np.array([1]))]], 4, 1.0, 100)

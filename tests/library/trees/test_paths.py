"""Candidate leaves, the paths to them, and how many bits they hide."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from tests.library.trees.decisions import decisions
from tests.library.trees.tables import Case, cases, encoded
from treetap.trees.centralised import train
from treetap.trees.ensemble import Ensemble, Leaf, Split, Tree, route
from treetap.trees.paths import (
    candidate_bits,
    candidate_leaves,
    condition,
    least_candidate_bits,
    least_candidates,
    output_bits,
    paths,
    spare_bits,
)

# a at the root and at 3, b at 2 and at 7; leaves out of order on purpose
TREE = Tree(
    0,
    (0,),
    (Split(1, "a", 0, 4.0, 10.0), Split(2, "b", 0, 1.0, 6.0), Split(3, "a", 1, 1.0, 4.0), Split(7, "b", 1, 1.0, 2.0)),
    tuple(Leaf(node, (w,), 2.0) for node, w in ((4, 0.5), (5, -0.5), (14, 1.0), (6, 0.0), (15, 0.25))),
)
LEFT = {"a": np.array([True, False, False]), "b": np.array([True, True, False])}


@pytest.mark.second_tier(but=12)
@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_the_leaf_reached_is_the_one_in_all_candidate_sets(case: Case) -> None:
    """Proposition 1: the parties' candidate sets share exactly one leaf per tree, and routing ends there."""
    tables = encoded(case.parties, case.params.max_bin)
    model = train(tables, case.labels, case.params, case.classes)
    goes_left = decisions(model, tables)
    n = len(case.labels)
    for tree in model.ensemble.used_trees:
        together = np.ones((n, len(tree.leaves)), dtype=bool)
        for party, _ in tables:
            mask = candidate_leaves(tree, n, lambda s, party=party: goes_left(s) if s.owner == party else None)
            assert mask.any(axis=1).all()
            together &= mask
        reached = route(tree.splits, n, lambda split, rows: goes_left(split)[rows])
        nodes = np.array([leaf.node for leaf in tree.leaves])
        assert (together.sum(axis=1) == 1).all()
        np.testing.assert_array_equal(nodes[together.argmax(axis=1)], reached)


def test_undecided_splits_leave_both_ways_open() -> None:
    """By hand: what one party's splits exclude, in the order in which the tree keeps its leaves."""
    mine = candidate_leaves(TREE, 3, lambda split: LEFT["a"] if split.owner == "a" else None)
    assert mine.astype(int).tolist() == [[1, 1, 0, 0, 0], [0, 0, 1, 0, 1], [0, 0, 1, 0, 1]]
    theirs = candidate_leaves(TREE, 3, lambda split: LEFT["b"] if split.owner == "b" else None)
    assert theirs.astype(int).tolist() == [[1, 0, 1, 1, 0], [1, 0, 1, 1, 0], [0, 1, 0, 1, 1]]
    assert candidate_leaves(TREE, 2, lambda _: None).all()
    assert paths(Tree(0, (0,), (), (Leaf(1, (0.0,), 1.0),))) == {1: ()}


@pytest.mark.parametrize(
    ("threshold", "missing_left", "left", "categories", "text"),
    [
        (2.5, False, True, None, "x < 2.5"),
        (2.5, True, True, None, "x < 2.5 or missing"),
        (2.5, True, False, None, "x ≥ 2.5"),
        (2.5, False, False, None, "x ≥ 2.5 or missing"),
        (math.inf, False, True, None, "x is present"),
        (math.inf, False, False, None, "x is missing"),
        (math.inf, True, True, ["red", "blue"], "x not in {red, blue} or missing"),
        (math.inf, True, False, ["red", "blue"], "x in {red, blue}"),
        (math.inf, False, True, ["red", "blue"], "x not in {red, blue}"),
    ],
)
def test_conditions_say_where_missing_values_go(
    threshold: float, missing_left: bool, left: bool, categories: list[str] | None, text: str
) -> None:
    """Every side of every kind of split has its words; categories that training has not seen are in no set."""
    assert condition("x", threshold, missing_left, left, categories) == text


def test_bits_are_counted() -> None:
    """Candidate bits add over trees; output bits measure the range of the sums at the resolution."""
    masks = [np.array([[True, True, False], [True, True, True]]), np.array([[True, True], [False, True]])]
    np.testing.assert_allclose(candidate_bits(masks), [2.0, math.log2(3)])
    other = Tree(1, (0,), (), (Leaf(1, (7.0,), 1.0),))
    assert output_bits([TREE, other], 10) == math.log2(1.5 * 1024 + 1)
    joint = Tree(0, (0, 1), (Split(1, "b", 0, 1.0, 2.0),), (Leaf(2, (0.0, 0.0), 1.0), Leaf(3, (3.0, 1.0), 1.0)))
    assert output_bits([joint], 0) == math.log2(4) + math.log2(2)


def test_the_output_with_the_fewest_spare_bits_counts() -> None:
    """Trees of different classes are separate equations: many candidates of one do not hide the other's."""
    open_tree = Tree(0, (0,), TREE.splits, TREE.leaves)
    shut_tree = Tree(1, (1,), TREE.splits, TREE.leaves)
    model = Ensemble("multi:softprob", 2, (0.5, 0.5), (open_tree, shut_tree), 2)
    bits = [np.log2([5.0]), np.log2([1.0])]
    assert spare_bits(model, bits, 3).tolist() == [-math.log2(13)]
    assert spare_bits(model, bits[:1] * 2, 3).tolist() == [math.log2(5) - math.log2(13)]


def test_a_feature_partys_bound_adds_over_trees() -> None:
    """A tree without its splits counts as one."""
    assert least_candidate_bits([[1], [], [1, 2, 3], [4, 5]]) == 1 + 0 + 2 + 0


def test_a_feature_party_bounds_the_candidates_alone() -> None:
    """However all other nodes of a full tree go, at least so many leaves stay open, and once so few."""
    rng = np.random.default_rng(3)
    for _ in range(60):
        own = {int(node) for node in rng.choice(np.arange(1, 8), size=rng.integers(0, 6), replace=False)}
        splits = tuple(Split(u, "own" if u in own else "other", u, 1.0, 1.0) for u in range(1, 8))
        tree = Tree(0, (0,), splits, tuple(Leaf(u, (0.0,), 1.0) for u in range(8, 16)))
        others = sorted(set(range(1, 8)) - own)
        ways = np.array(list(product([False, True], repeat=len(others))), dtype=bool).reshape(-1, len(others))
        counts = candidate_leaves(
            tree, len(ways), lambda s, own=own, ways=ways, o=others: None if s.node in own else ways[:, o.index(s.node)]
        ).sum(axis=1)
        assert least_candidates(own) == counts.min()

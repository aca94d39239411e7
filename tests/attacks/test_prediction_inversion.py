"""The recipient of masked sums: what it can see of a record, which weights follow from scores, and which paths."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest

from tests.attacks.present import present
from treetap.attacks.predictions.decoding import MaskedTree, decode_paths, invert, possible_leaves

Ints = npt.NDArray[np.int64]
LEAVES = np.array([4, 5, 6, 7])
RECORDS = 60


def _world(seed: int, trees: int = 3) -> tuple[list[MaskedTree], Ints, Ints, list[Ints]]:
    """Trees of depth 2: the recipient has split node 2 of the first tree and node 3 of the others.

    Returns the trees as it knows them, scores, leaves reached (n, trees) and the true weights.
    """
    rng = np.random.default_rng(seed)
    reached = rng.integers(0, 4, size=(RECORDS, trees))
    weights = [rng.integers(-(2**40), 2**40, size=(4, 1)) for _ in range(trees)]
    scores = sum((weights[t][reached[:, t]] for t in range(trees)), np.zeros((RECORDS, 1), dtype=np.int64))
    found = []
    for t in range(trees):
        node = 2 if t == 0 else 3
        places = [0, 1] if t == 0 else [2, 3]
        here = np.isin(reached[:, t], places)
        possible = possible_leaves(LEAVES, {node: here}, {node: reached[:, t] == places[0]}, RECORDS)
        known = ~np.isin(np.arange(4), places)
        found.append(MaskedTree(LEAVES, possible, np.where(known[:, np.newaxis], weights[t], 0), known))
    return found, scores, reached, weights


def test_own_nodes_show_leaves_below_them_and_rule_them_out_otherwise() -> None:
    """A record that arrives is at one of two leaves, by its direction at just one; any other is at neither."""
    arrived = np.array([True, True, False])
    left = np.array([True, False, False])
    assert possible_leaves(LEAVES, {2: arrived}, {2: left}, 3).astype(int).tolist() == [
        [1, 0, 0, 0],
        [0, 1, 0, 0],
        [0, 0, 1, 1],
    ]
    # a leaf that the party keeps, whose parent another party has split
    assert possible_leaves(LEAVES, {5: arrived}, {}, 3).astype(int).tolist() == [
        [0, 1, 0, 0],
        [0, 1, 0, 0],
        [1, 0, 1, 1],
    ]


@pytest.mark.parametrize("seed", range(5))
def test_exact_weights_follow_from_scores(seed: int) -> None:
    """All of them, and no wrong one; then every path is the true one."""
    trees, scores, reached, weights = _world(seed)
    found = invert(trees, scores)
    for tree, true in zip(found, weights, strict=True):
        assert tree.known.all()
        assert tree.weights.tolist() == true.tolist()
    for record in range(RECORDS):
        assert decode_paths(trees, scores, record) is None or reached[record, 0] > 1
        decoded = present(decode_paths(found, scores, record))
        assert decoded.outcome == "unique"
        assert decoded.leaves.tolist() == LEAVES[reached[record]].tolist()


def test_a_weight_that_scores_leave_open_is_not_guessed() -> None:
    """Of one record there are several possible weights: as many as its other trees have sums."""
    trees, scores, reached, _ = _world(1)
    alone = int(np.flatnonzero((reached[:, 0] == 0) & (reached[:, 1:] < 2).all(axis=1))[0])
    few = [MaskedTree(tree.leaves, tree.possible[[alone]], tree.weights, tree.known) for tree in trees]
    sums = {int(sum(each)) for each in product(*(few[t].weights[few[t].possible[0], 0].tolist() for t in (1, 2)))}
    assert len(sums) == 4
    assert not invert(few, scores[[alone]])[0].known[0]


def test_records_at_several_unknown_leaves_wait_for_the_others() -> None:
    """Joint sums alone give no weight; and a work bound that no record meets finds nothing."""
    trees, scores, reached, _ = _world(2)

    def both() -> Iterator[int]:
        return (i for i in range(RECORDS) if reached[i, 0] < 2 and (reached[i, 1:] > 1).any())

    rows = list(both())
    joint = [MaskedTree(tree.leaves, tree.possible[rows], tree.weights, tree.known) for tree in trees]
    assert [tree.known.tolist() for tree in invert(joint, scores[rows])] == [tree.known.tolist() for tree in trees]
    assert [tree.known.tolist() for tree in invert(trees, scores, work=1)] != [[True] * 4] * 3

"""The label holder's model: storage, routing, importances."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from treetap.errors import DataError
from treetap.trees.ensemble import Ensemble, Leaf, Split, Tree, importance, importance_by_owner, route

STUMP = Tree(1, (0,), (Split(1, "b", 7, 2.0, 5.0),), (Leaf(3, (0.1,), 2.0), Leaf(2, (-0.3,), 3.0)))
DEEP = Tree(
    0,
    (0,),
    (Split(1, "a", 0, 4.0, 10.0), Split(3, "b", 1, 1.0, 6.0)),
    (Leaf(2, (1 / 3,), 4.0), Leaf(6, (0.5,), 3.0), Leaf(7, (-0.0,), 3.0)),
)
MODEL = Ensemble("binary:logistic", 2, (0.1,), (DEEP, STUMP), 1, None)


def test_storage_is_exact() -> None:
    """A model survives JSON with every float as it was."""
    awkward = replace(MODEL, base_margin=(0.1 + 0.2, 5e-324), best_round=0)
    assert Ensemble.from_dict(json.loads(json.dumps(awkward.to_dict(), allow_nan=False))) == awkward
    joint = Tree(2, (0, 1), (), (Leaf(1, (1e300, -1 / 7), 1.0),))
    assert Ensemble.from_dict(json.loads(json.dumps(replace(MODEL, trees=(joint,)).to_dict()))).trees == (joint,)


@pytest.mark.parametrize("spoil", ["trees", "base_margin", "best_round", "objective"])
def test_other_structures_are_refused(spoil: str) -> None:
    """A missing field is an error of the data, not a crash."""
    stored = MODEL.to_dict()
    del stored[spoil]
    with pytest.raises(DataError, match=spoil):
        Ensemble.from_dict(stored)


def test_routing_follows_the_heap() -> None:
    """Records reach the leaf that the answers lead to; nodes are asked once, with their own records only."""
    asked: dict[int, list[int]] = {}

    def goes_left(split: Split, rows: np.ndarray) -> np.ndarray:
        asked[split.node] = rows.tolist()
        return rows % 2 == 0 if split.node == 1 else rows > 2

    assert route(DEEP.splits, 5, goes_left).tolist() == [2, 7, 2, 6, 2]
    assert asked == {1: [0, 1, 2, 3, 4], 3: [1, 3]}


def test_scores_add_leaf_weights_to_their_columns() -> None:
    """Each used tree adds to its own outputs, on top of the base margin; leaves may come in any order."""
    reached = [np.array([2, 6]), np.array([3, 2])]
    values = (tree.values(nodes) for tree, nodes in zip(MODEL.used_trees, reached, strict=True))
    np.testing.assert_allclose(MODEL.summed(values, 2), [[0.1 + 1 / 3 + 0.1], [0.1 + 0.5 - 0.3]])
    two = Ensemble("multi:softprob", 2, (0.5, 0.5), (DEEP, replace(STUMP, outputs=(1,))), 2, 0)
    values = (tree.values(nodes) for tree, nodes in zip(two.used_trees, reached, strict=True))
    np.testing.assert_allclose(two.summed(values, 2), [[0.5 + 1 / 3, 0.6], [1.0, 0.2]])


def test_only_rounds_up_to_the_best_are_used() -> None:
    """The best round counts rounds, not trees."""
    assert replace(MODEL, best_round=0).used_trees == (DEEP,)
    assert replace(MODEL, best_round=0, trees_per_round=2).used_trees == (DEEP, STUMP)
    assert MODEL.used_trees == (DEEP, STUMP)


def test_importances_are_counts_sums_and_means() -> None:
    """Splits are grouped by owner, or by any other name."""
    found = importance_by_owner(MODEL.trees)
    assert set(found) == {"a", "b"}
    assert (found["b"].weight, found["b"].total_gain, found["b"].gain, found["b"].cover) == (2, 3.0, 1.5, 5.5)
    assert set(importance(MODEL.trees, lambda s: f"{s.owner}{s.handle}")) == {"a0", "b1", "b7"}

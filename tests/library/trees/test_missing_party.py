"""Predictions without the owners of some splits equal a naive walk that sends every record both ways by the covers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.forest.oracle import forest_train
from tests.library.trees.absent import scores_without
from tests.library.trees.decisions import raw_decisions
from tests.library.trees.tables import Case, cases, encoded, labels_for, signal, table
from tests.oracle import oracle_train, oracle_without
from treetap.errors import DataError
from treetap.trees.centralised import train, train_forest
from treetap.trees.ensemble import Ensemble, Leaf, Split, Tree
from treetap.trees.params import ForestParams

SHAPES = [case for case in cases() if case.name.endswith(("missing", "sampled", "trees out"))]


@pytest.mark.second_tier(but=6)
@pytest.mark.parametrize("case", SHAPES, ids=lambda case: case.name)
def test_boosting_without_some_parties(case: Case) -> None:
    """Scores and guessed shares for every set of absent parties, of every objective."""
    tables = encoded(case.parties, case.params.max_bin)
    model = train(tables, case.labels, case.params, case.classes)
    oracle = oracle_train(case.parties, case.labels, case.params, case.classes)
    names = [name for name, _ in case.parties]
    for away in ([], names[1:2], names[1:], names):
        n, goes_left = len(case.labels), ignore_loss
        if away != names:
            n, goes_left = model.router([each for each in tables if each[0] not in away])
        scores, guessed = scores_without(model.ensemble, n, goes_left, away)
        expected, shares = oracle_without(oracle, case.parties, away)
        np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-9)
        np.testing.assert_allclose(guessed, shares, rtol=0, atol=1e-9)
        assert (guessed.max() > 0) == bool(away)
        assert (guessed == 1).all() == (away == names)
    np.testing.assert_array_equal(scores_without(model.ensemble, *model.router(tables), [])[0], model.predict(tables))


def test_a_forest_without_a_party() -> None:
    """Means over the trees, with the covers of a forest: its drawn records."""
    parties = table(seed=3, n=60, widths=[2, 2, 1], missing=0.1)
    labels = labels_for("multi:softprob", signal(parties, 4), 4)
    params = ForestParams(n_estimators=4, max_depth=3, bootstrap=True, subsample=1.0, binning="per-node")
    forest, oracle = train_forest(parties, labels, params, 4), forest_train(parties, list(labels), params, 4)
    scores, guessed = scores_without(forest.ensemble, 60, raw_decisions(forest, parties), {"p1"})
    expected, shares = oracle_without(oracle, parties, {"p1"})
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(guessed, shares, rtol=0, atol=1e-12)
    np.testing.assert_allclose(scores.sum(axis=1), 1.0, rtol=0, atol=1e-12)
    assert len(set(guessed.tolist())) > 3


def test_a_way_by_hand() -> None:
    """Root of the absent with covers 3 and 1; to the left a split of one's own: of two splits passed, 1 + 0 guessed."""
    tree = Tree(
        index=0,
        outputs=(0,),
        splits=(Split(1, "away", 0, 1.0, 4.0), Split(2, "own", 0, 1.0, 3.0)),
        leaves=(Leaf(4, (8.0,), 1.0), Leaf(5, (16.0,), 2.0), Leaf(3, (-4.0,), 1.0)),
    )
    ensemble = Ensemble("reg:squarederror", 0, (0.5,), (tree,), 1)
    scores, guessed = scores_without(ensemble, 2, lambda _, places: places == 0, {"away"})
    assert scores.tolist() == [[0.5 + 0.75 * 8 - 0.25 * 4], [0.5 + 0.75 * 16 - 0.25 * 4]]
    assert guessed.tolist() == [1 / 1.75] * 2


def test_children_without_cover_are_an_error() -> None:
    """There is nothing to share by, and half each would be a guess of another kind."""
    leaves = (Leaf(2, (1.0,), 0.0), Leaf(3, (2.0,), 0.0))
    tree = Tree(7, (0,), (Split(1, "away", 0, 1.0, 0.0),), leaves)
    ensemble = Ensemble("reg:squarederror", 0, (0.0,), (tree,), 1)
    with pytest.raises(DataError, match="tree 7: the children of node 1 have no cover to share by"):
        scores_without(ensemble, 1, ignore_loss, {"away"})


def ignore_loss(split: Split, places: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    raise AssertionError(f"{split.owner} was asked about {len(places)} records")

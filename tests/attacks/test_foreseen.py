"""A view foreseen from the centralised model is the view of the transcript, tree for tree."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.attacks.recorded import known, train, transcript
from tests.worlds import PARTIES, World, world
from treetap.attacks.view.known_trees import TreeView, expected_views
from treetap.attacks.view.view import read_view
from treetap.errors import BadInput
from treetap.trees import centralised
from treetap.trees.binning import bin_table
from treetap.trees.centralised import CentralForest, CentralModel, train_forest
from treetap.trees.params import BoostingParams, ForestParams, TreeParams

pytestmark = pytest.mark.filterwarnings("ignore:a 512-bit")
BOOSTING = BoostingParams(n_estimators=2, max_depth=3, max_bin=6, colsample_bytree=0.7, subsample=0.8)
FOREST = ForestParams(n_estimators=2, max_depth=4, max_bin=6, colsample_bytree=0.7)
THREE: dict[str, Any] = {"objective": "multi:softprob", "classes": 3}
CASES: dict[str, tuple[dict[str, Any], TreeParams]] = {
    "boosting, two classes": ({}, BOOSTING),
    "boosting, vector leaves": (
        THREE,
        replace(BOOSTING, objective="multi:softprob", multi_strategy="multi_output_tree", min_child_weight=0.0),
    ),
    "boosting, a tree per class, early stopping": (
        THREE,
        replace(BOOSTING, objective="multi:softprob", early_stopping_rounds=1, validation_share=0.2, max_depth=2),
    ),
    "forest, bins of the job": (THREE, FOREST),
    "forest, bins per node": (THREE, replace(FOREST, binning="per-node", min_samples_leaf=3)),
    "boosting, trees that parties sit out": (
        {},
        replace(BOOSTING, n_estimators=4, party_dropout={"feature-b": 0.4, "feature-c": 0.6}),
    ),
    "forest, trees that parties sit out": ({}, replace(FOREST, n_estimators=4, party_dropout={"feature-b": 0.5})),
    "boosting, few leaves, the best split first": (
        {},
        replace(BOOSTING, max_depth=5, max_leaves=6, grow_policy="lossguide", min_child_weight=0.5),
    ),
    "boosting, few leaves": ({}, replace(BOOSTING, max_leaves=4)),
    "forest, drawn with replacement": ({}, replace(FOREST, bootstrap=True, subsample=1.0)),
}


def _central(here: World, params: TreeParams) -> CentralModel | CentralForest:
    if isinstance(params, ForestParams):
        return train_forest(here.parties, here.y, params, here.classes)
    tables = [
        (name, bin_table(block, [f"{name}-{j}" for j in range(block.shape[1])], params.max_bin))
        for name, block in here.parties
    ]
    return centralised.train(tables, here.y, params, here.classes)


def _all(tree: TreeView) -> Any:
    """Everything a view says of a tree, comparable."""
    splits = {u: node.split for u, node in tree.nodes.items()}
    return (
        tree.index,
        tree.complete,
        tree.total,
        known(tree),
        splits,
        None if tree.drawn is None else tree.drawn.tolist(),
    )


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("case", CASES)
def test_a_foreseen_view_is_the_transcripts(case: str, tmp_path: Path) -> None:
    """Both feature parties: the same nodes with the same records, sources, own splits and draws."""
    of_world, params = CASES[case]
    here = world(60, (2, 2, 2), missing=0.1, seed=4, **of_world)
    states = train(tmp_path, here, params)
    model = _central(here, params)
    sources = set()
    for party in PARTIES[1:]:
        view = read_view(transcript(states, party), party=party)
        columns, _ = here.tables[party]
        trees = expected_views(model, here.parties, party, columns)
        assert [_all(tree) for tree in trees] == [_all(tree) for tree in view.trees]
        leaves = [[leaf.records for leaf in tree.leaves() if leaf.node != 1] for tree in trees]
        for ours, theirs in zip(leaves, view.leaves(), strict=True):
            assert all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))
        sources |= {node.source for tree in trees for node in tree.nodes.values()}
    assert {"root", "received", "own"} <= sources


def test_every_owner_must_be_given() -> None:
    """Without a party's columns its splits cannot be followed; the message names it."""
    here = world(60, (2, 2), seed=4)
    model = _central(here, BOOSTING)
    with pytest.raises(BadInput, match="the columns of label-holder are needed"):
        expected_views(model, here.parties[1:], PARTIES[1], here.tables[PARTIES[1]][0])

"""The centralised reference: a naive trainer finds the same model, and faults in what it is given have names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.oracle import OracleLeaf, OracleModel, OracleSplit, oracle_predict
from tests.pivodl.oracle import pivodl_train
from tests.pivodl.worlds import OBJECTIVES, RULES, binned, some_params, some_world
from treetap.errors import ConfigError, DataError
from treetap.trees.centralised_pivodl import CentralPivodlModel, train
from treetap.trees.pivodl_params import PivodlParams

#: Random worlds of each kind.
WORLDS = 5


def assert_oracles(model: CentralPivodlModel, oracle: OracleModel) -> None:
    """Node for node: sources, columns, thresholds and gains exactly, weights up to rounding."""
    assert len(model.trees) == len(oracle)
    for tree, expected in zip(model.trees, oracle, strict=True):
        assert {*tree.splits, *tree.leaves} == set(expected.nodes)
        for number, node in expected.nodes.items():
            if isinstance(node, OracleLeaf):
                assert tree.leaves[number] == pytest.approx(node.weights, abs=1e-12)
                continue
            split = tree.splits[number]
            found = (split.source, split.candidate.feature, split.threshold, split.candidate.missing_left)
            assert found == (node.owner, node.feature, node.cut, node.missing_left)
            assert split.gain / 2**24 == node.gain


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_naive_trainer_finds_the_same_model(objective: str, rules: str) -> None:
    """Of random worlds, as published and with this project's deviations; scores of new records too."""
    for seed in range(WORLDS):
        params = some_params(seed, **OBJECTIVES[objective], **RULES[rules])
        here = some_world(seed, params.objective)
        oracle = pivodl_train(here.parties, list(here.y), params, here.classes, here.ownership)
        tables = binned(here, params)
        model = train(tables, here.y, params, here.ownership)
        assert_oracles(model, oracle)
        new = [(name, table.encode(block)) for (name, table), block in zip(tables, here.new, strict=True)]
        assert model.predict(new) == pytest.approx(np.array(oracle_predict(oracle, here.newcomers)), abs=1e-11)


def _statistics(oracle: OracleModel) -> tuple[int, int]:
    return len([1 for tree in oracle for node in tree.nodes.values() if isinstance(node, OracleSplit)]), oracle.ties


@pytest.mark.second_tier
def test_the_worlds_try_every_rule() -> None:
    """Each changes some model: deviations, thresholds, the spread of labels; the naive trainer follows them all."""
    models: dict[str, list[Any]] = {}
    splits = ties = 0
    for seed in range(12):
        here = some_world(seed, "binary:logistic", parties=2 + seed % 2)
        params = some_params(seed, max_depth=4, gamma=0.0)
        ways: dict[str, tuple[PivodlParams, Any]] = {
            "": (params, here.ownership),
            "one label holder": (params, None),
            "as published": (replace(params, as_published=True), here.ownership),
            "instance_threshold": (replace(params, instance_threshold=params.instance_threshold + 2), here.ownership),
            "min_samples": (replace(params, min_samples=params.min_samples + 4), here.ownership),
        }
        for way, (changed, ownership) in ways.items():
            oracle = pivodl_train(here.parties, list(here.y), changed, 2, ownership)
            assert_oracles(train(binned(here, changed), here.y, changed, ownership), oracle)
            models.setdefault(way, []).append([tree.nodes for tree in oracle])
            if not way:
                splits, ties = splits + _statistics(oracle)[0], ties + _statistics(oracle)[1]
    assert splits > 40
    assert ties > 0
    for way in list(models)[1:]:
        assert models[way] != models[""], way


def test_the_comparison_of_gains_changes_no_model() -> None:
    """It says who sees gains."""
    here, params = some_world(1, "binary:logistic"), some_params(1)
    model = train(binned(here, params), here.y, params, here.ownership)
    other = train(binned(here, params), here.y, replace(params, gain_comparison="secure"), here.ownership)
    assert [tree.splits for tree in other.trees] == [tree.splits for tree in model.trees]


def test_outcomes_are_probabilities_or_values_in_the_labels_unit() -> None:
    """A regression's are near its labels, those of classes are probabilities."""
    for objective in OBJECTIVES.values():
        params = some_params(2, **objective, n_estimators=20, reg_lambda=0.0, gamma=0.0)
        here = some_world(2, params.objective)
        tables = binned(here, params)
        model = train(tables, here.y, params)
        outcome = model.outcome(model.predict(tables))
        if params.regression:
            assert np.corrcoef(outcome, here.y)[0, 1] > 0.8
            assert abs(outcome - here.y).mean() < here.y.std() / 2
        elif params.width == 1:
            assert ((outcome > 0.5) == here.y).mean() > 0.8
        else:
            assert outcome.sum(axis=1) == pytest.approx(1.0)
            assert (outcome.argmax(axis=1) == here.y).mean() > 0.8


@pytest.mark.parametrize(
    ("changes", "ownership", "error", "message"),
    [
        ({"epsilon": 8.0}, None, ConfigError, "give the noise, or leave epsilon out"),
        ({"min_samples": 0}, None, ConfigError, "min_samples must be a whole number"),
        ({}, {"nobody": [0]}, DataError, "nobody label records and have no table"),
        ({}, {"label-holder": [0, 1], "feature-b": [1]}, DataError, "labelled by no party and 1 by several"),
        ({}, {"label-holder": [0, 99]}, DataError, "a party labels record 99, and there are"),
    ],
)
def test_faults_are_named(changes: dict[str, Any], ownership: Any, error: type[Exception], message: str) -> None:
    """Parameters, ownership and labels that no federation would take."""
    here, params = some_world(1, "binary:logistic"), some_params(1)
    with pytest.raises(error, match=message):
        train(binned(here, params), here.y, replace(params, **changes), ownership)


def test_labels_and_tables_that_do_not_fit_are_refused() -> None:
    """Too many records, and a class that the job does not name."""
    here, params = some_world(1, "binary:logistic"), some_params(1)
    with pytest.raises(DataError, match="records, the labels"):
        train(binned(here, params), here.y[1:], params)
    with pytest.raises(DataError, match="labels are not among the 2 classes"):
        train(binned(here, params), here.y + 1, params)


def test_a_tree_without_splits_is_a_leaf() -> None:
    """Where the root has too few records, or too few of some party."""
    here = some_world(1, "binary:logistic")
    for changes in ({"min_samples": 1000}, {"instance_threshold": 1000}):
        params = some_params(1, **changes)
        model = train(binned(here, params), here.y, params, here.ownership)
        for tree in model.trees:
            assert (tree.splits, list(tree.leaves)) == ({}, [1])

"""The centralised reference: a naive trainer finds the same model, and faults in what it is given have names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.oracle import OracleLeaf, OracleModel, oracle_predict
from tests.pivodl.oracle import pivodl_train
from tests.pivodl.worlds import OBJECTIVES, RULES, binned, some_params, some_world
from treetap.errors import ConfigError, DataError
from treetap.trees.centralised_pivodl import CentralPivodlModel, train

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

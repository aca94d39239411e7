"""The centralised trainer equals the naive oracle, node for node."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.library.trees.tables import Case, cases, encoded, labels_for, signal, table
from tests.oracle import OracleLeaf, OracleModel, _watched, oracle_predict, oracle_train
from treetap.trees.binning import BinnedTable
from treetap.trees.centralised import CentralModel, train
from treetap.trees.loss import loss_for
from treetap.trees.params import BoostingParams


def assert_same(model: CentralModel, oracle: OracleModel, tables: list[tuple[str, BinnedTable]]) -> None:
    """Same trees: owner, feature, threshold and missing direction of every split, weights of every leaf."""
    bins = dict(tables)
    assert len(model.ensemble.trees) == len(oracle)
    assert model.ensemble.base_margin == pytest.approx(oracle.base_margin, abs=1e-12)
    for tree, expected in zip(model.ensemble.trees, oracle, strict=True):
        assert tree.outputs == expected.outputs
        assert {s.node for s in tree.splits} | {leaf.node for leaf in tree.leaves} == set(expected.nodes)
        for split in tree.splits:
            other = expected.nodes[split.node]
            candidate, _ = model.entry(split)
            cuts = bins[split.owner].features[candidate.feature].cuts
            cut = cuts[candidate.bin] if candidate.bin < len(cuts) else math.inf
            assert (split.owner, candidate.feature, cut, candidate.missing_left) == (
                other.owner,
                other.feature,
                other.cut,
                other.missing_left,
            )
            assert split.gain == pytest.approx(other.gain, rel=1e-7, abs=1e-7)
            assert split.cover == pytest.approx(other.cover, rel=1e-9)
        for leaf in tree.leaves:
            other = expected.nodes[leaf.node]
            assert isinstance(other, OracleLeaf)
            assert leaf.weights == pytest.approx(other.weights, abs=1e-9)


@pytest.mark.second_tier(but=12)
@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_trainer_equals_oracle(case: Case) -> None:
    """Trees and predictions agree for every objective, strategy, missing pattern, sampling and stopping rule."""
    tables = encoded(case.parties, case.params.max_bin)
    model = train(tables, case.labels, case.params, case.classes, weights=case.weights)
    oracle = oracle_train(case.parties, case.labels, case.params, case.classes, weights=case.weights)
    assert sum(len(tree.splits) for tree in model.ensemble.trees) > 0
    assert_same(model, oracle, tables)
    assert model.ensemble.best_round == oracle.best_round
    np.testing.assert_allclose(model.predict(tables), oracle_predict(oracle, case.parties), atol=1e-9)


@pytest.mark.second_tier(but=12)
@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_new_records_follow_the_same_thresholds(case: Case) -> None:
    """Records that were not trained on, some with values missing where training had none, get the oracle's score."""
    tables = encoded(case.parties, case.params.max_bin)
    params = replace(case.params, n_estimators=2, early_stopping_rounds=None)
    model = train(tables, case.labels, params, case.classes, weights=case.weights)
    oracle = oracle_train(case.parties, case.labels, params, case.classes, weights=case.weights)
    rng = np.random.default_rng(9)
    fresh = []
    for name, X in case.parties:
        new = np.nan_to_num(X[rng.permutation(len(X))[:30]]) + rng.normal(scale=0.1, size=(30, X.shape[1]))
        new[rng.random(new.shape) < 0.2] = np.nan
        fresh.append((name, new))
    recoded = [(name, table.encode(new)) for (name, table), (_, new) in zip(tables, fresh, strict=True)]
    np.testing.assert_allclose(model.predict(recoded), oracle_predict(oracle, fresh), atol=1e-9)


def test_ties_go_to_the_lowest_party_and_candidate() -> None:
    """Two parties that hold the same column twice tie exactly; the first party's first column wins."""
    column = np.array([0.0, 0.0, 1.0, 1.0, 2.0, 2.0])[:, None]
    parties = [("label", np.hstack([column, column])), ("other", column)]
    labels = np.array([0, 0, 0, 1, 1, 1])
    params = BoostingParams(n_estimators=1, max_depth=2, min_child_weight=0.0)
    tables = encoded(parties, 32)
    model = train(tables, labels, params)
    assert {(s.owner, model.entry(s)[0].feature) for s in model.ensemble.trees[0].splits} == {("label", 0)}
    reversed_model = train(tables[::-1], labels, params)
    assert {s.owner for s in reversed_model.ensemble.trees[0].splits} == {"other"}
    assert_same(model, oracle_train(parties, labels, params), tables)


def test_a_party_without_columns_takes_part() -> None:
    """A label holder without features of its own trains on the others' alone."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    labels = (X[:, 0] > 0).astype(int)
    parties = [("label", np.zeros((60, 0))), ("other", X)]
    params = BoostingParams(n_estimators=2, max_depth=2, max_bin=8)
    tables = encoded(parties, 8)
    model = train(tables, labels, params)
    assert_same(model, oracle_train(parties, labels, params), tables)


def test_a_pure_node_stops_everything() -> None:
    """When no split is allowed the tree is one leaf and the score still moves."""
    rng = np.random.default_rng(0)
    parties = [("label", rng.normal(size=(20, 2)))]
    labels = rng.integers(0, 2, 20)
    params = BoostingParams(n_estimators=2, gamma=1e6, base_score=0.3)
    model = train(encoded(parties, 8), labels, params)
    assert [len(tree.leaves) for tree in model.ensemble.trees] == [1, 1]
    assert model.history[1]["training"] < model.history[0]["training"]


def test_an_equal_validation_loss_is_no_improvement() -> None:
    """Trees that change nothing leave the first round the best, and training stops as soon as it may."""
    X = np.random.default_rng(0).normal(size=(40, 2))
    params = BoostingParams(n_estimators=9, gamma=1e6, early_stopping_rounds=2, validation_share=0.5)
    model = train(encoded([("label", X)], 8), np.arange(40) % 2, params)
    assert model.ensemble.best_round == 0
    assert len(model.history) == 3


def test_validation_scores_beyond_any_doubt_are_compared() -> None:
    """A probability of exactly 0 for the true class is a finite loss, and the best round is the oracle's."""
    parties = table(7, 80, [2, 1])
    labels = labels_for("binary:logistic", signal(parties, 3), 2)
    params = BoostingParams(
        n_estimators=6,
        max_depth=2,
        max_bin=6,
        learning_rate=1.0,
        reg_lambda=0.0,
        min_child_weight=0.0,
        validation_share=0.4,
        base_score=1e-12,
        early_stopping_rounds=2,
    )
    tables = encoded(parties, params.max_bin)
    model = train(tables, labels, params)
    oracle = oracle_train(parties, labels, params)
    assert_same(model, oracle, tables)
    assert model.ensemble.best_round == oracle.best_round
    assert [each["validation"] for each in model.history] == pytest.approx(oracle.validation, rel=1e-9)
    assert max(score for (score,) in oracle_predict(oracle, parties)) > 1000


@pytest.mark.parametrize("objective", ["binary:logistic", "multi:softprob"])
def test_the_oracle_watches_the_same_loss_of_certain_scores(objective: str) -> None:
    """Right and wrong, as far as doubles go and just before, the losses agree with the library's record by record."""
    outputs = 1 if objective == "binary:logistic" else 3
    loss = loss_for(objective, max(outputs, 2))
    for size in (1.0, 30.0, 36.0, 40.0, 1000.0, 1e9):
        for label in range(max(outputs, 2)):
            for score in ([size], [-size]) if outputs == 1 else ([size, 0.0, -size], [0.0, -size, 0.0]):
                expected = _watched(objective, [score], [float(label)], [1.0])
                found = loss.watched(np.array([score]), np.array([label]))
                assert found == pytest.approx(expected, rel=1e-9, abs=1e-15)
                assert math.isfinite(found)

"""The centralised forest equals the naive one, node for node, and does what a forest should."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.forest.oracle import forest_train
from tests.library.trees.tables import Parties, differences, labels_for, signal, table
from tests.oracle import OracleModel, oracle_predict
from treetap.errors import ConfigError, DataError
from treetap.trees.centralised import CentralForest, train_forest
from treetap.trees.params import ForestParams

SHAPES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({"n": 60, "widths": [2, 3]}, {"max_bin": 8, "subsample": 1.0, "colsample_bytree": 1.0}),
    "missing": ({"n": 60, "widths": [3, 2, 1], "missing": 0.25}, {"max_bin": 6, "min_samples_leaf": 3}),
    "ties": ({"n": 50, "widths": [2, 2], "levels": 3}, {"max_bin": 32}),
    "drawn": ({"n": 70, "widths": [3, 4], "missing": 0.1}, {"subsample": 0.5, "colsample_bytree": 0.5, "seed": 3}),
    "parties sit trees out": (
        {"n": 60, "widths": [2, 2, 2], "missing": 0.1},
        {"n_estimators": 4, "party_dropout": {"p1": 0.4, "p2": 0.6}},
    ),
    "bootstrap": ({"n": 50, "widths": [2, 2], "missing": 0.1}, {"subsample": 1.0, "bootstrap": True, "max_bin": 5}),
}
KINDS = {"two classes": ("gini", 2), "five classes": ("gini", 5), "numbers": ("squared_error", 0)}


@dataclass(frozen=True)
class Case:
    """One forest, grown by the library and by the oracle."""

    parties: Parties
    labels: npt.NDArray[Any]
    params: ForestParams
    classes: int

    def both(self) -> tuple[CentralForest, OracleModel]:
        found = train_forest(self.parties, self.labels, self.params, self.classes)
        return found, forest_train(self.parties, list(self.labels), self.params, self.classes)


def case(shape: str, kind: str, binning: str) -> Case:
    """A case by the names of its parts."""
    world, options = SHAPES[shape]
    criterion, classes = KINDS[kind]
    parties = table(seed=len(shape), **world)
    objective = "reg:squarederror" if criterion == "squared_error" else "multi:softprob"
    labels = labels_for(objective, signal(parties, 4), classes or 2)
    params = ForestParams(**{"n_estimators": 3, "max_depth": 4, **options}, criterion=criterion, binning=binning)
    return Case(parties, labels, params, classes)


@pytest.mark.second_tier(but=6)
@pytest.mark.parametrize("binning", ["global", "per-node"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_forest_equals_oracle(shape: str, kind: str, binning: str) -> None:
    """Trees and predictions agree for every criterion, binning, missing pattern and way of drawing."""
    here = case(shape, kind, binning)
    forest, oracle = here.both()
    assert sum(len(tree.splits) for tree in forest.ensemble.trees) > 5
    assert differences(forest, oracle) == ""
    np.testing.assert_allclose(forest.predict(here.parties), oracle_predict(oracle, here.parties), rtol=1e-12)


def test_bins_of_a_node_are_finer_than_those_of_the_job() -> None:
    """With two bins per column the job's bins offer one threshold per column, those of the nodes many."""
    parties = table(1, 200, [1])
    labels = labels_for("multi:softprob", parties[0][1][:, 0], 8)
    thresholds = {}
    for binning in ("global", "per-node"):
        params = ForestParams(n_estimators=1, max_bin=2, binning=binning, subsample=1.0, colsample_bytree=1.0)
        splits = train_forest(parties, labels, params).splits["p0"]
        thresholds[binning] = {cut for _, cut in splits}
    assert len(thresholds["global"]) == 1
    assert len(thresholds["per-node"]) >= 7


def test_a_large_mean_costs_no_digits() -> None:
    """Targets moved by a million have the same splits, and leaves moved by a million."""
    here = case("missing", "numbers", "global")
    low = train_forest(here.parties, np.round(here.labels, 3), here.params)
    high = train_forest(here.parties, np.round(here.labels, 3) + 2.0**20, here.params)
    assert low.splits == high.splits
    np.testing.assert_allclose(high.predict(here.parties), low.predict(here.parties) + 2.0**20, rtol=1e-9)


def test_a_forest_agrees_with_scikit_learn_on_unsampled_data() -> None:
    """Without draws each tree is the same CART; on distinct values it has the training accuracy of scikit-learn's."""
    tree = pytest.importorskip("sklearn.tree")
    parties = table(2, 120, [2, 2])
    labels = labels_for("multi:softprob", signal(parties, 2), 3)
    params = ForestParams(n_estimators=2, max_depth=4, max_bin=200, subsample=1.0, colsample_bytree=1.0)
    forest = train_forest(parties, labels, params)
    assert forest.ensemble.trees[0].leaves == forest.ensemble.trees[1].leaves
    joined = np.hstack([X for _, X in parties])
    theirs = tree.DecisionTreeClassifier(max_depth=4, random_state=0).fit(joined, labels)
    np.testing.assert_allclose(forest.predict(parties), theirs.predict_proba(joined), atol=1e-12)


def test_parameters_out_of_range_are_all_named() -> None:
    """One error lists every parameter that cannot be."""
    wrong = ForestParams(criterion="entropy", binning="local", subsample=0.0, min_samples_leaf=0, missing=np.inf)
    with pytest.raises(ConfigError) as failure:
        wrong.validate()
    for name in ("criterion", "binning", "subsample", "min_samples_leaf", "missing"):
        assert f"{name} must be" in str(failure.value)


def test_labels_that_do_not_fit_are_refused() -> None:
    """One class, classes out of range, and infinite targets are faults of the data."""
    parties = table(1, 10, [1])
    for labels, criterion in ((np.zeros(10), "gini"), (np.full(10, 7), "gini"), (np.full(10, np.inf), "squared_error")):
        with pytest.raises(DataError):
            train_forest(parties, labels, ForestParams(criterion=criterion), 3)

"""Splits of categories: the centralised trainer is the naive oracle, and xgboost; each rule by a small experiment.

The centralised forest equals the naive one, node for node, and does what a forest should.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.forest.oracle import forest_train
from tests.library.trees.boosters import AS_BEFORE, boosted, refused_before, stored_trees
from tests.library.trees.same import differences
from tests.library.trees.tables import Parties, labels_for, signal, table
from tests.oracle import OracleModel, OracleSplit, oracle_predict, oracle_train
from treetap.errors import ConfigError, DataError
from treetap.lab.experiment.xgboost_export import Column, feature_names, xgboost_model
from treetap.models.own_split import OwnSplit
from treetap.trees.binning import BinnedTable, bin_table
from treetap.trees.boosting_criterion import BoostingCriterion
from treetap.trees.candidates import (
    Candidate,
    CandidateList,
    NodeCandidates,
    Partition,
)
from treetap.trees.centralised import CentralForest, CentralModel, train, train_forest
from treetap.trees.ensemble import importance
from treetap.trees.loss import UNIT
from treetap.trees.params import BoostingParams, ForestParams
from treetap.trees.tree_bins import left_sums

xgb = pytest.importorskip("xgboost")
NAN = math.nan
#: Categories by party and column; the other columns hold numbers.
LEVELS = {("p0", 0): 3, ("p0", 1): 9, ("p1", 0): 6, ("p1", 2): 2}
WIDTHS = {"p0": 3, "p1": 4}


def mixed(seed: int, n: int = 160, missing: float = 0.0) -> tuple[Parties, npt.NDArray[np.float64]]:
    """Columns of categories and of numbers, and a noisy function of all of them; every category occurs."""
    rng = np.random.default_rng(seed)
    parties: Parties = []
    signal = 0.7 * rng.normal(size=n)
    for name, width in WIDTHS.items():
        X = rng.integers(0, 7, size=(n, width)).astype(float)
        for j in range(width):
            if (name, j) in LEVELS:
                count = LEVELS[name, j]
                X[:, j] = np.concatenate([np.arange(count), rng.integers(0, count, n - count)])
                signal += rng.normal(size=count)[X[:, j].astype(int)]
            else:
                signal += 0.2 * X[:, j]
        X[:, : width - 1][rng.random((n, width - 1)) < missing] = np.nan
        parties.append((name, X))
    return parties, signal


def binned(parties: Parties, params: BoostingParams, max_bin: int = 32) -> list[tuple[str, BinnedTable]]:
    """The columns in bins, those of `LEVELS` as categories."""
    return [
        (
            name,
            bin_table(
                X,
                [str(j) for j in range(X.shape[1])],
                max_bin,
                categories={str(j): count for (party, j), count in LEVELS.items() if party == name},
                max_cat_to_onehot=params.max_cat_to_onehot,
            ),
        )
        for name, X in parties
    ]


def labels_of(objective: str, signal: npt.NDArray[np.float64], classes: int) -> npt.NDArray[Any]:
    """Labels of an objective: the signal, or as many classes of it."""
    if objective == "reg:squarederror":
        return signal
    return np.searchsorted(np.quantile(signal, np.linspace(0, 1, classes + 1)[1:-1]), signal)


OBJECTIVES = [("binary:logistic", 2), ("reg:squarederror", 2), ("multi:softprob", 4)]
OPTIONS: list[tuple[float, dict[str, Any]]] = [
    (0.0, {}),
    (0.15, {}),
    (0.15, {"max_cat_threshold": 3, "max_cat_to_onehot": 2, "min_child_weight": 3.0}),
    (0.1, {"max_cat_to_onehot": 100, "reg_alpha": 0.2}),
]


@pytest.mark.second_tier(but=6)
@pytest.mark.parametrize("options", range(len(OPTIONS)))
@pytest.mark.parametrize(("objective", "classes"), OBJECTIVES)
def test_trainer_equals_oracle(objective: str, classes: int, options: int) -> None:
    """The same sets of categories, sides of missing values, gains and leaves in every node, with records sampled."""
    missing, more = OPTIONS[options]
    parties, signal = mixed(options, n=90, missing=missing)
    labels = labels_of(objective, signal, classes)
    params = BoostingParams(objective=objective, n_estimators=2, max_depth=3, base_score=0.5, subsample=0.8, **more)
    tables = binned(parties, params)
    model = train(tables, labels, params, classes)
    oracle = oracle_train(parties, list(labels), params, classes, categories=LEVELS)
    assert differences(model, oracle) == ""
    assert any(model.entry(split)[0].right for tree in model.ensemble.trees for split in tree.splits)
    np.testing.assert_allclose(model.predict(tables), oracle_predict(oracle, parties), atol=1e-9)


def spoilt(parties: Parties, seed: int) -> Parties:
    """The records with further cells missing, and categories that training has not seen."""
    rng = np.random.default_rng(seed)
    fresh: Parties = []
    for name, X in parties:
        new = X.copy()
        for party, j in LEVELS:
            if party == name:
                new[rng.random(len(X)) < 0.2, j] = 40.0
        new[rng.random(X.shape) < 0.15] = np.nan
        fresh.append((name, new))
    return fresh


def matrix(columns: Parties, **more: Any) -> Any:
    """The columns side by side as xgboost's input."""
    kinds = ["c" if (name, j) in LEVELS else "q" for name, width in WIDTHS.items() for j in range(width)]
    return xgb.DMatrix(np.hstack([X for _, X in columns]), feature_types=kinds, **more)


@pytest.mark.parametrize("options", range(len(OPTIONS)))
@pytest.mark.parametrize(("objective", "classes"), OBJECTIVES)
def test_scores_equal_xgboost(objective: str, classes: int, options: int) -> None:
    """Margins agree to 1e-5, also of records with categories and missing cells that training had not.

    Seeds in which no cuts of numbers tie. Gradients of softprob are quarters at first: xgboost sums them exactly.
    """
    missing, more = OPTIONS[options]
    parties, signal = mixed(40 + options, n=300, missing=missing)
    labels = labels_of(objective, signal, classes)
    params = BoostingParams(objective=objective, n_estimators=3, max_depth=3, base_score=0.5, **more)
    tables = binned(parties, params)
    model = train(tables, labels, params, classes)
    booster, theirs = boosted(matrix(parties, label=labels), params, classes)
    np.testing.assert_allclose(model.predict(tables), theirs, atol=1e-5)
    fresh = spoilt(parties, options)
    encoded = [(name, table.encode(X)) for (name, table), (_, X) in zip(tables, fresh, strict=True)]
    expected = booster.predict(matrix(fresh), output_margin=True).reshape(len(labels), -1)
    np.testing.assert_allclose(model.predict(encoded), expected, atol=1e-5)


def test_a_model_is_written_as_xgboosts(tmp_path: Path) -> None:
    """XGBoost reads sets of categories from the file, and predicts the same by them, of new records too."""
    parties, signal = mixed(44, n=200, missing=0.1)
    params = BoostingParams(n_estimators=3, max_depth=3)
    tables = binned(parties, params)
    model = train(tables, labels_of("binary:logistic", signal, 2), params)
    columns = {
        name: [Column(str(j), X[:, j], categorical=(name, j) in LEVELS) for j in range(X.shape[1])]
        for name, X in parties
    }
    content = xgboost_model(
        model.ensemble, lambda split: OwnSplit.of(split.handle, split.node, *model.entry(split)), columns, {}
    )
    path = tmp_path / "model.json"
    path.write_text(json.dumps(content, allow_nan=False))
    booster = xgb.Booster(model_file=path)
    fresh = spoilt(parties, 1)
    encoded = [(name, table.encode(X)) for (name, table), (_, X) in zip(tables, fresh, strict=True)]
    theirs = booster.predict(matrix(fresh, feature_names=feature_names(columns)), output_margin=True)
    np.testing.assert_allclose(theirs, model.predict(encoded)[:, 0], rtol=1e-6, atol=1e-6)
    trees = stored_trees(booster)
    written = content["learner"]["gradient_booster"]["model"]["trees"]
    assert any(len(tree["categories"]) > len(tree["categories_nodes"]) for tree in trees)
    for name in ("categories", "categories_nodes", "categories_segments", "categories_sizes", "split_type"):
        assert [tree[name] for tree in trees] == [tree[name] for tree in written]


def stump(
    column: list[float], g: list[float], h: list[float] | None = None, categories: int | None = None, **options: Any
) -> Candidate | None:
    """The first split of one column of categories, which xgboost makes alike, of these derivatives."""
    X, weights = np.array(column)[:, None], h or [1.0] * len(g)
    settings = {"min_child_weight": 0.0, "reg_lambda": 1.0, **options}
    data = xgb.DMatrix(X, label=np.zeros(len(X)), feature_types=["c"])
    booster = xgb.train(
        {"tree_method": "hist", "max_depth": 1, "base_score": 0.0, "nthread": 1, **settings},
        data,
        1,
        obj=lambda _scores, _data: (np.array(g), np.array(weights)),
    )
    tree = stored_trees(booster)[0]
    theirs = None
    if tree["left_children"][0] != -1:
        theirs = Candidate(0, min(tree["categories"]), bool(tree["default_left"][0]), tuple(tree["categories"]))
    settings.pop("max_bin", None)
    params = BoostingParams(learning_rate=1.0, max_depth=1, **settings)
    count = categories or int(np.nanmax(X)) + 1
    table = bin_table(X, ["c"], 2, categories={"c": count}, max_cat_to_onehot=params.max_cat_to_onehot)
    ours = first_split(table, np.array(g), np.array(weights), params)
    assert ours == theirs
    return ours


def first_split(
    table: BinnedTable, g: npt.NDArray[np.float64], h: npt.NDArray[np.float64], params: BoostingParams
) -> Candidate | None:
    """The best candidate of all records by the criterion of boosting."""
    scale = 2.0**10
    criterion = BoostingCriterion(scale, params)
    values = np.stack([np.rint(g / scale * UNIT), np.rint(h * UNIT), np.ones(len(g))], axis=1).astype(np.int64)
    candidates, total = CandidateList(table.shapes), values.sum(axis=0)
    sums = left_sums(table.codes, candidates, values, [np.arange(len(g))])[0]
    found = NodeCandidates(sums, total, candidates.groups, criterion.partitions, 3)
    decision = criterion.choose([criterion.gains(found.lefts[None], total[None])[0]])
    return None if decision is None else candidates.of(found.place(int(decision[1][0])))


FIVE, STEPS = [0.0, 1.0, 2.0, 3.0, 4.0] * 2, [-3.0, 2.0, -2.5, 3.0, 0.5] * 2


def test_fewer_than_max_cat_to_onehot_are_split_one_against_the_rest() -> None:
    """Five categories are partitioned if max_cat_to_onehot is 5, and one against the rest from 6 on."""
    assert stump(FIVE, STEPS, max_cat_to_onehot=5) == Candidate(0, 1, True, (1, 3, 4))
    assert stump(FIVE, STEPS, max_cat_to_onehot=6) == Candidate(0, 0, True, (0,))
    assert BoostingParams().max_cat_to_onehot == 4


def test_categories_of_low_weight_go_right() -> None:
    """Weights ascend: a set that goes right has the largest gradients, and what no category is goes left."""
    split = stump([0, 1, 2, 3, 4, 5], [5.0, 4.0, 3.0, -3.0, -4.0, -5.0])
    assert split == Candidate(0, 0, True, (0, 1, 2))


def test_missing_values_go_left_where_training_had_none() -> None:
    """The forward scan comes first, and one against the rest begins with missing left; numbers send it right."""
    for options in ({}, {"max_cat_to_onehot": 9}):
        split = stump(FIVE, STEPS, **options)
        assert split is not None
        assert split.missing_left


@pytest.mark.parametrize("options", [{}, {"max_cat_to_onehot": 9}])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_missing_values_take_the_better_side(options: dict[str, Any], sign: float) -> None:
    """With missing records both ways are tried: they go with the categories whose gradients have their sign."""
    split = stump([*FIVE, NAN, NAN], [*STEPS, sign * 9, sign * 9], **options)
    assert split is not None
    of_right = np.sign(sum(STEPS[c] for c in split.right or ()))
    assert split.missing_left == (of_right != sign)


@AS_BEFORE
def test_categories_lighter_than_min_child_weight_have_weight_0() -> None:
    """Category 1 would be the last by its gradient, but weighs less than the least weight: it stands in the middle."""
    column = [0.0] * 4 + [1.0] + [2.0] * 4 + [3.0] * 4 + [4.0] * 4
    g = [2.0] * 4 + [-30.0] + [-1.0] * 4 + [1.0] * 4 + [-2.0] * 4
    split = stump(column, g, min_child_weight=2.0)
    assert split is not None
    assert split.right == (0, 3)
    assert stump(column, g, min_child_weight=0.0) == Candidate(0, 0, True, (0, 2, 3, 4))


def test_absent_categories_tie_in_the_order_of_their_codes() -> None:
    """Of 7 categories 2 and 5 have no record: weight 0, between the others; a set with them is not preferred."""
    column, g = [0.0, 1.0, 3.0, 4.0, 6.0] * 2, [1.0, 2.0, -1.0, -2.0, -3.0] * 2
    assert stump(column, g, categories=7) == Candidate(0, 0, True, (0, 1))


@pytest.mark.parametrize(("most", "right"), [(2, (0,)), (3, (0, 1)), (1, None)])
def test_max_cat_threshold_bounds_the_smaller_side(most: int, right: tuple[int, ...] | None) -> None:
    """One side has fewer than max_cat_threshold categories; with 1 no partition is left."""
    g = [4.0, 3.5, 3.0, 2.5, -2.5, -2.9, -2.95, -2.98]
    split = stump([float(c) for c in range(8)], g, max_cat_threshold=most)
    if right is None:
        assert split is None
    else:
        assert split is not None
        sides = len(split.right or ()), 8 - len(split.right or ())
        assert min(sides) < most


def test_max_bin_does_not_bound_categories() -> None:
    """Every category has a bin of its own, whatever max_bin is."""
    column = [float(c) for c in range(12)] * 2
    g = [(-1.0) ** c * (3 + c / 10) for c in range(12)] * 2
    split = stump(column, g, max_bin=4)
    assert split is not None
    assert split.right == (0, 2, 4, 6, 8, 10)


def test_trees_of_several_outputs_split_no_categories() -> None:
    """XGBoost refuses them up to 3.2, and a job does."""
    data = xgb.DMatrix(np.array(FIVE)[:, None], label=np.arange(20.0).reshape(10, 2), feature_types=["c"])
    with refused_before((3, 3), "multi-target tree is not yet implemented"):
        xgb.train({"tree_method": "hist", "multi_strategy": "multi_output_tree"}, data, 1)
    assert BoostingParams(multi_strategy="multi_output_tree").one_hot_below is None


def test_partitions_keep_their_place_among_other_candidates() -> None:
    """Sums of cuts, then of categories, then of cuts: the candidates come in this order, of the right sums."""
    sums = np.array([[1], [10], [20], [40], [5]])
    total = np.array([75])
    rule = (lambda of_each: np.argsort(-of_each[:, 0], kind="stable"), 64)
    found = NodeCandidates(sums, total, [range(1, 4)], rule, 1)
    assert found.lefts[:, 0].tolist() == [1, 35, 15, 10, 30, 5]
    assert [found.place(k) for k in range(6)] == [
        0,
        Partition(0, (2,), True),
        Partition(0, (1, 2), True),
        Partition(0, (1, 2), False),
        Partition(0, (2,), False),
        4,
    ]
    with pytest.raises(ValueError, match="by no rule"):
        NodeCandidates(sums, total, [range(1, 4)], None, 1)


def test_importances_count_splits_of_categories() -> None:
    """A split of categories counts for its column."""
    parties, signal = mixed(3)
    params = BoostingParams(n_estimators=2, max_depth=2)
    model: CentralModel = train(binned(parties, params), (signal > signal.mean()).astype(int), params)
    split_by = importance(model.ensemble.used_trees, lambda s: (s.owner, model.entry(s)[0].feature))
    assert set(split_by) & {("p0", 1), ("p1", 0)}


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
    assert differences(forest, oracle, near=1e-9) == ""
    np.testing.assert_allclose(forest.predict(here.parties), oracle_predict(oracle, here.parties), rtol=1e-12)


def test_the_shapes_hold_what_they_claim() -> None:
    """There are ties between different divisions, both directions of missing values, and cuts at infinity."""
    tied, directions, cuts = 0, set(), set()
    for shape in ("ties", "missing", "bootstrap"):
        for binning in ("global", "per-node"):
            _, oracle = case(shape, "five classes", binning).both()
            tied += oracle.ties
            splits = [node for tree in oracle for node in tree.nodes.values() if isinstance(node, OracleSplit)]
            directions |= {split.missing_left for split in splits}
            cuts |= {split.cut == np.inf for split in splits}
    assert tied > 0
    assert directions == {True, False}
    assert cuts == {True, False}


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

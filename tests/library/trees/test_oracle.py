"""The oracle and the growth of trees.

- The centralised trainer equals the naive oracle, node for node.
- The one growth of trees against the naive oracle, over drawn jobs in which all features of trees meet.

ID-LMID of the joined table against a naive recursion, and Eq. 6 against sums written out.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from tests.forest.oracle import forest_train
from tests.library.trees.same import differences
from tests.library.trees.tables import Case, Parties, cases, drawn_weights, encoded, labels_for, signal, table
from tests.oracle import OracleModel, _watched, oracle_predict, oracle_train
from tests.worlds import world
from treetap.trees.binning import BinnedTable, bin_table
from treetap.trees.centralised import CentralTrees, train, train_forest
from treetap.trees.loss import loss_for
from treetap.trees.params import BoostingParams, ForestParams, TreeParams
from treetap.trees.withholding import InformationLimit, Withholding

#: Jobs of `make test`, and of the campaign.
FEW, MANY = 60, 1000


@pytest.mark.second_tier(but=12)
@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_trainer_equals_oracle(case: Case) -> None:
    """Trees and predictions agree for every objective, strategy, missing pattern, sampling and stopping rule.

    So do those of records that were not trained on, some with values missing where training had none.
    """
    tables = encoded(case.parties, case.params.max_bin)
    model = train(tables, case.labels, case.params, case.classes, weights=case.weights)
    oracle = oracle_train(case.parties, case.labels, case.params, case.classes, weights=case.weights)
    assert sum(len(tree.splits) for tree in model.ensemble.trees) > 0
    assert differences(model, oracle) == ""
    np.testing.assert_allclose(model.predict(tables), oracle_predict(oracle, case.parties), atol=1e-9)
    rng, fresh = np.random.default_rng(9), []
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
    assert differences(model, oracle_train(parties, labels, params)) == ""


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
    assert differences(model, oracle) == ""
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
                expected = _watched(BoostingParams(objective=objective), [score], [float(label)], [1.0])
                found = loss.watched(np.array([score]), np.array([label]))
                assert found == pytest.approx(expected, rel=1e-9, abs=1e-15)
                assert math.isfinite(found)


@dataclass(frozen=True)
class Job:
    """A training: `categories` counts those of columns by (party, column), `directions` are of constrained columns.

    `rounds_before`: of a model from which boosting continues.
    """

    parties: Parties
    labels: Any
    classes: int
    params: TreeParams
    withholding: Withholding
    categories: dict[tuple[str, int], int] = field(default_factory=dict)
    directions: dict[str, list[int]] = field(default_factory=dict)
    weights: Any = None
    rounds_before: int = 0

    @property
    def tables(self) -> list[tuple[str, BinnedTable]]:
        """The parties' columns in bins."""
        tables = []
        for name, columns in self.parties:
            names = [str(j) for j in range(columns.shape[1])]
            counts = {str(j): count for (party, j), count in self.categories.items() if party == name}
            onehot = self.params.one_hot_below or 0
            table = bin_table(columns, names, self.params.max_bin, names, counts, onehot)
            own = self.directions.get(name)
            tables.append((name, table if own is None else replace(table, directions=np.array(own))))
        return tables

    def trained(self) -> CentralTrees:
        """The library's model."""
        if isinstance(self.params, ForestParams):
            return train_forest(
                self.parties, self.labels, self.params, self.classes, self.tables, withholding=self.withholding
            )
        assert isinstance(self.params, BoostingParams)
        base, tables = None, self.tables
        if self.rounds_before:
            first = replace(self.params, n_estimators=self.rounds_before)
            base = train(tables, self.labels, first, self.classes, self.withholding, self.weights)
        return train(tables, self.labels, self.params, self.classes, self.withholding, self.weights, base)

    def expected(self) -> OracleModel:
        """The oracle's."""
        labels, withheld = list(self.labels), self.withholding
        rules = {"xi": withheld.xi, "own_trees": withheld.own_trees, "counts_drawn": not withheld.shown}
        if isinstance(self.params, ForestParams):
            return forest_train(self.parties, labels, self.params, self.classes, **rules)
        assert isinstance(self.params, BoostingParams)
        more = {**rules, "weights": self.weights, "categories": self.categories, "monotone": self.directions}
        base = None
        if self.rounds_before:
            first = replace(self.params, n_estimators=self.rounds_before)
            base = oracle_train(self.parties, labels, first, self.classes, **more)
        return oracle_train(self.parties, labels, self.params, self.classes, base=base, **more)


def drawn(seed: int) -> Job:
    """A job in which each feature has its chance; those that a job may not combine are not combined."""
    draw, rng = random.Random(seed), np.random.default_rng(seed)

    def some(chance: float) -> bool:
        return draw.random() < chance

    n, forest = draw.randint(40, 60), some(0.35)
    objective = draw.choice(["binary:logistic", "reg:squarederror", "multi:softprob"])
    numbers, classes = objective == "reg:squarederror", 3 if objective == "multi:softprob" else 2
    several = classes == 3 and some(0.5)  # weights in a leaf
    names = draw.sample(["a", "b", "c"], draw.randint(1, 3))  # the order in which parties win ties
    parties, categories = [], {}
    for place, name in enumerate(names):
        width = draw.randint(0 if place == 0 and len(names) > 1 else 1, 3)
        columns = rng.normal(size=(n, width))
        for j in range(width):
            if some(0.4):  # few values, hence ties
                columns[:, j] = np.floor(columns[:, j] * draw.randint(1, 3))
            if not forest and not several and some(0.3):
                categories[name, j] = draw.randint(2, 7)
                columns[:, j] = rng.integers(0, categories[name, j], n)
            if some(0.6):
                ends = columns[:, j] >= np.quantile(columns[:, j], 0.8)
                columns[ends if some(0.5) else rng.random(n) < 0.3, j] = np.nan
        parties.append((name, columns))
    labels = labels_for(objective, signal(parties, seed), classes)
    common: dict[str, Any] = {
        "n_estimators": draw.randint(1, 3),
        "max_depth": draw.randint(1, 4),
        "max_bin": draw.choice([2, 4, 8, 32]),
        "subsample": draw.choice([1.0, 0.7]),
        "colsample_bytree": draw.choice([1.0, 0.6]),
        "seed": seed,
        "party_dropout": {name: 0.4 for name in names[1:] if some(0.3)},
    }
    xi = draw.choice([0.02, 0.05, 0.1, 0.3]) if not numbers and some(0.5) else None
    own_trees, shown = int(some(0.2)), some(0.5)
    if forest:
        bootstrap = some(0.3)
        forest_params = ForestParams(
            **common,
            criterion="squared_error" if numbers else "gini",
            bootstrap=bootstrap,
            min_samples_leaf=draw.choice([1, 3]),
            binning=draw.choice(["global", "per-node"]),
        )
        withholding = Withholding(own_trees, xi, shown or bootstrap)
        return Job(parties, labels, 0 if numbers else classes, forest_params, withholding)
    lossguide, most = some(0.4), draw.choice([0, 2, 3, 5])
    directions = {}
    if not several and some(0.5):
        for name, columns in parties:
            own = [0 if (name, j) in categories else draw.choice([-1, 1, 0]) for j in range(columns.shape[1])]
            if any(own):
                directions[name] = own
    weights = drawn_weights(n, 2.0, seed) if some(0.2) else None
    params = BoostingParams(
        **common,
        objective=objective,
        multi_strategy="multi_output_tree" if several else "one_output_per_tree",
        min_child_weight=draw.choice([0.0, 0.5, 1.0]),
        reg_alpha=draw.choice([0.0, 0.0, 0.3]),
        max_delta_step=draw.choice([0.0, 0.0, 0.7]),
        gamma=draw.choice([0.0, 0.1]),
        scale_pos_weight=2.5 if objective == "binary:logistic" and some(0.2) else 1.0,
        max_sample_weight=2.0 if weights is not None else 1.0,
        early_stopping_rounds=1 if some(0.2) else None,
        validation_share=0.25,
        max_cat_to_onehot=draw.choice([1, 4]),
        max_cat_threshold=draw.choice([2, 64]),
        max_leaves=0 if xi is not None else most,
        grow_policy="lossguide" if lossguide else "depthwise",
    )
    withholding = Withholding(own_trees, xi, shown)
    return Job(parties, labels, classes, params, withholding, categories, directions, weights, int(some(0.25)))


def faults(seeds: Iterable[int]) -> list[str]:
    """The drawn jobs whose trees are not the oracle's."""
    said = {}
    for seed in seeds:
        job = drawn(seed)
        said[seed] = differences(job.trained(), job.expected())
    return [f"seed {seed}: {difference}" for seed, difference in said.items() if difference]


def test_drawn_jobs() -> None:
    """The trees of a sample of the campaign's jobs are the oracle's."""
    assert faults(range(FEW)) == []


@pytest.mark.campaign
def test_many_drawn_jobs() -> None:
    """The trees of many jobs are the oracle's."""
    assert faults(range(FEW, FEW + MANY)) == []


def test_the_drawn_jobs_hold_what_they_claim() -> None:
    """Each feature occurs among the few jobs of `make test`."""
    met = Counter[str]()
    for seed in range(FEW):
        job = drawn(seed)
        model, params = job.trained(), job.params
        trees = model.ensemble.trees
        entries = [model.entry(split)[0] for tree in trees for split in tree.splits]
        partitioned = {party: j for (party, j), count in job.categories.items() if count >= (params.one_hot_below or 0)}
        met["bins per node"] += params.bins_per_node and bool(entries)
        met["one by one"] += params.expansion.one_by_one and bool(entries)
        met["limited leaves"] += any(len(tree.leaves) == params.expansion.max_leaves for tree in trees)
        met["partitions"] += bool(partitioned) and any(len(entry.right or ()) > 1 for entry in entries)
        met["one category against the rest"] += not partitioned and any(entry.right for entry in entries)
        met["missing values alone on the left"] += any(entry.bin < 0 for entry in entries)
        met["a party without columns"] += any(columns.shape[1] == 0 for _, columns in job.parties)
        met["constraints"] += bool(job.directions)
        met["withdrawn nodes"] += any(part.root > 1 for tree in trees for part in tree.local)
        met["splits below them"] += any(part.root > 1 and part.splits for tree in trees for part in tree.local)
        met["counts of drawn records"] += job.withholding.xi is not None and not job.withholding.shown
        met["trees grown alone"] += job.withholding.own_trees > 0
        met["parties that sit out"] += any(not params.takes_part(t, name) for t in range(3) for name, _ in job.parties)
        met["continued"] += job.rounds_before > 0
        met["stopped early"] += model.ensemble.best_round not in (None, len(trees) - 1)
    assert min(met.values()) > 0, met


JOBS: dict[str, tuple[dict[str, Any], BoostingParams]] = {
    "two classes": ({}, BoostingParams(n_estimators=2, max_depth=3, max_bin=5, subsample=0.8)),
    "vector leaves, missing cells": (
        {"objective": "multi:softprob", "classes": 3, "missing": 0.2},
        BoostingParams(
            objective="multi:softprob",
            multi_strategy="multi_output_tree",
            n_estimators=1,
            max_depth=3,
            max_bin=5,
            min_child_weight=0.0,
        ),
    ),
    "a tree per class": (
        {"objective": "multi:softprob", "classes": 3},
        BoostingParams(objective="multi:softprob", n_estimators=1, max_depth=2, max_bin=5),
    ),
}


@pytest.mark.parametrize(("setting", "params"), JOBS.values(), ids=JOBS)
def test_the_trees_are_those_of_a_naive_recursion(setting: dict[str, Any], params: BoostingParams) -> None:
    """Public splits, withdrawn nodes and the parts below them, over a range of ξ; some ξ withdraws, some does not."""
    here = world(48, seed=5, **setting)
    tables = [
        (name, bin_table(block, [str(j) for j in range(block.shape[1])], params.max_bin))
        for name, block in here.parties
    ]
    withdrawn = []
    for xi in (0.0, 0.1, 0.25, 0.4, 2.0):
        naive = oracle_train(here.parties, list(here.y), params, here.classes, xi)
        model = train(tables, here.y, params, here.classes, Withholding(xi=xi))
        assert differences(model, naive) == ""
        withdrawn.append(sum(len(tree.withdrawn) for tree in naive))
    assert max(withdrawn) > 0
    assert withdrawn[-1] == 0


def test_the_bound_is_that_of_equation_6() -> None:
    """Sums written out for the children of a split of 10 records, of which 4 are in class 1."""
    totals = np.array([6, 4])
    left, whole = np.array([[3, 1]]), np.array([5, 3])  # the right child has (2, 2)
    inside = 3 / 4 * math.log(3 * 10 / (4 * 6)) + 1 / 4 * math.log(1 * 10 / (4 * 4))
    outside = 3 / 6 * math.log(3 * 10 / (6 * 6)) + 3 / 6 * math.log(3 * 10 / (6 * 4))
    right = 2 / 4 * math.log(2 * 10 / (4 * 6)) + 2 / 4 * math.log(2 * 10 / (4 * 4))
    beside = 4 / 6 * math.log(4 * 10 / (6 * 6)) + 2 / 6 * math.log(2 * 10 / (6 * 4))
    bound = max(inside, outside, right, beside)
    for xi, allowed in ((bound * (1 + 1e-12), True), (bound * (1 - 1e-12), False)):
        assert InformationLimit(xi, totals, 0, 2).allows(left, whole).tolist() == [allowed]

"""Repair of models of noisy labels: hand-made cases, a naive recursion, and what must not change.

Monotone constraints are XGBoost's: directions, bounds, gains under them, missing values, whole models.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.library.trees.boosters import as_input, boosted, refused_before, told_apart
from tests.library.trees.repairs import VARIANTS, Ints, flipped, naive_repair, nodes_of, trained
from tests.library.trees.same import differences
from tests.library.trees.tables import Parties, encoded, labels_for, signal, table
from tests.library.trees.test_categorical import LEVELS, binned, matrix, mixed
from treetap.errors import Malformed
from treetap.trees.binning import BinnedTable, bin_table
from treetap.trees.candidates import Candidate
from treetap.trees.centralised import Entry, train
from treetap.trees.ensemble import Leaf, Split, Subtree, Tree, at_or_below
from treetap.trees.params import BoostingParams, ForestParams, TreeParams
from treetap.trees.paths import reached_values
from treetap.trees.repair import NoisyModel, RepairedTree, repair, repair_boosting, repair_forest, to_regrow
from treetap.trees.tree_bins import GlobalBins
from treetap.trees.withholding import Withholding

SMALL: dict[str, Any] = {"max_depth": 3, "max_bin": 5}
FORESTS: dict[str, tuple[ForestParams, int]] = {
    "two classes": (ForestParams(n_estimators=4, **SMALL), 2),
    "four classes, drawn twice": (ForestParams(n_estimators=3, bootstrap=True, subsample=1.0, **SMALL), 4),
    "bins per node": (ForestParams(n_estimators=3, binning="per-node", min_samples_leaf=3, **SMALL), 3),
}
BOOSTED: dict[str, tuple[BoostingParams, int]] = {
    "two classes": (BoostingParams(n_estimators=5, min_child_weight=0.1, **SMALL), 2),
    "factors and penalties": (
        BoostingParams(
            n_estimators=5, min_child_weight=0.1, scale_pos_weight=1.7, reg_alpha=0.1, max_delta_step=0.5, **SMALL
        ),
        2,
    ),
    "sampled, stopped early": (
        BoostingParams(n_estimators=6, subsample=0.7, colsample_bytree=0.6, early_stopping_rounds=2, **SMALL),
        2,
    ),
    "a tree per class": (
        BoostingParams(objective="multi:softprob", n_estimators=3, min_child_weight=0.1, **SMALL),
        3,
    ),
    "few leaves, the best first": (
        BoostingParams(n_estimators=5, max_leaves=5, grow_policy="lossguide", min_child_weight=0.1, **SMALL),
        2,
    ),
    "vector leaves": (
        BoostingParams(
            objective="multi:softprob",
            multi_strategy="multi_output_tree",
            n_estimators=4,
            min_child_weight=0.1,
            **SMALL,
        ),
        4,
    ),
}
CASES: dict[str, tuple[TreeParams, int]] = {
    **{f"forest, {name}": each for name, each in FORESTS.items()},
    **{f"boosting, {name}": each for name, each in BOOSTED.items()},
}


def problem(classes: int, seed: int, own: int = 2) -> tuple[Parties, Ints, Ints]:
    """Columns of two parties, noisy labels and clean ones."""
    parties = table(seed, 60, [own, 2], missing=0.1)
    clean = labels_for("gini", signal(parties, seed), classes).astype(np.int64)
    return parties, flipped(clean, classes, 0.5, seed), clean


def assert_naive(
    found: list[RepairedTree],
    model: NoisyModel,
    entries: dict[str, list[Entry]],
    parties: Parties,
    params: TreeParams,
) -> None:
    """All variants have the splits of a naive recursion exactly, and its weights but for rounding."""
    for variant, (grafting, refit) in VARIANTS.items():
        expected = naive_repair(model, entries, parties, params, grafting=grafting, refit=refit)
        for repaired, naive in zip(found, expected, strict=True):
            nodes = nodes_of(getattr(repaired, variant), entries)
            assert set(nodes) == set(naive)
            for number, node in nodes.items():
                assert node == naive[number] if node[0] == "split" else node == pytest.approx(naive[number], abs=1e-9)


@pytest.mark.second_tier(but=10)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("case", CASES)
def test_a_repair_is_that_of_a_naive_recursion(case: str, seed: int) -> None:
    """All variants have the recursion's splits exactly and its weights but for rounding; some trees are regrown."""
    params, classes = CASES[case]
    params = replace(params, seed=seed)
    parties, noisy, clean = problem(classes, seed)
    model, entries = trained(parties, noisy, clean, params, classes)
    found = repair(model, params)
    assert_naive(found, model, entries, parties, params)
    assert any(each.grafting.local for each in found)


@pytest.mark.parametrize("case", CASES)
def test_a_repair_keeps_what_other_parties_know(case: str) -> None:
    """No variant changes splits, leaves, outputs or covers of a tree; roots of grafts are not below each other."""
    params, classes = CASES[case]
    model, _ = trained(*problem(classes, 7), params, classes)
    for before, after in zip(model.trees, repair(model, params), strict=True):
        for variant in VARIANTS:
            tree = getattr(after, variant)
            assert replace(tree, leaves=(), local=()) == replace(before, leaves=(), local=())
            assert [(leaf.node, leaf.cover) for leaf in tree.leaves] == [
                (each.node, each.cover) for each in before.leaves
            ]
            roots = [each.root for each in tree.local]
            assert not any(at_or_below(low >> 1, roots) for low in roots)
            assert all(split.owner == "p0" for each in tree.local for split in each.splits)


@pytest.mark.parametrize("case", CASES)
def test_labels_without_noise_change_nothing(case: str) -> None:
    """With clean labels in the place of noisy ones every variant is the model itself, bit for bit."""
    params, classes = CASES[case]
    parties, _, clean = problem(classes, 5)
    model, entries = trained(parties, clean, clean, params, classes)
    own_splits = len(entries["p0"])
    for before, after in zip(model.trees, repair(model, params), strict=True):
        assert after == RepairedTree(before, before, before)
    assert len(entries["p0"]) == own_splits


@pytest.mark.parametrize("case", CASES)
def test_without_own_columns_a_repaired_node_is_one_clean_leaf(case: str) -> None:
    """A label holder without columns repairs by leaves alone."""
    params, classes = CASES[case]
    parties, noisy, clean = problem(classes, 3, own=0)
    model, entries = trained(parties, noisy, clean, params, classes)
    found = repair(model, params)
    local = [each for tree in found for each in tree.grafting_refit.local]
    assert local
    assert all(not each.splits and [leaf.node for leaf in each.leaves] == [each.root] for each in local)
    assert_naive(found, model, entries, parties, params)


@pytest.mark.parametrize("case", CASES)
def test_a_tree_that_the_label_holder_grew_alone_is_repaired_below_its_root(case: str) -> None:
    """Its local subtree is repaired as the tree that it is, and stays one subtree at the root."""
    params, classes = CASES[case]
    parties, noisy, clean = problem(classes, 2, own=3)
    model, entries = trained(parties, noisy, clean, params, classes, Withholding(own_trees=2))
    found = repair(model, params)
    assert_naive(found, model, entries, parties, params)
    for after in found[:2]:
        assert all([each.root for each in getattr(after, variant).local] == [1] for variant in VARIANTS)
    alone = list(zip(model.trees, found, strict=True))[:2]
    assert any(nodes_of(after.grafting, entries) != nodes_of(before, entries) for before, after in alone)


def test_the_lowest_clean_ancestors_are_regrown() -> None:
    """Contamination climbs to the lowest node that agrees; a node above it may erase it; a root is never repaired."""
    inner, leaves = [1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]
    same = dict.fromkeys(inner + leaves, 0)

    def regrown(*differing: int) -> list[int]:
        return to_regrow(inner, leaves, same | dict.fromkeys(differing, 1), same)

    assert regrown() == []
    assert regrown(8) == [4]
    assert regrown(8, 4) == [2]
    assert regrown(8, 11, 7) == [3, 4, 5]
    assert regrown(8, 6, 3) == [1]
    assert regrown(8, 11, 4) == [2]
    assert regrown(8, 4, 2, 1) == []
    assert regrown(8, 6, 3, 1) == [4]
    assert regrown(2, 4, 5) == []


#: The label holder's one column; the other party's split of the root sends the first six records left.
COLUMN = np.array([[0.0], [0.0], [0.0], [1.0], [1.0], [1.0], [0.0], [0.0], [1.0], [1.0]])
NOISY = np.array([1, 1, 1, 0, 0, 0, 1, 1, 1, 1])
CLEAN = np.array([0, 0, 0, 1, 1, 0, 1, 1, 1, 1])
SPLITS = (Split(1, "other", 0, 0.1, 10.0), Split(2, "other", 1, 0.1, 6.0))
#: Node 2 has classes (3, 3) and (4, 2); its leaves 4 and 5 differ under the two labels.
REACHED = np.array([4, 4, 5, 5, 5, 4, 3, 3, 3, 3])


def handmade(weights: dict[int, tuple[float, ...]], outputs: tuple[int, ...]) -> NoisyModel:
    """One tree with a split of the root and one of node 2, both another party's."""
    leaves = tuple(Leaf(node, each, 1.0) for node, each in weights.items())
    bins = GlobalBins(bin_table(COLUMN, ["c"], 4), np.array([0]))
    tree = Tree(0, outputs, SPLITS, leaves)
    return NoisyModel([tree], lambda _: REACHED, NOISY, CLEAN, 2, "own", lambda _: bins, [], lambda _, rows: rows < 0)


def test_a_forest_by_hand() -> None:
    """Node 4 holds 1, 1, 0 that are clean 0, 0, 0; node 2 has class 0 either way, so it is split by the own column."""
    model = handmade({3: (0.0, 1.0), 4: (1 / 3, 2 / 3), 5: (2 / 3, 1 / 3)}, (0, 1))
    (found,) = repair_forest(model, ForestParams(n_estimators=1, subsample=1.0, max_depth=2))
    (grown,) = found.grafting.local
    leaves = (Leaf(4, (1.0, 0.0), 3.0), Leaf(5, (1 / 3, 2 / 3), 3.0))
    assert grown == Subtree(2, (Split(2, "own", 0, grown.splits[0].gain, 6.0),), leaves)
    assert grown.splits[0].gain == pytest.approx(2 / 9)
    assert found.grafting == replace(model.trees[0], local=(grown,))
    assert model.entries == [(Candidate(0, 0, False), 0.5)]
    assert [leaf.weights for leaf in found.refit.leaves] == [(0.0, 1.0), (1.0, 0.0), (1 / 3, 2 / 3)]
    assert found.refit.local == ()
    assert found.grafting_refit == replace(found.refit, local=(grown,))
    values = reached_values(found.grafting, REACHED, lambda _, rows: COLUMN[rows, 0] < 0.5)
    assert values[:, 1].tolist() == [0, 0, 0, 2 / 3, 2 / 3, 2 / 3, 1, 1, 1, 1]


def test_boosting_by_hand() -> None:
    """At scores 0 a record has g = ½ − y and h = ¼: node 4 falls from Σ(−g) = ½ to −3/2, node 2 from 0 to −1."""
    model = handmade({3: (0.5,), 4: (0.1,), 5: (-0.1,)}, (0,))
    params = BoostingParams(n_estimators=1, learning_rate=1.0, reg_lambda=1.0, min_child_weight=0.1, max_depth=2)
    (found,) = repair_boosting(model, params)
    (grown,) = found.grafting.local
    assert (grown.root, [split.owner for split in grown.splits]) == (2, ["own"])
    assert [leaf.weights[0] for leaf in grown.leaves] == [-1.5 / 1.75, 0.5 / 1.75]
    assert found.grafting.leaves == model.trees[0].leaves
    assert [leaf.weights[0] for leaf in found.refit.leaves] == [2 / 2, -1.5 / 1.75, 0.5 / 1.75]


def test_trees_after_a_repaired_one_are_refitted_at_its_scores() -> None:
    """Without refitting, trees up to the first repaired one keep their weights and later ones have clean values."""
    params, classes = BOOSTED["two classes"]
    model, _ = trained(*problem(classes, 1), params, classes)
    found = repair_boosting(model, params)
    first = next(t for t, each in enumerate(found) if each.grafting.local)
    for t, (before, after) in enumerate(zip(model.trees, found, strict=True)):
        assert (after.grafting.leaves == before.leaves) is (t <= first)


xgb = pytest.importorskip("xgboost")
STUMP = BoostingParams(
    objective="reg:squarederror", n_estimators=1, max_depth=1, base_score=0.0, min_child_weight=0.0, learning_rate=1.0
)


def constrained(tables: list[tuple[str, BinnedTable]], directions: list[list[int]]) -> list[tuple[str, BinnedTable]]:
    """Tables with directions of their columns."""
    return [
        (name, replace(each, directions=np.array(own) if any(own) else None))
        for (name, each), own in zip(tables, directions, strict=True)
    ]


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("alpha", [0.0, 0.3])
def test_stumps_of_few_values_and_missing_ones(alpha: float) -> None:
    """Missing values take the side that the direction allows, also alone on the left of all present ones."""
    rng, mirrored, params = np.random.default_rng(0), 0, replace(STUMP, reg_alpha=alpha)
    for _ in range(40):
        X, y = rng.integers(0, 4, (8, 1)).astype(float), rng.normal(size=8)
        X[rng.random(8) < 0.3] = np.nan
        X[:2, 0] = 0, 3
        for direction in (1, -1):
            tables = constrained(encoded([("p", X)], 12), [[direction]])
            model = train(tables, y, params)
            _, theirs = boosted(xgb.DMatrix(as_input(tables), label=y), params, directions=[[direction]])
            np.testing.assert_allclose(model.predict(tables), theirs, atol=1e-5)
            mirrored += any(cut == -np.inf for _, cut in model.splits["p"])
    assert mirrored > 0


def test_a_base_model_with_missing_values_alone_on_the_left_is_continued() -> None:
    """Such a split is one of the column's bins, so the trees are those of one longer training; as xgboost has them."""
    rng, continued = np.random.default_rng(0), 0
    for _ in range(10):
        X, y = rng.integers(0, 4, (12, 2)).astype(float), rng.normal(size=12)
        X[rng.random((12, 2)) < 0.3] = np.nan
        X[:2] = [[0, 0], [3, 3]]
        tables = constrained(encoded([("p", X)], 12), [[1, -1]])
        base = train(tables, y, STUMP)
        further = train(tables, y, STUMP, base=base)
        whole = replace(STUMP, n_estimators=2)
        assert further.ensemble.trees == train(tables, y, whole).ensemble.trees
        _, theirs = boosted(xgb.DMatrix(as_input(tables), label=y), whole, directions=[[1, -1]])
        np.testing.assert_allclose(further.predict(tables), theirs, atol=1e-5)
        continued += any(cut == -np.inf for _, cut in base.splits["p"])
    assert continued > 0


SHAPES: list[tuple[dict[str, Any], dict[str, Any], list[list[int]]]] = [
    ({"seed": 9, "n": 150, "widths": [2, 2], "missing": 0.1}, {"reg_alpha": 0.5}, [[0, 0], [-1, 1]]),
    ({"seed": 3, "n": 150, "widths": [2, 2]}, {"max_delta_step": 0.3, "reg_alpha": 0.2}, [[1, -1], [-1, 1]]),
    (
        {"seed": 2, "n": 150, "widths": [2, 2], "missing": 0.15},
        {"grow_policy": "lossguide", "max_leaves": 6},
        [[1, -1], [-1, 1]],
    ),
]


@pytest.mark.second_tier(but=3)
@pytest.mark.parametrize(
    ("objective", "shape"),
    [*((each, shape) for each in ("binary:logistic", "reg:squarederror") for shape in range(3)), ("multi:softprob", 1)],
)
def test_scores_equal_xgboost(objective: str, shape: int) -> None:
    """Margins agree to 1e-5 and trees are the naive trainer's; some leaf is bounded that would not be without."""
    columns, options, directions = SHAPES[shape]
    parties, classes = table(**columns), 3 if objective == "multi:softprob" else 2
    labels = labels_for(objective, signal(parties, 20 + columns["seed"]), classes)
    params = BoostingParams(objective=objective, n_estimators=4, max_depth=4, max_bin=12, base_score=0.5)
    params = replace(params, **options)
    marked = {name: own for (name, _), own in zip(parties, directions, strict=True) if any(own)}
    oracle = told_apart(parties, labels, params, classes, monotone=marked)
    tables = constrained(encoded(parties, params.max_bin), directions)
    model = train(tables, labels, params, classes)
    assert differences(model, oracle) == ""
    _, theirs = boosted(xgb.DMatrix(as_input(tables), label=labels), params, classes, directions=directions)
    np.testing.assert_allclose(model.predict(tables), theirs, atol=1e-5)
    free = train(encoded(parties, params.max_bin), labels, params, classes)
    assert not np.allclose(free.predict(encoded(parties, params.max_bin)), theirs, atol=1e-3)


def test_a_split_bounds_all_weights_below_it_by_the_mean_of_its_children() -> None:
    """The left subtree of an increasing split stays below the mean, the right one above it, by xgboost alike."""
    x = np.repeat(np.arange(4.0), 4)[:, None]
    z = np.tile([0.0, 0.0, 1.0, 1.0], 4)[:, None]
    y = 10 * x[:, 0] + np.where(x[:, 0] < 2, 60, -60) * z[:, 0]  # z turns the order of x round where it counts
    params = replace(STUMP, max_depth=3, reg_lambda=0.0)
    tables = constrained(encoded([("p", np.hstack([x, z]))], 12), [[1, 0]])
    model = train(tables, y, params)
    scores = model.predict(tables)[:, 0]
    _, theirs = boosted(xgb.DMatrix(as_input(tables), label=y), params, directions=[[1, 0]])
    np.testing.assert_allclose(scores, theirs[:, 0], atol=1e-4)
    for value in (0.0, 1.0):
        assert (np.diff(scores[z[:, 0] == value]) >= 0).all()
    assert not np.allclose(scores, train(encoded([("p", np.hstack([x, z]))], 12), y, params).predict(tables)[:, 0])


def test_leaves_of_several_weights_have_no_constraints() -> None:
    """Xgboost refuses them up to 3.3."""
    X, y = np.arange(8.0)[:, None], np.arange(8) % 3
    params = BoostingParams(objective="multi:softprob", multi_strategy="multi_output_tree", n_estimators=1)
    with pytest.raises(Malformed, match="boosted trees whose leaves have one weight"):
        train(constrained(encoded([("p", X)], 8), [[1]]), y, params, 3)
    settings = {"objective": "multi:softprob", "num_class": 3, "multi_strategy": "multi_output_tree"}
    with refused_before((3, 4), "not yet implemented"):
        xgb.train({**settings, "tree_method": "hist", "monotone_constraints": "(1)"}, xgb.DMatrix(X, label=y), 1)


@pytest.mark.parametrize("missing", [0.0, 0.15])
def test_columns_of_categories_beside_constrained_ones(missing: float) -> None:
    """Categories keep their order by weights without bounds, their gains are bounded; xgboost and the oracle agree."""
    parties, labels = mixed(5, n=120, missing=missing)
    directions = [[0, 0, 1], [0, -1, 0, 1]]
    params = BoostingParams(objective="reg:squarederror", n_estimators=3, max_depth=4, base_score=0.5, reg_alpha=0.3)
    marked = {name: own for (name, _), own in zip(parties, directions, strict=True)}
    oracle = told_apart(parties, list(labels), params, categories=LEVELS, monotone=marked)
    tables = constrained(binned(parties, params), directions)
    model = train(tables, labels, params)
    assert differences(model, oracle) == ""
    _, theirs = boosted(matrix(parties, label=labels), params, directions=directions)
    np.testing.assert_allclose(model.predict(tables), theirs, atol=1e-4)

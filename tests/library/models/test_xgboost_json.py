"""Models in XGBoost's JSON: XGBoost loads them, and predicts what they predict."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.library.trees.boosters import stored_trees
from tests.library.trees.decisions import raw_decisions
from tests.library.trees.tables import Parties, encoded, labels_for, signal, table
from tests.oracle import AFT, COX, LOGARITHMIC, QUANTILE
from treetap.errors import BadInput
from treetap.lab.experiment.xgboost_export import Column, feature_names, threshold_of, xgboost_model
from treetap.models.own_split import OwnSplit
from treetap.trees import centralised
from treetap.trees.centralised import CentralTrees
from treetap.trees.ensemble import Leaf, Split, Subtree, Tree, at_or_below, route
from treetap.trees.params import BoostingParams, ForestParams, TreeParams
from treetap.trees.shapley import Attributions, attributions

xgb = pytest.importorskip("xgboost")
Floats = npt.NDArray[np.float64]

BOOSTED = [
    ("binary:logistic", "one_output_per_tree", 2, {}),
    (
        "binary:logistic",
        "one_output_per_tree",
        2,
        {"base_score": 0.993, "learning_rate": 0.9, "min_child_weight": 0.01},
    ),
    ("reg:squarederror", "one_output_per_tree", 2, {"subsample": 0.7}),
    *((objective, "one_output_per_tree", 2, {}) for objective in (*LOGARITHMIC, QUANTILE, COX, AFT)),
    (
        "multi:softprob",
        "one_output_per_tree",
        3,
        {"early_stopping_rounds": 2, "validation_share": 0.3, "learning_rate": 0.9},
    ),
    ("multi:softprob", "multi_output_tree", 3, {"base_score": 0.25}),
]


def _trained(parties: Parties, labels: npt.NDArray[Any], params: TreeParams, classes: int) -> CentralTrees:
    if isinstance(params, ForestParams):
        return centralised.train_forest(parties, labels, params, classes)
    assert isinstance(params, BoostingParams)
    return centralised.train(encoded(parties, params.max_bin), labels, params, classes)


def _model(
    params: TreeParams, classes: int, records: int, widths: list[int], missing: float = 0.0
) -> tuple[CentralTrees, Parties]:
    """A model of a drawn table, and the table."""
    parties = table(5, records, widths, missing=missing)
    objective = params.objective if isinstance(params, BoostingParams) else "multi:softprob"
    labels = labels_for(objective if classes else "reg:squarederror", signal(parties, 7), classes or 2)
    return _trained(parties, labels, params, classes), parties


def _exported(model: CentralTrees, parties: Parties, folder: Path) -> tuple[Any, dict[str, Any]]:
    """The model in XGBoost, and the content of its file."""
    columns = {name: [Column(f"c{j}", X[:, j]) for j in range(X.shape[1])] for name, X in parties}
    content = xgboost_model(
        model.ensemble,
        lambda split: OwnSplit.of(split.handle, split.node, *model.entry(split)),
        columns,
        {"treetap": "{}"},
    )
    path = folder / "model.json"
    path.write_text(json.dumps(content))
    return xgb.Booster(model_file=path), content


def _trees(content: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = content["learner"]["gradient_booster"]["model"]["trees"]
    return found


def _expected(model: CentralTrees, parties: Parties) -> Floats:
    """Raw scores (n, outputs)."""
    n, goes_left = len(parties[0][1]), raw_decisions(model, parties)
    reached = (route(tree.splits, n, goes_left) for tree in model.ensemble.used_trees)
    values = (tree.values(nodes) for tree, nodes in zip(model.ensemble.used_trees, reached, strict=True))
    return model.ensemble.summed(values, n)


def _matrix(parties: Parties) -> Any:
    columns = {name: [Column(f"c{j}") for j in range(X.shape[1])] for name, X in parties}
    return xgb.DMatrix(np.hstack([X for _, X in parties]), feature_names=feature_names(columns))


@pytest.mark.parametrize(("objective", "strategy", "classes", "more"), BOOSTED)
def test_boosted_trees(objective: str, strategy: str, classes: int, more: dict[str, Any], tmp_path: Path) -> None:
    """Margins and outcomes of the records of the training and of new ones, with missing values; and a round trip."""
    params = BoostingParams(
        objective=objective, multi_strategy=strategy, n_estimators=6, max_depth=4, max_bin=40, **more
    )
    model, parties = _model(params, classes, 150, [3, 2], missing=0.2)
    booster, content = _exported(model, parties, tmp_path)
    fresh = [(name, X.astype(np.float32).astype(np.float64)) for name, X in table(6, 200, [3, 2], missing=0.3)]
    for asked in (parties, fresh):
        expected, matrix = _expected(model, asked), _matrix(asked)
        margin = booster.predict(matrix, output_margin=True).reshape(expected.shape)
        largest = max(1.0, float(np.abs(expected).max()))  # sums of 32 bits are rounded at their largest
        np.testing.assert_allclose(margin, expected, rtol=1e-6, atol=1e-6 * largest)
        outcome = model.ensemble.outcome(expected)
        np.testing.assert_allclose(booster.predict(matrix), outcome, rtol=1e-5, atol=1e-6)
    assert booster.feature_names == ["p0.c0", "p0.c1", "p0.c2", "p1.c0", "p1.c1"]
    assert booster.attr("treetap") == "{}"
    for tree, written in zip(stored_trees(booster), _trees(content), strict=True):
        for key, value in written.items():
            both = tree[key], value
            if key == "split_conditions" and strategy == "multi_output_tree":  # of a leaf it means nothing
                both = tuple([each[k] for k, at in enumerate(tree["left_children"]) if at >= 0] for each in both)
            rounded = isinstance(value, list)
            assert (np.float32(both[0]) == np.float32(both[1])).all() if rounded else both[0] == both[1], key
    if "early_stopping_rounds" in more:
        assert booster.attr("best_iteration") == str(model.ensemble.best_round)
        rounds = len(model.ensemble.used_trees) // model.ensemble.trees_per_round
        assert booster.num_boosted_rounds() == rounds < params.n_estimators


def test_scikit_learns_interface(tmp_path: Path) -> None:
    """XGBClassifier loads the file too; importances by gain and weight are the model's."""
    model, parties = _model(BoostingParams(n_estimators=3, max_depth=3), 2, 100, [2, 2])
    booster, _ = _exported(model, parties, tmp_path)
    classifier = xgb.XGBClassifier()
    classifier.load_model(tmp_path / "model.json")
    chances = model.ensemble.outcome(_expected(model, parties))
    np.testing.assert_allclose(classifier.predict_proba(np.hstack([X for _, X in parties]))[:, 1], chances, rtol=1e-6)
    splits = [split for tree in model.ensemble.trees for split in tree.splits]
    assert sum(booster.get_score(importance_type="weight").values()) == len(splits)
    total = sum(booster.get_score(importance_type="total_gain").values())
    assert total == pytest.approx(sum(split.gain for split in splits), rel=1e-5)


@pytest.mark.parametrize("classes", [0, 2, 3])
def test_forests(classes: int, tmp_path: Path) -> None:
    """Trees add up to the mean: class frequencies are numbers of several targets."""
    params = ForestParams(n_estimators=5, max_depth=4, criterion="gini" if classes else "squared_error")
    model, parties = _model(params, classes, 120, [3, 2])
    booster, _ = _exported(model, parties, tmp_path)
    expected = _expected(model, parties)
    found = booster.predict(_matrix(parties)).reshape(expected.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def _attributed(model: CentralTrees, parties: Parties) -> Attributions:
    """Shapley values of the records, a player for each feature."""

    def player(split: Split) -> str:
        return f"{split.owner}.c{model.entry(split)[0].feature}"

    players = [f"{name}.c{j}" for name, X in parties for j in range(X.shape[1])]
    return attributions(model.ensemble, player, raw_decisions(model, parties), players, len(parties[0][1]))


@pytest.mark.second_tier(but=4)
@pytest.mark.parametrize("rows", [7, 200])
@pytest.mark.parametrize(
    ("objective", "strategy", "classes", "more"), [case for case in BOOSTED if case[1] == "one_output_per_tree"]
)
def test_attributions_are_xgboosts_contributions(
    objective: str, strategy: str, classes: int, more: dict[str, Any], rows: int, tmp_path: Path
) -> None:
    """`pred_contribs` of the exported model, the bias included; of fewer records than a path has patterns, and more."""
    params = BoostingParams(
        objective=objective, multi_strategy=strategy, n_estimators=6, max_depth=5, max_bin=40, **more
    )
    model, parties = _model(params, classes, 200, [3, 2], missing=0.2)
    booster, _ = _exported(model, parties, tmp_path)
    asked = [(name, X[:rows].astype(np.float32).astype(np.float64)) for name, X in parties]
    found = _attributed(model, asked)
    theirs = booster.predict(_matrix(asked), pred_contribs=True)
    theirs = theirs.reshape(rows, -1, 6)  # of each class the features, and the bias
    scale = np.abs(theirs).max()
    np.testing.assert_allclose(np.moveaxis(found.values, 1, 2), theirs[:, :, :5], rtol=0, atol=1e-5 * scale)
    np.testing.assert_allclose(np.tile(found.expected, (rows, 1)), theirs[:, :, 5], rtol=0, atol=1e-5 * scale)
    exact = _expected(model, asked)
    np.testing.assert_allclose(found.values.sum(axis=1) + found.expected, exact, rtol=0, atol=1e-12 * scale)


def test_subtrees_of_the_label_holder(tmp_path: Path) -> None:
    """Records' values are those of the deciding tree; what others know of a tree below a local root is left out."""
    model, parties = _model(BoostingParams(n_estimators=1, max_depth=3), 2, 90, [2, 2])
    (tree,) = model.ensemble.trees
    own = next(split for split in tree.splits if split.owner == "p0")
    (cover,) = (node.cover for node in (*tree.splits, *tree.leaves) if node.node == 2)
    split = Split(2, "p0", own.handle, 1.0, cover)
    local = Subtree(2, (split,), (Leaf(4, (0.5,), cover / 4), Leaf(5, (-0.5,), cover * 3 / 4)))
    changed = Tree(tree.index, tree.outputs, tree.splits, tree.leaves, (local,))
    before = _attributed(model, parties)
    object.__setattr__(model.ensemble, "trees", (changed,))
    booster, content = _exported(model, parties, tmp_path)
    found = _attributed(model, parties)
    theirs = booster.predict(_matrix(parties), pred_contribs=True)
    np.testing.assert_allclose(found.values[:, :, 0], theirs[:, :4], rtol=0, atol=1e-6)
    np.testing.assert_allclose(found.expected[0], theirs[0, 4], rtol=0, atol=1e-6)
    assert np.abs(found.values - before.values).max() > 0.05
    it, cut = model.entry(split)
    values = dict(parties)["p0"][:, it.feature]
    root, first = model.entry(tree.splits[0])
    left = dict(parties)[tree.splits[0].owner][:, root.feature] < first
    margin = booster.predict(_matrix(parties), output_margin=True)
    np.testing.assert_allclose(margin[left], np.where(values[left] < cut, 0.5, -0.5), rtol=1e-6)
    (made,) = _trees(content)
    kept = [each.node for each in (*tree.splits, *tree.leaves) if not at_or_below(each.node, [2])]
    assert len(made["left_children"]) == len(kept) + 3


@pytest.mark.parametrize(
    ("cut", "values", "found"),
    [
        (0.5, None, 0.5),
        (0.1, None, float(np.float32(0.1))),
        (1 / 3, None, float(np.float32(1 / 3))),
        (0.7, None, float(np.nextafter(np.float32(0.7), np.float32(1)))),
        (math.inf, [1.0, 2.0], float(np.finfo(np.float32).max)),
        # 1 + 2^-30 is 1 in 32 bits: the threshold below it must not be the next number
        (1 + 2**-31, [0.5, 1 + 2**-30], 1.0),
        # and a value that is rounded up to the threshold must stay below it
        (1 + 2**-24 + 2**-25, [1 + 2**-24 + 2**-26, 1.5], 1 + 2**-22),
        # a value of 64 bits is rounded as the threshold is: 24.55 and its neighbour below are one number in 32 bits
        (24.549999999999997, [24.5, 24.6], float(np.float32(24.55))),
        # among values of 32 bits, the nearest itself would go right of a threshold that is above it
        (24.549999999999997, [24.5, 24.75], float(np.nextafter(np.float32(24.55), np.float32(25)))),
        (0.75, [0.5, 1.0], 0.75),
        (0.75, [np.nan, 0.5], 0.75),
    ],
)
def test_thresholds(cut: float, values: list[float] | None, found: float) -> None:
    """In 32 bits the same values lie below it as in 64; the nearest, unless values have 32 bits or are not known."""
    column = Column("c", None if values is None else np.array(values))
    assert threshold_of(OwnSplit(0, 1, 0, 0, cut, False), column, "p") == found
    for value in values or []:
        assert (np.float32(value) < np.float32(found)) == (value < cut) or np.isnan(value)


def test_new_values_of_64_bits_at_a_threshold() -> None:
    """Halfway between two values of one decimal lies one of two, which XGBoost sends where the model does."""
    values = np.arange(0, 40, 0.1).round(1)
    for cut in (values[:-1] + values[1:]) / 2:
        found = np.float32(threshold_of(OwnSplit(0, 1, 0, 0, cut, False), Column("c", values), "p"))
        new = round(float(cut), 2)
        assert new < cut or not np.float32(new) < found


def test_values_that_are_one_number_in_32_bits() -> None:
    """They are refused by column, party and threshold."""
    column = Column("c", np.array([1.0, 1 + 2**-40]))
    with pytest.raises(BadInput, match="column 'c' of p: values on both sides of the threshold"):
        threshold_of(OwnSplit(0, 1, 0, 0, 1 + 2**-41, False), column, "p")


def test_values_between_neighbours_of_32_bits(tmp_path: Path) -> None:
    """A column of 64 bits whose values are dense: rounding moves none across a threshold."""
    draw = np.random.default_rng(3)
    values = 1e6 + np.arange(10) * 0.0625 + draw.uniform(-0.03, 0.03, size=10)  # a step of 32 bits is 0.0625 there
    place = draw.integers(0, 10, size=120)
    parties: Parties = [("p0", values[place][:, None]), ("p1", draw.normal(size=(120, 1)))]
    labels = (place % 2).astype(np.int64)
    model = _trained(parties, labels, BoostingParams(n_estimators=3, max_depth=5, max_bin=12), 2)
    booster, _ = _exported(model, parties, tmp_path)
    margin = booster.predict(_matrix(parties), output_margin=True).reshape(-1, 1)
    np.testing.assert_allclose(margin, _expected(model, parties), rtol=1e-6, atol=1e-6)


def test_names_that_xgboost_refuses() -> None:
    """[, ] and < are replaced; a name that then is another's is refused."""
    assert feature_names({"a": [Column("x[0]<1"), Column("y=5")]}) == ["a.x(0)_1", "a.y=5"]
    with pytest.raises(BadInput, match=r"two features would be called 'a.x\(0\)' in XGBoost"):
        feature_names({"a": [Column("x[0]"), Column("x(0)")]})

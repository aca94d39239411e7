"""What the names taken from XGBoost mean, found by experiment on tiny tables with chosen derivatives.

Every test states what xgboost does and that this library's rule says the same (or, in one case, where it differs).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.library.trees.boosters import AS_BEFORE, stored_trees
from treetap.trees import boosting_criterion
from treetap.trees.binning import bin_table
from treetap.trees.boosting_criterion import BoostingCriterion
from treetap.trees.candidates import CandidateList
from treetap.trees.centralised import train
from treetap.trees.loss import UNIT
from treetap.trees.params import BoostingParams
from treetap.trees.tree_bins import left_sums

xgb = pytest.importorskip("xgboost")
NAN = float("nan")


def xgb_stump(x: Any, g: Any, h: Any, **options: Any) -> dict[str, Any] | None:
    """Root split that xgboost makes with derivatives g, h (N,) or (N, K): change, cut, missing_left, weights; or None.

    The leaf weights are read off predictions at the training records.
    """
    X = np.asarray(x, dtype=float).reshape(len(x), -1)
    G, H = np.asarray(g, dtype=float), np.asarray(h, dtype=float)
    data = xgb.DMatrix(X, label=np.zeros(G.shape))
    settings = {
        "tree_method": "hist", "max_bin": 512, "base_score": 0.0, "reg_lambda": 1.0, "min_child_weight": 0.0,
        "learning_rate": 1.0, "max_depth": 1, "nthread": 1, "verbosity": 0, **options,
    }  # fmt: skip
    if G.ndim == 2:
        settings |= {"multi_strategy": "multi_output_tree", "num_target": G.shape[1]}
    booster = xgb.train(settings, data, 1, obj=lambda _scores, _data: (G, H))
    tree = stored_trees(booster)[0]
    weights = booster.predict(data, output_margin=True).reshape(len(X), -1)
    if tree["left_children"][0] == -1:
        return None
    return {
        "change": tree["loss_changes"][0],
        "cut": tree["split_conditions"][0],
        "missing_left": bool(tree["default_left"][0]),
        "weights": weights,
        "missing": booster.predict(xgb.DMatrix(np.full((1, X.shape[1]), NAN)), output_margin=True).reshape(-1),
    }


def our_stump(x: Any, g: Any, h: Any, **options: Any) -> dict[str, Any] | None:
    """The same, by this library's functions."""
    X = np.asarray(x, dtype=float).reshape(len(x), -1)
    G = np.asarray(g, dtype=float).reshape(len(X), -1)
    H = np.asarray(h, dtype=float).reshape(len(X), -1)
    params = BoostingParams(**{"min_child_weight": 0.0, "learning_rate": 1.0, "max_depth": 1, **options})
    scale = 2.0**10
    values = np.hstack([np.rint(G / scale * UNIT), np.rint(H * UNIT), np.ones((len(X), 1))]).astype(np.int64)
    bins = bin_table(X, [f"f{j}" for j in range(X.shape[1])], 512)
    candidates = CandidateList(bins.shapes)
    parent = values.sum(axis=0)
    left = left_sums(bins.codes, candidates, values, [np.arange(len(X))])
    changes = boosting_criterion.loss_changes(left, parent[None], scale, params)
    decision = BoostingCriterion(scale, params).choose([changes[0]])
    if decision is None:
        return None
    k = int(decision[1][0])
    sides = boosting_criterion.leaf_weights(np.stack([left[0, k], parent - left[0, k]]), scale, params)
    goes_left = candidates.goes_left(bins.codes, candidates.at(k))
    return {
        "change": changes[0, k],
        "missing_left": candidates.at(k).missing_left,
        "weights": np.where(goes_left[:, None], sides[0], sides[1]),
        "missing": sides[0] if candidates.at(k).missing_left else sides[1],
    }


def assert_agree(x: Any, g: Any, h: Any, **options: Any) -> dict[str, Any] | None:
    """Both split alike, or neither does; returns our split."""
    theirs, ours = xgb_stump(x, g, h, **options), our_stump(x, g, h, **options)
    assert (theirs is None) == (ours is None)
    if theirs is not None and ours is not None:
        assert ours["change"] == pytest.approx(theirs["change"], rel=1e-5)
        np.testing.assert_allclose(ours["weights"], theirs["weights"], atol=1e-6)
        np.testing.assert_allclose(ours["missing"], theirs["missing"], atol=1e-6)
        assert ours["missing_left"] == theirs["missing_left"]
    return ours


def split_nodes(booster: Any) -> set[int]:
    """The splits of a booster's first tree by heap number."""
    tree, heap = stored_trees(booster)[0], {0: 1}
    for node, (left, right) in enumerate(zip(tree["left_children"], tree["right_children"], strict=True)):
        heap |= {left: 2 * heap[node], right: 2 * heap[node] + 1} if left >= 0 else {}
    return {heap[node] for node, left in enumerate(tree["left_children"]) if left >= 0}


def agreed(x: Any, g: Any, h: Any, **options: Any) -> dict[str, Any]:
    """The split that both make."""
    found = assert_agree(x, g, h, **options)
    assert found is not None
    return found


FOUR, STEP, ONES = [0, 1, 2, 3], [-1.0, -1.0, 1.0, 1.0], np.ones(4)


def test_loss_change_has_no_half_and_no_gamma() -> None:
    """The reported gain is G_L²/(H_L+λ) + G_R²/(H_R+λ) − G²/(H+λ): here 4/3 + 4/3."""
    split = agreed(FOUR, STEP, ONES)
    assert split["change"] == pytest.approx(8 / 3)


@pytest.mark.parametrize(("gamma", "splits"), [(4.0, True), (4.001, False)])
@pytest.mark.parametrize("joint", [False, True])
def test_gamma_keeps_an_equal_loss_change(gamma: float, splits: bool, joint: bool) -> None:
    """A loss change of exactly gamma is kept, in both tree forms."""
    g, h = (np.c_[STEP, np.zeros(4)], np.ones((4, 2))) if joint else (STEP, ONES)
    assert (assert_agree(FOUR, g, h, gamma=gamma, reg_lambda=0.0) is not None) == splits


@pytest.mark.parametrize(("change", "splits"), [(0.9e-6, False), (1.1e-6, True)])
@pytest.mark.parametrize("joint", [False, True])
def test_loss_change_must_exceed_one_millionth(change: float, splits: bool, joint: bool) -> None:
    """A loss change of 1e-6 or less does not split even with gamma 0."""
    outputs = 2 if joint else 1
    g = math.sqrt(change / (2 * outputs))
    derivatives = np.tile([[-g], [g]], (1, outputs)) if joint else [-g, g]
    found = xgb_stump([0, 1], derivatives, np.ones((2, 2)) if joint else [1, 1], reg_lambda=0.0)
    assert (found is not None) == splits
    assert (BoostingCriterion(1.0, BoostingParams()).choose([np.array([change])]) is not None) == splits


@pytest.mark.parametrize(("least", "splits"), [(2.0, True), (2.001, False)])
def test_min_child_weight_refuses_light_sides_of_one_output_trees(least: float, splits: bool) -> None:
    """With one output a side with H < min_child_weight is refused, one with H equal to it is not."""
    assert (assert_agree(FOUR, STEP, ONES, min_child_weight=least) is not None) == splits


@AS_BEFORE
def test_min_child_weight_mutes_outputs_of_multi_output_trees() -> None:
    """With several outputs no side is refused: an output with H_k < min_child_weight gets gain 0 and weight 0."""
    g = np.c_[STEP, -np.array(STEP)]
    light = np.tile([1.0, 0.3], (4, 1))
    split = agreed(FOUR, g, light, min_child_weight=1.2)
    np.testing.assert_allclose(split["weights"][:, 1], 0.0)
    assert split["change"] == pytest.approx(8 / 3)
    lopsided = agreed(FOUR, g, np.ones((4, 2)), min_child_weight=2.5)
    assert (lopsided["weights"][0] == 0.0).all()
    criterion = BoostingCriterion(1.0, BoostingParams(min_child_weight=2.5))
    assert criterion.may_split(np.array([0, 0, 3 * UNIT, 3 * UNIT, 4]))
    assert not criterion.may_split(np.array([0, 3 * UNIT, 4]))


@pytest.mark.parametrize(("least", "weight"), [(4.0, 0.4), pytest.param(5.0, 0.0, marks=AS_BEFORE)])
def test_a_leaf_lighter_than_min_child_weight_has_weight_zero(least: float, weight: float) -> None:
    """A root that cannot split has weight −G/(H+λ) if H ≥ min_child_weight, else 0."""
    X = np.array(FOUR, dtype=float)[:, None]
    data = xgb.DMatrix(X, label=[1.0, 1.0, 1.0, -1.0])
    settings = {"objective": "reg:squarederror", "base_score": 0.0, "min_child_weight": least, "learning_rate": 1.0}
    theirs = xgb.train({**settings, "max_depth": 1, "tree_method": "hist"}, data, 1).predict(data)
    np.testing.assert_allclose(theirs, weight, atol=1e-6)
    ours = boosting_criterion.leaf_weights(
        np.array([-2 * UNIT, 4 * UNIT, 4]), 1.0, BoostingParams(min_child_weight=least, learning_rate=1.0)
    )
    assert ours == pytest.approx([weight])


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("towards", [-0.9, 0.0, 0.3])
def test_reg_alpha_moves_sums_towards_zero(joint: bool, towards: float) -> None:
    """T = G ∓ α stands for G in gain and weight, of every output by itself; sums within ±α have both 0."""
    g = np.array([-2.0, -1.0, towards, 2.5])
    agreed(FOUR, np.c_[g, 0.5 * g + 0.1] if joint else g, np.ones((4, 2)) if joint else ONES,
                         reg_alpha=0.7)  # fmt: skip
    small = np.array([-0.4, -0.2, 0.3, 0.3])
    assert assert_agree(FOUR, np.c_[small, -small] if joint else small, np.ones((4, 2)) if joint else ONES,
                        reg_alpha=0.7) is None  # fmt: skip


@AS_BEFORE
@pytest.mark.parametrize("alpha", [0.0, 0.7])
@pytest.mark.parametrize("step", [0.3, 0.8])
def test_max_delta_step_bounds_weights_and_changes_the_gain(step: float, alpha: float) -> None:
    """With one output gain = −(2Gw + (H+λ)w²), with several Σ −T·w: w is bounded before the learning rate."""
    g, h = np.array([-2.0, -1.0, 1.5, 2.5]), np.array([1.0, 0.5, 0.7, 1.2])
    for rate in (1.0, 0.5):
        options = {"max_delta_step": step, "reg_alpha": alpha, "learning_rate": rate}
        one = agreed([0, 0, 1, 1], g, h, **options)
        agreed([0, 0, 1, 1], np.c_[g, 0.5 * g + 0.1], np.c_[h, h], **options)
        assert np.abs(one["weights"]).max() == pytest.approx(step * rate)
    G_L, H_L, G_R, H_R = -3.0, 1.5, 4.0, 1.9
    bounded = [-(2 * G * w + (H + 1.0) * w * w) for G, H, w in ((G_L, H_L, step), (G_R, H_R, -step))]
    root = -math.copysign(min(step, max(0.0, 1.0 - alpha) / 4.4), 1.0)
    assert one["change"] == pytest.approx(sum(bounded) + (2 * root + 4.4 * root**2))


def test_an_output_without_hessian_is_mute() -> None:
    """In a multi-output tree an output with H_k = 0 on one side has gain 0 and weight 0 there."""
    split = agreed([0, 1], [[-1, -1], [1, 1]], [[1, 0], [1, 1]])
    np.testing.assert_allclose(split["weights"], [[0.5, 0.0], [-0.5, -0.5]])
    assert assert_agree([0, 1], [[-1, -1], [1, 1]], [[0, 0], [1, 1]]) is None


@AS_BEFORE
@pytest.mark.second_tier
def test_a_best_candidate_without_hessian_blocks_the_node_in_xgboost_only() -> None:
    """Xgboost makes a leaf if the best candidate has a side with H = 0; here that candidate is left out.

    No loss of this library has h = 0, so its models never meet the difference.
    """
    rng = np.random.default_rng(0)
    h = np.array([0.0, 1.0, 1.0, 1.0])
    blocked = 0
    for _ in range(200):
        g = rng.normal(size=4)
        theirs, ours = xgb_stump(FOUR, g, h), our_stump(FOUR, g, h)
        if theirs is not None:
            assert_agree(FOUR, g, h)
        blocked += theirs is None and ours is not None
    assert blocked > 0


def test_nothing_is_pruned_afterwards() -> None:
    """A root whose loss change is below gamma is a leaf although its children would gain far more than gamma."""
    X = np.array([[0, 0], [0, 1], [1, 0], [1, 1]] * 2, dtype=float)
    y = -np.array([-1.0, 1.0, 1.1, -1.0] * 2)
    for gamma, leaves in ((0.0, 4), (0.1, 1)):
        options = {"gamma": gamma, "max_depth": 2, "learning_rate": 1.0, "base_score": 0.0}
        data = xgb.DMatrix(X, label=y)
        booster = xgb.train({"objective": "reg:squarederror", "tree_method": "hist", **options}, data, 1)
        params = BoostingParams(objective="reg:squarederror", n_estimators=1, **options)
        table = [("p", bin_table(X, ["a", "b"], 8))]
        model = train(table, y, params)
        assert booster.get_dump()[0].count("leaf") == len(model.ensemble.trees[0].leaves) == leaves
        np.testing.assert_allclose(model.predict(table)[:, 0], booster.predict(data), atol=1e-6)


@pytest.mark.parametrize(
    ("grow_policy", "effect", "order"),
    [("depthwise", 2, [1, 2, 3, 4, 5]), ("lossguide", 2, [1, 2, 4, 5, 3]), ("lossguide", 4, [1, 2, 3, 4, 5])],
)
@pytest.mark.parametrize("joint", [False, True])
def test_max_leaves_ends_the_tree_in_the_order_of_its_policy(
    grow_policy: str, effect: int, order: list[int], joint: bool
) -> None:
    """Level by level from the left, or by loss change, of equal ones the older node: nodes 4 and 5 have 128 each, node
    3 has 32 or 128.
    """
    signs = np.array([(a, b, c, d) for a in (0, 0, 1) for b in (-1, 1) for c in (-1, 1) for d in (-1, 1)], dtype=float)
    a, b, c, d = signs.T
    left = a == 0
    X = np.c_[a, np.where(left, b, 0), np.where(left, 0, c), np.where(left, d, 0)]
    y = np.where(left, 8 * b + 4 * d, 1000 + effect * c)
    labels = np.c_[y, np.zeros(len(y))] if joint else y
    options = {"max_depth": 3, "reg_lambda": 0.0, "base_score": 0.0, "learning_rate": 1.0, "grow_policy": grow_policy}
    for leaves in range(2, 7):
        settings = {"objective": "reg:squarederror", "tree_method": "hist", "max_leaves": leaves, **options}
        settings |= {"multi_strategy": "multi_output_tree"} if joint else {}
        theirs = split_nodes(xgb.train(settings, xgb.DMatrix(X, label=labels), 1))
        assert theirs == set(order[: leaves - 1])
        params = BoostingParams(objective="reg:squarederror", n_estimators=1, max_leaves=leaves, **options)
        ours = train([("p", bin_table(X, list("abcd"), 8))], y, params).ensemble.trees[0]
        assert {split.node for split in ours.splits} == theirs


@pytest.mark.parametrize("joint", [False, True])
def test_missing_never_seen_goes_right(joint: bool) -> None:
    """A feature without missing values in training sends a missing value right."""
    split = agreed(FOUR, np.c_[STEP, STEP] if joint else STEP, np.ones((4, 2)) if joint else ONES)
    np.testing.assert_allclose(split["missing"], -2 / 3)


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("towards", [-1.0, 1.0])
def test_missing_goes_where_the_loss_change_is_larger(towards: float, joint: bool) -> None:
    """A node learns the default direction from the derivatives of its missing records."""
    g = np.array([-1.0, -1.0, 1.0, towards])
    split = agreed([0, 0, 1, NAN], np.c_[g, -g] if joint else g, np.ones((4, 2)) if joint else ONES)
    assert split["missing_left"] == (towards < 0)


def test_missing_alone_can_be_a_side() -> None:
    """All present values left, the missing ones right, is a candidate; the mirror image is not needed."""
    split = agreed([0, 1, 2, NAN], [-1, -1, -1, 1], ONES)
    assert not split["missing_left"]
    constant = our_stump([0, 0, 0, NAN], [-1, -1, -1, 1], ONES)
    assert constant is not None
    assert constant["change"] == pytest.approx(split["change"])


def test_missing_in_the_table_but_not_in_the_node_goes_right() -> None:
    """A child without missing values of a feature that has some elsewhere ties left and right, and takes right."""
    X = np.array([[0, NAN], [0, NAN], [1, 0], [1, 1]], dtype=float)
    y = np.array([5.0, 5.0, -1.0, -3.0])
    options = {"max_depth": 2, "learning_rate": 1.0, "base_score": 0.0}
    booster = xgb.train(
        {"objective": "reg:squarederror", "tree_method": "hist", "max_bin": 16, "reg_lambda": 0.1, **options},
        xgb.DMatrix(X, label=y), 1,
    )  # fmt: skip
    table = bin_table(X, ["a", "b"], 16)
    params = BoostingParams(objective="reg:squarederror", n_estimators=1, reg_lambda=0.1, **options)
    model = train([("p", table)], y, params)
    probe = np.array([[1, NAN], [1, 0], [1, 1], [0, NAN]], dtype=float)
    np.testing.assert_allclose(
        model.predict([("p", table.encode(probe))])[:, 0], booster.predict(xgb.DMatrix(probe)), atol=1e-6
    )


@pytest.mark.parametrize(("towards", "their_cut", "our_bin"), [(-5.0, 9.0, 0), (5.0, 1.0, 0)])
def test_among_cuts_in_a_gap_we_take_the_lowest(towards: float, their_cut: float, our_bin: int) -> None:
    """Where empty bins make cuts of one feature tie, xgboost takes the lowest with missing right, the highest with
    missing left; here it is the lowest always. Training records are divided alike, new ones in the gap are not.
    """
    gap = [[0, 0], [0, 0], [0, 9], [0, 9], [0, NAN], [0, NAN]]
    X = np.array(gap + [[1, v] for v in range(10)], dtype=float)
    y = np.array([-5, -5, 5, 5, towards, towards] + [100] * 10, dtype=float)
    options = {"max_depth": 2, "base_score": 0.0, "min_child_weight": 0.0, "reg_lambda": 0.1}
    settings = {"objective": "reg:squarederror", "tree_method": "hist", "max_bin": 64, **options}
    data = xgb.DMatrix(X, label=y)
    booster = xgb.train(settings, data, 1)
    assert stored_trees(booster)[0]["split_conditions"][1] == their_cut
    table = [("p", bin_table(X, ["a", "b"], 64))]
    model = train(table, y, BoostingParams(objective="reg:squarederror", n_estimators=1, **options))
    assert model.splits["p"][1][0].bin == our_bin
    np.testing.assert_allclose(model.predict(table)[:, 0], booster.predict(data), rtol=1e-5)

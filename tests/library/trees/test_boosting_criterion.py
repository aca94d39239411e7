"""Loss changes, the choice among parties, and leaf weights by hand."""

from __future__ import annotations

import numpy as np
import pytest

from treetap.trees import boosting_criterion
from treetap.trees.boosting_criterion import BoostingCriterion
from treetap.trees.loss import UNIT
from treetap.trees.params import BoostingParams


def sums(*slots: float) -> np.ndarray:
    """(G…, H…, count) in units of the loss → integers."""
    return np.array([round(v * UNIT) for v in slots[:-1]] + [int(slots[-1])], dtype=np.int64)


@pytest.mark.parametrize(
    ("left", "parent", "scale", "reg_lambda", "expected"),
    [
        (sums(-2, 1, 4), sums(1, 3, 9), 2.0, 0.5, 16 / 1.5 + 36 / 2.5 - 4 / 3.5),
        (sums(-2, 1, 1, 2, 4), sums(1, 0, 3, 4, 9), 1.0, 1.0, (4 / 2 + 9 / 3 - 1 / 4) + (1 / 3 + 1 / 3 - 0.0)),
    ],
)
def test_loss_change_by_hand(
    left: np.ndarray, parent: np.ndarray, scale: float, reg_lambda: float, expected: float
) -> None:
    """GL²/(HL+λ) + GR²/(HR+λ) − G²/(H+λ), no ½ and no γ; outputs of a tree add up."""
    params = BoostingParams(reg_lambda=reg_lambda)
    found = boosting_criterion.loss_changes(left[None, None], parent[None], scale, params)
    assert found.shape == (1, 1)
    assert found[0, 0] == pytest.approx(expected)


def test_what_is_not_allowed_is_minus_infinity() -> None:
    """An empty side and a light side are refused, a side as heavy as min_child_weight is not."""
    parent = sums(1, 4, 6)
    left = np.stack([sums(0, 0, 0), sums(1, 4, 6), sums(-1, 0.5, 1), sums(-1, 1, 2), sums(-1, 3.5, 5)])
    found = boosting_criterion.loss_changes(left[None], parent[None], 1.0, BoostingParams(min_child_weight=1.0))[0]
    assert np.isneginf(found).tolist() == [True, True, True, False, True]
    free = boosting_criterion.loss_changes(left[None], parent[None], 1.0, BoostingParams(min_child_weight=0.0))[0]
    assert np.isneginf(free).tolist() == [True, True, False, False, False]
    uncounted = boosting_criterion.loss_changes(sums(-1, 2, 0)[None, None], parent[None], 1.0, BoostingParams())
    assert np.isneginf(uncounted).all()


def test_lambda_zero_divides_by_the_hessian() -> None:
    """Without λ nothing is divided by zero, not even for sides that are refused."""
    with np.errstate(all="raise"):
        found = boosting_criterion.loss_changes(
            np.stack([sums(0, 0, 0), sums(-1, 1, 1)])[None],
            sums(0, 2, 2)[None],
            1.0,
            BoostingParams(reg_lambda=0.0, min_child_weight=0.0),
        )
    assert found[0].tolist() == [-np.inf, 2.0]


def test_choice_prefers_the_lowest_tied_party_and_names_all_its_ties() -> None:
    """Exact ties go to the lowest party, which is told every tied candidate of its own."""
    changes = [np.array([1.0, 2.0]), np.array([3.0, 0.5, 3.0]), np.array([3.0])]
    found = BoostingCriterion(1.0, BoostingParams()).choose(changes)
    assert found is not None
    assert found[0] == 1
    assert found[1].tolist() == [0, 2]
    above = BoostingCriterion(1.0, BoostingParams()).choose([*changes, np.array([np.nextafter(3.0, 4.0)])])
    assert above is not None
    assert above[0] == 3


@pytest.mark.parametrize(
    ("best", "gamma", "splits"),
    [(1e-6, 0.0, False), (1.1e-6, 0.0, True), (2.0, 2.0, True), (1.999, 2.0, False), (-np.inf, 0.0, False)],
)
def test_choice_needs_a_loss_change(best: float, gamma: float, splits: bool) -> None:
    """More than 1e-6 and at least gamma, or the node is a leaf."""
    criterion = BoostingCriterion(1.0, BoostingParams(gamma=gamma))
    assert (criterion.choose([np.zeros(0), np.array([best, -np.inf])]) is not None) == splits
    assert criterion.choose([np.zeros(0), np.zeros(0)]) is criterion.choose([]) is None


def test_leaf_weights_by_hand() -> None:
    """−G/(H+λ) times the learning rate, output by output; zero for light or empty leaves, never minus zero."""
    params = BoostingParams(learning_rate=0.5, reg_lambda=1.0, min_child_weight=1.0)
    batch = np.stack([sums(2, -3, 3, 1, 7), sums(2, 0, 0.5, 3, 7), sums(0, 0, 0, 0, 0)])
    found = boosting_criterion.leaf_weights(batch, 4.0, params)
    np.testing.assert_allclose(found, [[-1.0, 3.0], [0.0, 0.0], [0.0, 0.0]])
    assert not np.signbit(found[1:]).any()
    assert boosting_criterion.leaf_weights(batch[0], 4.0, params).shape == (2,)


def test_may_split_is_never_wrong_when_it_says_no() -> None:
    """No candidate of a node that may not split has a loss change above zero, in both tree forms."""
    rng = np.random.default_rng(0)
    denied = 0
    for outputs in (1, 3):
        params = BoostingParams(min_child_weight=1.0)
        for _ in range(300):
            n = int(rng.integers(1, 5))
            g, h = rng.integers(-UNIT, UNIT, (n, outputs)), rng.integers(1, UNIT, (n, outputs))
            values = np.hstack([g, h, np.ones((n, 1), dtype=np.int64)])
            left = np.cumsum(values, axis=0)
            changes = boosting_criterion.loss_changes(left[None], values.sum(axis=0)[None], 1.0, params)
            if not BoostingCriterion(1.0, params).may_split(values.sum(axis=0)):
                denied += 1
                assert (changes <= 0).all()
    assert denied > 100


@pytest.mark.parametrize("least", [0.0, 1.0])
def test_a_node_of_one_record_may_not_be_split(least: float) -> None:
    """However heavy it is, in both tree forms; two records may be, if they are heavy enough."""
    may_split = BoostingCriterion(1.0, BoostingParams(min_child_weight=least)).may_split
    assert list(map(may_split, [sums(3, 9, 1), sums(3, 9, 2), sums(0, 0, 0)])) == [False, True, False]
    assert list(map(may_split, [sums(3, 1, 9, 9, 1), sums(3, 1, 9, 9, 2)])) == [False, True]


def test_cover_sums_the_outputs() -> None:
    """Cover is Σ H over all outputs."""
    cover = BoostingCriterion(1.0, BoostingParams()).cover
    assert list(map(cover, [sums(1, 1, 2, 3, 4), sums(0, 0, 0.25, 0, 1)])) == [5.0, 0.25]

"""The commitment to a leaf table: bound to key, leaves and job; figures of crafted tables and of others."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.oracle import OracleLeaf, OracleModel, oracle_train
from treetap.models.leaf_table import KEY_BYTES, TrainedJob, commitment, leaf_table
from treetap.privacy.leaf_findings import bounds, findings, significant_bits
from treetap.trees.ensemble import Leaf, Split, Subtree, Tree
from treetap.trees.params import BoostingParams

JOB = TrainedJob("credit", "nonce", "d1" * 32, "bank")
SUMMARY = {
    "objective": "binary:logistic",
    "params": {"reg_lambda": 1.0, "learning_rate": 0.3},
    "base_margin": [0.1],
    "best_round": None,
    "trees_per_round": 1,
}
KEY = bytes(range(KEY_BYTES))


def tree(weights: list[float], index: int = 0, local: tuple[Subtree, ...] = ()) -> Tree:
    """A chain of splits with these leaves."""
    splits = tuple(Split(1 << depth, "shop", depth, 1.0, 1.0) for depth in range(len(weights) - 1))
    nodes = [*((2 << depth) + 1 for depth in range(len(weights) - 1)), 1 << (len(weights) - 1)]
    leaves = tuple(Leaf(node, (weight,), 1.0) for node, weight in zip(nodes, weights, strict=True))
    return Tree(index, (0,), splits, leaves, local)


TREES = [tree([0.25, -0.5, 0.3]), tree([0.1, 0.2], 1, (Subtree(3, (), (Leaf(3, (0.7,), 1.0),)),))]
MADE = commitment(KEY, leaf_table(JOB, SUMMARY, TREES))


def test_the_same_table_has_the_same_commitment() -> None:
    """Written out, so that a later release cannot change the form of a table without a change of its purpose."""
    assert commitment(KEY, leaf_table(JOB, SUMMARY, deepcopy(TREES))) == MADE
    assert MADE.hex() == "cb8b1974fd9ae18825d681c6867d8dfb846f979eea9e8ee62118da6120ce0429"


@pytest.mark.parametrize(
    "other",
    [
        (JOB, SUMMARY, [tree([0.25, -0.5, math.nextafter(0.3, 1)]), TREES[1]]),
        (JOB, SUMMARY, [TREES[0], replace(TREES[1], local=())]),
        (JOB, SUMMARY, [TREES[0], tree([0.1, 0.2], 1, (Subtree(3, (), (Leaf(3, (0.8,), 1.0),)),))]),
        (JOB, SUMMARY, TREES[:1]),
        (JOB, SUMMARY, [replace(TREES[0], outputs=(1,)), TREES[1]]),
        (JOB, SUMMARY | {"base_margin": [0.2]}, TREES),
        (JOB, SUMMARY | {"best_round": 0}, TREES),
        (JOB, SUMMARY | {"params": {"reg_lambda": 2.0}}, TREES),
        (JOB, SUMMARY | {"averaged": True}, TREES),
        (replace(JOB, name="other"), SUMMARY, TREES),
        (replace(JOB, submission="again"), SUMMARY, TREES),
        (replace(JOB, digest="d2" * 32), SUMMARY, TREES),
        (replace(JOB, label_holder="shop"), SUMMARY, TREES),
    ],
    ids=lambda _: "",
)
def test_every_change_gives_another_commitment(other: tuple[TrainedJob, dict[str, Any], list[Tree]]) -> None:
    """One unit in the last place of a weight, another tree, another job."""
    assert commitment(KEY, leaf_table(*other)) != MADE


@pytest.mark.parametrize("place", [0, KEY_BYTES - 1])
def test_every_key_gives_another_commitment(place: int) -> None:
    """Keys have one length: HMAC fills up shorter ones with zeros, so that two would be one."""
    changed = bytearray(KEY)
    changed[place] ^= 1
    assert commitment(bytes(changed), leaf_table(JOB, SUMMARY, TREES)) != MADE
    with pytest.raises(AssertionError):
        commitment(KEY[:-1], leaf_table(JOB, SUMMARY, TREES))


@pytest.mark.parametrize(
    ("number", "bits"), [(1.0, 1), (0.75, 2), (2.0**-40, 1), (1 + 2.0**-52, 53), (float(2**30 - 1), 30), (1e300, 0)]
)
def test_significant_bits(number: float, bits: int) -> None:
    """From the first bit to the last one; of a large number as its representation has them."""
    assert significant_bits(number) == bits or (bits == 0 and 1 < significant_bits(number) <= 53)


def figures_of(weights: list[float], *, averaged: bool = False, objective: str = "binary:logistic") -> Any:
    trees = [tree(weights)]
    summary = SUMMARY | {"averaged": averaged, "objective": objective}
    return findings(leaf_table(JOB, summary, trees))


def test_bits_in_the_place_of_weights_are_found() -> None:
    """Also with a factor that hides their form and size; shares of a forest, beyond 1."""
    plain = figures_of([2.0**k for k in range(20)])
    assert (plain.short, plain.chain, plain.range_bits, plain.beyond) == (20, 20, 19, 18)
    assert len(plain.crafted) == 3
    (hidden,) = figures_of([2.0**k * math.pi * 1e-7 for k in range(20)]).crafted
    assert hidden.startswith("20 of 20 weights are each above all smaller ones together")
    beyond = figures_of([0.5] * 7 + [1.6], averaged=True, objective="gini")
    assert (beyond.beyond, len(beyond.crafted)) == (1, 1)
    assert figures_of([1.5], objective="reg:squarederror").beyond is None
    numbers = figures_of([2.0**k for k in range(20)], objective="reg:squarederror").crafted
    assert [fault.partition(" weights are ")[2][:24] for fault in numbers] == ["each above all smaller on"[:24]]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("leaves", [2, 8, 16, 60, 500])
def test_weights_of_a_training_are_not_called_crafted(leaves: int, seed: int) -> None:
    """Quotients over groups of records of all sizes and labels, as in a first tree of boosting; shares of a forest."""
    rng = np.random.default_rng(seed)
    sizes, p = rng.integers(1, 1000, leaves), 1 / (1 + math.exp(-0.1))
    ones = np.where(rng.random(leaves) < 0.2, sizes, rng.binomial(sizes, p))
    weights = -0.3 * (sizes * p - ones) / (sizes * p * (1 - p) + 1.0)
    assert figures_of(weights.tolist()).crafted == []
    shares = figures_of((ones / sizes).tolist(), averaged=True, objective="gini")
    assert (shares.beyond, shares.crafted) == (0, [])


def test_the_bound_of_a_tree_grows_with_the_trees_before_it() -> None:
    """One record alone reaches it without λ: 1 + exp(0.1), then with the score that it has got."""
    trees = [tree([1 + math.exp(0.1), -0.2]), tree([0.9, 0.5], 1)]
    first, second = bounds(leaf_table(JOB, SUMMARY, trees))
    assert first == pytest.approx(1 + math.exp(0.1))
    assert second == pytest.approx(1 + math.exp(0.1 + first))
    assert findings(leaf_table(JOB, SUMMARY, trees)).beyond == 0
    assert not list(bounds(leaf_table(JOB, SUMMARY | {"params": {"gradient_bits": 8}}, trees)))


def figures_of_training(labels: Any, params: BoostingParams, levels: int = 12, **more: Any) -> tuple[Any, OracleModel]:
    """The figures of a model that the naive trainer has trained on columns of that many values, and the model."""
    rng = np.random.default_rng(1)
    columns = [(party, rng.integers(0, levels, (len(labels), 2)).astype(float)) for party in ("bank", "shop")]
    model = oracle_train(columns, labels, params, **more)
    trees = [
        Tree(
            number,
            it.outputs,
            (),
            tuple(Leaf(node, leaf.weights, 1.0) for node, leaf in it.nodes.items() if isinstance(leaf, OracleLeaf)),
        )
        for number, it in enumerate(model)
    ]
    own = {"objective": params.objective, "params": params.to_dict(), "base_margin": model.base_margin}
    return findings(leaf_table(JOB, SUMMARY | own, trees)), model


RNG = np.random.default_rng(2)
CLASSES, NUMBERS = RNG.integers(0, 2, 60), RNG.integers(0, 60, 60)
#: Trainings that come near to crafted tables: their labels, parameters and the rest.
NEAR: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "pure leaves": (CLASSES, {"n_estimators": 1, "max_depth": 6, "learning_rate": 1.0}, {}),
    "whole numbers": (
        NUMBERS,
        {"objective": "reg:squarederror", "base_score": 0.0, "n_estimators": 2, "max_depth": 6, "learning_rate": 0.5},
        {},
    ),
    "capped weights": (
        CLASSES,
        {"n_estimators": 4, "max_depth": 5, "max_delta_step": 0.5, "learning_rate": 0.5},
        {},
    ),
    "tiny weights": (CLASSES, {"n_estimators": 3, "max_depth": 6}, {"weights": RNG.uniform(0, 2e-6, 60)}),
    "smaller residuals": (CLASSES[:24], {"n_estimators": 20, "max_depth": 4, "learning_rate": 0.9}, {"levels": 3}),
    "three classes": (
        NUMBERS % 3,
        {"objective": "multi:softprob", "n_estimators": 3, "max_depth": 4, "learning_rate": 1.0},
        {"classes": 3},
    ),
}


@pytest.mark.parametrize("kind", NEAR)
def test_trainings_that_come_near_are_not_called_crafted(kind: str) -> None:
    """No penalty and no least weight of a child, so that a leaf may be of one record."""
    labels, params, more = NEAR[kind]
    figures, _ = figures_of_training(
        labels, BoostingParams(reg_lambda=0.0, min_child_weight=0.0, max_bin=16, **params), **more
    )
    assert figures.weights >= 8
    assert figures.crafted == []


def test_a_base_model_may_have_another_learning_rate() -> None:
    """The job's parameters are those of its own trees."""
    params = BoostingParams(n_estimators=2, max_depth=3, learning_rate=1.0, reg_lambda=0.0, min_child_weight=0.0)
    _, base = figures_of_training(CLASSES, params)
    figures, _ = figures_of_training(CLASSES, replace(params, learning_rate=0.05), base=base)
    assert (figures.trees, figures.beyond) == (4, 0)

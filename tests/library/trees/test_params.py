"""Parameters: ranges, and what follows from objective and strategy."""

from __future__ import annotations

import pytest

from treetap.errors import ConfigError
from treetap.trees.params import BoostingParams, ForestParams, TreeParams
from treetap.trees.pivodl_params import PivodlParams


def test_every_wrong_field_is_named_at_once() -> None:
    """One error lists all wrong fields with their ranges, and no right one."""
    wrong = BoostingParams(
        objective="rank:ndcg", n_estimators=0, max_depth=2.5, learning_rate=0.0, subsample=1.5, base_score=float("nan"),
        early_stopping_rounds=0, validation_share=1.0, missing=float("inf"), multi_strategy="both",
        seed=True,
    )  # fmt: skip
    with pytest.raises(ConfigError) as caught:
        wrong.validate()
    message = str(caught.value)
    for field in (
        "objective", "n_estimators", "max_depth", "learning_rate", "subsample", "base_score", "early_stopping_rounds",
        "validation_share", "missing", "multi_strategy", "seed",
    ):  # fmt: skip
        assert f"{field} must be" in message
    for field in ("max_bin", "gamma", "reg_lambda", "min_child_weight", "colsample_bytree"):
        assert f"{field} must be" not in message
    assert "(0, 1]" in message
    assert "[1, 20]" in message


@pytest.mark.parametrize(
    ("params", "named"),
    [
        (BoostingParams(base_score=0.0), "base_score"),
        (BoostingParams(base_score=1.0), "base_score"),
        (BoostingParams(max_leaves=1), "max_leaves must be 0, which is no limit, or at least 2"),
        (BoostingParams(grow_policy="leafwise"), "grow_policy must be one of depthwise, lossguide"),
        (BoostingParams(instance_spaces="hidden"), "instance_spaces must be one of sent, withheld, not 'hidden'"),
        (BoostingParams(pad_trees=True), 'pad_trees = true .* set instance_spaces = "withheld"'),
        (BoostingParams(pad_trees=1), "pad_trees must be true or false, not 1"),  # type: ignore[arg-type]
        (
            BoostingParams(instance_spaces="withheld", pad_trees=True, max_depth=12),
            "max_depth = 12: must be at most 11 with pad_trees",
        ),
        (PivodlParams(epsilon=0.0), r"epsilon must be a number in \(0, "),
        (PivodlParams(epsilon=-1.0), r"epsilon must be a number in \(0, "),
        (PivodlParams(delta=0.0), r"delta must be a number in \(0, 1\)"),
        (PivodlParams(clip=0.0), r"clip must be a number in \(0, "),
        (PivodlParams(objective="reg:squarederror", label_scale=0.0), r"label_scale must be a number in \(0, "),
        (PivodlParams(instance_threshold=0), "instance_threshold must be a whole number"),
        (PivodlParams(party_dropout={"shop": 0.5}), "party_dropout must be empty"),
        (PivodlParams(subsample=0.5), "subsample must be 1"),
        (PivodlParams(objective="multi:softprob"), "classes must list 2 to 1024 names"),
        (PivodlParams(classes=("a", "b", "c")), "classes must be two for binary:logistic"),
        (PivodlParams(as_published="paper"), "as_published must be true or false"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_field_is_named(params: TreeParams, named: str) -> None:
    """By name, with the range; 0 and 1 have no logit, and for a regression are as good as any number."""
    with pytest.raises(ConfigError, match=named):
        params.validate()
    BoostingParams(objective="reg:squarederror", base_score=1.0).validate()


@pytest.mark.parametrize("kind", [BoostingParams, ForestParams])
def test_dropout_leaves_a_chance(kind: type[BoostingParams] | type[ForestParams]) -> None:
    """A share of 1 would leave the party out of every tree, which is a job without it; who is meant is named."""
    kind(party_dropout={"telco": 0.0, "shop": 0.999}).validate()
    for share in (1.0, -0.1, float("nan"), True):
        with pytest.raises(ConfigError, match=r"party_dropout of shop must be a number in \[0, 1\)"):
            kind(party_dropout={"telco": 0.5, "shop": share}).validate()


@pytest.mark.parametrize(
    ("objective", "strategy", "expected"),
    [
        ("binary:logistic", "one_output_per_tree", (1, 1, 1)),
        ("binary:logistic", "multi_output_tree", (1, 1, 1)),
        ("reg:squarederror", "one_output_per_tree", (1, 1, 1)),
        ("multi:softprob", "one_output_per_tree", (4, 1, 4)),
        ("multi:softprob", "multi_output_tree", (4, 4, 1)),
    ],
)
def test_shape_of_a_round(objective: str, strategy: str, expected: tuple[int, int, int]) -> None:
    """Outputs, outputs per tree and trees per round for four classes (two outputs make one tree for the others)."""
    params = BoostingParams(objective=objective, multi_strategy=strategy)
    assert (params.outputs(4), params.outputs_per_tree(4), params.trees_per_round(4)) == expected

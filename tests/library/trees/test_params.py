"""Parameters: ranges, and what follows from objective and strategy."""

from __future__ import annotations

import pytest

from treetap.errors import ConfigError
from treetap.trees.params import BoostingParams, ForestParams


def test_defaults_are_valid() -> None:
    """A job that names nothing can run."""
    BoostingParams().validate()


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


@pytest.mark.parametrize("kind", [BoostingParams, ForestParams])
def test_dropout_leaves_a_chance(kind: type[BoostingParams] | type[ForestParams]) -> None:
    """A share of 1 would leave the party out of every tree, which is a job without it; who is meant is named."""
    kind(party_dropout={"telco": 0.0, "shop": 0.999}).validate()
    for share in (1.0, -0.1, float("nan"), True):
        with pytest.raises(ConfigError, match=r"party_dropout of shop must be a number in \[0, 1\)"):
            kind(party_dropout={"telco": 0.5, "shop": share}).validate()


@pytest.mark.parametrize("score", [0.0, 1.0])
def test_logistic_base_score_is_a_probability(score: float) -> None:
    """0 and 1 have no logit; for regression they are as good as any number."""
    with pytest.raises(ConfigError, match="base_score"):
        BoostingParams(base_score=score).validate()
    BoostingParams(objective="reg:squarederror", base_score=score).validate()


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

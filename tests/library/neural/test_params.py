"""Parameters of a split network: ranges, named faults, and the message that carries them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treetap.errors import ConfigError
from treetap.neural.params import KINDS, NORMS, OPTIMIZERS, SCHEDULES, WIRE_TYPES, Bottom, SplitnnParams, Top
from treetap.protocols.codec import params_in, write_params
from treetap.trees.job_params import OBJECTIVES
from treetap.wire.v2 import splitnn_pb2

SIZES = st.lists(st.integers(1, 65_536), max_size=5).map(tuple)
NAMES = st.text(st.sampled_from("abz09-"), min_size=1, max_size=8)
SHARES = st.floats(0, 1, exclude_max=True)


def faults(params: SplitnnParams) -> str:
    """The message of the ConfigError that parameters raise."""
    with pytest.raises(ConfigError) as caught:
        params.validate()
    return str(caught.value)


def test_defaults_are_valid() -> None:
    """A job that names nothing can run; of every kind there is a valid model."""
    SplitnnParams().validate()
    SplitnnParams(bottom={"default": Bottom(kind="cnn", channels=(16, 32), width=64)}).validate()
    resnet = Bottom(kind="resnet", channels=(64,), blocks=(2, 2, 2, 2), width=64, norm="batch")
    SplitnnParams(bottom={"default": resnet}, top=Top((128,))).validate()


@pytest.mark.parametrize(
    ("field", "bad", "said"),
    [
        ("objective", "squared_error", "objective must be one of"),
        ("epochs", 0, r"epochs must be a whole number in [1, 100000]"),
        ("batch_size", 1, "batch_size must be a whole number in [2, 65536]"),
        ("optimizer", "rmsprop", "optimizer must be one of sgd, adam"),
        ("momentum", 1.0, "momentum must be a number in [0, 1)"),
        ("weight_decay", -0.1, "weight_decay must be a number in [0, 1]"),
        ("learning_rate", 0.0, "learning_rate must be a number in (0, 100]"),
        ("learning_rate", math.inf, "learning_rate must be a number in (0, 100]"),
        ("learning_rate", math.nan, "learning_rate must be a number in (0, 100]"),
        ("schedule", "step", "schedule must be one of constant, cosine"),
        ("wire_type", "float16", "wire_type must be one of float32, bfloat16"),
        ("threads", 0, "threads must be a whole number in [1, 256]"),
        ("threads", True, "threads must be a whole number"),
        ("validation_share", 1.0, "validation_share must be a number in (0, 1)"),
        ("early_stopping_rounds", 0, "early_stopping_rounds must be a whole number"),
        ("reproducible", 1, "reproducible must be true or false, not 1"),
        ("seed", -1, "seed must be a whole number"),
        ("missing", math.inf, "missing must be a finite number or nan"),
        ("party_dropout", {"shop": 1.0}, "party_dropout of shop must be a number in [0, 1)"),
        ("party_dropout", {"shop": -0.1}, "party_dropout of shop must be a number in [0, 1)"),
        ("party_dropout", {"shop": math.nan}, "party_dropout of shop must be a number in [0, 1)"),
        ("top", Top((0,)), "top.hidden: must be a whole number in [1, 65536]"),
        ("top", Top((8,) * 65), "top.hidden has 65 entries; at most 64"),
    ],
)
def test_a_wrong_field_is_named_with_its_range(field: str, bad: Any, said: str) -> None:
    """One wrong field is the only one that the error names."""
    message = faults(replace(SplitnnParams(), **{field: bad}))
    assert message.startswith(f"splitnn parameters: {said}")
    assert message.count(" must be ") <= 1


@pytest.mark.parametrize(
    ("bottom", "said"),
    [
        (Bottom(kind="transformer"), "kind must be one of mlp, cnn, resnet, not 'transformer'"),
        (Bottom(width=0), "width must be a whole number in [1, 65536]"),
        (Bottom(norm="layer"), "norm must be one of group, batch"),
        (Bottom(pool="max"), "pool must be one of average, none, not 'max'"),
        (Bottom(kind="cnn", channels=(4,), pool="none"), "pool is of resnet, not of cnn; leave it out"),
        (Bottom(hidden=(0,)), "hidden: must be a whole number in [1, 65536], not 0"),
        (Bottom(hidden=(1.5,)), "hidden: must be a whole number in [1, 65536], not 1.5"),  # type: ignore[arg-type]
        (Bottom(hidden=7), "hidden must be a list of whole numbers, not 7"),  # type: ignore[arg-type]
        (Bottom(hidden=(4,) * 65), "hidden has 65 entries; at most 64"),
        (Bottom(channels=(4,)), "channels is of cnn and resnet, not of mlp; leave it out"),
        (Bottom(blocks=(2,)), "blocks is of resnet, not of mlp; leave it out"),
        (Bottom(kind="cnn"), "channels is missing, a list of sizes"),
        (Bottom(kind="cnn", channels=(4,), hidden=(4,)), "hidden is of mlp, not of cnn; leave it out"),
        (Bottom(kind="cnn", channels=(4,), blocks=(4,)), "blocks is of resnet, not of cnn; leave it out"),
        (Bottom(kind="resnet", channels=(4,)), "blocks is missing, a list of sizes"),
        (Bottom(kind="resnet", blocks=(1,)), "channels is missing, a list of sizes"),
        (Bottom(kind="resnet", channels=(4,), blocks=(2, 65)), "blocks: must be a whole number in [1, 64], not 65"),
        (Bottom(kind="resnet", blocks=(1,), channels=(4, 8)), "channels of resnet is one number"),
        (
            Bottom(kind="resnet", blocks=(1,) * 12, channels=(64,)),
            "blocks: the last of 12 stages has 131072 channels; at most 65536",
        ),
    ],
)
def test_a_wrong_model_is_named_with_its_path(bottom: Bottom, said: str) -> None:
    """The party whose model it is stands before the field, and only there."""
    message = faults(SplitnnParams(bottom={"default": Bottom(), "shop": bottom}))
    assert f"bottom.shop.{said}" in message
    assert "bottom.default" not in message


def test_all_faults_are_named_at_once() -> None:
    """One error lists what is wrong in the job, in two models and in the top."""
    bottom = {"a": Bottom(kind="cnn", norm="x"), "b": Bottom(width=-1)}
    message = faults(SplitnnParams(epochs=0, schedule="no", bottom=bottom, top=Top((-1,))))
    for said in ("epochs", "schedule", "bottom.a.norm", "bottom.a.channels", "bottom.b.width", "top.hidden"):
        assert said in message


def test_a_party_has_its_own_model_or_the_default() -> None:
    """A party that neither names is an error with the fix."""
    params = SplitnnParams(bottom={"a": Bottom(width=3), "default": Bottom(width=5)})
    assert (params.bottom_of("a").width, params.bottom_of("b").width) == (3, 5)
    with pytest.raises(ConfigError, match=r"bottom\.b: is missing, and there is no bottom\.default"):
        SplitnnParams(bottom={"a": Bottom()}).bottom_of("b")


def test_outputs_follow_from_the_objective() -> None:
    """A column for each class of softprob, else one."""
    assert SplitnnParams(objective="multi:softprob").outputs(4) == 4
    assert SplitnnParams(objective="binary:logistic").outputs(2) == 1
    assert SplitnnParams(objective="reg:squarederror").outputs(0) == 1
    assert [SplitnnParams(objective=each).regression for each in OBJECTIVES] == [False, False, True]


@st.composite
def parameters(draw: st.DrawFn) -> SplitnnParams:
    """Parameters with models for several parties; sizes and choices are free."""
    bottom = st.builds(
        Bottom, kind=st.sampled_from(KINDS), hidden=SIZES, channels=SIZES, blocks=SIZES,
        width=st.integers(1, 65_536), norm=st.sampled_from(NORMS),
    )  # fmt: skip
    return SplitnnParams(
        objective=draw(st.sampled_from(OBJECTIVES)), epochs=draw(st.integers(1, 100_000)),
        batch_size=draw(st.integers(2, 65_536)), optimizer=draw(st.sampled_from(OPTIMIZERS)), momentum=draw(SHARES),
        weight_decay=draw(SHARES), learning_rate=draw(st.floats(1e-9, 100)),
        schedule=draw(st.sampled_from(SCHEDULES)), wire_type=draw(st.sampled_from(WIRE_TYPES)),
        threads=draw(st.integers(1, 256)), bottom=draw(st.dictionaries(NAMES, bottom, max_size=3)),
        top=Top(draw(SIZES)), early_stopping_rounds=draw(st.none() | st.integers(1, 1000)),
        validation_share=draw(st.floats(0.01, 0.99)), reproducible=draw(st.booleans()),
        party_dropout=draw(st.dictionaries(NAMES, SHARES, max_size=3)), seed=draw(st.integers(0, 2**63 - 1)),
        missing=draw(st.floats(allow_infinity=False, allow_nan=False)),
    )  # fmt: skip


@given(parameters())
@settings(max_examples=60)
def test_parameters_survive_their_message(params: SplitnnParams) -> None:
    """Every field, models inside models included, is the same after bytes."""
    message = splitnn_pb2.SplitnnParams()
    write_params(params, message)
    assert params_in(splitnn_pb2.SplitnnParams.FromString(message.SerializeToString()), SplitnnParams) == params


def test_a_missing_value_of_nan_survives_too() -> None:
    """NaN, which equals nothing, is absent from the message."""
    message = splitnn_pb2.SplitnnParams()
    write_params(SplitnnParams(), message)
    found = params_in(message, SplitnnParams)
    assert math.isnan(found.missing)
    assert replace(found, missing=0.0) == replace(SplitnnParams(), missing=0.0)

"""Errors at the edge of the Python API: one sentence, a ValueError, and nothing raw of Arrow, gRPC or a command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import treetap
from treetap.lab.api.frames import InvalidInput, checked
from treetap.lab.api.models import LoadedModel

pytestmark = pytest.mark.xdist_group("api")
SMALL: dict[str, Any] = {"n_estimators": 1, "max_depth": 1, "key_bits": 1024, "workers": 1, "verbose": False}
X = pd.DataFrame(np.random.default_rng(3).normal(size=(40, 4)), columns=list("abcd"))
Y = (X.sum(axis=1) > 0).astype(int)
C, R = treetap.FederatedClassifier, treetap.FederatedRegressor


@pytest.mark.second_tier(but=19)
@pytest.mark.parametrize(
    ("kind", "given", "fault"),
    [
        (C, {"max_depth": 0}, "max_depth must be a whole number"),
        (C, {"key_bits": 1000}, "key_bits"),
        (C, {"scheme": "lattice"}, "key_bits: scheme 'lattice' has none; leave it out"),
        (C, {"label_holder": "c"}, "label_holder = 'c': must be one of the parties, party-1, party-2"),
        (C, {"parties": {"one": list(X.columns)}}, "parties: one: a federation has at least two parties"),
        (C, {"objective": "reg:squarederror"}, "objective = 'reg:squarederror' is one of FederatedRegressor"),
        (R, {"objective": "binary:logistic"}, "objective = 'binary:logistic' is one of FederatedClassifier"),
        (R, {"objective": "multi:softprob"}, "objective = 'multi:softprob' is one of FederatedClassifier"),
        (C, {"objective": "reg:logistic"}, "objective must be one of binary:logistic"),
        (C, {"prediction": "masked"}, "prediction = 'masked': must be one of interactive, eini, eini-lattice"),
        (C, {"parties": "bank"}, "parties = 'bank': must be columns by party, names of parties"),
        (C, {"parties": 2.0}, "parties = 2.0: must be"),
        (C, {"parties": {1: ["a", "b"], 2: ["c", "d"]}}, "parties = .*: must be"),
        (C, {"parties": ["a", "a"]}, "names of parties, each another one"),
        (C, {"monotone_constraints": (1, 0)}, r"monotone_constraints = \(1, 0\): must be {column: …}"),
        (C, {"monotone_constraints": {"z": 1}}, "monotone_constraints names 'z', which is a column of no party"),
        (C, {"encode": {"z": "ordinal"}}, "encode names 'z', which is a column of no party"),
        (C, {"federation": "mine"}, "federation = 'mine': must be one of treetap.federation"),
        (C, {"id_column": "key"}, "id_column = 'key': X has no such column"),
        (C, {"normalise": ["strip"]}, "normalise is of the ids of several tables, and X is one"),
        (C, {"defences": {"foo": 1}}, r"party-1 ended with status 2: .*defences\.foo: unknown key"),
        (C, {"policy": {"foo": 1}}, r"ended with status 2: .*policy\.toml: 1 wrong: .*foo: unknown key"),
        (C, {"workdir": "/proc/none"}, "workdir /proc/none: cannot be made"),
    ],
)
def test_parameters_that_this_caller_cannot_have(kind: Any, given: dict[str, Any], fault: str) -> None:
    """Also those that a job could have: the estimator would train something else, or not predict with it."""
    with pytest.raises(ValueError, match=fault) as failure:
        kind(**{**SMALL, **given}).fit(X, Y)
    assert "/tmp/" not in str(failure.value)


@pytest.mark.second_tier
@pytest.mark.parametrize("value", [0.5, "1", True, 2])
def test_directions_are_not_rounded(value: Any) -> None:
    """A constraint reaches its party as it was given, which refuses what is none, without the name of a file."""
    with pytest.raises(ValueError, match=r"^party-1: monotone_constraints\.a: must be 1 \(increasing\) or -1"):
        C(**SMALL, monotone_constraints={"a": value}).fit(X, Y)


@pytest.mark.second_tier
@pytest.mark.parametrize(
    ("given", "data", "fault"),
    [
        ({}, (X, Y, np.full(40, 1e20)), "max_sample_weight must be"),
        ({}, (X, Y, np.full(40, np.inf)), "infinity"),
        ({}, (X, Y, ["a"] * 40), "could not convert"),
        ({"objective": "binary:logistic"}, (X, np.arange(40) % 3), "y has 3 classes, and objective = .* is for two"),
        ({}, (X.assign(a=[{}] * 40), Y), "Arrow cannot take this data"),
        ({}, (X[[]], Y), "the data frame has no columns"),
        (
            {"parties": ["one", "two"]},
            ([X[["a"]], X[["b"]], X[["c"]]], Y),
            "X has 3 tables, and parties has one, two",
        ),
    ],
)
def test_data_that_cannot_be_trained_on(given: dict[str, Any], data: tuple[Any, ...], fault: str) -> None:
    """Weights, labels and cells."""
    with pytest.raises(ValueError, match=fault):
        C(**SMALL, **given).fit(*data)


@pytest.mark.second_tier
def test_data_that_cannot_be_used(tmp_path: Path) -> None:
    """Cells after the training; of an estimator and of a saved model."""
    model = C(**SMALL).fit(X, Y)
    loaded = treetap.load_model(model.save(tmp_path / "saved"))
    assert isinstance(loaded, LoadedModel)
    for each in (model, loaded):
        with pytest.raises(ValueError, match="no records"):
            each.predict(X.iloc[:0])
        with pytest.raises(ValueError, match=r"^party-1: row 1, column 'a': the cell is not a number; .*parameter of"):
            each.predict(X.assign(a="x"))
    with pytest.raises(ValueError, match="cannot be written: Not a directory; name another folder"):
        model.save(tmp_path / "saved" / "party-1" / "manifest.json" / "below")


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"parties": "bank"}, "parties: 'bank': must be a list of names, or their number"),
        ({"parties": ["a", "a"]}, "parties: a, a: each needs a name of its own"),
        ({"parties": [1, 2]}, "must be a list of names"),
        ({"parties": 1}, "parties: party-1: a federation has at least two parties"),
        ({"parties": ["my bank", "b"]}, "parties: 'my bank': a name has lower-case letters"),
        ({"parties": ["certs", "b"]}, "parties: 'certs': the federation has this name"),
        ({"defences": {"zz": {}}}, "defences of 'zz', which is none of party-1, party-2"),
        ({"workers": 0}, r"^party-1 ended with status 2: .*party-1/config\.toml: 1 wrong: .*workers"),
        ({"workdir": "/proc/none"}, "^workdir /proc/none: cannot be made"),
    ],
)
def test_federations_that_cannot_be(given: dict[str, Any], fault: str) -> None:
    """A wrong setting is a ValueError, of whichever process it is."""
    with pytest.raises(ValueError, match=fault), treetap.federation(**given):
        pytest.fail("it runs")


@pytest.mark.second_tier
def test_settings_beside_a_running_federation() -> None:
    """Defences and policies are its own; those of an estimator would not be in force, hence are refused."""
    with treetap.federation(np.int64(2), workers=1) as running:
        for key, value in (
            ("defences", {"id_lmid": {"xi": 0.5}}),
            ("policy", {"people": {"record": "off"}}),
            ("workdir", "x"),
        ):
            with pytest.raises(ValueError, match=f"{key}: those of a federation that runs are given to"):
                C(**SMALL, federation=running, **{key: value}).fit(X, Y)


@pytest.mark.parametrize(
    "raised", [pa.ArrowTypeError("Expected bytes\nhere"), pa.ArrowNotImplementedError("no kernel")]
)
def test_what_arrow_raises_is_wrapped(raised: Exception) -> None:
    """One line; whatever calls it below the API."""

    @checked()
    def below() -> None:
        raise raised

    with pytest.raises(InvalidInput) as failure:
        below()
    assert "\n" not in str(failure.value)

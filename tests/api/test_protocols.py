"""Estimators by protocol: forests, labels that are spread over parties, split networks; each equals its oracle."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import treetap
from treetap.lab.api.parameters import job_table
from treetap.protocols.registry import TRAINING, training
from treetap.tables.features import Held
from treetap.tables.reading import Table
from treetap.tables.record_ids import Ids
from treetap.trees.pivodl_params import PivodlParams

pytestmark = pytest.mark.xdist_group("api")
SMALL: dict[str, Any] = {"key_bits": 1024, "workers": 1, "verbose": False}
RNG = np.random.default_rng(5)
X = pd.DataFrame(RNG.normal(size=(120, 4)), columns=list("abcd"))
Y = np.where(X["a"] + X["d"] ** 2 > 0.7, "yes", "no")
PARTIES = {"party-1": ["a", "c"], "party-2": ["d", "b"]}
NEW = slice(80, 120)
#: Labels of the training's records: each of one party, an empty cell at the other.
FIRST_HAS = np.arange(80) % 3 > 0
SPREAD = {"party-1": np.where(FIRST_HAS, Y[:80], None), "party-2": np.where(FIRST_HAS, None, Y[:80])}


def _tables(rows: slice) -> list[tuple[str, Table]]:
    ids = Ids.of([f"{row:03d}" for row in range(len(X))[rows]])
    return [
        (party, Table(Path("x"), ids, own, Held(X[own][rows].to_numpy()), None, np.arange(len(ids)), own))
        for party, own in PARTIES.items()
    ]


@pytest.mark.second_tier
def test_labels_that_no_party_has_alone() -> None:
    """PIVODL: by columns of one frame or of a frame of each party; scores are those of one trainer with all tables."""
    options = {"instance_threshold": 3, "min_samples": 5}
    given: dict[str, Any] = {**SMALL, "protocol": "pivodl", "n_estimators": 3, "max_depth": 2, "options": options}
    model = treetap.FederatedClassifier(PARTIES, **given).fit(X[:80], SPREAD)
    params = PivodlParams(n_estimators=3, max_depth=2, classes=("no", "yes"), **options)
    ownership = {"party-1": np.flatnonzero(FIRST_HAS), "party-2": np.flatnonzero(~FIRST_HAS)}
    central = training("pivodl").centrally
    labels = (Y[:80] == "yes").astype(np.int64)
    _, expected = central.predict(_tables(slice(0, 80)), _tables(NEW), labels, 2, params, ownership=ownership)
    assert model.predict_proba(X[NEW])[:, 1] == pytest.approx(expected, abs=1e-9)
    assert (model.classes_.tolist(), model.n_iter_) == (["no", "yes"], 3)
    assert list(model.history_.columns) == ["round", "train_logloss", "train_accuracy"]
    with pytest.raises(ValueError, match="a model of protocol 'pivodl' has no importances that add up"):
        model.importances_  # noqa: B018 - raises
    frames = {party: X[own][:80].assign(owes=SPREAD[party]) for party, own in PARTIES.items()}
    both = treetap.FederatedClassifier(**given).fit(frames, "owes")
    assert both.columns_ == PARTIES
    new = {party: X[own][NEW] for party, own in PARTIES.items()}
    assert both.predict_proba(new) == pytest.approx(model.predict_proba(X[NEW]), abs=1e-9)
    with pytest.raises(ValueError, match=r"eval_set and protocol 'pivodl' do not go together: labels lie with several"):
        treetap.FederatedClassifier(PARTIES, **given).fit(X[:80], SPREAD, eval_set=[(X[NEW], Y[NEW])])


@pytest.mark.second_tier
def test_a_split_network() -> None:
    """Its predictions are those of one trainer with all tables where its draws follow from the seed."""
    pytest.importorskip("torch")
    options = {"epochs": 3, "reproducible": True}
    given: dict[str, Any] = {"workers": 1, "verbose": False, "protocol": "splitnn", "learning_rate": 0.05}
    model = treetap.FederatedClassifier(PARTIES, **given, options=options).fit(X[:80], Y[:80])
    params = training("splitnn").params(learning_rate=0.05, **options)
    labels = (Y[:80] == "yes").astype(np.int64)
    _, expected = training("splitnn").centrally.predict(_tables(slice(0, 80)), _tables(NEW), labels, 2, params)
    assert model.predict_proba(X[NEW])[:, 1] == pytest.approx(expected, abs=1e-6)
    assert (model.n_iter_, len(model.history_)) == (3, 3)
    with pytest.raises(ValueError, match="a model of protocol 'splitnn' predicts with its federation alone"):
        pickle.loads(pickle.dumps(model)).predict(X[NEW])


def test_a_forest_has_its_own_defaults_and_options() -> None:
    """Numbers too; `options` has what other protocols have not."""
    own = treetap.FederatedClassifier(PARTIES, protocol="forest", n_estimators=5, simulate=True).fit(X, Y)
    assert own._fitted.manifest["params"]["subsample"] == 0.8
    assert (own._fitted.manifest["objective"], own.n_iter_, own.score(X, Y) > 0.8) == ("gini", 5, True)
    whole = treetap.FederatedRegressor(
        PARTIES, protocol="forest", n_estimators=2, options={"subsample": 1.0, "min_samples_leaf": 9}, simulate=True
    ).fit(X, X["a"])
    params = whole._fitted.manifest["params"]
    assert (params["criterion"], params["subsample"], params["min_samples_leaf"]) == ("squared_error", 1.0, 9)


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"protocol": "bosting"}, "protocol = 'bosting': must be one of boosting, forest, pivodl, splitnn"),
        ({"protocol": "forest", "learning_rate": 0.1}, "protocol 'forest' has no parameter learning_rate; remove it"),
        (
            {"options": {"bootstrap": True}},
            "protocol 'boosting' has no parameter bootstrap; remove it",
        ),
        ({"options": {"max_depth": 3}}, "options: 'max_depth' is a parameter itself: give it there alone"),
        ({"protocol": "forest", "max_bin": 16, "options": {"max_bin": 8}}, "options: 'max_bin' is a parameter itself"),
        ({"options": {"alignment": "psi"}}, "options: 'alignment' is a parameter itself"),
        ({"options": ["bootstrap"]}, "options = .* must be keys of"),
        ({"protocol": "forest", "options": {"bootstrp": True}}, "bootstrp"),
        ({"protocol": "splitnn", "key_bits": 2048}, "key_bits and a network do not go together"),
    ],
    ids=range(9),
)
def test_a_parameter_of_another_protocol_is_refused_by_name(given: dict[str, Any], fault: str) -> None:
    """Before a process is started; a default is never a fault."""
    with pytest.raises(ValueError, match=fault):
        treetap.FederatedClassifier(PARTIES, **given).fit(X, Y)


def test_labels_by_party_are_of_one_protocol_alone() -> None:
    """With a label holder they are one column."""
    with pytest.raises(ValueError, match="y: with protocol = 'boosting' one party has all labels: give them as one"):
        treetap.FederatedClassifier(PARTIES).fit(X[:80], SPREAD)
    for y, fault in (
        ({"party-3": SPREAD["party-1"]}, "y names 'party-3', which is none of party-1, party-2"),
        ({"party-1": SPREAD["party-1"][:5]}, r"y of party-1 has shape \(5,\), and its table 80 records"),
        ({"party-1": [None] * 80}, "y has no label of any party"),
    ):
        with pytest.raises(ValueError, match=fault):
            treetap.FederatedClassifier(PARTIES, protocol="pivodl").fit(X[:80], y)


@pytest.mark.parametrize("protocol", TRAINING)
def test_every_protocol_has_a_job_of_its_own_defaults(protocol: str) -> None:
    """An estimator without parameters trains by the protocol's defaults, but for the seed's."""
    for kind, objective in (("FederatedClassifier", "binary:logistic"), ("FederatedRegressor", "reg:squarederror")):
        numeric = kind == "FederatedRegressor"
        if protocol == "boosting":
            continue
        table = job_table(getattr(treetap, kind)(protocol=protocol), objective, "psi", [], numeric=numeric)
        usual = training(protocol).params()
        params = table.params()
        named = {"objective", "criterion", "missing", "seed", "classes"}
        assert {k: v for k, v in vars(params).items() if k not in named} == {
            k: v for k, v in vars(usual).items() if k not in named
        }

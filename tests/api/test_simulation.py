"""Simulated fits: the model of a federation of the same tables, byte for byte; what has no such model is refused."""

from __future__ import annotations

import json
import pickle
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import GridSearchCV

import treetap
from treetap.lab.api import loopback, simulated
from treetap.models.store import HISTORY, MANIFEST, TREES

pytestmark = pytest.mark.xdist_group("api")
SMALL: dict[str, Any] = {"n_estimators": 4, "max_depth": 3, "key_bits": 1024, "workers": 1, "verbose": False}
RNG = np.random.default_rng(11)
X = pd.DataFrame(RNG.normal(size=(160, 5)), columns=list("abcde"))
X.loc[RNG.random(160) < 0.1, "b"] = np.nan
X["kind"] = RNG.choice(list("uvwxyz"), 160)
SCORE = X["a"] + X["d"] ** 2 + (X["kind"] == "u")
Y = np.where(SCORE > 0.7, "yes", "no")
THREE = np.digitize(SCORE, [0.2, 1.2])
PARTIES = {"party-1": ["a", "c", "kind"], "party-2": ["b", "d", "e"]}
#: Records to measure and to predict, which are not trained on.
NEW = slice(110, 160)
WEIGHTS = np.linspace(0.5, 2.0, 110)
CATEGORIES = {"encode": {"kind": "categorical"}}
TEXT = {"encode": "one-hot"}


def _fit(simulate: bool, y: Any, kind: str, eval_set: bool, weights: bool, given: Mapping[str, Any]) -> Any:
    model = getattr(treetap, kind)(PARTIES, "party-2", **{**SMALL, **given}, simulate=simulate)
    further: dict[str, Any] = {"eval_set": [(X[NEW], y[NEW])]} if eval_set else {}
    if eval_set and weights:
        further["sample_weight_eval_set"] = [np.linspace(1, 3, 50)]
    return model.fit(X[:110], y[:110], WEIGHTS if weights else None, **further)


#: Case → labels, estimator, with an eval set, with weights, parameters.
CASES: dict[str, tuple[Any, str, bool, bool, dict[str, Any]]] = {
    "draws, weights, categories, a constraint, a set that stops": (
        *(Y, "FederatedClassifier", True, True),
        {
            **CATEGORIES,
            "n_estimators": 30,
            "learning_rate": 1.0,
            "subsample": 0.7,
            "colsample_bytree": 0.6,
            "monotone_constraints": {"a": 1},
            "early_stopping_rounds": 2,
        },
    ),
    "a share set aside": (
        *(Y, "FederatedClassifier", False, False),
        {**TEXT, "n_estimators": 20, "learning_rate": 1.0, "early_stopping_rounds": 2},
    ),
    "classes": (THREE, "FederatedClassifier", True, False, CATEGORIES),
    "a tree of all classes": (
        *(THREE, "FederatedClassifier", False, False),
        {**TEXT, "multi_strategy": "multi_output_tree"},
    ),
    "numbers": (np.asarray(SCORE), "FederatedRegressor", True, True, {**CATEGORIES, "reg_alpha": 0.1}),
    "under a lattice": (
        *(Y, "FederatedClassifier", False, False),
        {**CATEGORIES, "scheme": "lattice", "key_bits": None},
    ),
    "the best leaf first": (
        *(Y, "FederatedClassifier", False, False),
        {**TEXT, "grow_policy": "lossguide", "max_leaves": 5},
    ),
    "a party sits out": (Y, "FederatedClassifier", False, False, {**TEXT, "party_dropout": {"party-1": 0.5}}),
    "ID-LMID": (Y, "FederatedClassifier", False, False, {**TEXT, "defences": {"id_lmid": {"xi": 0.1}}}),
    "own trees": (Y, "FederatedClassifier", True, False, {**TEXT, "defences": {"reduced_leakage": {"trees": 2}}}),
    "a forest": (
        *(Y, "FederatedClassifier", False, False),
        {**TEXT, "protocol": "forest", "options": {"bootstrap": True}},
    ),
    "a forest with bins per node": (
        *(THREE, "FederatedClassifier", True, False),
        {**TEXT, "protocol": "forest", "options": {"binning": "per-node"}},
    ),
    "a forest of numbers": (np.asarray(SCORE), "FederatedRegressor", True, False, {**TEXT, "protocol": "forest"}),
}


@pytest.mark.campaign(but=4)
@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("case", CASES)
def test_the_model_is_that_of_a_federation(case: str) -> None:
    """Trees, split tables, measures after each round and predictions, to the last bit; so is a copy of the model."""
    alone, together = (_fit(simulate, *CASES[case]) for simulate in (True, False))
    _assert_same(alone, together, X[NEW])
    assert (alone.report_["federated"], together.report_["federated"]) == (False, True)
    assert alone.report_["metrics"] == together.report_["metrics"]
    copied = pickle.loads(pickle.dumps(alone))
    assert copied.predict_frame(X[NEW]).equals(together.predict_frame(X[NEW]))
    if "early_stopping_rounds" in CASES[case][-1]:
        assert alone.best_iteration_ == together.best_iteration_ < len(alone.history_) - 1


def _assert_same(alone: Any, together: Any, data: Any) -> None:
    shards, others = alone._fitted.shards, together._fitted.shards
    assert set(shards) == set(others)
    for party, files in shards.items():
        for name in {TREES, HISTORY} & set(files):
            assert files[name] == others[party][name], (party, name)
        assert files[TREES].count(b"threshold") > 0, party
        manifest, other = (json.loads(own[party][MANIFEST]) for own in (shards, others))
        named = {"job", "job_digest", "sha256", "files", "eval_table"}
        assert {key for key in {*manifest, *other} if manifest.get(key) != other.get(key)} <= named
    assert alone.history_.equals(together.history_)
    assert alone.predict_frame(data).equals(together.predict_frame(data))
    assert (alone.feature_importances_ == together.feature_importances_).all()


@pytest.mark.second_tier
@pytest.mark.parametrize("aligned", ["psi", "sorted-ids", "left"])
def test_frames_by_party(aligned: str) -> None:
    """By private set intersection too, where no draw depends on the order; a draw does, and is refused by name.

    Of a left join all records of the label holder, those too that the other party lacks.
    """
    bank, telco = X[PARTIES["party-1"]][:110], X[PARTIES["party-2"]][:110]
    if aligned == "psi":
        telco = telco.iloc[15:].sample(frac=1, random_state=1)
    y = pd.Series(Y[:110], index=X.index[:110]).loc[telco.index]
    given: dict[str, Any] = {**SMALL, **CATEGORIES, "label_holder": "party-2", "alignment": aligned}
    if aligned == "left":
        bank, given = bank.iloc[40:], {**given, "alignment": "psi", "options": {"join": "left"}}
    drawn = {"subsample": 0.6} if aligned == "sorted-ids" else {}
    frames, new = {"party-1": bank, "party-2": telco}, {name: X[own][NEW] for name, own in PARTIES.items()}
    alone, together = (
        treetap.FederatedClassifier(**given, **drawn, simulate=simulate).fit(frames, y) for simulate in (True, False)
    )
    if aligned == "left":
        new = {**new, "party-1": new["party-1"].iloc[:20]}
        assert len(alone.predict_frame(new)) == len(new["party-2"])
    if aligned != "sorted-ids":  # sums of floating point in another order
        history = together.history_
        assert np.allclose(alone.history_, history, rtol=1e-12, atol=0)
        alone._fitted.history = together._fitted.history
        together._fitted.shards["party-2"][HISTORY] = alone._fitted.shards["party-2"][HISTORY]
        manifests = [json.loads(model._fitted.shards["party-2"][MANIFEST]) for model in (alone, together)]
        measured = [manifest["training_metrics"] for manifest in manifests]
        assert measured[0] == pytest.approx(measured[1], rel=1e-12)
        together._fitted.shards["party-2"][MANIFEST] = json.dumps(
            {**manifests[1], "training_metrics": measured[0]}
        ).encode()
    _assert_same(alone, together, new)


ORDER = "where records are aligned by private set intersection: its order of records is the parties' secret"


@pytest.mark.parametrize(
    ("given", "part", "instead"),
    [
        ({"subsample": 0.5}, "a draw of records by subsample or bootstrap", {"alignment": "sorted-ids"}),
        ({"early_stopping_rounds": 2}, "early_stopping_rounds", {"alignment": "sorted-ids"}),
        ({"protocol": "forest"}, "a draw of records by subsample or bootstrap", {"alignment": "sorted-ids"}),
        # a regression begins at the mean of its targets, unless it has a base score
        ({}, "a regression without base_score", {"base_score": 0.0}),
    ],
    ids=str,
)
def test_an_order_that_counts_is_refused_by_name(given: dict[str, Any], part: str, instead: dict[str, Any]) -> None:
    """A model that follows from the order of the records cannot be that of an order that is drawn in secret."""
    frames = {"party-1": X[["a", "c"]], "party-2": X[["b", "d"]]}
    kind, y = (treetap.FederatedClassifier, Y) if given else (treetap.FederatedRegressor, SCORE)
    with pytest.raises(ValueError, match=f"{part} and simulate do not go together {ORDER}"):
        kind(**{**SMALL, **given}, simulate=True).fit(frames, y)
    assert kind(**{**SMALL, **given, **instead}, simulate=True).fit(frames, y).score(frames, y) > 0.3


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"defences": {"label_dp": {"epsilon": 2.0}}}, "label_dp and simulate do not go together: noisy labels are"),
        (
            {"privacy": "withheld", "key_bits": None},
            "privacy = 'withheld' and simul",
        ),
        ({"prediction": "eini"}, "prediction = 'eini' and simulate do not go together: it rounds scores"),
        ({"protocol": "pivodl"}, "protocol = 'pivodl' and simulate do not go together"),
        (
            {"protocol": "splitnn", **dict.fromkeys(("n_estimators", "max_depth", "key_bits"))},
            "protocol = 'splitnn' and simulate do not go together",
        ),
        (
            {"policy": {"labels": {"max_leakage": 1.0}}},
            "policy and simulate do not go together: there is no party to keep it",
        ),
        ({"workdir": "kept"}, "workdir and simulate do not go together"),
        ({"defences": {"id_lmid": {"xi": 0.1}}, "max_leaves": 4}, "max_leaves and id_lmid do not go together"),
        ({"max_depth": 0}, "max_depth must be a whole number"),
        ({"defences": {"nonsense": 1}}, "nonsense"),
    ],
    ids=str,
)
def test_what_cannot_be_simulated_is_refused_by_name(given: dict[str, Any], fault: str) -> None:
    """Never approximated: noise, scores that are rounded, and what parties decide by what they send."""
    with pytest.raises(ValueError, match=fault):
        treetap.FederatedClassifier(**_set({**SMALL, **given}), simulate=True).fit(X[["a", "b", "c", "d"]], Y)


def _set(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}


def test_a_running_federation_and_a_base_model_are_refused() -> None:
    """Neither takes part in a training without processes."""
    given = {**SMALL, "federation": loopback.Loopback(("party-1", "party-2"))}
    with pytest.raises(ValueError, match="federation and simulate do not go together: no federation trains"):
        treetap.FederatedClassifier(**given, simulate=True).fit(X[["a", "b"]], Y)
    model = treetap.FederatedClassifier(**SMALL, simulate=True).fit(X[["a", "b"]], Y)
    with pytest.raises(ValueError, match="base_model and simulate do not go together: train with more n_estimators"):
        treetap.FederatedClassifier(**SMALL, simulate=True).fit(X[["a", "b"]], Y, base_model=model)


@pytest.mark.parametrize(
    ("given", "data", "fault"),
    [
        ({"encode": None}, X[["a", "b", "c", "kind"]], "column 'kind' holds text; write as parameters of the estim"),
        (
            {"alignment": "sorted-ids"},
            {"party-1": X[["a", "c"]], "party-2": X[["b", "d"]][50:]},
            "party-2 has other records than party-1, and alignment = 'sorted-ids'",
        ),
        ({}, {"party-1": X[["a", "c"]], "party-2": X[["b", "d"]].set_index(X.index + 160)}, "no record is common to"),
    ],
    ids=["text", "other records", "none in common"],
)
def test_faults_of_tables_are_those_of_a_federation(given: dict[str, Any], data: Any, fault: str) -> None:
    """In terms of the caller's frames and parameters."""
    with pytest.raises(ValueError, match=fault):
        treetap.FederatedClassifier(**SMALL, simulate=True, **given).fit(data, Y)


@pytest.mark.parametrize("simulate", [True, pytest.param(False, marks=pytest.mark.second_tier)])
def test_an_eval_set_is_encoded_as_the_training(simulate: bool) -> None:
    """Categories and dates in text, of which the set has fewer: by the codes of the training, as predictions are."""
    rng = np.random.default_rng(4)
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, 120), unit="D")
    frame = pd.DataFrame(
        {"a": rng.normal(size=120), "kind": rng.choice(["x", "y", "z"], 120), "day": days.strftime("%d.%m.%Y")}
    )
    labels = (frame["a"] + (frame["kind"] == "z") > 0.5).to_numpy()
    few = frame[frame["kind"] == "z"]
    model = treetap.FederatedClassifier({"p": ["a"], "q": ["kind", "day"]}, **SMALL, simulate=simulate)
    model.fit(frame, labels, eval_set=[(few, labels[few.index])])
    assert model.encodings_["q"] == {
        "encode": {"kind": "categorical", "day": "days"},
        "date_format": {"day": "%d.%m.%Y"},
    }
    chances = np.clip(model.predict_proba(few)[:, 1], 1e-15, 1 - 1e-15)
    truth = labels[few.index]
    expected = -np.mean(np.where(truth, np.log(chances), np.log(1 - chances)))
    assert model.history_["eval_logloss"].iloc[-1] == pytest.approx(expected, abs=1e-9)


def test_a_search_starts_no_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of no candidate and no fold; its model is saved and read as any other, and says that nothing was sent."""
    monkeypatch.setattr(subprocess, "Popen", _none)
    search = GridSearchCV(
        treetap.FederatedClassifier(**SMALL, simulate=True), {"max_depth": [1, 3], "subsample": [0.5, 1.0]}, cv=3
    ).fit(X[["a", "b", "c", "d"]], Y)
    model = search.best_estimator_
    assert search.best_score_ > 0.6
    loaded = treetap.load_model(model.save(tmp_path / "model"))
    new = X[["a", "b", "c", "d"]]
    assert (loaded.predict_proba(new) == model.predict_proba(new)).all()
    with pytest.raises(ValueError, match="simulate = True: no party sent anything; fit without it to see"):
        model.disclosure_  # noqa: B018 - raises
    assert set(model.report_) == {"metrics", "trees", "federated"}


def _none(*_: object, **__: object) -> None:
    raise AssertionError("a process was started")


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The records of every simulated training."""
    seen: list[int] = []
    shards: Callable[..., Any] = simulated._shards

    def taken(model: Any, rounds: Any, *others: Any, **given: Any) -> Any:
        seen.append(rounds.records)
        return shards(model, rounds, *others, **given)

    monkeypatch.setattr(simulated, "_shards", taken)
    return seen


def test_records_of_an_eval_set_are_behind_those_of_the_training(counted: list[int]) -> None:
    """Bins and trees follow from the training's records alone."""
    own = X[["a", "b", "c", "d"]]
    plain = treetap.FederatedClassifier(**SMALL, simulate=True).fit(own[:110], Y[:110])
    watched = treetap.FederatedClassifier(**SMALL, simulate=True).fit(own[:110], Y[:110], eval_set=[(own, Y)])
    assert counted == [110, 110 + 160]
    assert plain._fitted.shards["party-1"][TREES] == watched._fitted.shards["party-1"][TREES]

"""Sets that measure a training, `eval_set`: XGBoost's rule, the last of them stops it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import treetap
from treetap.lab.api.fitted import results

pytestmark = pytest.mark.xdist_group("api")
#: Rounds that overfit at once, so that training stops early.
GIVEN: dict[str, Any] = {"n_estimators": 40, "max_depth": 3, "learning_rate": 0.5, "base_score": 0.5, "max_bin": 64}
RNG = np.random.default_rng(3)
#: Whole numbers, whose bins are the numbers themselves, as XGBoost's are.
X = pd.DataFrame(RNG.integers(0, 24, size=(400, 5)), columns=list("abcde")).astype(float)
Y = (X["a"] + X["d"] + RNG.normal(scale=7, size=400) > 24).to_numpy()
TRAIN, FIRST, SECOND = slice(0, 200), slice(200, 280), slice(280, 400)


def _fit(eval_set: Any = None, y: Any = Y, **given: Any) -> Any:
    fitted, further = treetap.FederatedClassifier(**{**GIVEN, **given}, simulate=True), {"eval_set": eval_set}
    return fitted.fit(X[TRAIN], y[TRAIN], **further)


def test_each_set_is_measured_and_the_last_one_stops() -> None:
    """Of several sets the measures of each are those that it has alone; of the training nothing is set aside."""
    first, second = (X[FIRST], Y[FIRST]), (X[SECOND], Y[SECOND])
    model = _fit([(X[TRAIN], Y[TRAIN]), first, second], early_stopping_rounds=3)
    other = _fit([second, first], early_stopping_rounds=3)
    assert len(model.history_) == model.best_iteration_ + 1 + 3
    assert model.n_iter_ == model.best_iteration_ + 1 != other.best_iteration_ + 1
    assert model.best_iteration_ == model.history_["eval_2_logloss"].argmin()
    shown = model.evals_result()
    assert list(shown) == ["validation_0", "validation_1", "validation_2"]
    assert shown["validation_2"]["logloss"] == model.history_["eval_2_logloss"].tolist()
    # the training's own records as a set have the training's own measures
    assert shown["validation_0"]["auc"] == model.history_["train_auc"].tolist()
    alone = _fit([first], n_estimators=len(model.history_))
    assert alone.history_["eval_logloss"].tolist() == shown["validation_1"]["logloss"]
    assert alone.evals_result() == {"validation_0": shown["validation_1"]}
    assert "eval_2_logloss" not in alone.history_.columns
    plain = _fit(n_estimators=model.n_iter_)
    assert (plain.predict_proba(X) == model.predict_proba(X)).all()


def test_without_early_stopping_no_round_is_the_best() -> None:
    """As in XGBoost an AttributeError, so that hasattr is False; rounds are counted from 0."""
    model = _fit([(X[FIRST], Y[FIRST])], n_estimators=3)
    assert (len(model.history_), model.n_iter_) == (3, 3)
    with pytest.raises(AttributeError, match="there is one with early_stopping_rounds alone"):
        model.best_iteration_  # noqa: B018 - raises
    own = treetap.FederatedClassifier(**GIVEN, early_stopping_rounds=2, simulate=True).fit(X, Y)
    assert own.best_iteration_ == own.history_["validation_logloss"].argmin()
    assert own.evals_result() == {}


def test_weights_of_a_set_weigh_its_measures() -> None:
    """A record of weight 0 counts for nothing in them; of other sets too."""
    weights = np.where(np.arange(80) < 30, 0.0, 2.0)
    sets = [(X[FIRST], Y[FIRST]), (X[FIRST], Y[FIRST])]
    model = treetap.FederatedClassifier(**{**GIVEN, "n_estimators": 3}, simulate=True)
    model.fit(X[TRAIN], Y[TRAIN], eval_set=sets, sample_weight_eval_set=[weights, weights])
    part = _fit([(X[FIRST][30:], Y[FIRST][30:])], n_estimators=3)
    for name in ("logloss", "auc", "accuracy"):
        expected = part.evals_result()["validation_0"][name]
        for measured in model.evals_result().values():
            assert measured[name] == pytest.approx(expected, abs=1e-12)


def test_sets_of_frames_by_party_and_labels_of_any_type() -> None:
    """Labels by the name of their column, records by their index, classes in the caller's own type."""
    bank = X[["a", "b"]].assign(owes=np.where(Y, "yes", "no"))
    frames = [
        {"bank": bank[rows], "telco": X[["c", "d", "e"]][rows].sample(frac=1, random_state=2)}
        for rows in (TRAIN, FIRST)
    ]
    given = {**GIVEN, "n_estimators": 4, "simulate": True}
    model = treetap.FederatedClassifier(**given, label_holder="bank").fit(
        frames[0], "owes", eval_set=[(frames[1], "owes"), (frames[0], "owes")]
    )
    one = treetap.FederatedClassifier({"bank": ["a", "b"], "telco": ["c", "d", "e"]}, **given).fit(
        X[TRAIN], Y[TRAIN], eval_set=[(X[FIRST], Y[FIRST].tolist())]
    )
    measured, expected = model.evals_result(), one.evals_result()["validation_0"]
    assert np.allclose(measured["validation_0"]["logloss"], expected["logloss"], rtol=1e-12, atol=0)
    assert measured["validation_1"]["auc"] == model.history_["train_auc"].tolist()
    numbers = treetap.FederatedRegressor(**{**given, "base_score": None}).fit(
        X[TRAIN], X["a"][TRAIN], eval_set=[(X[FIRST], X["a"][FIRST])]
    )
    assert list(numbers.evals_result()["validation_0"]) == ["rmse"]


@pytest.mark.parametrize(
    ("further", "fault"),
    [
        ({"eval_set": (X, Y)}, r"eval_set: must be a list of pairs, \[\(X, y\)\]"),
        ({"eval_set": "check"}, "eval_set: must be a list of pairs"),
        ({"eval_set": []}, "eval_set: must be a list of pairs"),
        ({"eval_set": [(X, Y[:5])]}, "eval_set: Found input variables with inconsistent numbers of samples|inconsist"),
        ({"eval_set": [(X[["a", "b"]], Y)]}, "eval_set: X lacks column 'c', which the model was trained on"),
        ({"eval_set": [(X, np.full(400, "maybe"))]}, "eval_set: y has class 'maybe', which no record of the training"),
        ({"eval_set": [(X[:1], Y[:1])]}, "the eval set has fewer than 2 records that all parties have, with a weight"),
        ({"eval_set": [(X, Y)], "sample_weight_eval_set": []}, "sample_weight_eval_set has 0 entries, and eval_set 1"),
        ({"sample_weight_eval_set": [Y]}, "sample_weight_eval_set: there is no eval_set; give it too"),
        ({"eval_set": [(X, Y)], "base_model": "m"}, "eval_set and base_model do not go together: no party has scores"),
    ],
    ids=range(10),
)
def test_a_wrong_set_is_refused_by_name(further: dict[str, Any], fault: str) -> None:
    """Before anything is trained."""
    with pytest.raises(ValueError, match=fault):
        treetap.FederatedClassifier(**GIVEN, simulate=True).fit(X, Y, **further)


def test_results_are_in_the_order_of_the_sets() -> None:
    """The tenth is behind the second; measures of the training are none of a set."""
    row = {"train_auc": 0.5, "eval_10_auc": 0.6, "eval_2_auc": 0.7}
    assert list(results([row, row]).items()) == [
        ("validation_2", {"auc": [0.7] * 2}),
        ("validation_10", {"auc": [0.6] * 2}),
    ]


@pytest.mark.second_tier
@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["second last", "first last"])
@pytest.mark.parametrize("simulate", [True, False], ids=["simulated", "by a federation"])
def test_the_rule_is_xgboosts(order: tuple[int, int], simulate: bool) -> None:
    """The same best round, the same number of rounds and the same losses as XGBoost on the same records."""
    xgboost = pytest.importorskip("xgboost")
    sets = [((X[FIRST], Y[FIRST]), (X[SECOND], Y[SECOND]))[place] for place in order]
    ours = treetap.FederatedClassifier(
        **GIVEN, early_stopping_rounds=3, simulate=simulate, key_bits=1024, workers=1, verbose=False
    ).fit(X[TRAIN], Y[TRAIN], eval_set=sets)
    theirs = xgboost.XGBClassifier(**GIVEN, early_stopping_rounds=3, tree_method="hist", eval_metric="logloss").fit(
        X[TRAIN], Y[TRAIN], eval_set=sets, verbose=False
    )
    measured, expected = ours.evals_result(), theirs.evals_result()
    assert ours.best_iteration_ == theirs.best_iteration > 0
    for name in ("validation_0", "validation_1"):
        assert len(measured[name]["logloss"]) == len(expected[name]["logloss"])
        assert measured[name]["logloss"] == pytest.approx(expected[name]["logloss"], abs=1e-4)
    assert np.abs(ours.predict_proba(X) - theirs.predict_proba(X)).max() < 1e-4
    without = xgboost.XGBClassifier(**{**GIVEN, "n_estimators": 2}).fit(X, Y, eval_set=sets, verbose=False)
    assert not hasattr(without, "best_iteration")

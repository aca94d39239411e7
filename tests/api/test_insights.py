"""Explanations and pictures: XGBoost's contributions, a federation's masked sums, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xgboost

import treetap
from tests.api.test_estimators import PARTIES, SMALL, TRUE, X, place_tables
from tests.system.federations import write_operator_file
from treetap.errors import TreetapError
from treetap.lab.api.explanations import check_explained, plot_history, plot_importance
from treetap.lab.api.models import LoadedModel
from treetap.lab.experiment.results import Importance
from treetap.lab.experiment.xgboost_export import export_run
from treetap.protocols.registry import TRAINING

pytestmark = pytest.mark.xdist_group("api")
RNG = np.random.default_rng(11)


def _numbers(count: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Numbers that XGBoost's 32 bits hold, on which all thresholds fall as in 64."""
    return (RNG.normal(size=count) * 64).round() / 64


#: Columns of every kind: numbers with missing cells, a category, dates, and one category as columns of 0 and 1.
MIXED = pd.DataFrame(
    {
        "income": np.where(RNG.random(240) < 0.1, np.nan, _numbers(240)),
        "job": RNG.choice(["clerk", "nurse", "smith"], 240),
        "opened": pd.Timestamp("2024-01-01") + pd.to_timedelta(RNG.integers(0, 900, 240), unit="D"),
        "tariff": RNG.choice(["flat", "pre$paid"], 240),
        "bill": _numbers(240),
    }
)
MARGIN = MIXED["income"].fillna(1) + (MIXED["job"] == "nurse") - MIXED["bill"] + (MIXED["tariff"] == "flat")
ENCODE = {"job": "categorical", "opened": "days", "tariff": "one-hot"}


@pytest.mark.campaign(but=1)
@pytest.mark.second_tier
@pytest.mark.parametrize("defences", [{}, {"id_lmid": {"xi": 0.2}}], ids=["plain", "with local subtrees"])
@pytest.mark.parametrize("classes", [2, 3])
def test_values_are_those_of_the_exported_model(classes: int, defences: dict[str, Any], tmp_path: Path) -> None:
    """`pred_contribs` of XGBoost's file, feature by feature and class by class; names, and texts to show, fit."""
    shap = pytest.importorskip("shap")
    labels = np.array(["a", "b", "c"])[np.digitize(MARGIN, np.quantile(MARGIN, [0.4, 0.7][: classes - 1]))]
    content = {
        "data": {"label": "y", "encode": ENCODE, "test_share": 0.3, "compare": False},
        "party": [
            {"name": "bank", "columns": ["income", "job"], "labels": True},
            {"name": "telco", "columns": ["opened", "tariff", "bill"]},
        ],
        "job": {
            "n_estimators": 3,
            "max_depth": 4,
            "key_bits": 1024,
            "objective": "binary:logistic" if classes == 2 else "multi:softprob",
        },
        "audit": {"run": False},
        **({"defences": defences} if defences else {}),
    }
    result = treetap.experiment(content, frame=MIXED.assign(y=labels), workdir=tmp_path / "run", verbose=False)
    model = result.model()
    assert isinstance(model, LoadedModel)
    found = model.explain(MIXED)
    assert isinstance(found, shap.Explanation)
    export_run(result.federation(), tmp_path / "model.json")
    booster = xgboost.Booster(model_file=str(tmp_path / "model.json"))
    assert found.feature_names == booster.feature_names
    # to XGBoost every column is a number, of a category its place
    matrix = xgboost.DMatrix(
        found.data.astype(np.float32),
        feature_names=booster.feature_names,
        feature_types=booster.feature_types,
        enable_categorical=True,
    )
    theirs = booster.predict(matrix, pred_contribs=True)
    if classes == 2:
        theirs = theirs[:, None]
    values, base = found.values.reshape(240, -1, max(classes, 2) - (classes == 2)), found.base_values.reshape(240, -1)
    scale = np.abs(theirs).max()
    assert scale > 0.3
    np.testing.assert_allclose(np.moveaxis(values, 2, 1), theirs[:, :, :-1], rtol=0, atol=2e-6 * scale)
    np.testing.assert_allclose(base, theirs[:, :, -1], rtol=0, atol=2e-6 * scale)
    margins = booster.predict(matrix, output_margin=True).reshape(240, -1)
    np.testing.assert_allclose(values.sum(axis=1) + base, margins, rtol=0, atol=1e-5 * scale)
    assert found.output_names == (None if classes == 2 else ["a", "b", "c"])
    assert found.display_data[:, 1].tolist() == MIXED["job"].tolist()
    assert found.display_data[:, 2].tolist() == MIXED["opened"].dt.strftime("%Y-%m-%d").tolist()
    if defences:
        assert result.runs[0]["defences"]["local_subtrees"] > 0
    axes = model.plot_importance()
    assert {label.get_text() for label in axes.get_yticklabels()} <= {*MIXED, "tariff=flat", r"tariff=pre\$paid"}
    assert model.plot_history().get_xlabel() == "round"


@pytest.mark.second_tier
def test_a_federation_computes_them_where_its_policies_let_it() -> None:
    """Own features one by one and each other party as one player: sums of the values that this process computes.

    A policy that does not emit EXPLANATION forbids it, by name; nothing is put in its place.
    """
    pytest.importorskip("shap")
    names = list(PARTIES)
    with treetap.federation(names, workers=1, policy={"emits": {"EXPLANATION": ["parties"]}}) as running:
        model = treetap.FederatedClassifier(PARTIES, **SMALL, federation=running).fit(X, TRUE)
        shuffled = X.iloc[::-1]
        here, there = model.explain(shuffled), model.explain(shuffled, federated=True)
        assert there.feature_names[-1] == "party-2"
        own = [f"party-1.{name}" for name in PARTIES["party-1"]]
        assert there.feature_names[:-1] == [name for name in own if np.abs(here[:, name].values).max() > 0]
        np.testing.assert_allclose(there.base_values, here.base_values, rtol=0, atol=1e-12)
        total = there.values.sum(axis=1) + there.base_values
        np.testing.assert_allclose(here.values.sum(axis=1) + here.base_values, total, rtol=0, atol=1e-8)
        chances = model.predict_proba(shuffled)[:, 1]
        np.testing.assert_allclose(1 / (1 + np.exp(-total)), chances, rtol=0, atol=1e-8)
        assert model.history_.shape[0] == 2
        with pytest.raises(ValueError, match=r"importance_type = 'gian': .*did you mean 'gain'"):
            model.plot_importance(importance_type="gian")
        with pytest.raises(ValueError, match=r"metric = 'auk': must be one of .*did you mean 'auc'"):
            model.plot_history(metric="auk")
    with pytest.raises(ValueError, match="federated: the federation of this model does not run here"):
        model.explain(X, federated=True)
    with treetap.federation(names, workers=1) as running:
        model = treetap.FederatedClassifier(PARTIES, **SMALL, federation=running).fit(X, TRUE)
        with pytest.raises(TreetapError, match=r"(?s)party-2.*EXPLANATION"):
            model.explain(X, federated=True)


@pytest.mark.second_tier
def test_a_federation_elsewhere_explains_its_own_tables() -> None:
    """In the order of the ids as text, of which a class has values of its own; importances stay with the parties."""
    pytest.importorskip("shap")
    ids, classes = [str(row) for row in range(len(X))], np.array(["a", "b", "c"])[np.digitize(X["a"] + X["d"], [0, 1])]
    columns = {"bank": ["a", "b"], "telco": ["c", "d"]}
    with treetap.federation(["bank", "telco"], workers=1, policy={"emits": {"EXPLANATION": ["parties"]}}) as running:
        frames = {party: X[names].assign(id=ids) for party, names in columns.items()}
        place_tables(running, "all", frames | {"bank": frames["bank"].assign(owes=classes)})
        operator = write_operator_file(running._federation)
        given = {**SMALL, "objective": "multi:softprob"}
        model = treetap.FederatedClassifier(["bank", "telco"], **given).connect(operator_file=operator).fit("all")
        found = model.explain("all")
        scores = model.predict_frame("all")[["score_a", "score_b", "score_c"]].to_numpy()
        with pytest.raises(ValueError, match="X is their name"):
            model.explain(X)
        here = treetap.FederatedClassifier(columns, **given).fit(X, classes)
    assert found.output_names == ["a", "b", "c"]
    np.testing.assert_allclose(found.values.sum(axis=1) + found.base_values, scores, rtol=0, atol=1e-8)
    order = [int(name) for name in sorted(ids)]
    whole = here.explain(X.iloc[order])
    np.testing.assert_allclose(whole.base_values, found.base_values, rtol=0, atol=1e-12)
    used = [name for name in ("bank.a", "bank.b") if np.abs(whole[:, name].values).max() > 0]
    assert found.feature_names == [*used, "telco"]
    assert whole.feature_names == ["bank.a", "bank.b", "telco.c", "telco.d"]
    with pytest.raises(ValueError, match="its parties have the model"):
        model.plot_importance()
    assert len(model.plot_history().lines) == 1


@pytest.mark.second_tier
def test_pictures() -> None:
    """Bars by party, the most important on top; lines by set of records, with the best round."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    rows = [Importance(party=p, feature=f, weight=w, gain=g, cover=2.0) for p, f, w, g in _IMPORTANCES]
    axes = plot_importance(rows, "gain", 2, None)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["calls", "income"]
    assert sorted(bar.get_width() for bar in axes.patches) == [3.0, 5.0]
    total = plot_importance(rows, "total_cover", None, None)
    assert [label.get_text() for label in total.get_yticklabels()] == ["age", "income", "calls"]
    assert sorted(bar.get_width() for bar in total.patches) == [2.0, 4.0, 8.0]
    assert len({bar.get_facecolor() for bar in total.patches}) == 2
    long = "a column with a name of quite some length, as exports have them"
    broken = plot_importance([rows[0].model_copy(update={"feature": long}), *rows], "gain", None, None)
    broken.figure.canvas.draw()
    assert broken.get_position().width > 0.5
    assert long in [label.get_text().replace("\n", " ") for label in broken.get_yticklabels()]
    history: list[dict[str, float | None]] = [
        {"train_auc": 0.5, "validation_auc": 0.4, "train_logloss": 0.7},
        {"train_auc": 0.9, "validation_auc": None, "train_logloss": 0.6, "eval_1_auc": 0.8},
    ]
    own = pyplot.subplots()[1]
    axes = plot_history(history, 0, "auc", own)
    assert axes is own
    drawn = {line.get_label(): list(line.get_ydata()) for line in axes.lines}
    assert drawn == {"training": [0.5, 0.9], "validation": [0.4], "evaluation 1": [0.8], "best round": [0, 1]}
    pyplot.close("all")


_IMPORTANCES = [("bank", "income", 2, 5.0), ("telco", "calls", 4, 3.0), ("bank", "age", 1, 1.0)]


def test_a_library_that_is_missing() -> None:
    """It is named with the extra that has it."""
    program = (
        "import sys; sys.modules['matplotlib'] = sys.modules['shap'] = None\n"
        "from treetap.lab.api import explanations\n"
        "from treetap.lab.api.explanations import plot_history, plot_importance\n"
        "from treetap.lab.experiment.results import Importance\n"
        "rows = [Importance(party='a', feature='b', weight=1, gain=1.0, cover=1.0)]\n"
        "for call in (\n"
        "    lambda: plot_importance(rows, 'gain', 2, None),\n"
        "    lambda: plot_history([{'train_auc': 1.0}], None, None, None),\n"
        "    lambda: explanations._imported('shap', 'explain', 'explain needs'),\n"
        "):\n"
        "    try:\n        call()\n    except ImportError as missing:\n        print(missing)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    lines = done.stdout.splitlines()
    assert [line.partition(":")[0] for line in lines] == [*["pictures need matplotlib"] * 2, "explain needs shap"]
    assert [line[line.index("[") :].strip("'") for line in lines] == ["[plot]", "[plot]", "[explain]"]


@pytest.mark.parametrize(("protocol", "said"), [("splitnn", "is a network"), ("pivodl", "lie at several parties")])
def test_models_without_shares_of_a_score(protocol: str, said: str) -> None:
    """Those of other protocols have them."""
    with pytest.raises(ValueError, match=said):
        check_explained(protocol)
    for other in set(TRAINING) - {"splitnn", "pivodl"}:
        check_explained(other)


@pytest.mark.parametrize(
    ("draw", "said"),
    [
        (lambda rows: plot_importance(rows, "gain", None, None), "no party of this model keeps it; try 'weight'"),
        (lambda _: plot_history([], None, None, None), "has kept no metrics"),
        (lambda _: plot_importance([], "gain", None, None), "no splits but those that its label holder grew alone"),
    ],
)
def test_what_no_picture_shows(draw: Any, said: str) -> None:
    """Met before matplotlib is asked for."""
    with pytest.raises(ValueError, match=said):
        draw([Importance(party="a", feature="b", weight=1, gain=None, cover=None)])

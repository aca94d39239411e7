"""Experiments, audits, models and federations elsewhere, as objects."""

from __future__ import annotations

import pickle
import webbrowser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import treetap
from tests.api.test_estimators import SMALL, TRUE, X, place_tables
from tests.system.federations import write_operator_file
from treetap.attacks.registry import Needs, rows
from treetap.errors import TreetapError
from treetap.lab.api.experiments import ExperimentResult
from treetap.lab.api.models import LoadedModel, PartyModel
from treetap.lab.experiment.results import Results
from treetap.tables.written import content_of

pytestmark = pytest.mark.xdist_group("api")
CONTENT: dict[str, Any] = {
    "data": {"label": "y", "seed": 3},
    "party": [{"name": "bank", "columns": ["a", "b"], "labels": True}, {"name": "telco", "columns": ["c", "d"]}],
    "job": {"n_estimators": 2, "max_depth": 2, "key_bits": 1024},
    "audit": {"attacks": ["uni"], "by_tree": False},
}


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> ExperimentResult:
    """An experiment on a data frame, with an audit."""
    folder = tmp_path_factory.mktemp("results") / "run"
    return treetap.experiment(CONTENT, frame=X.assign(y=np.where(TRUE, "yes", "no")), workdir=folder, verbose=False)


@pytest.mark.second_tier
def test_an_experiment_is_data_frames(result: ExperimentResult) -> None:
    """Metrics, traffic, importances, rounds, times and predictions; as HTML in a notebook."""
    assert set(result.metrics["set"]) >= {"train", "test"}
    assert set(result.metrics["seed"]) == {3}
    assert result.traffic["bytes"].sum() == sum(row["bytes"] for row in result.runs[0]["traffic"])
    assert set(result.importance["party"]) <= {"bank", "telco"}
    assert result.history["round"].tolist() == [0, 1]
    assert "train" in set(result.seconds["phase"])
    assert len(result.predictions) == 18
    assert (result.folder / "results.json").is_file()
    assert result.report.is_file()
    assert "<table" in result._repr_html_()
    first, second, *_ = repr(result).splitlines()
    assert first == result.headline
    assert first.startswith("Together ")
    assert "bank alone" in first
    assert second == f"Experiment of 1 run: {result.folder}"
    assert repr(result).endswith(str(result.metrics))
    everything = (result.folder, *result.folder.rglob("*"))
    assert [path for path in everything if path.stat().st_mode & 0o077 and not path.is_symlink()] == []


def test_predictions_in_csv_have_the_ids_of_the_table(tmp_path: Path) -> None:
    """Ids and labels that are text stay so where they look like numbers; the runs are one table."""
    (tmp_path / "predictions").mkdir()
    for run, first in (("seed-0", 1.0), ("seed-1", 0.25)):
        kept = pa.table(
            {"id": ["007", "08"], "prediction": ["01", "1"], "probability_1": [first, 0.0], "y": ["1", "01"]}
        )
        (tmp_path / "predictions" / f"{run}.csv").write_bytes(content_of(kept, "csv"))
    found = ExperimentResult(Results.of([]), tmp_path).predictions
    assert found["id"].tolist() == ["007", "08"] * 2
    assert found["y"].tolist() == ["1", "01"] * 2
    assert found["probability_1"].tolist() == [1, 0, 0.25, 0]


@pytest.mark.second_tier
def test_an_audit_is_a_data_frame(result: ExperimentResult) -> None:
    """That of the run, and another one of the same transcripts; what is wrong with a call is a ValueError."""
    by_labels = rows(Needs.KNOWN_LABELS)  # of every audit of classes
    assert result.audits[["party", "attack"]].to_numpy().tolist() == [["telco", name] for name in ("uni", *by_labels)]
    again = treetap.audit(result, attacks=["cl"], by_tree=False)
    assert again.attacks[["party", "attack"]].to_numpy().tolist() == [["telco", "cl"]]
    assert again.v_measure("telco", "cl") == again.attacks["v_measure"][0]
    assert again.report.is_file()
    assert "telco" in again._repr_html_()
    assert repr(again).startswith(f"Audit: {again.report}\n")
    with pytest.raises(ValueError, match="no attack 'uni' of party 'telco'"):
        again.v_measure("telco", "uni")
    with pytest.raises(ValueError, match="guess"):
        treetap.audit(result, attacks=["guess"])
    with pytest.raises(ValueError, match=r"audit\.toml"):
        treetap.audit(result.folder / "predictions")


@pytest.mark.second_tier
@pytest.mark.parametrize("screen", [None, ":0"])
def test_results_are_shown(
    screen: str | None, result: ExperimentResult, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The verdict in words, and the page where there is a screen; of an experiment first what federating gains."""
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setenv("DISPLAY", screen or "")
    result.show()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == result.headline
    assert lines[1] == "What each side learned:"
    assert lines[2].startswith("telco, of bank")
    assert lines[-1] == f"report: {result.report}"
    again = treetap.audit(result, attacks=["uni"], by_tree=False)
    again.show()
    assert capsys.readouterr().out.splitlines()[0] == "What each side learned:"
    assert opened == ([result.report.as_uri(), again.report.as_uri()] if screen else [])
    (labels,) = again.verdicts.query("learned == 'labels'").to_dict("records")
    assert (labels["party"], labels["of"]) == ("telco", "bank")
    assert labels["after"] >= labels["before"]
    assert f"{100 * labels['before']:.1f} % of" in repr(again)


@pytest.mark.second_tier
def test_a_model_of_an_experiment_predicts(result: ExperimentResult, tmp_path: Path) -> None:
    """As the federation did: the label holder's own predictions of the held-out rows, in the classes of the table."""
    model = treetap.load_model(result.folder)
    assert isinstance(model, LoadedModel)
    assert (model.label_holder, model.classes_.tolist()) == ("bank", ["no", "yes"])
    assert model.columns_ == {"bank": ["a", "b"], "telco": ["c", "d"]}
    held = result.predictions
    rows = X.iloc[held.iloc[:, 1].astype(int)].reset_index(drop=True)
    assert model.predict(rows).tolist() == held["prediction"].tolist()
    assert (model.predict_proba(rows)[:, 1] == held["probability_yes"]).all()
    apart = model.predict_frame({"bank": rows[["a", "b"]], "telco": rows[["c", "d"]].iloc[3:]})
    assert apart.index.tolist() == list(range(3, 18))
    assert set(model.importances_["party"]) <= {"bank", "telco"}
    assert model.metrics_["train_auc"] > 0.5
    with pytest.raises(ValueError, match="X lacks column 'd'"):
        model.predict(rows[["a", "b", "c"]])
    with pytest.raises(ValueError, match="has no model"):
        treetap.load_model(tmp_path)


@pytest.mark.second_tier
def test_one_partys_shard_predicts_nothing(result: ExperimentResult) -> None:
    """It says who does."""
    shard = treetap.load_model(result.federation() / "telco" / "state" / "models" / "experiment")
    assert isinstance(shard, PartyModel)
    assert shard.role == "feature_party"
    assert repr(shard) == "PartyModel(the shard of a feature party alone)"
    with pytest.raises(TreetapError, match="shard of a feature party alone"):
        shard.predict(X)


@pytest.mark.second_tier
def test_a_saved_estimator_is_loaded_as_a_model(tmp_path: Path) -> None:
    """Its shards, one folder a party."""
    model = treetap.FederatedClassifier(**SMALL).fit(X, TRUE, sample_weight=np.where(TRUE, 3.0, 1.0))
    loaded = treetap.load_model(model.save(tmp_path / "model"))
    assert isinstance(loaded, LoadedModel)
    assert (loaded.predict_proba(X) == model.predict_proba(X)).all()
    assert loaded.predict(X).dtype == bool
    unweighted = treetap.FederatedClassifier(**SMALL).fit(X, TRUE)
    assert (loaded.predict_proba(X) != unweighted.predict_proba(X)).any()
    assert repr(loaded).startswith(
        "LoadedModel(parties={'party-1': 2 columns, 'party-2': 2 columns}, label_holder='party-1', metrics={'"
    )
    with pytest.raises(ValueError, match="is not empty"):
        model.save(tmp_path / "model")
    again = treetap.load_model(unweighted.save(tmp_path / "model", overwrite=True))
    assert isinstance(again, LoadedModel)
    assert (again.predict_proba(X) == unweighted.predict_proba(X)).all()
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    (mine := tmp_path / "model" / "mine.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(ValueError, match="has more than a saved model"):
        model.save(tmp_path / "model", overwrite=True)
    assert mine.read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize(
    ("changes", "frame", "fault"),
    [
        ({"party": [{"name": "a", "share": 0.5}, {"name": "b", "share": 0.5}]}, X, "exactly one"),
        ({"data": {"lable": "y"}}, X, r"data\.lable: unknown key; did you mean 'label'"),
        ({}, None, "data: give either path"),
    ],
)
def test_experiments_that_cannot_be(changes: dict[str, Any], frame: Any, fault: str) -> None:
    """Faults of the content are named before a process starts."""
    with pytest.raises(ValueError, match=fault):
        treetap.experiment({**CONTENT, **changes}, frame=frame)


@pytest.mark.second_tier
def test_a_federation_elsewhere(tmp_path: Path) -> None:
    """Its tables are the parties' own, by name; predictions are read where the label holder is on this machine."""
    ids = [str(row) for row in range(len(X))]
    with treetap.federation(["bank", "telco"], workers=1) as running:
        content = {"bank": X[["a", "b"]].assign(owes=TRUE), "telco": X[["c", "d"]]}
        place_tables(running, "all", {party: frame.assign(id=ids) for party, frame in content.items()})
        operator = write_operator_file(running._federation)
        model = treetap.FederatedClassifier(["bank", "telco"], **SMALL).connect(operator_file=operator)
        assert model.fit("all").label_holder_ == "bank"
        found = model.predict("all")
        here = treetap.FederatedClassifier({"bank": ["a", "b"], "telco": ["c", "d"]}, **SMALL).fit(X, TRUE)
        frame = model.predict_frame("all")
        assert frame["id"].tolist() == sorted(ids)
        order = frame["id"].astype(int).tolist()
        assert (found == here.predict(X)[order]).all()
        assert (model.predict_proba("all") == here.predict_proba(X)[order]).all()
        assert pickle.loads(pickle.dumps(model)).predict("all").tolist() == found.tolist()
        assert {"train", "predict"} == set(model.disclosure_["job"])
        assert model.history_["train_auc"].tolist() == here.history_["train_auc"].tolist()
        assert model.history_["round"].tolist() == [0, 1]
        assert model.report_["metrics"]["train_auc"] == pytest.approx(here.report_["metrics"]["train_auc"])
        # the same columns under other ids
        place_tables(running, "more", {party: frame[5:].assign(id=ids[:-5]) for party, frame in content.items()})
        model.fit("all", eval_set="more")
        assert len(model.evals_result()["validation_0"]["logloss"]) == 2
        with pytest.raises(AttributeError, match="early_stopping_rounds alone"):
            _ = model.best_iteration_
        model.set_params(early_stopping_rounds=1).fit("all", eval_set="more")
        assert model.best_iteration_ == int(np.argmin(model.history_["eval_logloss"]))
        with pytest.raises(ValueError, match="eval_set: a federation that runs elsewhere has its own tables: give"):
            model.fit("all", eval_set=[(X, TRUE)])
        with pytest.raises(ValueError, match="simulate: the tables of a federation that runs elsewhere are its"):
            model.set_params(simulate=True).fit("all")
        model.set_params(simulate=False, early_stopping_rounds=None)
        with pytest.raises(ValueError, match="its parties have the model"):
            _ = model.feature_importances_
        with pytest.raises(ValueError, match="has no table 'al'"):
            model.fit("al")
        with pytest.raises(ValueError, match="fit takes their name alone"):
            model.fit(X, TRUE)
    with pytest.raises(ValueError, match="operator"):
        treetap.connect(operator_file=tmp_path / "operator.toml")
    assert isinstance(found, np.ndarray)
    assert isinstance(frame, pd.DataFrame)

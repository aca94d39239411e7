"""What an experiment's report says: importances, test metrics of the right rows, seeds; against counts by hand."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.commands.command import treetap
from tests.commands.experiment_documents import run as result
from tests.published import write_job, write_manifest, write_trees
from treetap.errors import DataError
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.joint_model import importance
from treetap.lab.experiment.page import metric_table
from treetap.lab.experiment.results import Importance
from treetap.lab.experiment.run import evaluated
from treetap.models.store import MODEL_FORMAT, TREES

pytestmark = pytest.mark.xdist_group("report")

Split = dict[str, Any]


def _shards(folder: Path, best_round: int | None, trees_per_round: int = 1) -> dict[str, Path]:
    """Two parties' models of three trees; both number their handles from 0."""
    made: list[tuple[str, int, int, float, float]] = [  # owner, tree, feature, gain, cover
        *[("clinic", 0, 1, 3.0, 10.0), ("lab", 0, 0, 5.0, 6.0), ("lab", 0, 1, 1.0, 4.0)],
        *[("clinic", 1, 1, 2.0, 8.0), ("clinic", 1, 1, 1.0, 3.0)],
        *[("clinic", 2, 0, 90.0, 9.0), ("lab", 2, 0, 80.0, 9.0)],
    ]
    trees: list[list[Split]] = [[], [], []]
    own: dict[str, list[list[Split]]] = {"clinic": [[], [], []], "lab": [[], [], []]}
    handles = {"clinic": 0, "lab": 0}
    for owner, tree, feature, gain, cover in made:
        node = len(trees[tree]) + 1
        split = {"node": node, "owner": owner, "handle": handles[owner]}
        trees[tree].append(split | {"gain": gain, "cover": cover})
        own[owner][tree].append({"node": node, "handle": handles[owner], "feature": feature})
        handles[owner] += 1
    roles: dict[str, dict[str, Any]] = {
        "lab": {"role": "feature_party"},
        "clinic": {"role": "label_holder", "best_round": best_round, "trees_per_round": trees_per_round},
    }
    models = {}
    for party, role in roles.items():
        models[party] = folder / party
        models[party].mkdir()
        lines = [
            {"tree": {"index": t, "outputs": [0], "splits": trees[t], "leaves": [], "local": []}, "own": own[party][t]}
            if party == "clinic"
            else {"splits": own[party][t]}
            for t in range(3)
        ]
        content = {
            "party": party,
            "columns": [f"{party}-x", f"{party}-y"],
            "version": MODEL_FORMAT,
            "job_digest": "d",
            **role,
        }
        write_job(models[party], "one")
        write_trees(models[party], content, lines)
    return models


def _row(party: str, feature: str, weight: int, gain: float | None, cover: float | None) -> Importance:
    return Importance(party=party, feature=feature, weight=weight, gain=gain, cover=cover)


def test_importance_is_the_mean_over_splits_and_the_order_that_of_the_totals(tmp_path: Path) -> None:
    """Gain and cover are averages, as XGBoost has them; a feature that splits often and well comes first."""
    assert importance(_shards(tmp_path, best_round=None)) == [
        _row("clinic", "clinic-x", 1, 90.0, 9.0),
        _row("lab", "lab-x", 2, 42.5, 7.5),
        _row("clinic", "clinic-y", 3, 2.0, 7.0),
        _row("lab", "lab-y", 1, 1.0, 4.0),
    ]


@pytest.mark.parametrize(("best_round", "trees_per_round"), [(1, 1), (0, 2)])
def test_importance_is_of_the_trees_that_predict(best_round: int, trees_per_round: int, tmp_path: Path) -> None:
    """What was grown after the best round counts nowhere; a round may have several trees."""
    assert importance(_shards(tmp_path, best_round, trees_per_round)) == [
        _row("clinic", "clinic-y", 3, 2.0, 7.0),
        _row("lab", "lab-x", 1, 5.0, 6.0),
        _row("lab", "lab-y", 1, 1.0, 4.0),
    ]


@pytest.mark.parametrize("party", ["clinic", "lab"])
def test_importance_is_of_shards_as_they_were_published(party: str, tmp_path: Path) -> None:
    """A shard of another format and one that is not what was published are named, whichever party's it is."""
    models = _shards(tmp_path, best_round=None)
    path = models[party] / "manifest.json"
    manifest = json.loads(path.read_text())
    write_manifest(models[party], manifest | {"version": MODEL_FORMAT + 1})
    with pytest.raises(DataError, match=rf"{models[party]}: is a model of format {MODEL_FORMAT + 1}, "):
        importance(models)
    path.write_text(json.dumps(manifest))
    shard = models[party] / TREES
    shard.write_bytes(shard.read_bytes() + b" \n")
    with pytest.raises(DataError, match=rf"{shard}: is not the file that was published"):
        importance(models)
    path.unlink()
    with pytest.raises(DataError, match=rf"{path}: there is no such file"):
        importance(models)


def _auc(scores: list[float], positive: list[bool]) -> float:
    """The share of pairs in the right order, counted pair by pair; half for a tie."""
    pairs = [
        (s, t)
        for s, a in zip(scores, positive, strict=True)
        if a
        for t, b in zip(scores, positive, strict=True)
        if not b
    ]
    return sum((s > t) + 0.5 * (s == t) for s, t in pairs) / len(pairs)


ROWS = 60
PEOPLE = random.Random(5).sample([f"p{i:02d}" for i in range(ROWS)], ROWS)  # ids, not in their order


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The folder and the report of an experiment on a table whose ids stand in no order; seeds 3 and 4."""
    folder = tmp_path_factory.mktemp("report")
    draw = random.Random(6)
    lines = ["a,who,y,b"]
    for who in PEOPLE:
        a, b = draw.gauss(0, 1), draw.gauss(0, 1)
        lines.append(f"{a:.6f},{who},{int(a + b + draw.gauss(0, 1) > 0)},{b:.6f}")
    (folder / "people.csv").write_text("\n".join(lines) + "\n")
    (folder / "exp.toml").write_text(
        '[data]\npath = "people.csv"\nlabel = "y"\nid = "who"\ntest_share = 0.4\nseed = 3\ncompare = false\n'
        '[[party]]\nname = "clinic"\nlabels = true\ncolumns = ["a"]\n[[party]]\nname = "lab"\ncolumns = ["b"]\n'
        "[audit]\nrun = false\n[job]\n"
        "key_bits = 1024\nn_estimators = 3\nmax_depth = 3\nmax_bin = 8\nsubsample = 0.8\nseed = 4\n"
    )
    outcome = treetap("experiment", "exp.toml", "--json", "--workdir", "kept", folder=folder)
    assert (outcome.status, outcome.err) == (0, "")
    (found,) = json.loads(outcome.out)["runs"]
    return folder, found


@pytest.mark.second_tier
def test_test_metrics_are_of_each_rows_own_prediction(run: tuple[Path, dict[str, Any]]) -> None:
    """AUC and accuracy, counted here from the prediction file and the table, joined by id.

    Another data seed samples other rows and columns in training too: the model's seed is the sum of both.
    """
    folder, report = run
    with (folder / "people.csv").open() as file:
        label = {row["who"]: row["y"] == "1" for row in csv.DictReader(file)}
    (path,) = (folder / "kept" / "seed-3" / "clinic" / "state" / "predictions").glob("*.parquet")
    table = pq.read_table(path)
    ids, scores = table.column("treetap_id").to_pylist(), table.column("probability_1").to_pylist()
    held_out = [who for who in PEOPLE if who in set(ids)]
    assert len(ids) == len(held_out) == report["records"]["test"] == 24
    assert ids != held_out
    expected = _auc(scores, [label[who] for who in ids])
    found = report["metrics"]["test"]
    assert found["auc"] == pytest.approx(expected, abs=1e-12)
    assert found["accuracy"] == pytest.approx(
        sum((score > 0.5) == label[who] for who, score in zip(ids, scores, strict=True)) / 24
    )
    assert abs(_auc(scores, [label[who] for who in held_out]) - expected) > 0.05  # had the order been the file's
    assert report["seed"] == 3
    manifest = json.loads((Path(report["model"]["clinic"]) / "manifest.json").read_text())
    assert manifest["params"]["seed"] == 3 + 4


@pytest.mark.parametrize("objective", ["binary:logistic", "multi:softprob", "reg:squarederror"])
def test_predictions_are_joined_with_labels_by_id(objective: str) -> None:
    """Perfect predictions measure as perfect, whatever the order of either table."""
    of_objective: dict[str, list[Any]] = {
        "binary:logistic": ["no", "yes", "yes", "no"],
        "multi:softprob": ["b", "c", "a", "b"],
        "reg:squarederror": [1.5, -2.0, 7.25, 3.0],
    }
    labels = of_objective[objective]
    ids = ["r3", "r1", "r4", "r2"]
    by_id = dict(sorted(zip(ids, labels, strict=True)))
    classes = [] if objective == "reg:squarederror" else sorted(set(labels))
    columns: dict[str, list[Any]] = {"treetap_id": list(by_id)}
    if objective == "binary:logistic":
        columns["probability_yes"] = [0.9 if each == "yes" else 0.1 for each in by_id.values()]
    elif classes:
        for name in classes:
            columns[f"probability_{name}"] = [0.8 if each == name else 0.1 for each in by_id.values()]
    else:
        columns["prediction"] = list(by_id.values())
    experiment = ExperimentFile.model_validate(
        {
            "data": {"path": "t.csv", "label": "y"},
            "party": [{"name": "a", "labels": True, "share": 0.5}, {"name": "b", "share": 0.5}],
            "job": {"objective": objective},
        }
    )
    rows = pa.table({"treetap_id": ids, "y": labels})
    _, found, _ = evaluated(experiment, {"classes": classes}, pa.table(columns), rows)
    if classes:
        assert (found["accuracy"], found["auc"]) == (1.0, 1.0)
    else:
        assert found["rmse"] == 0.0


def test_measures_stand_in_one_order() -> None:
    """Whatever row has which of them; a dash where a model has not the measure, a word for what a shard has as null."""
    rows = {
        "train": {"accuracy": 0.5, "logloss": 0.1},
        "test": {"accuracy": 0.5, "auc": None, "ks": 0.2, "logloss": 0.1},
    }
    table = metric_table([result(metrics=rows)])
    assert table.heads == ["", "auc", "ks", "accuracy", "logloss"]
    assert table.rows[:2] == [
        ["train", "–", "–", "0.5000", "0.1000"],
        ["test", "undefined", "0.2000", "0.5000", "0.1000"],
    ]

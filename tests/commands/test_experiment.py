"""`treetap experiment`: its report, and everything that can be wrong with a file or its table."""

from __future__ import annotations

import json
import random
import re
from datetime import datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
import xgboost
from sklearn.datasets import load_breast_cancer

from tests.commands.command import Outcome, refused, treetap
from treetap.tables.dates import days_of
from treetap.wire.transcript import TranscriptReader

pytestmark = pytest.mark.xdist_group("experiment")

JOB = 'key_bits = 1024\nn_estimators = 3\nmax_depth = 3\nmax_bin = 16\nobjective = "binary:logistic"\n'


def _file(folder: Path, data: str, parties: str, job: str = JOB) -> Path:
    path = folder / "exp.toml"
    fast = "" if "compare" in data else "compare = false\n"
    path.write_text(f"[data]\n{fast}{data}\n{parties}\n[audit]\nrun = false\n[job]\n{job}", encoding="utf-8")
    return path


def _party(name: str, rest: str) -> str:
    return f'[[party]]\nname = "{name}"\n{rest}\n'


HOLDER = _party("clinic", 'labels = true\ncolumns = ["a"]')
OTHER = _party("lab", 'columns = ["b"]\nrecord = "both"')
SMALL = 'path = "small.csv"\nlabel = "y"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a small table: an id, two columns, a text column and a label."""
    rows = [f"r{i},{i},{i % 3},text {i},{i % 2}" for i in range(12)]
    (tmp_path / "small.csv").write_text("\n".join(["who,a,b,c,y", *rows]) + "\n")
    return tmp_path


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    """Breast cancer split between three parties, two seeds, run in a folder given by a relative path."""
    folder = tmp_path_factory.mktemp("experiment")
    source = load_breast_cancer()
    columns: dict[str, Any] = {f"c{j}": source.data[:, j] for j in range(30)}
    pq.write_table(pa.table(columns | {"benign": source.target}), folder / "cancer.parquet")
    own = ", ".join(f'"c{j}"' for j in range(10, 20))
    parties = _party("clinic", f"labels = true\ncolumns = [{own}]") + _party("lab", 'share = 0.5\nrecord = "received"')
    parties += _party("registry", "share = 0.5")
    file = _file(
        folder,
        'path = "cancer.parquet"\nlabel = "benign"\nseed = [0, 1]\nevaluate_rounds = true',
        parties,
        JOB + "seed = 4\n",
    )
    return folder, treetap("experiment", file, "--json", "--workdir", "kept", "--export", folder=folder)


def _day(share: float) -> str:
    """A day and time of 2024, as text."""
    return (datetime(2024, 1, 1) + timedelta(days=round(share * 366), minutes=round(share * 1000))).isoformat()


@pytest.mark.second_tier
@pytest.mark.parametrize(
    ("encode", "defences"),
    [
        ('{ "*" = "ordinal", opened = "days" }', ""),
        ('{ colour = "one-hot", opened = "days" }', ""),
        ('{ colour = "one-hot", opened = "days" }', "[defences]\nid_lmid = {xi = 0.9}\n"),
    ],
)
def test_a_forest_on_a_table_with_text(encode: str, defences: str, tmp_path: Path) -> None:
    """Columns of text and dates are encoded at their owners; the forest is the centralised one, and beats its holder.

    With a defence the centralised one withholds the same.
    """
    draw = random.Random(1)
    rows = [(draw.random(), draw.choice(["red", "green", "blue"]), draw.random()) for _ in range(150)]
    labels = [("high" if colour == "red" else "low") if a < 0.5 else "none" for a, colour, _ in rows]
    lines = [f"{a},{colour},{_day(b)},7,{label}" for (a, colour, b), label in zip(rows, labels, strict=True)]
    (tmp_path / "t.csv").write_text("\n".join(["a,colour,opened,same,y", *lines]) + "\n")
    parties = _party("clinic", 'labels = true\ncolumns = ["a"]')
    parties += _party("lab", 'columns = ["colour", "opened", "same"]')
    job = 'protocol = "forest"\nkey_bits = 1024\nn_estimators = 4\nmax_depth = 4\ncolsample_bytree = 1.0\n'
    data = f'path = "t.csv"\nlabel = "y"\nencode = {encode}\ndrop_constant = true\ncompare = true'
    file = _file(tmp_path, data, parties, job + defences)
    outcome = treetap("experiment", file, "--json", "--export", folder=tmp_path)
    assert (outcome.status, outcome.err) == (0, "")
    (found,) = json.loads(outcome.out)["runs"]
    scores = pq.read_table(Path(json.loads(outcome.out)["folder"]) / "predictions" / "seed-0.parquet")
    records = pacsv.read_csv(tmp_path / "t.csv").take(scores["treetap_id"])
    names = [name for name in scores.column_names if name.startswith("score_")]
    expected = np.column_stack([scores[name].to_numpy() for name in names])
    np.testing.assert_allclose(_margins(Path(found["xgboost"]), records), expected, rtol=1e-6, atol=1e-6)
    assert found["dropped_columns"] == {"clinic": [], "lab": ["same"]}
    assert ("defences" in found) == (defences != "")
    assert not defences or found["defences"]["local_subtrees"] > 0 == found["defences"]["max_difference"]
    assert found["metrics"]["test"] == pytest.approx(found["metrics"]["centralised, test"])
    alone = found["metrics"]["label holder alone, test"]
    assert defences or found["metrics"]["test"]["accuracy"] > alone["accuracy"] + 0.1
    assert found["ciphertexts"]["encrypted_labels"] == found["records"]["train"]
    names = {row["feature"] for row in found["importance"]}
    assert defences or {"colour" if "ordinal" in encode else "colour=red", "opened"} <= names


@pytest.mark.second_tier
@pytest.mark.parametrize("join", ["inner", "left"])
def test_parties_that_lack_records(join: str, tmp_path: Path) -> None:
    """Together, alone and the centralised model are compared on the same held-out rows: common ones, or all.

    The model is the centralised one of the job's records; every feature party is audited on those that it received.
    """
    drawn = np.random.default_rng(3).normal(size=(3, 300)).round(3)
    (a, b, c), y = drawn, (drawn.sum(axis=0) > 0).astype(int)
    pq.write_table(pa.table({"a": a, "b": b, "c": c, "y": y}), tmp_path / "t.parquet")
    parties = _party("clinic", 'labels = true\ncolumns = ["a"]')
    parties += _party("lab", 'columns = ["b"]\nlacks = 0.4') + _party("registry", 'columns = ["c"]\nlacks = 0.2')
    file = _file(tmp_path, 'path = "t.parquet"\nlabel = "y"\ncompare = true', parties, f'{JOB}join = "{join}"\n')
    told = file.read_text().replace("run = false", 'attacks = ["cl", "uni"]') + "[predict]\n"
    file.write_text(told.replace("compare = true", "compare = true\nseed = 1"))
    outcome = treetap("experiment", file, "--json", "--workdir", "kept", folder=tmp_path)
    assert outcome.status == 0, outcome.err
    (found,) = json.loads(outcome.out)["runs"]
    assert found["predict"]["interactive"]["max_difference"] == 0
    metrics, gain, folder = found["metrics"], found["gain"], tmp_path / "kept" / "seed-1"
    assert metrics["test"] == metrics["centralised, test"]
    assert gain["together"] == metrics["test"]["auc"] > gain["alone"]["clinic"]
    assert gain["alone"]["clinic"] == pytest.approx(metrics["label holder alone, test"]["auc"])
    assert ("label holder alone, told who has the record, test" in metrics) == (join == "left")
    for number, table in (("train", "train"), ("test", "predict")):
        ids = [set(pq.read_table(path)["treetap_id"].to_pylist()) for path in sorted(folder.glob(f"*/{table}.parquet"))]
        of_job = ids[0] if join == "left" else set.intersection(*ids)
        assert [len(own) < len(ids[0]) for own in ids] == [False, True, True]
        assert found["records"][number] == len(of_job)
        if table == "predict":
            assert len(pq.read_table(next(tmp_path.glob("kept/predictions/*")))) == len(of_job)
        elif join == "left":
            parties_audited = json.loads((folder / "audit.json").read_text())["parties"]
            own_records = dict(zip(("clinic", "lab", "registry"), map(len, ids), strict=True))
            assert {name: it["records"] for name, it in parties_audited.items()} == {
                name: own_records[name] for name in ("lab", "registry")
            }
            assert all(0.5 <= it["membership"] < 0.6 for it in parties_audited.values())
    verdicts = {(it["party"], it["learned"], it["of"]): it for it in found["verdicts"]}
    assert all(verdicts[name, "labels", "clinic"]["after"] is not None for name in ("lab", "registry"))
    reasons = {
        verdicts["clinic", "columns", name]["reason"].startswith("join = 'left'") for name in ("lab", "registry")
    }
    assert reasons == {join == "left"}


@pytest.mark.second_tier
def test_the_report_is_json_and_nothing_else(report: tuple[Path, Outcome]) -> None:
    """Standard output is one JSON document with a run per seed; three trees tell most tumours apart."""
    _, outcome = report
    assert (outcome.status, outcome.err) == (0, "")
    found = json.loads(outcome.out)
    assert [run["seed"] for run in found["runs"]] == [0, 1]
    for run in found["runs"]:
        assert {"metrics", "seconds", "traffic", "ciphertexts", "peak_rss_mb", "model"} <= set(run)
        assert run["records"] == {"train": 456, "test": 113}
        assert run["metrics"]["test"]["auc"] > 0.9
        assert run["metrics"]["train"]["auc"] > 0.95


@pytest.mark.second_tier
def test_held_out_rows_are_measured_after_every_round(report: tuple[Path, Outcome]) -> None:
    """The last round's figures are those of the finished model; the file of all runs has the same."""
    folder, outcome = report
    runs = json.loads(outcome.out)["runs"]
    for run in runs:
        assert len(run["history"]) == 3
        assert 0 <= run["stability"] < 1
        assert run["metrics"]["train"].keys() == run["metrics"]["test"].keys()
        assert run["history"][-1]["eval_auc"] == pytest.approx(run["metrics"]["test"]["auc"])
        assert run["history"][-1]["train_logloss"] == pytest.approx(run["metrics"]["train"]["logloss"])
    lines = (folder / "kept" / "history.csv").read_text().splitlines()
    assert [line.split(",")[:2] for line in lines[1:]] == [[str(seed), str(k)] for seed in (0, 1) for k in range(3)]
    assert "</svg><bdi>held-out rows</bdi></li>" in (folder / "kept" / "report.html").read_text()


@pytest.mark.second_tier
def test_predictions_are_kept_with_their_labels(report: tuple[Path, Outcome]) -> None:
    """Each run's file has the held-out rows, from which the measures follow; no private key lies beside them."""
    folder, outcome = report
    found = json.loads(outcome.out)
    assert found["folder"] == str(folder / "kept")
    assert found == json.loads((folder / "kept" / "results.json").read_text())
    for run in found["runs"]:
        rows = pq.read_table(folder / "kept" / "predictions" / f"seed-{run['seed']}.parquet")
        labels, chances = rows["benign"].to_numpy(), rows["probability_1"].to_numpy()
        assert rows.num_rows == 113
        assert rows["treetap_id"].type == pa.int64()
        assert rows["treetap_id"].to_pylist() == sorted(rows["treetap_id"].to_pylist())
        assert float(((chances >= 0.5) == labels).mean()) == run["metrics"]["test"]["accuracy"]
    assert list((folder / "kept").rglob("*.key")) == []


def _margins(model: Path, table: pa.Table) -> np.ndarray[Any, np.dtype[Any]]:
    """What XGBoost predicts of a table by a file, whose attribute says what its features are."""
    booster = xgboost.Booster()
    booster.load_model(model)
    blocks = []
    for each in json.loads(booster.attr("treetap"))["features"]:
        cells = table.column(each["column"])
        if each.get("encode") == "one-hot":
            value = each["made"].removeprefix(f"{each['column']}=")
            blocks.append([float(cell == value) for cell in cells.to_pylist()])
        elif each.get("encode") == "ordinal":
            blocks.append([float(each["values"].index(cell)) for cell in cells.to_pylist()])
        elif each.get("encode") == "days":
            blocks.append(days_of(model, each["column"], cells)[0].tolist())
        else:
            blocks.append(cells.to_pylist())
    matrix = xgboost.DMatrix(np.array(blocks).T, feature_names=booster.feature_names)
    found: np.ndarray[Any, np.dtype[Any]] = booster.predict(matrix, output_margin=True)
    return found


@pytest.mark.second_tier
def test_models_for_xgboost(report: tuple[Path, Outcome]) -> None:
    """Each run's model predicts the same in XGBoost; the command writes the same file from the run's folder."""
    folder, outcome = report
    for run in json.loads(outcome.out)["runs"]:
        path = folder / "kept" / "models" / f"seed-{run['seed']}.json"
        assert run["xgboost"] == str(path)
        rows = pq.read_table(folder / "kept" / "predictions" / f"seed-{run['seed']}.parquet")
        records = pq.read_table(folder / "cancer.parquet").take(rows["treetap_id"])
        np.testing.assert_allclose(_margins(path, records), rows["score"].to_numpy(), rtol=1e-6, atol=1e-6)
    again = treetap("model", "xgboost", "kept/seed-1", "--out", "again.json", folder=folder)
    assert (again.status, again.out) == (0, "again.json: the model of clinic, lab, registry\n")
    assert (folder / "again.json").read_bytes() == path.read_bytes()
    fault = "kept: has 2 models, in seed-0, seed-1: name the folder of one"
    assert fault in refused(treetap("model", "xgboost", "kept", "--out", "no.json", folder=folder))
    words = ("model", "xgboost", "kept", "--table", "train", "--out", "no.json")
    assert "--table names a table of the label holder's configuration" in refused(treetap(*words, folder=folder))


@pytest.mark.second_tier
def test_the_costs_are_those_of_the_job(report: tuple[Path, Outcome]) -> None:
    """Every phase has its seconds, every process its memory, and ciphertexts are as many as records, trees, readers."""
    for run in json.loads(report[1].out)["runs"]:
        phases = {"startup", "prepare", "align", "keys", "bin", "train", "publish"}
        assert phases <= set(run["seconds"])
        assert all(seconds >= 0 for seconds in run["seconds"].values())
        assert {"clinic", "lab", "registry"} <= set(run["peak_rss_mb"])
        assert all(10 < megabytes < 2000 for megabytes in run["peak_rss_mb"].values())
        assert run["ciphertexts"]["gradients"] == 456 * 3 * 2
        sent = [row for row in run["traffic"] if row["class"] == "CIPHERTEXT"]
        assert {(row["from"], row["to"], row["step"]) for row in sent} == {
            ("clinic", "lab", "gradients"),
            ("clinic", "registry", "gradients"),
        }
        assert sum(row["bytes"] for row in sent) == pytest.approx(456 * 3 * 2 * 256, rel=0.01)


@pytest.mark.second_tier
def test_shares_are_drawn_anew_for_each_seed(report: tuple[Path, Outcome]) -> None:
    """Half of the columns that nobody names goes to each, other halves for another seed, none to two parties."""
    runs = json.loads(report[1].out)["runs"]
    for run in runs:
        assert run["columns"]["clinic"] == [f"c{j}" for j in range(10, 20)]
        assert sorted(chain(*run["columns"].values())) == sorted(f"c{j}" for j in range(30))
        assert len(run["columns"]["lab"]) == 10
    assert runs[0]["columns"]["lab"] != runs[1]["columns"]["lab"]


@pytest.mark.second_tier
def test_what_was_kept(report: tuple[Path, Outcome]) -> None:
    """The folder of the run holds models and the transcripts that were asked for, and no other party's columns."""
    folder, outcome = report
    run = json.loads(outcome.out)["runs"][1]
    assert set(run["model"]) == {"clinic", "lab", "registry"}
    for party, path in run["model"].items():
        assert path == str(folder / "kept" / "seed-1" / party / "state" / "models" / "experiment")
        manifest = json.loads((Path(path) / "manifest.json").read_text())
        assert party != "clinic" or manifest["params"]["seed"] == 1 + 4, "the seed of a run is added to the job's"
    state = folder / "kept" / "seed-1"
    assert len(list(TranscriptReader(state / "lab" / "state" / "transcripts" / "experiment"))) > 20
    assert list((state / "registry" / "state" / "transcripts").iterdir()) == []
    for party in ("lab", "registry"):
        assert pq.read_schema(state / party / "train.parquet").names == ["treetap_id", *run["columns"][party]]


@pytest.mark.second_tier
def test_the_report_for_people(folder: Path) -> None:
    """Without --json there are tables of metrics, seconds and who received what; ids are the table's, less blanks."""
    table = (folder / "small.csv").read_text()
    (folder / "small.csv").write_text(re.sub(r"^(r\d+),", r" \1 ,", table, flags=re.MULTILINE))
    file = _file(folder, SMALL + 'id = "who"\ndrop = ["c"]', HOLDER + OTHER, JOB + "min_child_weight = 0.1\n")
    outcome = treetap("experiment", file, "--details", folder=folder)
    assert (outcome.status, outcome.err) == (0, "")
    for word in ("Metrics", "Who received what", "CIPHERTEXT", "INSTANCE_SPACE", "largest process: ", "arithmetic: "):
        assert word in outcome.out


@pytest.mark.second_tier
def test_predictions_by_several_protocols(folder: Path) -> None:
    """As many rows as wanted, by each protocol; seconds, bytes, and scores that are the centralised model's.

    Rows have sample weights, which the centralised model, the federation's and the measures of both have.
    """
    lines = [f"r{i},{(i * 7) % 31},{i % 5},{i % 4 / 2},{(i * i) % 13 + i / 10}" for i in range(40)]
    (folder / "small.csv").write_text("\n".join(["who,a,b,c,y", *lines]) + "\n")
    job = JOB.replace("binary:logistic", "reg:squarederror") + "subsample = 0.8\nmax_sample_weight = 1.5\n"
    predict = '[predict]\nprotocols = ["interactive", "eini", "eini-lattice"]\nlimit = 5\nformat = "csv"\n'
    data = SMALL + 'id = "who"\nweight = "c"\ncompare = true'
    file = _file(folder, data, HOLDER + OTHER, job + predict)
    outcome = treetap("experiment", file, "--json", folder=folder)
    assert (outcome.status, outcome.err) == (0, "")
    (found,) = json.loads(outcome.out)["runs"]
    assert found["metrics"]["test"] == pytest.approx(found["metrics"]["centralised, test"])
    assert found["records"] == {"train": 32, "test": 5}
    assert set(found["predict"]) == {"interactive", "eini", "eini-lattice"}
    written = Path(json.loads(outcome.out)["folder"]) / "predictions" / "seed-0.csv"
    header, *rows = written.read_text().splitlines()
    assert header == '"who","prediction","score","y"'
    truth = {line.split(",")[0]: line.split(",")[-1] for line in lines}
    assert {row.split(",")[0].strip('"'): row.split(",")[-1] for row in rows}.items() <= truth.items()
    directions = {
        protocol: sum(sent["bytes"] for sent in row["traffic"] if sent["class"] == "SPLIT_DIRECTION")
        for protocol, row in found["predict"].items()
    }
    assert [protocol for protocol, size in directions.items() if size] == ["interactive"]
    for protocol, row in found["predict"].items():
        assert sum(sent["bytes"] for sent in row["traffic"]) == row["bytes"]
        assert row["seconds"] > 0
        assert 0 <= row["max_difference"] < (1e-2 if protocol == "eini-lattice" else 1e-9)  # scores are up to 150
    assert found["predict"]["eini"]["bytes"] > 4 * found["predict"]["interactive"]["bytes"] > 0
    assert found["ciphertexts"]["leaf_sums"] == 1
    assert "largest difference" in treetap("experiment", file, "--discard", "--details").out


def test_all_faults_at_once(folder: Path) -> None:
    """An unknown key, a wrong key size and a share beyond 1 are told together, each with its place."""
    parties = HOLDER + _party("lab", "share = 1.5\nColumns = 5")
    job = 'key_bits = 1000\n[predict]\nlimit = 0\nprotocols = ["eini", "eini"]\n'
    message = refused(treetap("experiment", _file(folder, SMALL, parties, job), folder=folder))
    assert message.splitlines()[0].endswith("exp.toml: 5 wrong:")
    assert "predict.limit: " in message
    assert "predict.protocols: names a protocol twice" in message
    assert "party.[2].share: " in message
    assert "party.[2].Columns: unknown key" in message
    assert "job.key_bits: " in message

"""The folder of an experiment: where results are kept, what they were made with, and how an experiment is resumed.

What an experiment's report says: importances, test metrics of the right rows; against counts by hand.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.commands.experiment_documents import run
from tests.published import write_job, write_manifest, write_trees
from treetap.commands.certs.authority import create_authority
from treetap.errors import BadInput, DataError, Interrupted, TreetapError
from treetap.lab.experiment import all_runs
from treetap.lab.experiment.all_runs import run_experiment
from treetap.lab.experiment.command import run_file
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.joint_model import importance
from treetap.lab.experiment.kept import Kept, opened
from treetap.lab.experiment.results import Importance, RunResult
from treetap.lab.experiment.run import evaluated
from treetap.lab.experiment.tables import metric_table
from treetap.models.store import MODEL_FORMAT, TREES

FILE = """[data]\npath = "t.csv"\nlabel = "y"\n{data}
[[party]]\nname = "clinic"\nlabels = true\ncolumns = ["a"]\n[[party]]\nname = "lab"\ncolumns = ["b"]
[job]\nkey_bits = 2048\n{job}"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An experiment of two seeds in the current folder."""
    monkeypatch.chdir(tmp_path)
    return written(tmp_path)


def written(
    folder: Path, data: str = "seed = [4, 5]", job: str = "n_estimators = 3", cells: str = "{i},{i},{y}"
) -> Path:
    """The experiment's file, and its table."""
    rows = [cells.format(i=i, y=i % 2) for i in range(40)]
    (folder / "t.csv").write_text("\n".join(["a,b,y", *rows]) + "\n")
    (folder / "exp.toml").write_text(FILE.format(data=data, job=job))
    return folder / "exp.toml"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the runs that were made, by a federation that writes its certificates and measures the seed."""
    names: list[str] = []

    def run_seed(_: Any, table: pa.Table, seed: int, folder: Path, *, fold: int | None, **__: Any) -> RunResult:
        if seed in FAILING:
            folder.mkdir()
            raise FAILING[seed]
        create_authority(folder / "certs")
        names.append(folder.name)
        return run(seed, fold, metrics={"test": {"auc": seed / 10, "logloss": 0.5}})

    FAILING.clear()
    monkeypatch.setattr(all_runs, "run_seed", run_seed)
    monkeypatch.setattr(all_runs, "add_other", lambda *_, **__: None)
    return names


#: Seed → the failure of its run.
FAILING: dict[int, BaseException] = {}


def test_results_are_kept_where_the_command_says(
    file: Path, made: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The first run of a file keeps its results in runs/NAME, the next one beside it; git ignores both."""
    for name in ("exp", "exp-2", "exp-3"):
        run_file(file, as_json=False)
        said = capsys.readouterr().out.splitlines()
        assert said[-2:] == [f"report: runs/{name}/report.html", f"results: runs/{name}"]
        folder = Path("runs", name)
        assert (folder / "experiment.toml").read_text() == file.read_text()
        found = json.loads((folder / "results.json").read_text())
        assert [each["seed"] for each in found["runs"]] == [4, 5]
        assert found["folder"] == str(folder.resolve())
        assert json.loads((folder / "made-with.json").read_text())["versions"].keys() == {
            *("python", "protocol", "treetap", "numpy", "pyarrow")
        }
        assert "Experiment exp" in (folder / "report.html").read_text()
        assert len((folder / "history.csv").read_text().splitlines()) == 1 + 2 * 4
        assert folder.stat().st_mode & 0o777 == 0o700
        assert {path.stat().st_mode & 0o777 for path in folder.glob("*.json")} == {0o600}
    assert Path("runs/.gitignore").read_text() == "*\n"
    assert made == 3 * ["seed-4", "seed-5"]


def test_the_document_that_is_kept_is_the_one_that_is_printed(
    file: Path, made: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """With --json nothing else is on standard output, and the summary has mean and deviation of the seeds."""
    run_file(file, as_json=True)
    out = capsys.readouterr().out
    assert out.strip() == Path("runs/exp/results.json").read_text()
    test = json.loads(out)["summary"]["metrics"]["test"]
    assert test["auc"] == {"mean": pytest.approx(0.45), "sd": pytest.approx(0.0707107), "runs": 2}
    assert test["logloss"] == {"mean": 0.5, "sd": 0.0, "runs": 2}


def test_nothing_is_left_where_results_are_discarded(
    file: Path, made: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """With --discard no folder is made, and none is named."""
    run_file(file, as_json=True, discard=True)
    assert json.loads(capsys.readouterr().out)["folder"] is None
    assert not Path("runs").exists()
    assert made == ["seed-4", "seed-5"]


@pytest.mark.parametrize(
    ("protocol", "given", "says"),
    [
        ("boosting", {"workdir": Path("w"), "discard": True}, "--workdir and --discard exclude each other"),
        ("boosting", {"keep_keys": True, "discard": True}, "--keep-keys keeps files, and --discard none"),
        ("boosting", {"export": True, "discard": True}, "--export keeps a file of each model, and --discard none"),
        ("pivodl", {"export": True}, "has no label holder"),
    ],
)
def test_options_that_exclude_each_other(protocol: str, given: dict[str, Any], says: str, file: Path) -> None:
    """Of the three ways to say where results go, one may be given; nothing is exported that XGBoost cannot have."""
    whose = "label_share = 1.0" if protocol == "pivodl" else "labels = true"
    file.write_text(
        file.read_text().replace("labels = true", whose).replace("[job]", f'[job]\nprotocol = "{protocol}"')
    )
    with pytest.raises(BadInput, match=says):
        run_file(file, as_json=True, **given)


@pytest.mark.second_tier
@pytest.mark.parametrize("failure", [Interrupted("lab is gone"), KeyboardInterrupt()])
def test_an_experiment_is_resumed(
    failure: BaseException, file: Path, made: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """What finished is kept and said; the command that is named goes on with the run that is missing, afresh."""
    FAILING[5] = failure
    with pytest.raises(type(failure)):
        run_file(file, as_json=True)
    captured = capsys.readouterr()
    assert [each["seed"] for each in json.loads(captured.out)["runs"]] == [4]
    command = f"treetap experiment {file} --resume runs/exp"
    assert captured.err == f"stopped: runs/exp has 1 of 2 runs; go on with the others: {command}\n"
    Path("runs/exp/seed-5/half").touch()
    FAILING.clear()
    run_file(file, as_json=True, resume=Path("runs/exp"))
    captured = capsys.readouterr()
    assert captured.err == "2 runs, 1 of them finished already\n"
    assert [each["seed"] for each in json.loads(captured.out)["runs"]] == [4, 5]
    assert made == ["seed-4", "seed-5"]
    assert not Path("runs/exp/seed-5/half").exists()
    written(Path(), data="seed = [4, 5, 6]", job="n_estimators = 3")
    run_file(file, as_json=True, resume=Path("runs/exp"))
    assert made == ["seed-4", "seed-5", "seed-6"]


def test_another_experiment_is_not_resumed(file: Path, made: list[str]) -> None:
    """Another job, another table, another version, a damaged file and a folder of something else are refused."""
    run_file(file, as_json=True)
    kept, changes = Path("runs/exp"), list[tuple[dict[str, str], str]]()
    changes.append(({"job": "n_estimators = 4"}, "job.n_estimators was 3, now 4"))
    changes.append(({"data": "seed = [4, 5]\ncv = 2"}, "data.cv was null, now 2"))
    changes.append(({"cells": "{i},1{i},{y}"}, "content of the table was "))
    for change, says in changes:
        with pytest.raises(BadInput, match=f"--resume runs/exp: was made with another experiment: {says}"):
            run_file(written(Path(), **change), as_json=True, resume=kept)
    written(Path())
    stored = json.loads((kept / "made-with.json").read_text())
    stored["versions"]["treetap"] = "0.0.9"
    (kept / "made-with.json").write_text(json.dumps(stored))
    with pytest.raises(BadInput, match=r'treetap was "0\.0\.9", now'):
        run_file(file, as_json=True, resume=kept)
    (kept / "made-with.json").write_text("[")
    with pytest.raises(BadInput, match=r"made-with\.json: is damaged"):
        run_file(file, as_json=True, resume=kept)
    with pytest.raises(BadInput, match=r"--resume \.: holds no experiment's results"):
        run_file(file, as_json=True, resume=Path())
    assert made == ["seed-4", "seed-5"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"runs": [{"seed": 4}]}, "runs.0.traffic: Field required"),
        ({"summary": {"runs": "2", "metrics": {}, "seconds": {}}}, "summary.runs: Input should be a valid integer"),
        ({"version": 2}, "version: Extra inputs are not permitted"),
        (None, "the file: Invalid JSON"),
    ],
)
def test_kept_results_of_another_form(change: dict[str, Any] | None, says: str, file: Path, made: list[str]) -> None:
    """Results that lack something, have more, another type, or are no JSON are refused by file and place."""
    run_file(file, as_json=True)
    path = Path("runs/exp/results.json")
    content = json.loads(path.read_text())
    path.write_text("{" if change is None else json.dumps(content | change))
    with pytest.raises(BadInput) as raised:
        run_file(file, as_json=True, resume=Path("runs/exp"))
    assert str(raised.value).startswith(f"{path}: is damaged, or not of this version's form ({says}")
    assert made == ["seed-4", "seed-5"]


def test_private_keys_do_not_outlive_their_federation(file: Path, made: list[str]) -> None:
    """Of the throw-away authority the certificate remains, which an audit reads."""
    run_file(file, as_json=True)
    assert sorted(path.name for path in Path("runs/exp/seed-4/certs").iterdir()) == ["ca.crt"]
    run_file(file, as_json=True, keep_keys=True)
    key = Path("runs/exp-2/seed-4/certs/ca.key")
    assert key.stat().st_mode & 0o777 == 0o600


def test_every_fold_of_every_seed_is_a_run(file: Path, made: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Cross-validation with two seeds: runs are named by both."""
    run_file(written(Path(), data="seed = [4, 5]\ncv = 3"), as_json=False)
    assert made == [f"seed-{seed}-fold-{fold}" for seed in (4, 5) for fold in (1, 2, 3)]
    assert capsys.readouterr().err.splitlines() == [f"trained {number} of 6" for number in range(1, 7)]


def test_a_table_in_memory(tmp_path: Path, made: list[str]) -> None:
    """An experiment from a dictionary on an Arrow table: checked as a file is, kept with it, and resumed."""
    parties = [{"name": "clinic", "columns": ["a"], "labels": True}, {"name": "lab", "columns": ["b"]}]
    content = {
        "data": {"path": "given.csv", "format": "csv", "label": "y", "seed": [4, 5]},
        "party": parties,
        "job": {"n_estimators": 3},
    }
    experiment = ExperimentFile.model_validate(content)
    table = pa.table({"a": range(20), "b": range(20), "y": ["no", "yes"] * 10})
    ended: list[int] = []
    kept = opened(experiment, tmp_path / "kept", table=table)
    found = run_experiment(kept, on_run=lambda each: ended.append(each.seed))
    assert (ended, found.folder) == ([4, 5], str(tmp_path / "kept"))
    assert pq.read_table(tmp_path / "kept" / "table.parquet") == table
    assert "n_estimators = 3" in (tmp_path / "kept" / "experiment.toml").read_text()
    assert run_experiment(opened(experiment, tmp_path / "kept", table=table, place="resumed")) == found
    assert made == ["seed-4", "seed-5"]
    with pytest.raises(BadInput, match=r"table\.parquet: row 2, column 'b': the cell is infinite"):
        opened(experiment, tmp_path / "no", table=table.set_column(1, "b", [[0.0, float("inf"), *range(18)]]))
    assert not (tmp_path / "no").exists()


def test_a_folder_that_cannot_be_made(file: Path, made: list[str]) -> None:
    """A file in the place of runs is named, before a process starts."""
    Path("runs").touch()
    with pytest.raises(BadInput, match=r"runs/exp: cannot be made: .*name another --workdir"):
        run_file(file, as_json=True)


def test_a_full_disk_is_an_error_with_its_file(file: Path, made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Results that cannot be written are one message with the path, and no traceback."""

    def full(self: Any, run: RunResult) -> None:
        raise OSError(28, "No space left on device", "results.json")

    monkeypatch.setattr(Kept, "add", full)
    with pytest.raises(TreetapError, match=r"results\.json: No space left on device"):
        run_file(file, as_json=True)


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
    table = metric_table([run(metrics=rows)])
    assert table.heads == ["", "auc", "ks", "accuracy", "logloss"]
    assert table.rows[:2] == [
        ["train", "–", "–", "0.5000", "0.1000"],
        ["test", "undefined", "0.2000", "0.5000", "0.1000"],
    ]

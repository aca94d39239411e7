"""Results of experiments in MLflow: read back by the library, and what happens where they fail."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.commands.experiment_documents import experiment, run
from treetap.errors import BadInput, Interrupted
from treetap.lab.experiment import all_runs, experiment_file, file_tables
from treetap.lab.experiment.all_runs import run_experiment
from treetap.lab.experiment.command import run_file
from treetap.lab.experiment.kept import opened
from treetap.lab.experiment.results import RunResult

pytestmark = [
    pytest.mark.second_tier,
    pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy"),  # of MLflow
]

FILE = """[data]\npath = "t.csv"\nlabel = "y"\nseed = {seed}
[[party]]\nname = "clinic"\nlabels = true\ncolumns = ["a"]\n[[party]]\nname = "lab"\ncolumns = ["b", "c"]
[job]\nn_estimators = 4\n[output]\n{output}\n"""


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[int]:
    """The seeds of the runs that were made, without a federation, in the current folder with a table."""
    monkeypatch.chdir(tmp_path)
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_HTTP_REQUEST_TIMEOUT"):
        monkeypatch.delenv(name, raising=False)
    Path("t.csv").write_text("\n".join(["a,b,c,y", *(f"{i},{i % 7},{i % 3},{i % 2}" for i in range(40))]) + "\n")
    seeds: list[int] = []

    def run_seed(_: Any, __: Any, seed: int, *___: Any, fold: int | None, **____: Any) -> RunResult:
        seeds.append(seed)
        result = run(seed, fold)
        alone = {"auc": 0.25, "logloss": float("nan")}
        result.metrics = {**result.metrics, "label holder alone, test": alone}
        return result

    monkeypatch.setattr(all_runs, "run_seed", run_seed)
    monkeypatch.setattr(all_runs, "add_other", lambda *_, **__: None)
    return seeds


def written(output: str, seed: str = "[4, 5]") -> Path:
    """The experiment's file."""
    Path("exp.toml").write_text(FILE.format(output=output, seed=seed))
    return Path("exp.toml")


def test_mlflow_has_what_was_measured(made: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    """A run for the experiment, one below it per seed: parameters, metrics by round and final ones, files.

    A resumed experiment adds the seeds that are new and nothing twice.
    """
    run_file(written('mlflow = "tracked"'), as_json=True)
    out = json.loads(capsys.readouterr().out)
    assert out["mlflow"]["address"] == str(Path("tracked").resolve())
    assert out == json.loads(Path("runs/exp/results.json").read_text())
    run_file(written('mlflow = "tracked"', "[4, 5, 6]"), as_json=True, resume=Path("runs/exp"))
    assert json.loads(capsys.readouterr().out)["mlflow"] == out["mlflow"]
    assert made == [4, 5, 6]

    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{Path('tracked').resolve()}/mlflow.db")
    found = client.get_experiment_by_name("exp")
    runs = {each.info.run_name: each for each in client.search_runs([found.experiment_id])}
    assert set(runs) == {"exp", "seed-4", "seed-5", "seed-6"}
    assert {each.info.status for each in runs.values()} == {"FINISHED"}
    whole, part = runs.pop("exp"), runs["seed-5"]
    assert whole.info.run_id == out["mlflow"]["run"]
    assert {each.data.tags["mlflow.parentRunId"] for each in runs.values()} == {whole.info.run_id}
    wanted = run(5)
    assert {key: part.data.params[key] for key in ("seed", "job.n_estimators", "job.protocol", "data.path")} == {
        **{"seed": "5", "job.n_estimators": "4", "job.protocol": "boosting", "data.path": "t.csv"}
    }
    assert json.loads(part.data.params["parties"]) == ["clinic", "lab"]
    metrics = part.data.metrics
    assert metrics["test_auc"] == wanted.metrics["test"]["auc"]
    assert metrics["label_holder_alone_test_auc"] == 0.25
    assert "label_holder_alone_test_logloss" not in metrics
    assert (metrics["seconds_train"], metrics["bytes"]) == (7.0, 30_905.0)
    name = next(key for key in wanted.history[0] if key.startswith("validation_"))
    course = [(each.step, each.value) for each in client.get_metric_history(part.info.run_id, name)]
    assert course == [(step, row[name]) for step, row in enumerate(wanted.history)]
    means = client.get_metric_history(whole.info.run_id, "test_auc_mean")
    assert [(each.step, each.value) for each in means] == [
        (2, out["summary"]["metrics"]["test"]["auc"]["mean"]),
        (3, whole.data.metrics["test_auc_mean"]),
    ]
    kept = [each.path for each in client.list_artifacts(whole.info.run_id)]
    assert sorted(kept) == ["history.csv", "report.html"]
    page = next(Path("tracked/artifacts").rglob("report.html"))
    assert page.read_text() == Path("runs/exp/report.html").read_text()


class _Server(ThreadingHTTPServer):
    """A tracking server that answers every call with an error, or with nothing."""

    def __init__(self, status: int | None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status, self.over = status, threading.Event()

    @property
    def address(self) -> str:
        """For an experiment's file."""
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        """Answer, or wait until the test is over."""
        assert isinstance(self.server, _Server)
        if self.server.status is None:
            self.server.over.wait(60)
            return
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(b"<html>\x1b[2Jno</html>")

    do_POST = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture(params=[None, 403], ids=["silent", "refusing"])
def server(request: pytest.FixtureRequest) -> Iterator[_Server]:
    """A server that is of no use."""
    made = _Server(request.param)
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield made
    made.over.set()
    made.shutdown()
    made.server_close()


def test_a_server_that_does_not_take_results_loses_none(
    server: _Server, made: list[int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The wait is bounded, the message names the server and the command to go on with, and the document is complete."""
    monkeypatch.setattr(all_runs, "ALL_S", 0.5)
    with pytest.raises(Interrupted) as raised:
        run_file(written(f'mlflow = "{server.address}"'), as_json=True)
    assert str(raised.value).startswith(f"MLflow at {server.address}: ")
    assert str(raised.value).endswith(
        "; the results are in runs/exp; to log them: treetap experiment exp.toml --resume runs/exp"
    )
    assert "\x1b" not in str(raised.value)
    found = json.loads(capsys.readouterr().out)
    assert [each["seed"] for each in found["runs"]] == [4, 5]
    assert found["mlflow"].keys() == {"address", "experiment", "fault"}
    assert found == json.loads(Path("runs/exp/results.json").read_text())
    assert Path("runs/exp/report.html").exists()


def test_a_server_that_is_not_there(made: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """From Python the document has the fault; a closed port is told at once, without repetitions that take long."""
    monkeypatch.setattr(all_runs, "REPEATED", 0)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
        given = experiment().model_copy(update={"output": experiment_file.OutputTable(mlflow=address)})
        mlflow = given.output.mlflow_address(Path())
        found = run_experiment(opened(given, Path("kept")), mlflow=mlflow)
    assert (found.mlflow.fault or "").startswith(f"MLflow at {address}: ")
    assert len(found.runs) == 1


@pytest.mark.parametrize(
    ("output", "says"),
    [
        ('mlflow = "sqlite:///x.db"', "output.mlflow: is neither the address of a server, as http://HOST:5000, nor"),
        ('mlflow = "http://:5000"', "output.mlflow: is neither the address of a server"),
        ('mlflow = "http://me:secret@host:5000"', "give it by MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"),
        ('mlflow = "$NOT_SET/x"', "output.mlflow = '$NOT_SET/x': the environment variable is not set"),
        ('mlflow = "a?b"', "has one of # % ?; name another"),
        ("wandb = true", "output.wandb: unknown key"),
    ],
)
def test_outputs_that_cannot_be(output: str, says: str, made: list[int]) -> None:
    """Faults of the table are told by key, before a folder is made."""
    with pytest.raises(BadInput) as raised:
        run_file(written(output), as_json=True)
    assert says in str(raised.value)
    assert not Path("runs").exists()
    assert made == []


@pytest.mark.parametrize(
    ("output", "library"),
    [('mlflow = "http://host:5000"', "mlflow"), ('mlflow = "tracked"', "sqlalchemy")],
)
def test_a_library_that_is_not_installed(
    output: str, library: str, made: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The extra that installs it is named before anything starts."""
    monkeypatch.setattr(file_tables, "find_spec", lambda name: None if name == library else name)
    with pytest.raises(BadInput, match=rf"needs {library}: \S*pip install -e '\S*\[mlflow\]'"):
        run_file(written(output), as_json=True)
    assert made == []

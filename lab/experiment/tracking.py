"""An experiment's results at an MLflow tracking server or in a folder: a run for the experiment, one below it for each
seed and fold.

MLflow's own statistics of use go over the internet; they are off here unless the environment says otherwise.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.kept import Kept
from treetap.lab.experiment.results import Logged, RunResult, Summary, summary
from treetap.models.durable import make_ignored_folder
from treetap.names import on_loopback, visible

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient


#: Seconds that all calls of one experiment may take, and one call; how often a failed one is repeated.
ALL_S, CALL_S, REPEATED = 120.0, 10, 2
#: The file of the experiment's folder that says what was logged, so that a resumed one logs the rest.
LOGGED = "mlflow.json"
#: Most metrics and parameters of one call.
_MOST_METRICS, _MOST_PARAMETERS = 900, 90
#: Most characters of a parameter.
_MOST_LETTERS = 500


def log_to_mlflow(experiment: ExperimentFile, name: str, address: str, kept: Kept, artefacts: Sequence[str]) -> Logged:
    """Log what was not logged before; returns the address, and the experiment's run there, or the fault.

    The fault: the server or the folder refused a call, or did not answer in time; what was logged is marked.

    Args:
        experiment: the file.
        name: of MLflow's experiment.
        address: of the server, or an absolute folder, in which `mlflow.db` and `artifacts/` are made.
        kept: the results, on disk.
        artefacts: files of their folder that are logged too.
    """
    made = _Progress(kept, address)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            with _environment(address):
                _log(experiment, name, made, kept, artefacts)
        except BaseException as failure:  # noqa: BLE001 - raised again below, in the thread that waits
            failures.append(failure)

    # a daemon, so that a call that hangs ends with the process
    thread = threading.Thread(target=work, name="mlflow", daemon=True)
    thread.start()
    thread.join(ALL_S)
    if thread.is_alive():
        why = f"did not finish within {ALL_S:g} s"
    elif not failures:
        return Logged(address=address, experiment=name, run=made.run)
    else:
        from mlflow.exceptions import MlflowException  # an extra, which `work` has imported with our settings

        if not isinstance(failures[0], MlflowException | OSError):  # a defect of ours
            raise failures[0]
        why = visible(str(failures[0]).splitlines()[0])[:300]
    return Logged(address=address, experiment=name, fault=f"MLflow at {address}: {why}")


class _Progress:
    """An experiment as logged to one address: its run, and those of its seeds and folds that are complete."""

    def __init__(self, kept: Kept, address: str) -> None:
        self._kept, self.address = kept, address
        path = kept.folder / LOGGED
        logged = json.loads(path.read_text()) if path.exists() else {}
        logged = logged if logged.get("address") == address else {}
        self.run: str | None = logged.get("run")
        self.parts: list[str] = logged.get("parts", [])

    def write(self) -> None:
        """Write it; it is on disk when this returns."""
        content = {"address": self.address, "run": self.run, "parts": self.parts}
        self._kept.write_beside(LOGGED, json.dumps(content, indent=1))


def _log(experiment: ExperimentFile, name: str, made: _Progress, kept: Kept, artefacts: Sequence[str]) -> None:
    client, number = _opened(made.address, name)
    given = parameters(experiment)
    if made.run is None:
        made.run = client.create_run(number, run_name=kept.folder.name).info.run_id
        made.write()
        _log_figures(client, made.run, given, [])
    for run in kept.runs:
        part = run.planned
        if part.name in made.parts:
            continue
        tags = {"mlflow.parentRunId": made.run}
        below = client.create_run(number, run_name=part.name, tags=tags).info.run_id
        keys = {key: str(value) for key, value in part.keys.items()}
        history = [_defined({_word(name): value for name, value in row.items()}) for row in run.history]
        figures = [(key, value, step) for step, row in enumerate(history) for key, value in row.items()]
        figures += [(key, value, max(len(history) - 1, 0)) for key, value in final_metrics(run).items()]
        _log_figures(client, below, given | keys, figures)
        client.set_terminated(below)
        made.parts.append(part.name)
        made.write()
    means = [(key, value, len(kept.runs)) for key, value in summary_metrics(summary(kept.runs)).items()]
    _log_figures(client, made.run, {}, means)
    for artefact in artefacts:
        client.log_artifact(made.run, str(kept.folder / artefact))
    client.set_terminated(made.run)


def _opened(address: str, name: str) -> tuple[MlflowClient, str]:
    """A client, and the number of MLflow's experiment of that name, which is made if it is not there."""
    from mlflow.tracking import MlflowClient  # an extra

    if "://" in address:
        client, artefacts = MlflowClient(tracking_uri=address), None
    else:
        folder = Path(address)
        make_ignored_folder(folder, 0o777)
        client = MlflowClient(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}")
        artefacts = (folder / "artifacts").as_uri()
    known = client.get_experiment_by_name(name)
    return client, str(known.experiment_id if known else client.create_experiment(name, artifact_location=artefacts))


def _log_figures(
    client: MlflowClient, run: str, given: Mapping[str, str], figures: Sequence[tuple[str, float, int]]
) -> None:
    """Log parameters, and metrics with their steps, in as few calls as MLflow takes."""
    from mlflow.entities import Metric, Param

    now = int(time.time() * 1000)
    every = [Param(key, value[:_MOST_LETTERS]) for key, value in given.items()]
    for start in range(0, len(every), _MOST_PARAMETERS):
        client.log_batch(run, params=every[start : start + _MOST_PARAMETERS])
    for start in range(0, len(figures), _MOST_METRICS):
        part = [Metric(key, value, now, step) for key, value, step in figures[start : start + _MOST_METRICS]]
        client.log_batch(run, metrics=part)


@contextmanager
def _environment(address: str) -> Iterator[None]:
    """Settings of the library that the environment does not give itself: deadlines of calls, no statistics of use.

    A server on loopback is called directly, whatever proxy the environment names.
    """
    wanted = {
        "MLFLOW_HTTP_REQUEST_TIMEOUT": str(CALL_S),
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": str(REPEATED),
        "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
        "MLFLOW_ARTIFACT_UPLOAD_DOWNLOAD_TIMEOUT": str(CALL_S),
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_CONFIGURE_LOGGING": "false",
    }
    before = dict(os.environ)
    added = {name: value for name, value in wanted.items() if name not in before}
    host = urlsplit(address).hostname or ""
    if on_loopback(f"{host}:0"):
        added["no_proxy"] = f"{before.get('no_proxy') or before.get('NO_PROXY') or ''},{host}"
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            if name in before:
                os.environ[name] = before[name]
            else:
                os.environ.pop(name, None)


def parameters(experiment: ExperimentFile) -> dict[str, str]:
    """The experiment's parameters: those of the model with their defaults, of the table and of the parties."""
    job, data = experiment.job, experiment.data
    named = {"protocol": job.protocol, **job.key_by_name, "alignment": job.alignment}
    given = data.model_dump(mode="json", exclude_defaults=True, exclude={"seed"})
    every = {
        **{f"job.{key}": value for key, value in {**named, **job.params().to_dict()}.items()},
        **{f"data.{key}": value for key, value in given.items()},
        "parties": experiment.in_order,
        "defences": experiment.defences.model_dump(mode="json", exclude_unset=True),
    }
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in every.items() if value != {}}


def final_metrics(run: RunResult) -> dict[str, float]:
    """The measures of a run's models, its seconds and bytes by flat names; those that are defined.

    `test_auc` is of the held-out rows, `final_train_auc` of the finished model: `train_auc` is one of the rounds'.
    """
    figures = {
        f"{_row(row)}_{_word(name)}": value
        for row, measured in run.metric_rows.items()
        for name, value in measured.items()
    }
    figures |= {f"seconds_{_word(phase)}": value for phase, value in run.seconds.items()}
    figures["bytes"] = float(sum(row.bytes for row in run.traffic))
    return _defined(figures)


def summary_metrics(summary: Summary) -> dict[str, float]:
    """Mean and standard deviation of each measure over the runs."""
    figures: dict[str, float | None] = {}
    for row, measures in summary.metrics.items():
        for name, spread in measures.items():
            word = f"{_row(row)}_{_word(name)}"
            figures |= {f"{word}_mean": spread.mean, f"{word}_sd": spread.sd}
    return _defined(figures)


def _defined(figures: Mapping[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in figures.items() if value is not None}


def _row(name: str) -> str:
    return "final_train" if name == "train" else _word(name)


def _word(text: str) -> str:
    """A name that MLflow takes: letters, digits and underscores."""
    return re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_")

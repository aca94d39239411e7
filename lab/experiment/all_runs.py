"""All runs of an experiment, kept in a folder as they finish; `treetap experiment` and the Python interface call it.

An experiment's results at an MLflow tracking server or in a folder: a run for the experiment, one below it for each
seed and fold.

MLflow's own statistics of use go over the internet; they are off here unless the environment says otherwise.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from treetap.commands.jobs import progress_view
from treetap.errors import BadInput, TreetapError, visible
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.kept import MODELS, MOST_RECORDS, Kept, remove_private_keys
from treetap.lab.experiment.page import html
from treetap.lab.experiment.results import Logged, Results, RunResult, Summary, histories_csv, summary
from treetap.lab.experiment.run import Live, run_seed
from treetap.lab.experiment.side_by_side import add_other
from treetap.lab.experiment.xgboost_export import export_run
from treetap.models.durable import make_folder, make_ignored_folder, remove_folder
from treetap.names import on_loopback
from treetap.pages.page import drawn

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
#: The finished model's measures, where `train_…` are those of its rounds.
_FINAL = {"train": "final_train"}


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
    path = kept.folder / LOGGED
    logged = json.loads(path.read_text()) if path.exists() else {}
    # the run at this address, and the parts of it, seeds and folds, that are complete
    made: dict[str, Any] = {"address": address, "run": None, "parts": []}
    made |= logged if logged.get("address") == address else {}
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
        return Logged(address=address, experiment=name, run=made["run"])
    else:
        from mlflow.exceptions import MlflowException  # an extra, which `work` has imported with our settings

        if not isinstance(failures[0], MlflowException | OSError):  # a defect of ours
            raise failures[0]
        why = visible(str(failures[0]).splitlines()[0])[:300]
    return Logged(address=address, experiment=name, fault=f"MLflow at {address}: {why}")


def _log(experiment: ExperimentFile, name: str, made: dict[str, Any], kept: Kept, artefacts: Sequence[str]) -> None:
    client, number = _opened(made["address"], name)
    given = parameters(experiment)
    if made["run"] is None:
        made["run"] = str(client.create_run(number, run_name=kept.folder.name).info.run_id)
        kept.write_beside(LOGGED, json.dumps(made, indent=1))
        _log_figures(client, str(made["run"]), given, [])
    for run in kept.runs:
        part = run.planned
        if part.name in made["parts"]:
            continue
        tags = {"mlflow.parentRunId": made["run"]}
        below = client.create_run(number, run_name=part.name, tags=tags).info.run_id
        keys = {key: str(value) for key, value in part.keys.items()}
        history = [_defined({_word(name): value for name, value in row.items()}) for row in run.history]
        figures = [(key, value, step) for step, row in enumerate(history) for key, value in row.items()]
        figures += [(key, value, max(len(history) - 1, 0)) for key, value in final_metrics(run).items()]
        _log_figures(client, below, given | keys, figures)
        client.set_terminated(below)
        made["parts"].append(part.name)
        kept.write_beside(LOGGED, json.dumps(made, indent=1))
    means = [(key, value, len(kept.runs)) for key, value in summary_metrics(summary(kept.runs)).items()]
    _log_figures(client, made["run"], {}, means)
    for artefact in artefacts:
        client.log_artifact(made["run"], str(kept.folder / artefact))
    client.set_terminated(made["run"])


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
        f"{_word(_FINAL.get(row, row))}_{_word(name)}": value
        for row, measured in run.metric_rows.items()
        for name, value in measured.items()
    }
    figures |= {f"seconds_{_word(phase)}": value for phase, value in run.seconds.items()}
    figures["bytes"] = float(sum(row.bytes for row in run.traffic))
    return _defined(figures)


def summary_metrics(summary: Summary) -> dict[str, float]:
    """Mean and standard deviation of each measure over the runs."""
    figures: dict[str, float | None] = {
        f"{_word(_FINAL.get(row, row))}_{_word(name)}_{end}": getattr(spread, end)
        for row, measures in summary.metrics.items()
        for name, spread in measures.items()
        for end in ("mean", "sd")
    }
    return _defined(figures)


def _defined(figures: Mapping[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in figures.items() if value is not None}


def _word(text: str) -> str:
    """A name that MLflow takes: letters, digits and underscores."""
    return re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_")


#: Made of the results as each run ends.
HISTORY, PAGE = "history.csv", "report.html"


def run_experiment(
    kept: Kept,
    *,
    name: str = "the experiment",
    file: str = "FILE",
    mlflow: str | None = None,
    keep_keys: bool = False,
    export: bool = False,
    on_run: Callable[[RunResult], None] = lambda _: None,
    live: Live = progress_view.live,
) -> Results:
    """Run an experiment, or what is missing of it, and keep its results; prints nothing but a progress line.

    Args:
        kept: the checked experiment with its folder, which gets `results.json`, the document that is returned,
            `report.html`, `predictions/` and a federation's folder for each run (docs/experiment.md has them all).
        name: of MLflow's experiment.
        file: the experiment's, as commands to paste name it.
        mlflow: address of its server, or the folder, that gets the results too: `OutputTable.mlflow_address`.
        keep_keys: leave the private keys of the federations' authorities and processes, which are else deleted.
        export: write each run's model as XGBoost's JSON, `models/RUN.json`.
        on_run: called with the result of each run as it ends; not with those that were there already.
        live: shows the progress of a run: given its title, a context that yields a function which takes statuses of
            jobs. By default a line on standard error where that is a terminal.

    Returns:
        The document of `treetap experiment --json`, with the absolute path of the results. A failed audit leaves
        `audit_fault` in its run; `mlflow` is there if it is asked for, with `fault` if MLflow did not take all.

    Raises:
        TreetapError: a run failed; the results of those that finished are in the folder.
    """
    given = kept.experiment
    try:
        for run in given.runs:
            if any(finished.planned == run for finished in kept.runs):
                continue
            federation = kept.folder / run.name
            remove_folder(federation)  # what an earlier attempt left
            try:
                result = run_seed(
                    given, kept.table, run.seed, federation, fold=run.fold, live=live, predictions=kept.predictions(run)
                )
            finally:
                if not keep_keys:
                    remove_private_keys(federation)
            result.left_out = kept.left_out
            result.to_do = {of: re.sub(r"\bFILE$", lambda _: file, it) for of, it in result.to_do.items()}
            if export:
                _export(kept, result)
            if given.audited and kept.table.num_rows <= MOST_RECORDS:
                add_other(result, given, kept.table, kept.folder, live, keep_keys=keep_keys)
            kept.add(result)
            kept.write_beside(HISTORY, histories_csv(kept.runs))
            if (page := drawn(kept.folder / PAGE, lambda: html(given, kept.folder.name, kept.runs, file))) is not None:
                kept.write_beside(PAGE, page)
            on_run(result)
        if given.defence:
            from treetap.lab.experiment.frontier import compare_rows  # the attacks need an extra

            compare_rows(kept, "federation")
        if mlflow is None:
            return kept.write(None)
        beside = [name for name in (PAGE, HISTORY) if (kept.folder / name).exists()]
        return kept.write(log_to_mlflow(given, name, mlflow, kept, beside))
    except OSError as failure:
        raise TreetapError(f"{failure.filename or kept.folder}: {failure.strerror or failure}") from failure


def _export(kept: Kept, run: RunResult) -> None:
    """Note the file with a run's model for XGBoost, or why there is none: the run itself has succeeded."""
    make_folder(kept.folder / MODELS)
    path = kept.folder / MODELS / f"{run.planned.name}.json"
    try:
        export_run(kept.folder / run.planned.name, path)
        run.xgboost = str(path)
    except BadInput as fault:
        run.xgboost_fault = str(fault)

"""All runs of an experiment, kept in a folder as they finish; `treetap experiment` and the Python interface call it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pyarrow as pa

from treetap.commands.jobs import progress_view
from treetap.errors import BadInput, TreetapError
from treetap.lab.experiment.defended import check
from treetap.lab.experiment.experiment_file import AuditTable, ExperimentFile, lacking
from treetap.lab.experiment.joined_table import content_digest, labels_of, read_table, refuse_constant, split
from treetap.lab.experiment.kept import Kept, made_with, new_folder, remove_private_keys
from treetap.lab.experiment.looked_for import with_positive
from treetap.lab.experiment.page import html
from treetap.lab.experiment.results import Results, RunResult, histories_csv
from treetap.lab.experiment.run import Live, run_seed
from treetap.lab.experiment.spread_labels import with_classes
from treetap.lab.experiment.tracking import log_to_mlflow
from treetap.lab.experiment.xgboost_export import export_run
from treetap.lab.local_federation import empty_folder, keep_table, to_toml
from treetap.pages.page import drawn
from treetap.protocols.registry import training
from treetap.tables.source_keys import SourceKeys
from treetap.version import install

#: The table of an experiment that was given in memory, in the folder of its results.
TABLE = "table.parquet"
#: Made of the results as each run ends.
HISTORY, PAGE = "history.csv", "report.html"
#: Most records of a table that is compared and audited unless its file says otherwise.
MOST_RECORDS = 100_000


def run_experiment(
    experiment: ExperimentFile,
    folder: Path,
    *,
    base: Path = Path(),
    table: pa.Table | None = None,
    file: str | None = None,
    name: str = "the experiment",
    place: Literal["empty", "numbered", "resumed"] = "empty",
    keep_keys: bool = False,
    export: bool = False,
    on_start: Callable[[Kept, int], None] = lambda *_: None,
    on_run: Callable[[RunResult], None] = lambda _: None,
    live: Live = progress_view.live,
) -> Results:
    """Run an experiment, or what is missing of it, and keep its results; prints nothing but a progress line.

    Args:
        experiment: the checked file; `ExperimentFile.model_validate` makes one of a dictionary.
        folder: of the results. It gets `results.json`, the document that is returned, `report.html`,
            `predictions/` and a federation's folder for each run (docs/experiment.md has them all).
        base: folder from which relative paths in the experiment start.
        table: in the place of the source that `[data]` names, which is ignored: the joined table, kept as
            `table.parquet`. Relative paths of `label_rows` are not for such an experiment.
        file: text of the experiment's file, of which the folder gets a copy; by default one is made of `experiment`.
        name: of the experiment in messages about it.
        place: "empty": the folder is new or empty; "numbered": take the first of FOLDER, FOLDER-2, … that is not there;
            "resumed": it has results of the same experiment: run only the seeds and folds that it lacks.
        keep_keys: leave the private keys of the federations' authorities and processes, which are else deleted.
        export: write each run's model as XGBoost's JSON, `models/RUN.json`.
        on_start: called with the folder and the number of all runs, once all is checked.
        on_run: called with the result of each run as it ends; not with those that were there already.
        live: shows the progress of a run: given its title, a context that yields a function which takes statuses of
            jobs. By default a line on standard error where that is a terminal.

    Returns:
        The document of `treetap experiment --json`, with the absolute path of the results. A failed audit leaves
        `audit_fault` in its run; `mlflow` is there if `[output]` says so, with `fault` if MLflow did not take all.

    Raises:
        BadInput: the experiment, its table or the folder cannot be used: raised before a process starts.
        TreetapError: a run failed; the results of those that finished are in the folder.
    """
    mlflow, resumed = experiment.output.mlflow_address(base), place == "resumed"
    with _as_file(experiment, table, base) as (readable, where):
        given = with_frontier(readable, base)
        joined = read_table(given, where, None if file is None else Path(name))
        labels = labels_of(given, joined)
        given, left_out = with_usual(with_classes(given, labels), joined.num_rows)
        # a fault in the last split is reported before the first run
        runs = [(run, split(given, joined, run.seed, run.fold)) for run in given.runs]
        refuse_constant(given, joined, runs)
        for _, rows in runs:
            if given.defended:
                check(Path(name), given, rows, len(labels.classes))
        text = file if file is not None else to_toml(experiment.model_dump(mode="json", exclude_unset=True))
        kept = Kept(_folder(folder, place), made_with(given, content_digest(joined)), text, resume=resumed)
        given = with_positive(given, labels)
        if table is not None and not resumed:
            shutil.copy(where / TABLE, kept.folder / TABLE)  # with its mode: it is not for others
    on_start(kept, len(given.runs))
    try:
        for run in given.runs:
            if kept.holds(run):
                continue
            federation = kept.begin(run)
            try:
                result = run_seed(
                    given,
                    joined,
                    run.seed,
                    federation,
                    fold=run.fold,
                    live=live,
                    predictions=kept.predictions(run, given.format),
                )
            finally:
                if not keep_keys:
                    remove_private_keys(federation)
            result.left_out = left_out
            if export:
                _export(kept, result)
            kept.add(result)
            kept.write_beside(HISTORY, histories_csv(kept.runs))
            if (page := drawn(kept.folder / PAGE, lambda: html(given, kept.folder.name, kept.runs))) is not None:
                kept.write_beside(PAGE, page)
            on_run(result)
        if mlflow is None:
            return kept.write(None)
        beside = [name for name in (PAGE, HISTORY) if (kept.folder / name).exists()]
        return kept.write(log_to_mlflow(given, Path(name).stem, mlflow, kept, beside))
    except OSError as failure:
        raise TreetapError(f"{failure.filename or folder}: {failure.strerror or failure}") from failure


def _export(kept: Kept, run: RunResult) -> None:
    """Note the file with a run's model for XGBoost, or why there is none: the run itself has succeeded."""
    try:
        export_run(kept.folder / run.planned.name, path := kept.model(run.planned))
        run.xgboost = str(path)
    except BadInput as fault:
        run.xgboost_fault = str(fault)


def with_frontier(experiment: ExperimentFile, base: Path) -> ExperimentFile:
    """The experiment with the place of the audit's frontier, if it has one, which is read before the first run."""
    if experiment.audit is None or experiment.audit.frontier is None:
        return experiment
    from treetap.attacks.advice.frontiers_at_hand import given

    path = base / experiment.audit.frontier
    given(path, experiment.job.protocol, None)
    return experiment.model_copy(update={"audit": experiment.audit.model_copy(update={"frontier": path})})


def with_usual(experiment: ExperimentFile, records: int) -> tuple[ExperimentFile, list[str]]:
    """The experiment with `compare` and `[audit]` settled, and what is left out that its file did not turn off.

    Both are on for trees and tables of up to `MOST_RECORDS` records; `records`: of the joined table.
    """
    large, said = _too_much(experiment, records), []
    compare, audit = experiment.data.compare, experiment.audit
    if compare is None:
        compare = not large
        if large:
            said.append(
                f"Not compared with {_alone(experiment)}: {large}; compare = true in [data] does it all the same."
            )
    if audit is None and large:
        said.append(f"Not audited: {large}; a line [audit] does it all the same.")
    elif audit is None and (hindrance := _hindrance(experiment)):
        said.append(f"Not audited: {hindrance}.")
    elif audit is None:
        audit = AuditTable()
    data = experiment.data.model_copy(update={"compare": compare})
    return experiment.model_copy(update={"data": data, "audit": audit}), said


def _alone(experiment: ExperimentFile) -> str:
    return "each party alone" if experiment.spread else f"{experiment.in_order[0]} alone"


def _too_much(experiment: ExperimentFile, records: int) -> str:
    """The reason for which neither is on by itself; empty where both are."""
    if not training(experiment.job.protocol).grows_trees:
        return "it would train further networks"
    return f"the table has {records:,} records, more than {MOST_RECORDS:,}" if records > MOST_RECORDS else ""


def _hindrance(experiment: ExperimentFile) -> str:
    """The reason for which no audit is possible; empty where one is."""
    silent = [party.name for party in experiment.party if party.record == "off" and not party.labels]
    if silent:
        return f"{silent[0]} has record = 'off' and keeps no transcript"
    return f"it needs {missing}: {install('audit')}" if (missing := lacking()) else ""


@contextmanager
def _as_file(experiment: ExperimentFile, table: pa.Table | None, base: Path) -> Iterator[tuple[ExperimentFile, Path]]:
    """The experiment with the file that its table is read from, and the folder from which the file's path starts."""
    if table is None:
        yield experiment, base
        return
    with tempfile.TemporaryDirectory(prefix="treetap-") as held:
        keep_table(table, Path(held) / TABLE)
        kept = ("date_format", "missing", "duplicates")  # as the frame has them
        source = {name: field.default for name, field in SourceKeys.model_fields.items() if name not in kept}
        source["path"] = Path(TABLE)
        yield experiment.model_copy(update={"data": experiment.data.model_copy(update=source)}), Path(held)


def _folder(folder: Path, place: str) -> Path:
    """The folder of the results, made if it is not there, and empty unless an experiment is resumed in it."""
    if place == "resumed":
        return folder
    return new_folder(folder) if place == "numbered" else empty_folder(folder)

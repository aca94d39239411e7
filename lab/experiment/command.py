"""`treetap experiment`: run an experiment's file, print its report, say where the results are kept."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from treetap import terminal
from treetap.errors import BadInput, Interrupted
from treetap.lab.experiment.all_runs import PAGE, run_experiment
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.kept import Kept
from treetap.lab.experiment.printed import print_report, run_line
from treetap.lab.experiment.results import Results, RunResult
from treetap.lab.experiment.xgboost_export import check_exportable
from treetap.lab.local_federation import clean_end, working_folder
from treetap.strict import load, text_of

#: The folder of results without --workdir, in the current one.
RUNS = Path("runs")


def run_file(
    file: Path,
    *,
    as_json: bool,
    workdir: Path | None = None,
    resume: Path | None = None,
    discard: bool = False,
    keep_keys: bool = False,
    export: bool = False,
    details: bool = False,
) -> None:
    """Run an experiment file and print its report; results are kept in `runs/NAME` unless an option says otherwise.

    With `as_json` finished runs are printed even if a later one fails. `export`: write each run's model for XGBoost.
    `keep_keys`: see `run_experiment`. `details`: also the tables of costs and of attacks.

    Raises:
        BadInput: options that exclude each other, a fault of the file or its table, or an audit that failed.
    """
    given = {"--workdir": workdir is not None, "--resume": resume is not None, "--discard": discard}
    if sum(given.values()) > 1:
        raise BadInput(f"{' and '.join(name for name, there in given.items() if there)} exclude each other: give one")
    if keep_keys and discard:
        raise BadInput("--keep-keys keeps files, and --discard none: give one")
    if export and discard:
        raise BadInput("--export keeps a file of each model, and --discard none: give one")
    experiment = load(file, ExperimentFile)
    if export:
        check_exportable(experiment.job.protocol)
    output = _Output(file, as_json=as_json, discard=discard, details=details)
    # what has finished is kept, also where a run fails or Ctrl-C ends it
    with clean_end(), _temporary(discard) as temporary:
        try:
            made = run_experiment(
                experiment,
                resume or workdir or temporary or RUNS / file.stem,
                base=file.absolute().parent,
                file=text_of(file),
                name=str(file),
                place="resumed" if resume else "empty" if workdir or discard else "numbered",
                on_start=output.start,
                on_run=output.add,
                keep_keys=keep_keys,
                export=export,
            )
        except BaseException:
            output.stop()
            raise
    output.finish(made)


def _temporary(discard: bool) -> AbstractContextManager[Path | None]:
    return working_folder(None, "treetap-") if discard else nullcontext()


class _Output:
    """Output of the command."""

    def __init__(self, file: Path, *, as_json: bool, discard: bool, details: bool) -> None:
        self._file, self._as_json, self._discard, self._details = file, as_json, discard, details
        self._kept: Kept | None = None
        self._planned = 0

    def start(self, kept: Kept, planned: int) -> None:
        """All is checked, and the folder is there."""
        self._kept, self._planned = kept, planned
        if kept.runs:
            terminal.err.print(f"{planned} runs, {len(kept.runs)} of them finished already", soft_wrap=True)

    def add(self, run: RunResult) -> None:
        """A run has ended; a single one is not told apart from its report."""
        if not self._as_json and self._planned > 1:
            terminal.err.print(terminal.text(run_line(run)), soft_wrap=True)

    def stop(self) -> None:
        """A run failed, or the command is ended."""
        if self._kept is None:
            return
        if self._as_json and self._kept.runs:
            print(Results.of(self._kept.runs, None if self._discard else self._kept.folder).written())
        elif self._kept.runs:
            print_report(self._kept.runs, details=self._details)
        if not self._discard:
            folder = self._kept.folder
            done = f"{len(self._kept.runs)} of {self._planned} runs"
            terminal.err.print(
                f"stopped: {shown(folder)} has {done}; go on with the others: {self._resume(folder)}", soft_wrap=True
            )

    def finish(self, results: Results) -> None:
        """All runs have ended.

        Raises:
            BadInput: the audit of a run failed.
            Interrupted: MLflow did not take the results.
        """
        runs, folder, logged = results.runs, Path(results.folder or ""), results.mlflow
        if self._as_json:
            print((results.model_copy(update={"folder": None}) if self._discard else results).written())
        else:
            print_report(runs, details=self._details)
            if logged is not None and logged.fault is None:
                terminal.out.print(f"MLflow: {logged.address}, run {logged.run}", soft_wrap=True)
            if not self._discard:
                if (folder / PAGE).exists():
                    terminal.out.print(f"report: {shown(folder / PAGE)}", soft_wrap=True)
                if len(runs) == 1 and runs[0].audit_report is not None:
                    terminal.out.print(f"audit: {shown(Path(runs[0].audit_report))}", soft_wrap=True)
                terminal.out.print(f"results: {shown(folder)}", soft_wrap=True)
        # the results are printed before: the exit status alone says that an audit failed
        faults = [(run.planned.title, run.audit_fault) for run in runs if run.audit_fault is not None]
        if faults:
            raise BadInput("; ".join(f"{title}: the audit failed: {fault}" for title, fault in faults))
        if logged is not None and logged.fault is not None:
            again = f"; the results are in {shown(folder)}; to log them: {self._resume(folder)}"
            raise Interrupted(f"{logged.fault}{'' if self._discard else again}")

    def _resume(self, folder: Path) -> str:
        return f"treetap experiment {self._file} --resume {shown(folder)}"


def shown(folder: Path) -> str:
    """A path as a person would type it here."""
    return os.path.relpath(folder) if folder.is_relative_to(Path.cwd()) else str(folder)

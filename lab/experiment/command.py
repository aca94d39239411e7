"""`treetap experiment`: run an experiment's file, print its report, say where the results are kept.

An experiment's report in a terminal: what it is worth and who learned what, a line a run, and details on request.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from treetap import terminal
from treetap.commands.jobs.progress_view import backends_line, epochs_used, trees_used
from treetap.commands.leakage import leakage_table
from treetap.errors import BadInput, Interrupted
from treetap.lab.experiment.all_runs import PAGE, run_experiment
from treetap.lab.experiment.baselines import concluded
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.headline import each_alone, headline
from treetap.lab.experiment.kept import RUNS, opened, shown
from treetap.lab.experiment.results import (
    Results,
    RunResult,
    spread,
    to_lower,
    warnings,
    worst_verdicts,
)
from treetap.lab.experiment.side_by_side import by_privacy
from treetap.lab.experiment.tables import metric_table, phases, predictions, traffic
from treetap.lab.experiment.xgboost_export import check_exportable
from treetap.lab.local_federation import clean_end, working_folder
from treetap.pages.printing import print_section, print_words
from treetap.pages.section import Section
from treetap.strict import load, text_of


def print_report(runs: Sequence[RunResult], *, details: bool) -> None:
    """The report of finished runs, at least one, for a person; tables are of all runs together."""
    print_words(terminal.out, *warnings(runs), *verdict(runs))
    print_section(Section("", [*by_privacy(runs), metric_table(runs)]), terminal.out)
    print_words(terminal.out, *dict.fromkeys(line for run in runs for line in _about(run)))
    if best := ", ".join(f"{row.feature} ({row.party})" for row in runs[0].importance[:5]):
        print_words(terminal.out, f"most important: {best}")
    if details:
        _print_details(runs)
    seconds = spread(math.fsum(run.seconds.values()) for run in runs).mean or 0.0
    sent = sum(row.bytes for run in runs for row in run.traffic) / len(runs)
    of_runs = "mean of the runs, " if len(runs) > 1 else ""
    audits = [run.audit_seconds for run in runs if run.audit_seconds is not None]
    audited = [f"an audit: {spread(audits).mean:.1f} s"] if audits else []
    print_words(terminal.out, f"{of_runs}training: {seconds:.1f} s", *audited, f"sent: {terminal.size(sent)}")
    terminal.out.file.flush()


def verdict(runs: Sequence[RunResult]) -> list[str]:
    """Together against alone, what each side learned, and what was not measured and why."""
    said = [*concluded(runs)[:1], *each_alone([run.gain for run in runs])]
    if verdicts := worst_verdicts(runs):
        from treetap.attacks.report.verdict import TITLE, told  # the attacks need an extra

        said += [
            f"{TITLE}, the worst of {len(runs)} runs:" if len(runs) > 1 else f"{TITLE}:",
            *told(it for it, _ in verdicts),
        ]
    said += [line for advice, _ in to_lower(verdicts) for line in advice.splitlines()]
    return [*said, *dict.fromkeys(left_out for run in runs for left_out in run.left_out)]


def _about(run: RunResult) -> list[str]:
    """Sentences about a run's model, each of which says something that is not as usual."""
    used = "" if run.trees is None else trees_used(**run.trees)
    used += "" if run.epochs is None else epochs_used(**run.epochs)
    said = [*run.says, *([used] if used else [])]
    for party, names in run.dropped_columns.items():
        said += [f"constant, hence dropped of {party}: {', '.join(names)}"] if names else []
    if run.xgboost_fault is not None:
        said.append(f"no model for XGBoost: {run.xgboost_fault}")
    elif run.xgboost is not None:
        said.append(f"model for XGBoost: {run.xgboost}")
    return said


def _print_details(runs: Sequence[RunResult]) -> None:
    """The gain with its interval, costs and predictions, and of each run its bounds and its audit."""
    print_words(terminal.out, headline([run.gain for run in runs]) or "")
    print_section(Section("", [phases(runs), traffic(runs), predictions(runs)]), terminal.out)
    for run in runs:
        if len(runs) > 1 and (run.leakage or run.audit):
            terminal.out.rule(run.planned.title)
        if run.leakage:
            terminal.out.print("\nWhat sets of records say about the label, in nats; bounds are per node, not joint")
            terminal.out.print(leakage_table(run.leakage))
        if run.audit:
            from treetap.attacks.report.page import print_summary  # the attacks need an extra
            from treetap.lab.experiment.audited import DOCUMENT

            print_summary(json.loads((run.federation / DOCUMENT).read_text(encoding="utf-8")), terminal.out)
    peak = max((item for run in runs for item in run.peak_rss_mb.items()), key=lambda item: item[1], default=("", 0.0))
    terminal.out.print(f"largest process: {peak[0]}, {peak[1]:.0f} MiB")
    terminal.out.print(terminal.text(backends_line(runs[0].arithmetic)), soft_wrap=True)


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
        Interrupted: MLflow did not take the results.
    """
    given = {"--workdir": workdir is not None, "--resume": resume is not None, "--discard": discard}
    if sum(given.values()) > 1:
        raise BadInput(f"{' and '.join(name for name, there in given.items() if there)} exclude each other: give one")
    kept_by = {"--keep-keys keeps files": keep_keys, "--export keeps a file of each model": export}
    if discard and (keeps := [said for said, there in kept_by.items() if there]):
        raise BadInput(f"{keeps[0]}, and --discard none: give one")
    experiment = load(file, ExperimentFile)
    if export:
        check_exportable(experiment.job.protocol)
    base, again = file.absolute().parent, f"treetap experiment {file} --resume"
    mlflow = experiment.output.mlflow_address(base)
    # what has finished is kept, also where a run fails or Ctrl-C ends it
    with clean_end(), working_folder(None, "treetap-") if discard else nullcontext() as temporary:
        kept = opened(
            experiment,
            resume or workdir or temporary or RUNS / file.stem,
            base=base,
            file=text_of(file),
            name=str(file),
            place="resumed" if resume else "empty" if workdir or discard else "numbered",
        )
        planned = len(kept.experiment.runs)
        if kept.runs:
            terminal.err.print(f"{planned} runs, {len(kept.runs)} of them finished already", soft_wrap=True)

        def add(_: RunResult) -> None:
            if not as_json and planned > 1:  # a single one is not told apart from its report
                terminal.err.print(f"trained {len(kept.runs)} of {planned}", soft_wrap=True)

        try:
            made = run_experiment(
                kept,
                name=file.stem,
                file=shlex.quote(str(file)),
                mlflow=mlflow,
                keep_keys=keep_keys,
                export=export,
                on_run=add,
            )
        except BaseException:
            if kept.runs and as_json:
                print(Results.of(kept.runs, None if discard else kept.folder).written())
            elif kept.runs:
                print_report(kept.runs, details=details)
            if not discard:
                folder = shown(kept.folder)
                done = f"{folder} has {len(kept.runs)} of {planned} runs"
                terminal.err.print(f"stopped: {done}; go on with the others: {again} {folder}", soft_wrap=True)
            raise
        if as_json:
            print((made.model_copy(update={"folder": None}) if discard else made).written())
        else:
            print_report(made.runs, details=details)
            _print_places(made, None if discard else kept.folder)
    # the results are printed before: the exit status alone says that an audit failed
    faults = [(run.planned.title, run.audit_fault) for run in made.runs if run.audit_fault is not None]
    if faults:
        raise BadInput("; ".join(f"{title}: the audit failed: {fault}" for title, fault in faults))
    if made.mlflow is not None and made.mlflow.fault is not None:
        folder = shown(kept.folder)
        more = "" if discard else f"; the results are in {folder}; to log them: {again} {folder}"
        raise Interrupted(f"{made.mlflow.fault}{more}")


def _print_places(made: Results, folder: Path | None) -> None:
    """Say where the results are. `folder`: of all files, if they are kept."""
    if made.mlflow is not None and made.mlflow.fault is None:
        terminal.out.print(f"MLflow: {made.mlflow.address}, run {made.mlflow.run}", soft_wrap=True)
    if folder is None:
        return
    if (folder / PAGE).exists():
        terminal.out.print(f"report: {shown(folder / PAGE)}", soft_wrap=True)
    if len(made.runs) == 1 and made.runs[0].audit_report is not None:
        terminal.out.print(f"audit: {shown(Path(made.runs[0].audit_report))}", soft_wrap=True)
    terminal.out.print(f"results: {shown(folder)}", soft_wrap=True)

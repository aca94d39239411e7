"""The results of an experiment as one self-contained HTML file; names are escaped."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from urllib.parse import quote

from treetap.commands.experiment import page_curves as curves
from treetap.commands.experiment import page_tables as figures
from treetap.commands.experiment.experiment_file import ExperimentFile
from treetap.commands.experiment.results import RunResult
from treetap.pages.page import render


def html(experiment: ExperimentFile, name: str, runs: Sequence[RunResult]) -> str:
    """The page of an experiment's finished runs; at least one. `name`: the experiment's."""
    importance, left_out = figures.importances(runs)
    return render(
        "treetap.commands.experiment",
        "results.html.j2",
        name=name,
        runs=len(runs),
        weight=experiment.data.weight,
        facts=_facts(experiment, runs),
        says=list(dict.fromkeys(line for run in runs for line in run.says)),
        faults=[(run.planned.title, run.audit_fault) for run in runs if run.audit_fault is not None],
        audits=[(run.planned.title, _near(run.audit_report)) for run in runs if run.audit_report],
        metrics=figures.metric_table(runs),
        by_run=figures.run_table(runs),
        confusion=figures.confusion(runs),
        classes=figures.class_table(runs),
        residuals=figures.residuals(runs),
        roc=curves.roc_pictures(runs),
        calibration=curves.calibration_pictures(runs),
        most_classes=curves.MOST_CLASSES,
        history=curves.history_pictures(runs),
        legend=curves.legend(runs),
        importance=importance,
        left_out=left_out,
        phases=figures.phases(runs),
        traffic=figures.traffic(runs),
        predictions=figures.predictions(runs),
    )


def _facts(experiment: ExperimentFile, runs: Sequence[RunResult]) -> list[tuple[str, str]]:
    """Names and values of the settings that were run."""
    data, first, *others = experiment.data, *experiment.in_order
    held_out = f"{data.cv} folds" if data.cv is not None else f"{data.test_share:.0%} of the rows"
    roles = [("parties", ", ".join([first, *others]))]
    if not experiment.spread:
        roles = [("label holder", first), ("feature parties", ", ".join(others))]
    return [
        ("table", data.title),
        ("label", data.label),
        ("protocol", experiment.job.protocol),
        ("objective", experiment.job.params().objective),
        *roles,
        ("columns", ", ".join(str(len(names)) for names in runs[0].columns.values())),
        ("held out", held_out + ("" if data.time is None else f", the last by {data.time}")),
        ("seeds", ", ".join(dict.fromkeys(str(run.seed) for run in runs))),
        ("runs", str(len(runs))),
        ("treetap", version("treetap")),
        ("made", datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")),
    ]


def _near(report: str) -> str:
    """The address of an audit's report from the page, which lies beside the run's folder."""
    path = Path(report)
    return quote(f"{path.parent.name}/{path.name}")

"""A run of an experiment as event files of TensorBoard."""

from __future__ import annotations

import json
from pathlib import Path

from treetap.commands.experiment.experiment_file import ExperimentFile
from treetap.commands.experiment.results import RunResult
from treetap.commands.experiment.tracking.figures import final_metrics, parameters, rounds
from treetap.models.durable import remove_folder

FOLDER = "tensorboard"


def write(experiment: ExperimentFile, run: RunResult, folder: Path) -> None:
    """Write a run's metrics by round, its final figures and its parameters below `folder`; what is there is replaced.

    Scalars are `MEASURE/RECORDS` by round, as `auc/train`, and `final/NAME` at the last round; texts are `parameters`,
    and `report`, the path of the page.
    """
    from tensorboardX import SummaryWriter  # an extra

    target = folder / FOLDER / run.planned.name
    remove_folder(target)
    history = rounds(run)
    with SummaryWriter(logdir=str(target), write_to_disk=True) as writer:
        for number, row in enumerate(history):
            for name, value in row.items():
                records, _, measure = name.partition("_")
                writer.add_scalar(f"{measure}/{records}", value, number)
        last = max(len(history) - 1, 0)
        for name, value in final_metrics(run).items():
            writer.add_scalar(f"final/{name}", value, last)
        writer.add_text("parameters", _as_block(json.dumps(parameters(experiment), indent=1)), last)
        writer.add_text("report", _as_block(str(folder / "report.html")), last)


def _as_block(text: str) -> str:
    """Text as it is, where TensorBoard reads Markdown."""
    return "".join(f"    {line}\n" for line in text.splitlines())

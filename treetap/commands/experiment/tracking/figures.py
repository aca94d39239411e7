"""Parameters and figures of an experiment by flat names, as tracking tools have them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from treetap.commands.experiment.experiment_file import ExperimentFile
from treetap.commands.experiment.results import RunResult, Summary


def parameters(experiment: ExperimentFile) -> dict[str, str]:
    """The experiment's parameters: those of the model with their defaults, of the table and of the parties."""
    job, data = experiment.job, experiment.data
    named = {name: getattr(job, name) for name in ("protocol", "scheme", "key_bits", "alignment")}
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


def rounds(run: RunResult) -> list[dict[str, float]]:
    """The metrics after each round, those that are defined."""
    return [_defined({_word(name): value for name, value in row.items()}) for row in run.history]


def _defined(figures: Mapping[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in figures.items() if value is not None}


def _row(name: str) -> str:
    return "final_train" if name == "train" else _word(name)


def _word(text: str) -> str:
    """A name that every tool takes: letters, digits and underscores."""
    return re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_")

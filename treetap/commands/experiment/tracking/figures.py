"""Parameters and figures of an experiment by flat names, as tracking tools have them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from treetap.commands.experiment.experiment_file import ExperimentFile
from treetap.commands.experiment.summary import metric_rows


def parameters(experiment: ExperimentFile) -> dict[str, str]:
    """The experiment's parameters: those of the model with their defaults, of the table and of the parties."""
    job, data = experiment.job, experiment.data
    named = {name: getattr(job, name) for name in ("protocol", "scheme", "key_bits", "alignment")}
    given = data.model_dump(mode="json", exclude_defaults=True, exclude={"seed"})
    found = {f"job.{key}": value for key, value in {**named, **job.params().to_dict()}.items()}
    found |= {f"data.{key}": value for key, value in given.items()}
    found["parties"] = experiment.in_order
    found["defences"] = experiment.defences.model_dump(mode="json", exclude_unset=True)
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in found.items() if value != {}}


def final_metrics(run: Mapping[str, Any]) -> dict[str, float]:
    """The measures of a run's models, its seconds and bytes by flat names; those that are defined.

    `test_auc` is of the held-out rows, `final_train_auc` of the finished model: `train_auc` is one of the rounds'.
    """
    rows = {"final_train" if row == "train" else _word(row): measured for row, measured in metric_rows(run).items()}
    found = {f"{row}_{_word(name)}": value for row, each in rows.items() for name, value in each.items()}
    found |= {f"seconds_{_word(phase)}": value for phase, value in run["seconds"].items()}
    found["bytes"] = float(sum(row["bytes"] for row in run["traffic"]))
    return _defined(found)


def summary_metrics(summary: Mapping[str, Any]) -> dict[str, float]:
    """Mean and standard deviation of each measure over the runs."""
    found: dict[str, float | None] = {}
    for row, measures in summary["metrics"].items():
        for name, figures in measures.items():
            word = f"{'final_train' if row == 'train' else _word(row)}_{_word(name)}"
            found |= {f"{word}_mean": figures["mean"], f"{word}_sd": figures["sd"]}
    return _defined(found)


def rounds(run: Mapping[str, Any]) -> list[dict[str, float]]:
    """The metrics after each round, those that are defined."""
    return [_defined({_word(name): value for name, value in row.items()}) for row in run["history"]]


def _defined(found: Mapping[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in found.items() if value is not None and math.isfinite(value)}


def _word(text: str) -> str:
    """A name that every tool takes: letters, digits and underscores."""
    return re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_")

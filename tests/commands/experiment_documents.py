"""Results of runs as experiments have them, without a federation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.results import RunResult
from treetap.trees import metrics
from treetap.trees.evaluation import evaluate

TWO, REGRESSION = "binary:logistic", "reg:squarederror"


def experiment(objective: str = TWO, names: tuple[str, str] = ("clinic", "lab"), **data: Any) -> ExperimentFile:
    """The file of two parties with columns a, and b and c."""
    first, second = names
    parties = [{"name": first, "columns": ["a"], "labels": True}, {"name": second, "columns": ["b", "c"]}]
    given = {"path": "t.csv", "label": "y", **data}
    return ExperimentFile.model_validate({"data": given, "party": parties, "job": {"objective": objective}})


def run(
    seed: int = 0,
    fold: int | None = None,
    objective: str = TWO,
    classes: tuple[str, ...] = ("no", "yes"),
    names: tuple[str, str] = ("clinic", "lab"),
    columns: tuple[str, ...] = ("a", "b", "c"),
    rounds: int = 4,
    **changes: Any,
) -> RunResult:
    """The result of a run whose predictions of 60 rows are drawn by its seed and fold; `changes`: other fields."""
    draw = np.random.default_rng((seed, fold or 0))
    if objective == REGRESSION:
        labels: Any = draw.normal(size=60)
        outcome = labels + draw.normal(size=60) / 3
        classes = ()
    else:
        labels = np.arange(60) % len(classes)
        scores = draw.random((60, len(classes))) + 1.5 * np.eye(len(classes))[labels] * draw.random((60, 1))
        chances = scores / scores.sum(axis=1, keepdims=True)
        outcome = chances if len(classes) > 2 else chances[:, 1]
    measured = metrics.evaluate(objective, outcome, labels)
    measure = next(iter(measured))
    first, second = names
    traffic = [
        {"from": first, "to": second, "step": "grow", "class": "CIPHERTEXT", "messages": 3, "bytes": 30_000 + seed},
        {"from": second, "to": "coordinator", "step": "grow", "class": "CONTROL", "messages": 9, "bytes": 900},
    ]
    content = {
        "seed": seed,
        **({} if fold is None else {"fold": fold}),
        "metrics": {"train": measured, "test": measured},
        "evaluation": evaluate(objective, outcome, labels, classes),
        "history": [
            {f"train_{measure}": 0.5 + 0.1 * k, f"validation_{measure}": 0.5 + 0.05 * k + 0.01 * seed}
            for k in range(rounds)
        ],
        "seconds": {"startup": 1.0, "train": 2.0 + seed},
        "traffic": traffic,
        "leakage": [],
        "importance": [
            {
                "party": first if k == 0 else second,
                "feature": name,
                "weight": k + 1,
                "gain": 2.0 / (k + 1),
                "cover": 1.0,
            }
            for k, name in enumerate(columns)
        ],
        "columns": {first: list(columns[:1]), second: list(columns[1:])},
        "records": {"train": 240, "test": 60},
        "trees": {"planned": rounds, "grown": rounds, "used": rounds},
        "peak_rss_mb": {first: 100.0},
        "arithmetic": {first: "gmpy2"},
        "ciphertexts": {"gradients": 240},
        "operations": {"encryptions": 240},
        "seconds_by_step": {first: {"grow": 1.5}},
        "cpu_seconds": {first: 2.5},
        "model": {name: Path("runs/exp", f"seed-{seed}", name, "state/models/experiment") for name in names},
    }
    return RunResult.model_validate(content | changes)

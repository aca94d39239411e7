"""Losses and metrics of a network's epochs at the label holder, and the choice of the best epoch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from treetap.neural.early_stopping import EarlyStopping
from treetap.neural.objective import Objective
from treetap.wire.v2 import setup_pb2, types_pb2

Array = np.ndarray[Any, np.dtype[Any]]
Floats = np.ndarray[Any, np.dtype[np.float64]]
#: Scores (n, K) and labels (n,) of the same records.
Scored = tuple[Floats, Array]


class EpochFigures:
    """The figures of all epochs so far.

    Metrics of the training records are of their scores in the course of the epoch, before the step of their batch.
    """

    def __init__(self, rounds: int | None) -> None:
        """`rounds`: see `EarlyStopping`."""
        self._stopping = EarlyStopping(rounds)
        self._history: list[dict[str, float]] = []

    @property
    def stopped(self) -> bool:
        """True if no epoch is to follow."""
        return self._stopping.stopped

    def take(self, epoch: int, objective: Objective, loss: float, training: Scored, validation: Scored) -> bool:
        """Note the figures of an epoch; True if its weights are the best so far."""
        figures = {"loss": loss, **objective.metrics(*training)}
        watched = loss
        if self._stopping.rounds is not None:
            watched = objective.watched(*validation)
            figures |= {f"validation_{name}": value for name, value in objective.metrics(*validation).items()}
        self._history = [*self._history[:epoch], figures]
        return self._stopping.take(epoch, watched)

    def published(self) -> list[types_pb2.NamedMetric]:
        """The last epoch's figures for the coordinator; one that is no finite number is left out."""
        found = self._history[-1].items()
        return [types_pb2.NamedMetric(name=name, value=value) for name, value in found if np.isfinite(value)]

    def state(self) -> dict[str, Array]:
        """All figures as arrays, by name."""
        return {**self._stopping.state(), "history": np.array(json.dumps(self._history))}

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Continue from a state that `state` has returned."""
        self._stopping.load(arrays)
        self._history = json.loads(str(arrays["history"]))

    def summary(self) -> dict[str, Any]:
        """The part of the manifest about epochs: the best one, its figures, and those of all."""
        best = required_epoch(self._stopping.best_epoch)
        plain = [
            {name: value if np.isfinite(value) else None for name, value in epoch.items()} for epoch in self._history
        ]
        return {"best_epoch": best, "training_metrics": plain[best], "history": plain}


def required_epoch(epoch: int | None) -> int:
    """The best epoch, which there is once one is stored."""
    assert epoch is not None
    return epoch


def published_network(manifest: Mapping[str, Any]) -> setup_pb2.PublishedModel:
    """The report on a model, from the label holder's manifest. A metric that is no finite number is left out."""
    metrics = manifest["training_metrics"].items()
    return setup_pb2.PublishedModel(
        trees=manifest["epochs"],
        used_trees=manifest["best_epoch"] + 1,
        metrics=[types_pb2.NamedMetric(name=name, value=value) for name, value in metrics if value is not None],
    )

"""Losses and metrics of a network's epochs at the label holder, and the choice of the best epoch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from treetap.errors import DataError
from treetap.models.kept import CLEAN_METRICS
from treetap.neural.objective import Objective
from treetap.neural.params import SplitnnParams
from treetap.party.runtime.context import required
from treetap.trees.metrics import finite
from treetap.wire.v2 import setup_pb2, types_pb2

Array = np.ndarray[Any, np.dtype[Any]]
Floats = np.ndarray[Any, np.dtype[np.float64]]
#: Scores (n, K) and labels (n,) of the same records.
Scored = tuple[Floats, Array]


class EpochFigures:
    """The figures of all epochs so far.

    Metrics of the training records are of their scores in the course of the epoch, before the step of their batch.
    """

    def __init__(self, params: SplitnnParams) -> None:
        self._stopping = params.watch()
        self._history: list[dict[str, float]] = []
        self._clean: list[dict[str, float]] = []

    @property
    def stopped(self) -> bool:
        return self._stopping.stopped

    @property
    def best_epoch(self) -> int | None:
        """The best epoch so far; None before the first."""
        return self._stopping.best_round

    @property
    def history(self) -> list[dict[str, float | None]]:
        """The figures of every epoch; one that is no finite number is None."""
        return [finite(epoch) for epoch in self._history]

    def take(self, epoch: int, objective: Objective, loss: float, training: Scored, validation: Scored) -> bool:
        """Note the figures of an epoch; True if its weights are the best so far.

        Raises:
            DataError: the validation loss is not finite, and no epoch before had one: there would be no best one.
        """
        watched = loss if self._stopping.rounds is None else objective.watched(*validation)
        if self.best_epoch is None and not np.isfinite(watched):
            raise DataError(f"the validation loss of epoch {epoch} is not finite; a smaller learning_rate keeps it so")
        self._history = [
            *self._history[:epoch],
            {"train_loss": loss, **self._measured(objective, training, validation)},
        ]
        return self._stopping.take(epoch, watched)

    def take_clean(self, epoch: int, objective: Objective, training: Scored, validation: Scored) -> None:
        """Note the figures of an epoch by clean labels, where training has noisy ones: see `clean_summary`."""
        self._clean = [*self._clean[:epoch], self._measured(objective, training, validation)]

    def published(self) -> list[types_pb2.NamedMetric]:
        """The last epoch's figures for the coordinator; one that is no finite number is left out."""
        figures, noisy = self._history[-1].items(), bool(self._clean)
        return [
            types_pb2.NamedMetric(name=name, value=value, noisy=noisy) for name, value in figures if np.isfinite(value)
        ]

    def state(self) -> dict[str, Array]:
        kept = {"history": self._history, "clean_history": self._clean}
        return {**self._stopping.state(), **{name: np.array(json.dumps(epochs)) for name, epochs in kept.items()}}

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Continue from a state that `state` has returned."""
        self._stopping.load(arrays)
        self._history, self._clean = (json.loads(str(arrays[name])) for name in ("history", "clean_history"))

    def summary(self) -> dict[str, Any]:
        """The part of the manifest about epochs: the best one, its figures, and those of all."""
        best, plain = required(self._stopping.best_round), self.history
        return {"best_epoch": best, "training_metrics": plain[best], "history": plain}

    def clean_summary(self) -> dict[str, Any]:
        """The best epoch's figures by clean labels, for the label holder's own file."""
        return {"training_metrics": finite(self._clean[required(self._stopping.best_round)])}

    def _measured(self, objective: Objective, training: Scored, validation: Scored) -> dict[str, float]:
        measured = {f"train_{name}": value for name, value in objective.metrics(*training).items()}
        if self._stopping.rounds is not None:
            measured |= {f"validation_{name}": value for name, value in objective.metrics(*validation).items()}
        return measured


def published_network(manifest: Mapping[str, Any]) -> setup_pb2.PublishedModel:
    """The report on a model, from the label holder's manifest. A metric that is no finite number is left out."""
    metrics, noisy = manifest["training_metrics"].items(), CLEAN_METRICS in manifest["files"]
    return setup_pb2.PublishedModel(
        trees=manifest["epochs"],
        used_trees=manifest["best_epoch"] + 1,
        metrics=[
            types_pb2.NamedMetric(name=name, value=value, noisy=noisy) for name, value in metrics if value is not None
        ],
    )

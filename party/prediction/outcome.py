"""Predictions by scores: class or value, and probability; the same in a file and in an answer to a client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from treetap.tables.labels import of_class
from treetap.tables.reading import Floats
from treetap.tables.typed import typed
from treetap.trees.job_params import BINARY, REGRESSIONS
from treetap.trees.loss import outcome_of


@dataclass(frozen=True)
class Outcome:
    """The outcome of n records: `classes`, or `predictions` of a regression; `scores` (n, outputs); `probabilities`.

    The last is (n, 1) for two classes (that of the second), (n, classes) for more, (n, 0) for a regression. Of
    `classes` and `predictions` the other one is empty.
    """

    classes: list[str]
    predictions: list[float]
    scores: Floats
    probabilities: Floats

    @classmethod
    def of(cls, objective: str, classes: Sequence[str], scores: Floats) -> Outcome:
        """The outcome by the scores (n, outputs) of a model that was trained for an objective."""
        outcome = outcome_of(objective, len(classes), scores)
        if objective in REGRESSIONS:
            return cls([], outcome.tolist(), scores[:, :1], np.zeros((len(scores), 0)))
        if objective in BINARY:
            second = outcome.tolist()
            return cls([classes[int(p > 0.5)] for p in second], [], scores[:, :1], outcome.reshape(-1, 1))
        return cls([classes[k] for k in outcome.argmax(axis=1)], [], scores, outcome)

    def columns(self, classes: Sequence[str], kind: pa.DataType) -> dict[str, Any]:
        """Name → n values, as a file of predictions has them; `kind`: the type of the classes in their table."""
        named = typed(self.classes, kind) if classes else pa.array(self.predictions, pa.float64())
        columns: dict[str, Any] = {"prediction": named}
        if 0 < self.probabilities.shape[1] == len(classes):
            columns |= {of_class("probability", name): self.probabilities[:, k] for k, name in enumerate(classes)}
            return columns | {of_class("score", name): self.scores[:, k] for k, name in enumerate(classes)}
        if self.probabilities.shape[1]:
            columns[of_class("probability", classes[1])] = self.probabilities[:, 0]
        return columns | {"score": self.scores[:, 0]}

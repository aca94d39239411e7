"""The objectives of split networks: loss, and scores with the meaning that they have for trees."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from treetap.arrays import Array, Floats
from treetap.neural.inputs import mean_and_deviation
from treetap.neural.params import SplitnnParams
from treetap.trees.loss import outcome_of
from treetap.trees.metrics import evaluate, watched

Labels = Array


@dataclass(frozen=True)
class Objective:
    """One objective over outputs (n, K) of the top model.

    `centre`, `spread`: mean and deviation of the training targets of a regression, whose network learns standardised
    targets; 0 and 1 for classes.
    """

    name: str
    classes: int
    outputs: int
    centre: float = 0.0
    spread: float = 1.0

    @classmethod
    def of(cls, params: SplitnnParams, classes: int, labels: Labels) -> Objective:
        """The objective of a job; `labels` are those of the records that are trained on.

        Raises:
            DataError: targets are too large to standardise.
        """
        if not params.regression:
            return cls(params.objective, classes, params.outputs(classes))
        return cls(params.objective, 0, 1, *mean_and_deviation(labels, "the label"))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return asdict(self)

    def loss(self, outputs: torch.Tensor, labels: Labels) -> torch.Tensor:
        """Mean loss of a batch: cross-entropy, or the squared error of standardised targets."""
        if self.name == "multi:softprob":
            return functional.cross_entropy(outputs, torch.from_numpy(labels.astype(np.int64)))
        if self.name == "binary:logistic":
            targets = torch.from_numpy(labels.astype(np.float32))
            return functional.binary_cross_entropy_with_logits(outputs[:, 0], targets)
        targets = torch.from_numpy(((labels - self.centre) / self.spread).astype(np.float32))
        return functional.mse_loss(outputs[:, 0], targets)

    def scores(self, outputs: torch.Tensor) -> Floats:
        """Scores (n, K) with the meaning that a tree's have: margins of classes, or the value of a regression."""
        scores = outputs.detach().to(torch.float64).numpy()
        return np.asarray(scores * self.spread + self.centre)

    def metrics(self, scores: Floats, labels: Labels) -> dict[str, float]:
        """Measures of scores (n, K) against labels (n,): see `treetap.trees.metrics.evaluate`."""
        return evaluate(self.name, outcome_of(self.name, self.classes, scores), labels)

    def watched(self, scores: Floats, labels: Labels) -> float:
        """The loss that early stopping watches, lower is better."""
        return watched(self.name, outcome_of(self.name, self.classes, scores), labels)

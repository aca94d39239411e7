"""A classifier that an attacker fits: a head on embeddings, or on a bottom model that is fitted with it.

Fitted by cross-entropy with Adam (Kingma, Ba 2015); the weights, the order of records and all else follow from draws.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

from treetap.neural.architectures import top_model
from treetap.neural.draws import Draws
from treetap.neural.inputs import Inputs
from treetap.neural.optimiser import Adam
from treetap.neural.params import Top

Ints = npt.NDArray[np.int64]
Head = Literal["mlp", "linear"]
#: The heads: `mlp` of three layers, and `linear` (MLP_sim of the paper on DIMIP).
HEADS: tuple[Head, Head] = ("mlp", "linear")
#: Records whose embeddings or classes are computed at once.
_PIECE = 1024
#: The least deviation by which an embedding is divided.
_LEAST = 1e-6


@dataclass(frozen=True)
class Fit:
    """The fit of a classifier: passes over its records, records of a batch, the rate, and units of a hidden layer."""

    epochs: int
    batch: int = 64
    rate: float = 1e-3
    hidden: int = 128


class Standardised(nn.Module):
    """Numbers (n, width) less a mean and over a deviation, which were those of known embeddings."""

    def __init__(self, known: torch.Tensor) -> None:
        super().__init__()
        self._mean = known.mean(dim=0)
        self._deviation = known.std(dim=0, unbiased=False).clamp_min(_LEAST)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """(n, width) → (n, width)."""
        return (values - self._mean) / self._deviation


def head(kind: str, inputs: int, classes: int, fit: Fit, draws: Draws, *path: str | int) -> nn.Module:
    """A head with its initial weights: (n, inputs) → (n, classes)."""
    sizes = (fit.hidden, fit.hidden) if kind == "mlp" else ()
    return top_model(Top(sizes), inputs, classes, draws, *path, kind)


def fitted(
    model: nn.Module,
    inputs: Inputs | torch.Tensor,
    records: Ints,
    labels: Ints,
    fit: Fit,
    draws: Draws,
    *path: str | int,
    statistics: bool = True,
) -> nn.Module:
    """The model fitted to the labels (n,) of these records (n,) of the inputs.

    `statistics`: False keeps those of batch normalisation as they are, of a bottom that was trained before.
    """
    optimiser = Adam(dict(model.named_parameters()), fused=True)
    truth = torch.from_numpy(labels)
    model.train()
    if not statistics:
        for layer in model.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.eval()
    for epoch in range(fit.epochs):
        for places in _batches(draws.order(len(records), *path, "order", epoch), fit.batch):
            optimiser.clear()
            scores = model(_taken(inputs, records[places]))
            torch.autograd.backward(functional.cross_entropy(scores, truth[torch.from_numpy(places)]))
            optimiser.step(fit.rate)
    return model


def outputs(model: nn.Module, inputs: Inputs | torch.Tensor, records: Ints) -> torch.Tensor:
    """The model's outputs (n, ·) of these records: embeddings or scores of classes."""
    model.eval()
    with torch.no_grad():
        return torch.cat([model(_taken(inputs, piece)) for piece in _batches(records, _PIECE)])


def named(model: nn.Module, inputs: Inputs | torch.Tensor, records: Ints) -> Ints:
    """The class (n,) that the model gives each of these records."""
    return np.asarray(outputs(model, inputs, records).argmax(dim=1).numpy(), dtype=np.int64)


def _taken(inputs: Inputs | torch.Tensor, records: Ints) -> torch.Tensor:
    return inputs[torch.from_numpy(records)] if isinstance(inputs, torch.Tensor) else inputs.batch(records)


def _batches(places: Ints, size: int) -> Iterator[Ints]:
    """Pieces of this size; a last one of one is joined with the piece before it, as batch normalisation needs."""
    starts = list(range(0, len(places), size))
    if len(starts) > 1 and len(places) - starts[-1] == 1:
        starts.pop()
    yield from np.split(places, starts[1:])

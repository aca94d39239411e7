"""The fit of an attacker's model: Adam (Kingma, Ba 2015) with a rate that falls to 0 along a cosine."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from attacks.networks.classifier import Fit
from treetap.neural.draws import Draws
from treetap.neural.gradient_descent import Adam

Ints = npt.NDArray[np.int64]
_BATCH = 64
#: Fewest and most passes over the records, and fewest steps.
_LEAST, _MOST, _STEPS = 5, 100, 200


def fit_of(records: int, passed: int, rate: float) -> Fit:
    """The fit to this many records: about `passed` of them in all, each 5 to 100 times, more often if steps are few."""
    batches = batches_of(records)
    epochs = min(_MOST, max(_LEAST, passed // max(1, records)))
    return Fit(max(epochs, -(-_STEPS // batches)), _BATCH, rate)


def batches_of(records: int) -> int:
    """The batches of one pass over this many records."""
    return max(1, records // _BATCH)


def fitted(
    model: nn.Module,
    taken: Callable[[Ints], torch.Tensor],
    loss: Callable[[torch.Tensor, Ints], torch.Tensor],
    records: int,
    fit: Fit,
    draws: Draws,
    *path: str | int,
) -> nn.Module:
    """The model fitted to records at the places 0 to `records`.

    Args:
        taken: places (n,) → inputs (n, ·).
        loss: outputs of these, and places (n,) → a number.
    """
    optimiser = Adam(dict(model.named_parameters()), fused=True)
    batches = batches_of(records)
    steps, step = fit.epochs * batches, 0
    model.train()
    for epoch in range(fit.epochs):
        for places in np.array_split(draws.order(records, *path, "order", epoch), batches):
            optimiser.clear()
            torch.autograd.backward(loss(model(taken(places)), places))
            optimiser.step(falling(fit.rate, step, steps))
            step += 1
    return model.eval()


def falling(rate: float, step: int, steps: int) -> float:
    """The rate of a step: from `rate` to 0 along a cosine (Loshchilov, Hutter 2017)."""
    return rate * 0.5 * (1.0 + math.cos(math.pi * step / steps))


def outputs(model: nn.Module, inputs: torch.Tensor, piece: int = 1024) -> torch.Tensor:
    """The outputs (n, ·) of inputs (n, ·), some at a time."""
    model.eval()
    with torch.no_grad():
        made: Sequence[torch.Tensor] = [model(piece_of_inputs) for piece_of_inputs in torch.split(inputs, piece)]
    return torch.cat(list(made))

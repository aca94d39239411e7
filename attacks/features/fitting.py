"""The fit of an attacker's model: Adam (Kingma, Ba 2015) with a rate that falls to 0 along a cosine.

`decode` is an inverse network from embeddings to records, fitted to the auxiliary ones: the attacker of He, Zhang and
Lee 2019 ("Model inversion attacks against collaborative inference"), section 4.3, which queries nothing: pairs of
embedding and record are at hand. Pixels are outputs of a sigmoid.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from treetap.attacks.features.record_space import Records
from treetap.attacks.networks.classifier import Fit
from treetap.neural.architectures import top_model
from treetap.neural.draws import Draws
from treetap.neural.optimiser import Adam
from treetap.neural.params import Top

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


_HIDDEN = (512,)
#: Records that the fit passes over, and its rate.
_PASSED, _RATE = 40_000, 2e-3


def decoded(known: torch.Tensor, records: Records, embeddings: torch.Tensor, draws: Draws, *path: str | int) -> Records:
    """Guess the records (v) of embeddings (v, width) by a network fitted to known ones (a, width) and their records.

    The loss is the mean squared error of the numbers that are not missing, plus that of the pixels.

    Raises:
        DataError: the network would have too many weights, for images that are very large.
    """
    numbers = torch.from_numpy(records.numbers)
    there, filled = ~torch.isnan(numbers), torch.nan_to_num(numbers)
    pixels = torch.cat(
        [
            torch.zeros(len(known), 0),
            *(torch.from_numpy(arrays).flatten(1) for arrays in records.images.values()),
        ],
        dim=1,
    )
    columns = numbers.shape[1]
    model = top_model(Top(_HIDDEN), known.shape[1], columns + pixels.shape[1], draws, *path)

    def loss(guess: torch.Tensor, places: Ints) -> torch.Tensor:
        rows = torch.from_numpy(places)
        error = torch.where(there[rows], guess[:, :columns] - filled[rows], 0.0).square().sum()
        total = error / max(1, columns * len(rows))
        if pixels.shape[1]:
            total = total + (torch.sigmoid(guess[:, columns:]) - pixels[rows]).square().mean()
        return total

    fit = fit_of(len(known), _PASSED, _RATE)
    fitted(model, lambda places: known[torch.from_numpy(places)], loss, len(known), fit, draws, *path)
    guess = outputs(model, embeddings)
    images, start = {}, columns
    for name, arrays in records.images.items():
        size = math.prod(arrays.shape[1:])
        image = torch.sigmoid(guess[:, start : start + size])
        images[name] = image.reshape(len(guess), *arrays.shape[1:]).numpy()
        start += size
    return Records(guess[:, :columns].numpy(), images)

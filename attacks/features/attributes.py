"""`attributes`: a classifier from embeddings to each column (equation 7 of the paper on SensFL, section 3.2.2).

The fit: Adam (Kingma, Ba 2015) with a rate that falls to 0 along a cosine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from treetap.arrays import Floats, Ints
from treetap.attacks.features.evidence import Column, Records
from treetap.attacks.networks.completion import Fit, head, named
from treetap.attacks.networks.schema import Scale
from treetap.neural.architectures import top_model
from treetap.neural.draws import Draws
from treetap.neural.inputs import mean_and_deviation
from treetap.neural.optimiser import GradientDescent
from treetap.neural.params import Top

# The fit of an attacker's model: Adam (Kingma, Ba 2015) with a rate that falls to 0 along a cosine.
#
# `decode` is an inverse network from embeddings to records, fitted to the auxiliary ones: the attacker of He, Zhang and
# Lee 2019 ("Model inversion attacks against collaborative inference"), section 4.3, which queries nothing: pairs of
# embedding and record are at hand. Pixels are outputs of a sigmoid.


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
    optimiser = GradientDescent(dict(model.named_parameters()), fused=True)
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
_PASSED_NUMBERS, _RATE_OF_NUMBERS = 40_000, 2e-3


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

    fit = fit_of(len(known), _PASSED_NUMBERS, _RATE_OF_NUMBERS)
    fitted(model, lambda places: known[torch.from_numpy(places)], loss, len(known), fit, draws, *path)
    guess = outputs(model, embeddings)
    images, start = {}, columns
    for name, arrays in records.images.items():
        size = math.prod(arrays.shape[1:])
        image = torch.sigmoid(guess[:, start : start + size])
        images[name] = image.reshape(len(guess), *arrays.shape[1:]).numpy()
        start += size
    return Records(guess[:, :columns].numpy(), images)


#: Records that a fit passes over, and its rate.
_PASSED, _RATE = 100_000, 2e-3


@dataclass(frozen=True)
class AttributeGuess:
    """The guesses of one column of the victims.

    Attributes:
        classes: those of the auxiliary records, in order; None of a number.
        auxiliary: auxiliary records with a value.
        guesses: by scale (v,), places in `classes` or numbers; of a constant column the same, of one without a value
            none.
        floor: the majority class, or the mean, of the auxiliary records.
    """

    name: str
    classes: tuple[str | float, ...] | None
    auxiliary: int
    floor: float
    guesses: Mapping[Scale, Floats] = field(default_factory=dict, repr=False)

    @property
    def kind(self) -> Literal["class", "number"]:
        """The kind of the column."""
        return "number" if self.classes is None else "class"


def classes_of(column: Column, most: int) -> tuple[str | float, ...] | None:
    """The classes of a column, in order; None of numbers that are none."""
    values = [value for value in column.values() if value is not None]
    if column.texts is not None:
        present = set(values)
        return tuple(text for text in column.texts if text in present)
    numbers = np.unique(column.cells[column.known])
    few = len(numbers) <= most and bool((numbers == np.rint(numbers)).all())
    return tuple(numbers.tolist()) if len(numbers) > 0 and (few or len(numbers) == 1) else None


def guessed(
    column: Column,
    embeddings: Mapping[Scale, tuple[torch.Tensor, torch.Tensor]],
    most: int,
    draws: Draws,
) -> AttributeGuess:
    """Guess a column of the victims.

    Args:
        column: of the auxiliary records.
        embeddings: by scale, those of the auxiliary records (a, width) and of the victims (v, width).
        most: different whole numbers that are classes.
    """
    classes, records = classes_of(column, most), np.flatnonzero(column.known)
    if not len(records):
        return AttributeGuess(column.name, classes, 0, 0.0)
    if classes is None:
        values = column.cells[records]
        numbers: dict[Scale, Floats] = {
            scale: _numbers(known, victims, records, values, draws, "attributes", column.name)
            for scale, (known, victims) in embeddings.items()
        }
        return AttributeGuess(column.name, None, len(records), float(values.mean()), numbers)
    place = {value: number for number, value in enumerate(classes)}
    labels = np.array([place[value] for value in column.values() if value is not None], dtype=np.int64)
    by_scale: dict[Scale, Floats] = {
        scale: _named(known, victims, records, labels, len(classes), draws, "attributes", column.name)
        for scale, (known, victims) in embeddings.items()
    }
    return AttributeGuess(column.name, classes, len(records), float(np.bincount(labels).argmax()), by_scale)


def _named(
    known: torch.Tensor,
    victims: torch.Tensor,
    records: Ints,
    labels: Ints,
    classes: int,
    draws: Draws,
    *path: str | int,
) -> Floats:
    """Class numbers (v,) by a classifier that is fitted to those of the auxiliary records at these places (eq. 7)."""
    if classes == 1:
        return np.zeros(len(victims))
    given, truth = known[torch.from_numpy(records)], torch.from_numpy(labels)
    model = _fitted(given, classes, lambda scores, rows: functional.cross_entropy(scores, truth[rows]), draws, *path)
    return named(model, victims, np.arange(len(victims), dtype=np.int64)).astype(np.float64)


def _numbers(
    known: torch.Tensor, victims: torch.Tensor, records: Ints, values: Floats, draws: Draws, *path: str | int
) -> Floats:
    """Numbers (v,) by a regression that is fitted to those of the auxiliary records at these places."""
    mean, deviation = mean_and_deviation(values, "a column")
    scaled = torch.from_numpy(((values - mean) / deviation).astype(np.float32))[:, None]
    given = known[torch.from_numpy(records)]
    model = _fitted(given, 1, lambda guesses, rows: functional.mse_loss(guesses, scaled[rows]), draws, *path)
    guesses: Floats = outputs(model, victims)[:, 0].numpy().astype(np.float64) * deviation + mean
    return np.where(np.isfinite(guesses), guesses, mean)


def _fitted(
    given: torch.Tensor,
    results: int,
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    draws: Draws,
    *path: str | int,
) -> nn.Module:
    """A network from embeddings (n, width) to (n, results), fitted by a loss of these and of places."""
    fit = fit_of(len(given), _PASSED, _RATE)
    return fitted(
        head("mlp", given.shape[1], results, fit, draws, *path),
        lambda places: given[torch.from_numpy(places)],
        lambda guesses, places: loss(guesses, torch.from_numpy(places)),
        len(given),
        fit,
        draws,
        *path,
    )

"""`attributes`: a classifier from embeddings to each column (equation 7 of the paper on SensFL, section 3.2.2).

Columns of text are classes, and so are those of numbers that are whole and have few different values, or have one
alone. Of other numbers a regression guesses the value. Missing cells are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

from treetap.attacks.features.fitting import fit_of, fitted, outputs
from treetap.attacks.features.record_space import Column
from treetap.attacks.features.schema import Scale
from treetap.attacks.networks.classifier import head, named
from treetap.neural.draws import Draws
from treetap.neural.inputs import mean_and_deviation

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
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

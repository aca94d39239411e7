"""`decode`: an inverse network from embeddings to records, fitted to the auxiliary records.

The attacker of He, Zhang and Lee 2019 ("Model inversion attacks against collaborative inference"), section 4.3, which
queries nothing: pairs of embedding and record are at hand. Pixels are outputs of a sigmoid.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch

from attacks.features.fitting import fit_of, fitted, outputs
from attacks.features.record_space import Records
from treetap.neural.architectures import top_model
from treetap.neural.draws import Draws
from treetap.neural.params import Top

Ints = npt.NDArray[np.int64]
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

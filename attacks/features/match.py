"""`match` and `match-exact`: records whose embedding by a bottom model is nearest to the one received.

The attack on images of the paper on SensFL (Zhang et al. 2024), section 3.2.1: a surrogate of the party's own model,
fitted to the auxiliary records (equation 5), then an optimisation of the input from noise (equation 6), here with the
total variation of images beside the distance of embeddings. Victims are independent of each other: the loss is a sum
over them, and the model keeps the statistics of its batch normalisation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from treetap.attacks.features.fitting import batches_of, falling, fit_of, fitted
from treetap.attacks.features.record_space import Records
from treetap.neural.architectures import bottom_model
from treetap.neural.draws import Draws
from treetap.neural.inputs import Inputs, InputScaler
from treetap.neural.optimiser import Adam
from treetap.neural.params import Bottom

Ints = npt.NDArray[np.int64]
#: Records that the fit of a surrogate passes over, and its least rate: a weight can go about 1 in all steps.
_PASSED, _RATE = 20_000, 3e-3
#: The rate of the optimisation of inputs, in pixels or deviations.
_STEP = 0.5
#: Victims that are optimised at once.
_PIECE = 64


def surrogate(settings: Bottom, inputs: Inputs, known: torch.Tensor, draws: Draws, *path: str | int) -> nn.Module:
    """A model of the party's architecture, fitted to inputs and embeddings (a, width) of the auxiliary records (eq. 5).

    Raises:
        DataError: the auxiliary records do not have the columns that the architecture takes.
    """
    model = bottom_model(settings, inputs.shape, draws, *path)

    def loss(embeddings: torch.Tensor, places: Ints) -> torch.Tensor:
        return (embeddings - known[torch.from_numpy(places)]).square().mean()

    fit = fit_of(len(known), _PASSED, _RATE)
    fit = replace(fit, rate=max(_RATE, 2.0 / (fit.epochs * batches_of(len(known)))))
    return fitted(model, inputs.batch, loss, len(known), fit, draws, *path)


def matched(
    model: Callable[[torch.Tensor], torch.Tensor],
    scaler: InputScaler,
    bounded: npt.NDArray[np.bool_],
    embeddings: torch.Tensor,
    steps: int,
    variation: float,
    draws: Draws,
    *path: str | int,
) -> Records:
    """Inputs whose embeddings by the model are nearest to these (v, width) (eq. 6), as records of the scaler's space.

    Args:
        bounded: (columns,) features that lie between 0 and 1.
        variation: weight of the total variation of images.
    """
    pieces = [
        _matched(model, scaler, bounded, piece, steps, variation, draws, *path, number)
        for number, piece in enumerate(torch.split(embeddings, _PIECE))
    ]
    return Records(
        np.concatenate([piece.numbers for piece in pieces]),
        {name: np.concatenate([piece.images[name] for piece in pieces]) for name in scaler.images},
    )


def _matched(
    model: Callable[[torch.Tensor], torch.Tensor],
    scaler: InputScaler,
    bounded: npt.NDArray[np.bool_],
    embeddings: torch.Tensor,
    steps: int,
    variation: float,
    draws: Draws,
    *path: str | int,
) -> Records:
    victims, columns = len(embeddings), len(scaler.columns)
    numbers = _noise((victims, columns + len(scaler.indicated)), draws, *path, "numbers")
    images = [_noise((victims, *part.shape), draws, *path, "image", name) for name, part in scaler.images.items()]
    within = torch.from_numpy(np.concatenate([bounded, np.ones(len(scaler.indicated), dtype=bool)]))
    free = {str(number): part for number, part in enumerate((numbers, *images)) if part.numel()}
    optimiser = Adam(free)
    for step in range(steps):
        optimiser.clear()
        distance = (model(_inputs(scaler, numbers, images)) - embeddings).square().mean(dim=1).sum()
        loss = distance + variation * sum((_total_variation(image) for image in images), start=torch.zeros(()))
        torch.autograd.backward(loss)
        optimiser.step(falling(_STEP, step, steps))
        with torch.no_grad():
            numbers.copy_(torch.where(within, numbers.clamp(0.0, 1.0), numbers))
            for image in images:
                image.clamp_(0.0, 1.0)
    return Records(
        numbers.detach()[:, :columns].numpy(),
        {name: image.detach().numpy() for name, image in zip(scaler.images, images, strict=True)},
    )


def _noise(shape: tuple[int, ...], draws: Draws, *path: str | int) -> torch.Tensor:
    """Numbers in [0, 1), to be optimised."""
    count = int(np.prod(shape))
    drawn = torch.from_numpy(draws.uniform(count, *path).astype(np.float32)).reshape(shape)
    return drawn.requires_grad_()


def _inputs(scaler: InputScaler, numbers: torch.Tensor, images: list[torch.Tensor]) -> torch.Tensor:
    """Records as inputs of a bottom model, as `Inputs.batch` has them."""
    scaled = [
        (image - torch.tensor(scale.mean).reshape(-1, 1, 1)) / torch.tensor(scale.deviation).reshape(-1, 1, 1)
        for image, scale in zip(images, scaler.images.values(), strict=True)
    ]
    if len(scaled) == 1 and not numbers.shape[1]:
        return scaled[0]
    return torch.cat([numbers, *(image.flatten(1) for image in scaled)], dim=1)


def _total_variation(image: torch.Tensor) -> torch.Tensor:
    """The sum over images (v, channels, height, width) of the mean absolute differences of neighbours."""
    total = torch.zeros(())
    for dimension in (2, 3):
        if image.shape[dimension] > 1:
            total = total + image.diff(dim=dimension).abs().mean(dim=(1, 2, 3)).sum()
    return total

"""All attacks on one feature party's columns, without the truth: what a label holder guesses from its evidence.

`match` and `match-exact`: records whose embedding by a bottom model is nearest to the one received.

The attack on images of the paper on SensFL (Zhang et al. 2024), section 3.2.1: a surrogate of the party's own model,
fitted to the auxiliary records (equation 5), then an optimisation of the input from noise (equation 6), here with the
total variation of images beside the distance of embeddings. Victims are independent of each other: the loss is a sum
over them, and the model keeps the statistics of its batch normalisation.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from treetap.arrays import Bools, Ints
from treetap.attacks.features.attributes import AttributeGuess, batches_of, decoded, falling, fit_of, fitted, guessed
from treetap.attacks.features.evidence import (
    SCALES,
    FeatureEvidence,
    RealBottom,
    Records,
    RecordSpace,
    Scaling,
    columns_of,
)
from treetap.attacks.networks.schema import Scale
from treetap.attacks.view.received_rows import attack_draws, some_of
from treetap.errors import DataError
from treetap.neural.architectures import bottom_model
from treetap.neural.draws import Draws
from treetap.neural.inputs import Inputs, InputScaler
from treetap.neural.optimiser import GradientDescent
from treetap.neural.params import Bottom

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
    bounded: Bools,
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
    bounded: Bools,
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
    optimiser = GradientDescent(free)
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


#: Called before each part of an attack with its name, such as "decode, raw".
Progress = Callable[[str], None]


class Attacker:
    """The attacks on an evidence, of records that are drawn once for all of them, and what they guess.

    Attributes:
        auxiliary: number of auxiliary records that are used.
        space: of the records.
        victims: places of the victims that are attacked, ascending.
        records: by attack the guesses of the first victims by scale, and the seconds of both.
        columns: the guesses of columns.
        reasons: attack, or a part of one → why it was left out.
    """

    def __init__(
        self, evidence: FeatureEvidence, real: RealBottom | None = None, progress: Progress | None = None
    ) -> None:
        """`real`: the party's published model, which `match_exact` alone reads.

        Raises:
            DataError: auxiliary numbers are too large for a mean.
        """
        settings = evidence.settings
        self.evidence, self._settings, self._real = evidence, settings, real
        self._progress = progress or (lambda _part: None)
        self._draws = attack_draws(settings.seed)
        known = _some(len(evidence.auxiliary.ids), settings.most_auxiliary, settings.seed, "auxiliary")
        self.victims = _some(len(evidence.victims), settings.most_victims, settings.seed, "victims")
        self._auxiliary = evidence.auxiliary.take(known)
        self.auxiliary = len(known)
        self.space = RecordSpace.of(self._auxiliary)
        self._scalings: dict[Scale, Scaling] = {scale: Scaling.of(scale, evidence.known[known]) for scale in SCALES}
        self._embeddings: dict[Scale, tuple[torch.Tensor, torch.Tensor]] = {
            scale: (scaling.apply(evidence.known[known]), scaling.apply(evidence.embeddings[self.victims]))
            for scale, scaling in self._scalings.items()
        }
        self.records: dict[str, tuple[Mapping[Scale, Records], float]] = {}
        self.columns: list[AttributeGuess] = []
        self.reasons: dict[str, str] = {}

    def check(self) -> None:
        """Raise BadInput where the real model has other columns than the auxiliary records."""
        if self._real is not None:
            self._real.check(self.space)

    def decode(self) -> None:
        """Fit an inverse network on each scale."""
        auxiliary = self.space.auxiliary()
        self._reconstruct(
            "decode",
            lambda _scale, known, victims: decoded(known, auxiliary, victims, self._draws, "decode"),
            len(self.victims),
        )

    def match(self) -> None:
        """Fit a surrogate on each scale and match embeddings by it."""
        inputs, settings = self.space.inputs, self._settings

        def nearest(_scale: Scale, known: torch.Tensor, victims: torch.Tensor) -> Records:
            model = surrogate(self.evidence.bottom, inputs, known, self._draws, "surrogate")
            for weight in model.parameters():
                weight.requires_grad_(False)
            return matched(
                model,
                self.space.scaler,
                self.space.bounded,
                victims,
                settings.match_steps,
                settings.total_variation,
                self._draws,
                "match",
            )

        self._reconstruct("match", nearest, settings.matched)

    def match_exact(self) -> None:
        """Match embeddings by the party's own model."""
        settings, bottom = self._settings, self._real
        if bottom is None:
            self.reasons["match-exact"] = "needs the model that the feature party has published"
            return

        def nearest(scale: Scale, _known: torch.Tensor, victims: torch.Tensor) -> Records:
            scaling = self._scalings[scale]
            own = matched(
                lambda inputs: scaling.of_tensor(bottom.bottom(inputs)),
                bottom.scaler,
                bottom.bounded,
                victims,
                settings.match_steps,
                settings.total_variation,
                self._draws,
                "match-exact",
            )
            return bottom.in_space(own, self.space)

        self._reconstruct("match-exact", nearest, settings.matched)

    def attributes(self) -> None:
        """Guess one column after the other."""
        columns = columns_of(self._auxiliary)
        if not columns:
            self.reasons["attributes"] = "the auxiliary records have no columns but images"
        for name in columns if self.evidence.attributes is None else self.evidence.attributes:
            self._progress(f"attributes, {name}")
            guess = guessed(columns[name], self._embeddings, self._settings.most_classes, self._draws)
            # a column without a classifier
            if not guess.auxiliary:
                self.reasons[f"attributes, {name}"] = "no auxiliary record has a value"
            elif guess.classes is not None and len(guess.classes) == 1:
                same = "all auxiliary records have the same value, which is guessed of every victim"
                self.reasons[f"attributes, {name}"] = same
            self.columns.append(guess)

    def _reconstruct(
        self, attack: str, guess: Callable[[Scale, torch.Tensor, torch.Tensor], Records], most: int
    ) -> None:
        """Guess the records of the first victims on each scale; a guess that is not finite is the floor."""
        if not (self.space.scaler.columns or self.space.scaler.images):
            self.reasons[attack] = "the auxiliary records have no columns"
            return
        began, made = time.monotonic(), {}
        for scale, (known, victims) in self._embeddings.items():
            self._progress(f"{attack}, {scale}")
            try:
                made[scale] = self._finite(guess(scale, known, victims[:most]), f"{attack}, {scale}")
            except DataError as fault:
                self.reasons[attack] = str(fault)
                return
        self.records[attack] = made, time.monotonic() - began
        if self.space.scaler.images and self.space.scaler.columns:
            self.reasons[f"{attack}, numbers"] = (
                "the table has images, by which records are scored; its numbers are guessed by attributes"
            )

    def _finite(self, guess: Records, part: str) -> Records:
        """The guess with the floor in the place of what is not finite, as a fit to huge embeddings gives it."""
        every = (guess.numbers, *guess.images.values())
        if lost := sum(int((~np.isfinite(numbers)).sum()) for numbers in every):
            self.reasons[part] = f"{lost} numbers of the guess are not finite: those of the floor stand for them"
        floor = self.space.floor(len(guess.numbers))
        images = {
            name: np.where(np.isfinite(image), image, floor.images[name]).astype(np.float32)
            for name, image in guess.images.items()
        }
        numbers = np.where(np.isfinite(guess.numbers), guess.numbers, floor.numbers).astype(np.float32)
        return Records(numbers, images)


def _some(count: int, most: int, seed: int, name: str) -> Ints:
    """Places of at most `most` of `count` records, ascending."""
    return some_of(np.arange(count, dtype=np.int64), most, attack_draws(seed), "columns", name)

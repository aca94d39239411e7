"""All attacks on one feature party's columns, without the truth: what a label holder guesses from its evidence."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from attacks.features.attributes import AttributeGuess, guessed
from attacks.features.columns import columns_of
from attacks.features.decode import decoded
from attacks.features.evidence import FeatureEvidence
from attacks.features.match import matched, surrogate
from attacks.features.names import ATTACKS
from attacks.features.record_space import Records, RecordSpace
from attacks.features.results import Scale
from attacks.features.scales import SCALES, Scaling
from attacks.networks.draws import attack_draws
from attacks.view.gradient_rows import some_of
from treetap.errors import BadInput, DataError

if TYPE_CHECKING:
    from attacks.features.real_bottom import RealBottom

Ints = npt.NDArray[np.int64]
#: Called before each part of an attack with its name, such as "decode, raw".
Progress = Callable[[str], None]


@dataclass(frozen=True)
class RecordGuess:
    """Records that one attack has guessed, those of the first victims, by scale; `seconds`: of both."""

    by_scale: Mapping[Scale, Records]
    seconds: float


@dataclass(frozen=True)
class Guesses:
    """The guesses of all attacks on one evidence.

    Attributes:
        space: of the records.
        victims: places of the victims that are attacked, ascending.
        records: by attack.
        attributes: by column.
        reasons: attack, or a part of one → why it was left out.
    """

    space: RecordSpace
    victims: Ints
    records: dict[str, RecordGuess] = field(default_factory=dict)
    attributes: list[AttributeGuess] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)


class Attacker:
    """The attacks on an evidence, of records that are drawn once for all of them."""

    def __init__(self, evidence: FeatureEvidence, progress: Progress | None = None) -> None:
        """`DataError` where auxiliary numbers are too large for a mean."""
        settings = evidence.settings
        self._evidence, self._settings = evidence, settings
        self._progress = progress or _silent
        self._draws = attack_draws(settings.seed)
        known = _some(len(evidence.auxiliary.ids), settings.most_auxiliary, settings.seed, "auxiliary")
        self._victims = _some(len(evidence.victims), settings.most_victims, settings.seed, "victims")
        self._auxiliary = evidence.auxiliary.take(known)
        self._space = RecordSpace.of(self._auxiliary)
        self._scalings: dict[Scale, Scaling] = {scale: Scaling.of(scale, evidence.known[known]) for scale in SCALES}
        self._embeddings: dict[Scale, tuple[torch.Tensor, torch.Tensor]] = {
            scale: (each.apply(evidence.known[known]), each.apply(evidence.embeddings[self._victims]))
            for scale, each in self._scalings.items()
        }
        self.found = Guesses(self._space, self._victims)

    @property
    def space(self) -> RecordSpace:
        """The space of the records."""
        return self._space

    @property
    def auxiliary(self) -> int:
        """Auxiliary records that are used."""
        return len(self._auxiliary.ids)

    def decode(self) -> None:
        """Fit an inverse network on each scale."""
        auxiliary = self._space.auxiliary()
        self._reconstruct(
            "decode",
            lambda _scale, known, victims: decoded(known, auxiliary, victims, self._draws, "decode"),
            len(self._victims),
        )

    def match(self) -> None:
        """Fit a surrogate on each scale and match embeddings by it."""
        inputs, settings = self._space.inputs, self._settings

        def found(_scale: Scale, known: torch.Tensor, victims: torch.Tensor) -> Records:
            model = surrogate(self._evidence.bottom, inputs, known, self._draws, "surrogate")
            for weight in model.parameters():
                weight.requires_grad_(False)
            return matched(
                model,
                self._space.scaler,
                self._space.bounded,
                victims,
                settings.match_steps,
                settings.total_variation,
                self._draws,
                "match",
            )

        self._reconstruct("match", found, settings.matched)

    def match_exact(self, real: RealBottom | None) -> None:
        """Match embeddings by the party's own model."""
        if real is None:
            self.found.reasons["match-exact"] = "needs the model that the feature party has published"
            return
        settings, bottom = self._settings, real

        def found(scale: Scale, _known: torch.Tensor, victims: torch.Tensor) -> Records:
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
            return bottom.in_space(own, self._space)

        self._reconstruct("match-exact", found, settings.matched)

    def attributes(self) -> None:
        """Guess one column after the other."""
        columns = columns_of(self._auxiliary)
        if not columns:
            self.found.reasons["attributes"] = "the auxiliary records have no columns but images"
        for name in columns if self._evidence.attributes is None else self._evidence.attributes:
            self._progress(f"attributes, {name}")
            guess = guessed(columns[name], self._embeddings, self._settings.most_classes, self._draws)
            if (reason := _nothing_to_fit(guess)) is not None:
                self.found.reasons[f"attributes, {name}"] = reason
            self.found.attributes.append(guess)

    def _reconstruct(
        self, attack: str, guess: Callable[[Scale, torch.Tensor, torch.Tensor], Records], most: int
    ) -> None:
        """Guess the records of the first victims on each scale; a guess that is not finite is the floor."""
        if not (self._space.scaler.columns or self._space.scaler.images):
            self.found.reasons[attack] = "the auxiliary records have no columns"
            return
        began, made = time.monotonic(), {}
        for scale, (known, victims) in self._embeddings.items():
            self._progress(f"{attack}, {scale}")
            try:
                made[scale] = self._finite(guess(scale, known, victims[:most]), f"{attack}, {scale}")
            except DataError as fault:
                self.found.reasons[attack] = str(fault)
                return
        self.found.records[attack] = RecordGuess(made, time.monotonic() - began)
        if self._space.scaler.images and self._space.scaler.columns:
            self.found.reasons[f"{attack}, numbers"] = (
                "the table has images, by which records are scored; its numbers are guessed by attributes"
            )

    def _finite(self, guess: Records, part: str) -> Records:
        """The guess with the floor in the place of what is not finite, as a fit to huge embeddings gives it."""
        every = (guess.numbers, *guess.images.values())
        if lost := sum(int((~np.isfinite(each)).sum()) for each in every):
            self.found.reasons[part] = f"{lost} numbers of the guess are not finite: those of the floor stand for them"
        floor = self._space.floor(len(guess.numbers))
        images = {
            name: np.where(np.isfinite(each), each, floor.images[name]).astype(np.float32)
            for name, each in guess.images.items()
        }
        numbers = np.where(np.isfinite(guess.numbers), guess.numbers, floor.numbers).astype(np.float32)
        return Records(numbers, images)


def guesses(
    evidence: FeatureEvidence,
    real: RealBottom | None,
    only: Collection[str] | None = None,
    progress: Progress | None = None,
) -> tuple[Guesses, int]:
    """Run every attack, or `only` some; what they guess, and the number of auxiliary records that they used.

    `real` is read by `match-exact` alone.

    Raises:
        BadInput: an attack in `only` is not known, or the real bottom has other columns.
    """
    wanted = set(ATTACKS if only is None else only)
    if unknown := sorted(wanted - set(ATTACKS)):
        raise BadInput(f"attacks: {unknown[0]!r} is none on columns; there are: {', '.join(ATTACKS)}")
    attacker = Attacker(evidence, progress)
    if real is not None and "match-exact" in wanted:
        real.check(attacker.space)
    made: dict[str, Callable[[], None]] = {
        "decode": attacker.decode,
        "match": attacker.match,
        "match-exact": lambda: attacker.match_exact(real),
        "attributes": attacker.attributes,
    }
    for name, make in made.items():
        if name in wanted:
            make()
    return attacker.found, attacker.auxiliary


def _nothing_to_fit(guess: AttributeGuess) -> str | None:
    """The reason why a column has no classifier, if it has none."""
    if not guess.auxiliary:
        return "no auxiliary record has a value"
    if guess.classes is not None and len(guess.classes) == 1:
        return "all auxiliary records have the same value, which is guessed of every victim"
    return None


def _some(count: int, most: int, seed: int, name: str) -> Ints:
    """Places of at most `most` of `count` records, ascending."""
    return some_of(np.arange(count, dtype=np.int64), most, attack_draws(seed), "columns", name)


def _silent(_part: str) -> None:
    """Ignore progress."""

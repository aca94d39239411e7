"""All attacks of a label holder on one feature party's columns, scored, as the audit document has them.

The attacks are over before the victims' columns are read: scores and pictures alone are given them. Needs PyTorch,
which modules that commands import at start do not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from attacks.features.attributes import AttributeGuess
from attacks.features.column_scores import class_scores, mse, psnr, r2, ssim
from attacks.features.columns import Column, check_columns, columns_of
from attacks.features.evidence import FeatureEvidence
from attacks.features.guesses import Attacker, Guesses, Progress, RecordGuess
from attacks.features.real_bottom import RealBottom
from attacks.features.record_space import Records
from attacks.features.results import Attribute, Picture, Reconstruction, RecordScores, Scale, png_url
from attacks.features.scales import SCALES
from treetap.errors import BadInput
from treetap.neural.numbers import pin
from treetap.tables.reading import Table


def findings(
    evidence: FeatureEvidence,
    truth: Table | None,
    real: RealBottom | None,
    attacks: Mapping[str, Callable[[Attacker], None]],
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Run attacks, by name, and score what they guess.

    Args:
        truth: the victims' columns, row by row; by it guesses are scored and no attack reads it.
        real: the party's published model; `match-exact` alone reads it.
        progress: called before each part of an attack with its name.

    Returns:
        The fields of `VictimFigures` but `source`, `job` and `epoch`.

    Raises:
        BadInput: the truth is of other records, lacks a column or has images of another shape, or the real model has
            other columns.
        DataError: numbers of the auxiliary records are too large to standardise.
    """
    pin(1)
    if truth is not None:
        if truth.ids != evidence.victims:
            raise BadInput(f"{truth.path}: its records are not the victims, row by row")
        check_columns(truth, evidence.auxiliary)
    attacker = Attacker(evidence, real, progress)
    if "match-exact" in attacks:
        attacker.check()
    for attack in attacks.values():
        attack(attacker)
    guess = attacker.guesses
    reasons = dict(guess.reasons)
    chosen = None if truth is None else truth.take(guess.victims)
    if chosen is None:
        reasons["scores"] = "the victims' columns are not at hand: nothing is scored"
    records = None if chosen is None or not guess.records else guess.space.records(chosen)
    columns = {} if chosen is None else columns_of(chosen)
    return {
        "width": evidence.bottom.width,
        "auxiliary": attacker.auxiliary,
        "victims": len(guess.victims),
        "left_out": len(evidence.victims) - len(guess.victims),
        "scored": truth is not None,
        "reconstructions": [_reconstruction(name, made, guess, records) for name, made in guess.records.items()],
        "attributes": [_attribute(it, len(guess.victims), columns.get(it.name)) for it in guess.attributes],
        "pictures": _pictures(guess, records, evidence.settings.pictures),
        "reasons": reasons,
    }


def _reconstruction(attack: str, guess: RecordGuess, made: Guesses, truth: Records | None) -> Reconstruction:
    count = len(guess.by_scale["raw"].numbers)
    scores: dict[str, RecordScores] = {}
    if truth is not None:
        known = truth.first(count)
        scores = {scale: _scores(guess.by_scale[scale], known) for scale in SCALES}
        scores["floor"] = _scores(made.space.floor(count), known)
    return Reconstruction(
        attack=attack,
        records=count,
        raw=scores.get("raw"),
        standardised=scores.get("standardised"),
        headline=_strongest({scale: _strength(scores[scale]) for scale in SCALES}) if scores else None,
        floor=scores.get("floor"),
        seconds=guess.seconds,
    )


def _strength(scores: RecordScores) -> float:
    return -scores.mse if scores.ssim is None else scores.ssim


def _scores(guess: Records, truth: Records) -> RecordScores:
    """Scores of the images, or of the numbers that are not missing where there are none."""
    if not truth.images:
        known = ~np.isnan(truth.numbers)
        errors = np.where(known, guess.numbers.astype(np.float64) - np.nan_to_num(truth.numbers), 0.0) ** 2
        return RecordScores(mse=float(errors.sum() / max(1, known.sum())))
    pairs = [(torch.from_numpy(guess.images[name]), torch.from_numpy(image)) for name, image in truth.images.items()]
    error = float(np.mean([mse(*pair) for pair in pairs]))
    return RecordScores(
        mse=error, psnr=_mean([psnr(*pair) for pair in pairs]), ssim=_mean([ssim(*pair) for pair in pairs])
    )


def _mean(scores: list[float | None]) -> float | None:
    """The mean; None where one is None."""
    known = [value for value in scores if value is not None]
    return float(np.mean(known)) if len(known) == len(scores) else None


def _attribute(guess: AttributeGuess, victims: int, truth: Column | None) -> Attribute:
    """The findings on one column; a value of victims that no auxiliary record has is scored as wrong."""
    known = np.zeros(0, dtype=np.int64) if truth is None else np.flatnonzero(truth.known)
    scored = truth is not None and len(known) and guess.auxiliary
    return Attribute(
        name=guess.name,
        kind=guess.kind,
        classes=None if guess.classes is None else len(guess.classes),
        auxiliary=guess.auxiliary,
        records=victims if truth is None else len(known),
        left_out=0 if truth is None else victims - len(known),
        **(_scored(guess, truth, known) if truth is not None and scored else {}),
    )


def _scored(guess: AttributeGuess, truth: Column, known: npt.NDArray[np.int64]) -> dict[str, Any]:
    """The scores of a guessed column on the victims with a value."""
    if guess.classes is None:
        numbers = {scale: r2(guess.guesses[scale][known], truth.cells[known]) for scale in SCALES}
        told = {scale: value for scale, value in numbers.items() if value is not None}
        headline = _strongest(told) if len(told) == len(SCALES) else None
        return {f"{scale}_r2": value for scale, value in numbers.items()} | {"headline": headline}
    place: dict[str | float, int] = {value: number for number, value in enumerate(guess.classes)}
    labels = np.array(
        [place.setdefault(value, len(place)) for value in truth.values() if value is not None], dtype=np.int64
    )
    scores = {scale: class_scores(guess.guesses[scale][known].astype(np.int64), labels) for scale in SCALES}
    floor = class_scores(np.full(len(known), int(guess.floor), dtype=np.int64), labels)
    headline = _strongest({scale: score.accuracy for scale, score in scores.items()})
    return {**{str(scale): score for scale, score in scores.items()}, "floor": floor, "headline": headline}


def _strongest(figures: Mapping[Scale, float]) -> Scale:
    return max(SCALES, key=lambda scale: figures[scale])


def _pictures(guess: Guesses, truth: Records | None, most: int) -> list[Picture]:
    """The first victims that every attack has guessed, beside its guesses."""
    counts = [len(made.by_scale["raw"].numbers) for made in guess.records.values()]
    count = min([most, *counts]) if counts else 0
    floor, pictures = guess.space.floor(1), []
    for number in range(count):
        for name in guess.space.scaler.images:
            shown = {} if truth is None else {"truth": truth.images[name][number]}
            shown["floor"] = floor.images[name][0]
            for attack, made in guess.records.items():
                for scale in SCALES:
                    shown[f"{attack}, {scale}"] = made.by_scale[scale].images[name][number]
            pictures.append(Picture(column=name, images={what: png_url(image) for what, image in shown.items()}))
    return pictures

"""All attacks of a label holder on one feature party's columns, scored, as the audit document has them.

The attacks are over before the victims' columns are read: scores and pictures alone are given them. Needs PyTorch,
which modules that commands import at start do not.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import torch

from attacks.features.attributes import AttributeGuess
from attacks.features.class_scores import class_scores, r2
from attacks.features.columns import Column, check_columns, columns_of
from attacks.features.evidence import FeatureEvidence
from attacks.features.guesses import Guesses, Progress, RecordGuess, guesses
from attacks.features.image_scores import mse, psnr, ssim
from attacks.features.pictures import png_url
from attacks.features.real_bottom import RealBottom
from attacks.features.record_space import Records
from attacks.features.results import RecordScores, Scale
from attacks.features.scales import SCALES
from treetap.errors import BadInput
from treetap.neural.threads import pin
from treetap.tables.reading import Table


def findings(
    evidence: FeatureEvidence,
    truth: Table | None,
    real: RealBottom | None,
    only: Collection[str] | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Run every attack, or `only` some, and score what they guess.

    Args:
        truth: the victims' columns, row by row; by it guesses are scored and no attack reads it.
        real: the party's published model; `match-exact` alone reads it.
        progress: called before each part of an attack with its name.

    Returns:
        The fields of `VictimFigures` but `source`, `job` and `epoch`.

    Raises:
        BadInput: the truth is of other records, lacks a column or has images of another shape; an attack is unknown.
        DataError: numbers of the auxiliary records are too large to standardise.
    """
    pin(1)
    if truth is not None:
        if truth.ids != evidence.victims:
            raise BadInput(f"{truth.path}: its records are not the victims, row by row")
        check_columns(truth, evidence.auxiliary)
    guess, auxiliary = guesses(evidence, real, only, progress)
    reasons = dict(guess.reasons)
    chosen = None if truth is None else truth.take(guess.victims)
    if chosen is None:
        reasons["scores"] = "the victims' columns are not at hand: nothing is scored"
    records = None if chosen is None or not guess.records else guess.space.records(chosen)
    columns = {} if chosen is None else columns_of(chosen)
    return {
        "width": evidence.bottom.width,
        "auxiliary": auxiliary,
        "victims": len(guess.victims),
        "left_out": len(evidence.victims) - len(guess.victims),
        "scored": truth is not None,
        "reconstructions": [_reconstruction(name, each, guess, records) for name, each in guess.records.items()],
        "attributes": [_attribute(each, len(guess.victims), columns.get(each.name)) for each in guess.attributes],
        "pictures": _pictures(guess, records, evidence.settings.pictures),
        "reasons": reasons,
    }


def _reconstruction(name: str, guess: RecordGuess, made: Guesses, truth: Records | None) -> dict[str, Any]:
    """The fields of `Reconstruction`."""
    count = len(guess.by_scale["raw"].numbers)
    basic = {"attack": name, "records": count, "seconds": guess.seconds}
    if truth is None:
        return {**basic, **dict.fromkeys((*SCALES, "floor", "headline"))}
    scores = {scale: _scores(guess.by_scale[scale], truth.first(count)) for scale in SCALES}
    return {
        **basic,
        **{str(scale): each.model_dump() for scale, each in scores.items()},
        "floor": _scores(made.space.floor(count), truth.first(count)).model_dump(),
        "headline": _strongest({scale: _strength(each) for scale, each in scores.items()}),
    }


def _strength(scores: RecordScores) -> float:
    return -scores.mse if scores.ssim is None else scores.ssim


def _scores(guess: Records, truth: Records) -> RecordScores:
    """Scores of the images, or of the numbers that are not missing where there are none."""
    if not truth.images:
        known = ~np.isnan(truth.numbers)
        errors = np.where(known, guess.numbers.astype(np.float64) - np.nan_to_num(truth.numbers), 0.0) ** 2
        return RecordScores(mse=float(errors.sum() / max(1, known.sum())))
    pairs = [(torch.from_numpy(guess.images[name]), torch.from_numpy(each)) for name, each in truth.images.items()]
    means = [_mean([score(*pair) for pair in pairs]) for score in (mse, psnr, ssim)]
    assert means[0] is not None
    return RecordScores(mse=means[0], psnr=means[1], ssim=means[2])


def _mean(scores: list[float | None]) -> float | None:
    """The mean; None where one is None."""
    known = [each for each in scores if each is not None]
    return float(np.mean(known)) if len(known) == len(scores) else None


def _attribute(guess: AttributeGuess, victims: int, truth: Column | None) -> dict[str, Any]:
    """The fields of `Attribute`; a value of victims that no auxiliary record has is scored as wrong."""
    found: dict[str, Any] = {
        "name": guess.name,
        "kind": guess.kind,
        "classes": None if guess.classes is None else len(guess.classes),
        "auxiliary": guess.auxiliary,
        "records": victims,
        "left_out": 0,
    }
    if truth is None:
        return found
    known = np.flatnonzero(truth.known)
    found |= {"records": len(known), "left_out": victims - len(known)}
    if not len(known) or not guess.auxiliary:
        return found
    if guess.classes is None:
        numbers = {scale: r2(guess.guesses[scale][known], truth.cells[known]) for scale in SCALES}
        best = None if None in numbers.values() else _strongest({scale: each or 0.0 for scale, each in numbers.items()})
        return found | {f"{scale}_r2": each for scale, each in numbers.items()} | {"headline": best}
    place: dict[str | float, int] = {value: number for number, value in enumerate(guess.classes)}
    labels = np.array(
        [place.setdefault(value, len(place)) for value in truth.values() if value is not None], dtype=np.int64
    )
    scores = {scale: class_scores(guess.guesses[scale][known].astype(np.int64), labels) for scale in SCALES}
    return {
        **found,
        **{str(scale): each.model_dump() for scale, each in scores.items()},
        "floor": class_scores(np.full(len(known), int(guess.floor), dtype=np.int64), labels).model_dump(),
        "headline": _strongest({scale: each.accuracy for scale, each in scores.items()}),
    }


def _strongest(figures: dict[Scale, float]) -> Scale:
    return max(SCALES, key=lambda scale: figures[scale])


def _pictures(guess: Guesses, truth: Records | None, most: int) -> list[dict[str, Any]]:
    """The first victims that every attack has guessed, beside its guesses."""
    counts = [len(each.by_scale["raw"].numbers) for each in guess.records.values()]
    count = min([most, *counts]) if counts else 0
    floor, found = guess.space.floor(1), []
    for number in range(count):
        for name in guess.space.scaler.images:
            shown = {} if truth is None else {"truth": truth.images[name][number]}
            shown["floor"] = floor.images[name][0]
            for attack, each in guess.records.items():
                for scale in SCALES:
                    shown[f"{attack}, {scale}"] = each.by_scale[scale].images[name][number]
            found.append({"column": name, "images": {what: png_url(image) for what, image in shown.items()}})
    return found

"""All attacks of a label holder on one feature party's columns, scored, as the audit document has them.

The attacks are over before the victims' columns are read: scores and pictures alone are given them. Needs PyTorch,
which modules that commands import at start do not.

Attributes: accuracy, and macro means over the classes of F1, precision and recall; R² of numbers. A class that occurs,
or is guessed, counts; one that is never guessed has precision 0, and one that never occurs recall 0.

Images of pixels in [0, 1]: mean squared error, PSNR and SSIM. SSIM is that of Wang, Bovik, Sheikh and Simoncelli 2004,
"Image quality assessment: from error visibility to structural similarity", equation 13 and section III-C: a Gaussian
window of 11 × 11 with deviation 1.5, constants .01 and .03.

A label holder's attacks on one feature party's columns, from files.

Ids join an auxiliary record to its embedding: the label holder's own table has the ids of the common records.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import accuracy_score, precision_recall_fscore_support, r2_score
from torch.nn import functional

from treetap.arrays import Floats, Ints
from treetap.attacks.features.attributes import AttributeGuess
from treetap.attacks.features.evidence import (
    SCALES,
    Column,
    FeatureEvidence,
    RealBottom,
    Records,
    check_columns,
    columns_of,
)
from treetap.attacks.features.guesses import Attacker, Progress
from treetap.attacks.files import Victim
from treetap.attacks.networks.evidence import published_bottom
from treetap.attacks.networks.schema import (
    Attribute,
    ClassScores,
    FeatureSettings,
    Picture,
    Reconstruction,
    RecordScores,
    Scale,
    VictimFigures,
    attribute_figure,
    png_url,
)
from treetap.attacks.verdict import Compared, half_width, paired_error
from treetap.attacks.view.own_table import read_numbers
from treetap.attacks.view.received_rows import EpochRows
from treetap.attacks.view.view import View
from treetap.errors import BadInput
from treetap.neural.numbers import pin
from treetap.tables.cells import shape_text
from treetap.tables.reading import Table

#: Side of SSIM's window, and its deviation, both in pixels.
WINDOW, _DEVIATION = 11, 1.5
#: (K1 L)² and (K2 L)² with the range L = 1.
_C1, _C2 = 0.01**2, 0.03**2


def class_scores(guess: Ints, truth: Ints) -> ClassScores:
    """Scores of guessed classes (n,), n > 0."""
    precision, recall, f1, _ = precision_recall_fscore_support(truth, guess, average="macro", zero_division=0)
    return ClassScores(
        accuracy=float(accuracy_score(truth, guess)), f1=float(f1), precision=float(precision), recall=float(recall)
    )


def r2(guess: Floats, truth: Floats) -> float | None:
    """R² of guessed numbers (n,); None where the true ones are all equal, which leaves nothing to explain."""
    if not len(truth) or truth.min() == truth.max():
        return None
    return float(r2_score(truth, guess))


def mse(guess: torch.Tensor, truth: torch.Tensor) -> float:
    """The mean squared error of images (n, channels, height, width)."""
    return float(_errors(guess, truth).mean())


def psnr(guess: torch.Tensor, truth: torch.Tensor) -> float | None:
    """The mean over images (n, channels, height, width) of each one's PSNR in dB; None where one has no error."""
    errors = _errors(guess, truth)
    return None if bool((errors == 0).any()) else float((-10 * torch.log10(errors)).mean())


def ssim(guess: torch.Tensor, truth: torch.Tensor) -> float | None:
    """The mean SSIM of images (n, channels, height, width) over all places of the window that lie inside an image.

    None where the window does not fit.
    """
    if min(truth.shape[-2:]) < WINDOW:
        return None
    x, y = guess.double().flatten(0, 1)[:, None], truth.double().flatten(0, 1)[:, None]
    mean_x, mean_y = _windowed(x), _windowed(y)
    variance_x, variance_y = _windowed(x * x) - mean_x**2, _windowed(y * y) - mean_y**2
    covariance = _windowed(x * y) - mean_x * mean_y
    means = (2 * mean_x * mean_y + _C1) / (mean_x**2 + mean_y**2 + _C1)
    return float((means * (2 * covariance + _C2) / (variance_x + variance_y + _C2)).mean())


def _errors(guess: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    """The mean squared error (n,) of each image."""
    return ((guess.double() - truth.double()) ** 2).flatten(1).mean(dim=1)


def _windowed(values: torch.Tensor) -> torch.Tensor:
    """Weighted means (m, 1, h - 10, w - 10) of values (m, 1, h, w) in each place of the window."""
    places = torch.arange(WINDOW, dtype=torch.float64) - WINDOW // 2
    weights = torch.exp(-(places**2) / (2 * _DEVIATION**2))
    weights = weights / weights.sum()
    rows = functional.conv2d(values, weights.reshape(1, 1, -1, 1))
    return functional.conv2d(rows, weights.reshape(1, 1, 1, -1))


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
    reasons, victims = dict(attacker.reasons), len(attacker.victims)
    # the attacks are over: from here on the truth is read
    chosen = None if truth is None else truth.take(attacker.victims)
    if chosen is None:
        reasons["scores"] = "the victims' columns are not at hand: nothing is scored"
    records = None if chosen is None or not attacker.records else attacker.space.records(chosen)
    columns = {} if chosen is None else columns_of(chosen)
    # The first victims that every attack has guessed, beside its guesses.
    counts = [len(guess["raw"].numbers) for guess, _ in attacker.records.values()]
    count = min([evidence.settings.pictures, *counts]) if counts else 0
    floor, pictures = attacker.space.floor(1), []
    for number in range(count):
        for name in attacker.space.scaler.images:
            shown = {} if records is None else {"truth": records.images[name][number]}
            shown["floor"] = floor.images[name][0]
            shown |= {
                f"{attack}, {scale}": guess[scale].images[name][number]
                for attack, (guess, _) in attacker.records.items()
                for scale in SCALES
            }
            pictures.append(Picture(column=name, images={what: png_url(image) for what, image in shown.items()}))
    return {
        "width": evidence.bottom.width,
        "auxiliary": attacker.auxiliary,
        "victims": victims,
        "left_out": len(evidence.victims) - victims,
        "scored": truth is not None,
        "reconstructions": [_reconstruction(name, attacker, records) for name in attacker.records],
        "attributes": (attributes := [_attribute(it, victims, columns.get(it.name)) for it in attacker.columns]),
        "compared": _compared(attacker.columns, attributes, columns, victims),
        "pictures": pictures,
        "reasons": reasons,
    }


def _reconstruction(attack: str, attacker: Attacker, truth: Records | None) -> Reconstruction:
    guess, seconds = attacker.records[attack]
    count = len(guess["raw"].numbers)
    scores: dict[str, RecordScores] = {}
    if truth is not None:
        known = truth.first(count)
        scores = {scale: _scores(guess[scale], known) for scale in SCALES}
        scores["floor"] = _scores(attacker.space.floor(count), known)
    strengths = {scale: -it.mse if it.ssim is None else it.ssim for scale in SCALES if (it := scores.get(scale))}
    return Reconstruction(
        attack=attack,
        records=count,
        raw=scores.get("raw"),
        standardised=scores.get("standardised"),
        headline=_strongest(strengths) if scores else None,
        floor=scores.get("floor"),
        seconds=seconds,
    )


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


def _scored(guess: AttributeGuess, truth: Column, known: Ints) -> dict[str, Any]:
    """The scores of a guessed column on the victims with a value."""
    if guess.classes is None:
        numbers = {scale: r2(guess.guesses[scale][known], truth.cells[known]) for scale in SCALES}
        told = {scale: value for scale, value in numbers.items() if value is not None}
        headline = _strongest(told) if len(told) == len(SCALES) else None
        return {f"{scale}_r2": value for scale, value in numbers.items()} | {"headline": headline}
    labels = _labels(guess.classes, truth)
    scores = {scale: class_scores(guess.guesses[scale][known].astype(np.int64), labels) for scale in SCALES}
    floor = class_scores(np.full(len(known), int(guess.floor), dtype=np.int64), labels)
    headline = _strongest({scale: score.accuracy for scale, score in scores.items()})
    return {**{str(scale): score for scale, score in scores.items()}, "floor": floor, "headline": headline}


def _labels(classes: Sequence[str | float], truth: Column) -> Ints:
    """The numbers of the victims' values; one that no auxiliary record has is beyond the guessed ones: it is wrong."""
    place: dict[str | float, int] = {value: number for number, value in enumerate(classes)}
    return np.array([place.setdefault(value, len(place)) for value in truth.values() if value is not None], np.int64)


def _compared(
    guesses: Sequence[AttributeGuess], figures: Sequence[Attribute], truth: Mapping[str, Column], victims: int
) -> Compared | None:
    """All guessed columns beside their floors: accuracy of classes and R² of numbers, the mean over columns.

    None where no column is scored. A column that is guessed no better than by its floor, or so by chance, is named by
    that: the better halves of many guesses that know nothing have a mean above their floors.
    """
    before, reached, gained = [], [], []
    tries = len(SCALES) * max(1, len(guesses))
    for guess, it in zip(guesses, figures, strict=True):
        value, floor = attribute_figure(it, it.headline), attribute_figure(it, "floor")
        if it.headline is None or value is None or floor is None:
            continue
        before.append(floor)
        reached.append(floor)
        gained.append(np.zeros(victims))
        if value > floor:
            column, known, by_record = truth[it.name], np.flatnonzero(truth[it.name].known), np.zeros(victims)
            guessed = guess.guesses[it.headline][known]
            if guess.classes is None:
                errors = (column.cells[known] - column.cells[known].mean()) ** 2
                by_record[known] = (errors - (guessed - column.cells[known]) ** 2) / errors.mean()
            else:
                labels = _labels(guess.classes, column)
                by_record[known] = (guessed == labels).astype(np.int64) - (labels == int(guess.floor))
            if value - floor > half_width(paired_error(by_record[known]), tries):
                reached[-1], gained[-1] = value, by_record
    if not before:
        return None
    return Compared(
        measure="explained" if any(guess.classes is None for guess in guesses) else "accuracy",
        before=float(np.mean(before)),
        before_how="the most frequent value or the mean",
        reached=float(np.mean(reached)),
        reached_how="embeddings and records whose columns it knows",
        error=paired_error(np.mean(gained, axis=0)),
        tries=tries,
        details="columns",
    )


def _strongest(figures: Mapping[Scale, float]) -> Scale:
    return max(SCALES, key=lambda scale: figures[scale])


@dataclass(frozen=True)
class Received:
    """The embeddings of one feature party that the label holder received, by the ids of the records.

    Attributes:
        ids: of all records in the order by which `rows` counts.
        job: the training, or the prediction.
        predicted: it is a prediction.
        faults: gaps of the prediction's transcript; those of the training are the view's.
    """

    rows: EpochRows
    ids: Sequence[str] = field(repr=False)
    job: str
    predicted: bool = False
    faults: tuple[str, ...] = ()

    @property
    def what(self) -> str:
        """The records in words."""
        return f"the {'records of prediction' if self.predicted else 'common records of job'} {self.job!r}"

    @cached_property
    def order(self) -> dict[str, int]:
        """Id → its place among all records."""
        return {name: number for number, name in enumerate(self.ids)}

    @cached_property
    def place(self) -> dict[str, int]:
        """Id → the row of its embedding; records of batches that the party sat out are not there."""
        return {self.ids[record]: row for row, record in enumerate(self.rows.records.tolist())}

    def check(self, path: Path, key: str, ids: Collection[str]) -> None:
        """Raise BadInput unless all ids are among the records."""
        if strangers := [name for name in ids if name not in self.order]:
            raise BadInput(
                f"{path}: {len(strangers)} of its ids, such as {strangers[0]!r}, are not among {self.what}: leave them "
                f"out of {key}"
            )

    def embedded(self, ids: Collection[str]) -> list[str]:
        """Those of the ids that have an embedding, in the common order."""
        return sorted((name for name in ids if name in self.place), key=self.order.__getitem__)


def audited_victim(
    view: View,
    files: Victim,
    received: Received,
    settings: FeatureSettings,
    attacks: Mapping[str, Callable[[Attacker], None]],
    progress: Callable[[str], None] | None = None,
) -> VictimFigures:
    """Run attacks, by name, on a party's columns.

    Raises:
        BadInput: a file cannot be used: see `FeatureEvidence`.
        DataError: a file cannot be read, or has no such column.
    """
    embeddings = view.embeddings
    assert embeddings is not None  # the view is a label holder's
    assert files.auxiliary is not None  # `treetap.attacks.label_holder_audit` checks it
    auxiliary = read_numbers(files.auxiliary, files.id, files.columns, view.missing)
    received.check(files.auxiliary, "auxiliary", auxiliary.ids)
    truth = None if files.truth is None else read_numbers(files.truth, files.id, auxiliary.sources, view.missing)
    wanted = _victims(files, received, auxiliary, truth, view.missing)
    known, victims = received.embedded(auxiliary.ids), received.embedded(wanted)
    evidence = FeatureEvidence(
        party=files.name,
        bottom=embeddings.params.bottom_of(files.name),
        auxiliary=_records(auxiliary, known),
        known=received.rows.values[[received.place[name] for name in known]],
        victims=victims,
        embeddings=received.rows.values[[received.place[name] for name in victims]],
        settings=settings,
        attributes=None if files.attributes is None else tuple(files.attributes),
    )
    if truth is not None:
        # Raise BadInput if the truth lacks victims, or has images of another shape, before any attack runs.
        if absent := sorted(set(victims) - set(truth.ids)):
            raise BadInput(
                f"{truth.path}: lacks {len(absent)} of the victims, such as {absent[0]!r}: add them to truth, or leave "
                "them out of victims"
            )
        for name in auxiliary.sources:
            shapes = auxiliary.shapes.get(name), truth.shapes.get(name)
            if shapes[0] != shapes[1]:
                said = ["no images" if shape is None else f"images of {shape_text(shape)}" for shape in shapes]
                raise BadInput(
                    f"{truth.path}: column {name!r} holds {said[1]}, and that of {auxiliary.path} {said[0]}: give "
                    "truth and auxiliary the same columns"
                )
    real = None
    if files.model is not None and "match-exact" in attacks:
        described, bottom = published_bottom(files.model, embeddings.params, files.name, view.job)
        real = RealBottom(bottom, described.scaler, described.categories)
    figures = findings(evidence, None if truth is None else _records(truth, victims), real, attacks, progress)
    reasons = figures.pop("reasons")
    sizes = {"auxiliary records": len(auxiliary.ids) - len(known), "victims": len(wanted) - len(victims)}
    reasons |= {what: f"{n} have no embedding: the party sat out their batch" for what, n in sizes.items() if n}
    if received.faults:
        reasons["embeddings"] = "; ".join(received.faults)
    return VictimFigures(
        **figures,
        reasons=reasons,
        source="prediction" if received.predicted else "training",
        job=received.job,
        epoch=received.rows.epoch,
    )


def _victims(
    files: Victim, received: Received, auxiliary: Table, truth: Table | None, missing: float | None
) -> Sequence[str]:
    """Ids of the records to guess."""
    known = set(auxiliary.ids)
    if files.victims is not None:
        asked = read_numbers(files.victims, files.id, [], missing).ids
        received.check(files.victims, "victims", asked)
        if both := sorted(known.intersection(asked)):
            raise BadInput(
                f"{files.victims}: {len(both)} of its ids, such as {both[0]!r}, are auxiliary records of "
                f"{files.auxiliary}: leave them out of victims or of auxiliary"
            )
        return asked
    ids = list(received.order) if truth is None else [name for name in truth.ids if name in received.order]
    if not (others := [name for name in ids if name not in known]):
        of = received.what if truth is None else f"{truth.path}"
        raise BadInput(f"{files.auxiliary}: has all of {of}, so none is left to guess: leave some out of auxiliary")
    return others


def _records(table: Table, ids: Sequence[str]) -> Table:
    """The records with these ids, which the table has, in this order."""
    place = {name: number for number, name in enumerate(table.ids)}
    return table.take(np.array([place[name] for name in ids], dtype=np.int64))

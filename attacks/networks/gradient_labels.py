"""`gradient-labels`: from few known labels and the directions of gradients to the label of every training record.

There are three ways: a record gets the label of the `nearest` known direction; of the class whose known directions have
the nearest `mean`; or of its group, by k-means that begins at these means (`groups`; Basu, Banerjee, Mooney 2002,
"Semi-supervised clustering by seeding"). The way, and the epoch or all of them side by side, the attacker chooses by
the known labels alone: it keeps each out once and counts how many are named right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from treetap.attacks.networks.schema import LabelFigures, Measured
from treetap.attacks.scores import UNKNOWN, majority
from treetap.attacks.view.received_rows import EpochRows, Ints, Rows, together

if TYPE_CHECKING:
    from treetap.attacks.networks.evidence import Evidence

#: Rows whose distances to the known ones are in memory at once.
_PIECE = 4096
#: Most known labels by which ways are compared, parts of which each is kept out once, and other rows that take part.
_MOST_TRIED, _FOLDS, _TRIED_ROWS = 200, 5, 1000
_ROUNDS = 20


@dataclass(frozen=True)
class InferredLabels:
    """The labels that follow from the gradients.

    Attributes:
        records: (n,) places of the records whose label is inferred: those with a row, the known ones among them.
        labels: (n,) numbers of classes.
        epoch: the epoch whose rows were used; None: all side by side.
        way: `nearest`, `mean` or `groups`.
        kept_out: share of the known labels (at most 200) that this way names right when they are kept out; one whose
            record has no row counts as wrong.
    """

    records: Ints = field(repr=False)
    labels: Ints = field(repr=False)
    epoch: int | None
    way: str
    kept_out: float


def gradient_labels(epochs: Sequence[EpochRows], known: Mapping[int, int]) -> InferredLabels | None:
    """Infer labels by known ones, place of a record → number of its class; None if no known record has a row.

    Of several best ways the first counts: all epochs side by side, then each.
    """
    side_by_side = together(epochs)
    tried = {record: known[record] for record in sorted(known)[:_MOST_TRIED]}
    best: tuple[float, EpochRows, str] | None = None
    for rows in [*([] if side_by_side is None else [side_by_side]), *epochs]:
        directions, labels = _known(rows, tried)
        others = rows.directions[:: -(-len(rows.records) // _TRIED_ROWS) or 1]
        for name, way in _WAYS.items() if len(labels) else ():
            right = _right_when_kept_out(way, directions, labels, others) / len(tried)
            if best is None or right > best[0]:
                best = right, rows, name
    if best is None:
        return None
    kept_out, rows, name = best
    inferred = _WAYS[name](*_known(rows, known), rows.directions)
    return InferredLabels(rows.records, inferred, rows.epoch, name, kept_out)


def label_figures(evidence: Evidence) -> LabelFigures | None:
    """The labels that follow from the known ones of each draw, scored; None where none is known."""
    inferred = [(places, labels) for places in evidence.draws if (labels := _inferred(evidence, places)) is not None]
    if not inferred:
        evidence.reasons["gradient-labels"] = "no label of a record with a gradient is known"
        return None
    evidence.inferred.extend((labels.records, labels.labels) for _, labels in inferred)
    scored = [pair for pair in (_scored(evidence, *labels) for labels in inferred) if len(pair[1])]
    from treetap.attacks.networks.completion import own_model_accuracy  # needs PyTorch

    known, first = inferred[0]
    own_model = own_model_accuracy(evidence, first.records, first.labels)
    if own_model is None:
        evidence.reasons["gradient-labels, own model"] = (
            "needs the party's published model and table, records to measure it on, and a bottom within most_weights"
        )
    return LabelFigures(
        known=len(known),
        records=len(first.records) - int(np.isin(first.records, known).sum()),
        left_out=evidence.left_out,
        inferred=Measured.of([float(np.mean(guess == truth)) for guess, truth in scored]) if scored else None,
        majority=majority(scored[0][1]) if scored else None,
        kept_out=float(np.mean([labels.kept_out for _, labels in inferred])),
        ways=[labels.way for _, labels in inferred],
        epochs=[labels.epoch for _, labels in inferred],
        own_model=own_model,
    )


def _inferred(evidence: Evidence, places: Ints) -> InferredLabels | None:
    """The labels that follow from those of some records."""
    return gradient_labels(
        evidence.rows, dict(zip(places.tolist(), evidence.known.truth[places].tolist(), strict=True))
    )


def _scored(evidence: Evidence, places: Ints, inferred: InferredLabels) -> tuple[Ints, Ints]:
    """Guessed and true labels of the other records whose label is at hand."""
    truth = evidence.known.truth[inferred.records]
    scored = ~np.isin(inferred.records, places) & (truth != UNKNOWN)
    return inferred.labels[scored], truth[scored]


def _known(rows: EpochRows, known: Mapping[int, int]) -> tuple[Rows, Ints]:
    """Directions and labels of the known records that have a row."""
    mine = rows.of(np.array(sorted(known), dtype=np.int64))
    return mine.directions, np.array([known[record] for record in mine.records.tolist()], dtype=np.int64)


def _nearest(directions: Rows, labels: Ints, points: Rows) -> Ints:
    """The label of the known direction with the largest cosine, for each point (n,)."""
    nearest = [labels[np.argmax(piece @ directions.T, axis=1)] for piece in _pieces(points)]
    return np.concatenate([np.zeros(0, dtype=np.int64), *nearest])


def _mean(directions: Rows, labels: Ints, points: Rows) -> Ints:
    """The label whose known directions have the nearest mean, for each point (n,)."""
    classes, means = _means(directions, labels)
    return classes[_closest(means, points)]


def _groups(directions: Rows, labels: Ints, points: Rows) -> Ints:
    """The label at whose known directions' mean the group of each point (n,) began."""
    classes, means = _means(directions, labels)
    groups = _closest(means, points)
    for _ in range(_ROUNDS):
        means = np.stack(
            [points[groups == k].mean(axis=0) if (groups == k).any() else means[k] for k in range(len(classes))]
        )
        before, groups = groups, _closest(means, points)
        if np.array_equal(before, groups):
            break
    return classes[groups]


_WAYS: Mapping[str, Callable[[Rows, Ints, Rows], Ints]] = {"nearest": _nearest, "mean": _mean, "groups": _groups}


def _means(directions: Rows, labels: Ints) -> tuple[Ints, Rows]:
    """The classes that occur, and the mean of each one's directions."""
    classes = np.unique(labels)
    return classes, np.stack([directions[labels == label].mean(axis=0) for label in classes])


def _closest(means: Rows, points: Rows) -> Ints:
    """The nearest of the means for each point (n,)."""
    squares = (means**2).sum(axis=1)
    nearest = [np.argmin(squares - 2.0 * piece @ means.T, axis=1) for piece in _pieces(points)]
    return np.concatenate([np.zeros(0, dtype=np.int64), *nearest])


def _right_when_kept_out(way: Callable[[Rows, Ints, Rows], Ints], directions: Rows, labels: Ints, others: Rows) -> int:
    """The number of known labels that the way names right by those of the other folds; 0 of a single one."""
    if len(labels) < 2:
        return 0
    fold, right = np.arange(len(labels)) % _FOLDS, 0
    for number in range(min(_FOLDS, len(labels))):
        out = fold == number
        named = way(directions[~out], labels[~out], np.concatenate([directions[out], others]))[: int(out.sum())]
        right += int((named == labels[out]).sum())
    return right


def _pieces(points: Rows) -> Iterator[Rows]:
    for start in range(0, len(points), _PIECE):
        yield points[start : start + _PIECE]

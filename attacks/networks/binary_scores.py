"""`norm-scoring` and `direction-scoring`: labels of two classes from the length and the direction of single gradients.

Li et al. (ICLR 2022, "Label leakage and protection in two-party split learning"): where one class is
rare or harder its gradients are longer (norm-based scoring), and gradients of one class point the same way
(direction-based scoring by the cosine, with one record of the second class known).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from treetap.attacks.networks.schema import EpochScore, ScoreFigures
from treetap.attacks.scores import auc
from treetap.attacks.view.received_rows import EpochRows, Ints

if TYPE_CHECKING:
    from treetap.attacks.networks.evidence import Evidence

Floats = npt.NDArray[np.float64]


def norm_scoring(evidence: Evidence) -> ScoreFigures | None:
    """Figures of the lengths; None, with a reason, where there are not two classes."""
    if not _of_two_classes(evidence, "norm-scoring"):
        return None
    return _figures(evidence, [[norm_auc(*_scored(evidence, rows))] for rows in evidence.rows], 1)


def direction_scoring(evidence: Evidence) -> ScoreFigures | None:
    """Figures of the cosines; None, with a reason, where there are not two classes or no record is known."""
    if not _of_two_classes(evidence, "direction-scoring"):
        return None
    known = [places[evidence.known.truth[places] == 1][:1] for places in evidence.draws]
    positives = [int(places[0]) for places in known if len(places)]
    if not positives:
        evidence.reasons["direction-scoring"] = "no record of the second class is known"
        return None
    aucs = [[cosine_auc(*_scored(evidence, rows), positive) for positive in positives] for rows in evidence.rows]
    return _figures(evidence, aucs, len(positives))


def norm_auc(rows: EpochRows, labels: Ints) -> float | None:
    """AUC of the rows' lengths for the second class; `labels`: (n,) 0 or 1. None where one class has no row."""
    return auc(np.linalg.norm(rows.values.astype(np.float64), axis=1), labels)


def cosine_auc(rows: EpochRows, labels: Ints, known: int) -> float | None:
    """AUC of the rows' cosines with that of `known`, the place of a record of the second class, among the others.

    None where that record has no row, or one class has no other row.
    """
    mine = np.flatnonzero(rows.records == known)
    if not len(mine):
        return None
    directions = rows.directions.astype(np.float64)
    others = np.arange(len(directions)) != mine[0]
    return auc((directions @ directions[mine[0]])[others], labels[others])


def _of_two_classes(evidence: Evidence, name: str) -> bool:
    classes = len(evidence.known.classes)
    if classes != 2:
        what = "without labels nothing scores it" if not classes else f"it is for two classes, and there are {classes}"
        evidence.reasons[name] = what
    return classes == 2


def _scored(evidence: Evidence, rows: EpochRows) -> tuple[EpochRows, Ints]:
    """The rows whose label is at hand, and the labels."""
    kept = rows.of(evidence.known.scored)
    return kept, evidence.known.truth[kept.records]


def _figures(evidence: Evidence, aucs: Sequence[Sequence[float | None]], draws: int) -> ScoreFigures:
    """The epochs' figures, by the AUC of each draw."""
    by_epoch = []
    for rows, of_epoch in zip(evidence.rows, aucs, strict=True):
        known = [value for value in of_epoch if value is not None]
        mean, deviation = float(np.mean(known)) if known else None, float(np.std(known)) if len(known) > 1 else None
        by_epoch.append(EpochScore(epoch=rows.epoch or 0, auc=mean, deviation=deviation))
    best = max(by_epoch, key=lambda row: -1.0 if row.auc is None else abs(row.auc - 0.5))
    return ScoreFigures(epoch=best.epoch, auc=best.auc, draws=draws, left_out=evidence.left_out, by_epoch=by_epoch)

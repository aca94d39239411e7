"""`norm` and `cosine`: labels of two classes from the length and the direction of single gradients.

Li et al. (ICLR 2022, "Label leakage and protection in two-party split learning"): where one class is
rare or harder its gradients are longer (the norm attack), and gradients of one class point the same way (the cosine
attack, with one record of the second class known).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from attacks.view.gradient_rows import GradientRows, Ints
from treetap.trees.metrics import auc

Floats = npt.NDArray[np.float64]


def norm_auc(rows: GradientRows, labels: Ints) -> float | None:
    """AUC of the rows' lengths for the second class; `labels`: (n,) 0 or 1. None where one class has no row."""
    return auc_of(np.linalg.norm(rows.values.astype(np.float64), axis=1), labels)


def cosine_auc(rows: GradientRows, labels: Ints, known: int) -> float | None:
    """AUC of the rows' cosines with that of `known`, the place of a record of the second class, among the others.

    None where that record has no row, or one class has no other row.
    """
    mine = np.flatnonzero(rows.records == known)
    if not len(mine):
        return None
    directions = rows.directions.astype(np.float64)
    others = np.arange(len(directions)) != mine[0]
    return auc_of((directions @ directions[mine[0]])[others], labels[others])


def auc_of(scores: Floats, labels: Ints) -> float | None:
    """The chance that a record of the second class has the larger score, ties counting half; None of one class."""
    return auc(scores, labels) if 0 < int(labels.sum()) < len(labels) else None

"""Scores of guessed attributes: accuracy, and macro means over the classes of F1, precision and recall; R² of numbers.

A class that occurs, or is guessed, counts; one that is never guessed has precision 0, and one that never occurs
recall 0.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from sklearn.metrics import accuracy_score, precision_recall_fscore_support, r2_score

from attacks.features.results import ClassScores

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


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

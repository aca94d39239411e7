"""Counts of predicted against true classes, and what follows from them; names and formulas are scikit-learn's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]
Row = dict[str, float | int]
#: Figures of a class that `averages` averages.
AVERAGED = ("precision", "recall", "f1")


def confusion_of(labels: Array, predicted: Array, classes: int) -> Ints:
    """Numbers of records (C, C) by true class, in rows, and predicted class; both (N,) class numbers."""
    pairs = np.asarray(labels, dtype=np.int64) * classes + np.asarray(predicted, dtype=np.int64)
    return np.bincount(pairs, minlength=classes * classes).reshape(classes, classes).astype(np.int64)


def per_class(confusion: Ints) -> list[Row]:
    """Of each class precision, recall and F1, the records that it has and those predicted to be of it.

    A quotient of no records is 0, as with scikit-learn's `zero_division=0`.
    """
    right, support, predicted = np.diag(confusion), confusion.sum(axis=1), confusion.sum(axis=0)
    precision, recall, f1 = _share(right, predicted), _share(right, support), _share(2 * right, support + predicted)
    columns = (precision.tolist(), recall.tolist(), f1.tolist(), support.tolist(), predicted.tolist())
    names = (*AVERAGED, "support", "predicted")
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def averages(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """Means over the classes, plain and weighted by support.

    As in scikit-learn a class that has no record and is predicted for none does not count.
    """
    present = [row for row in rows if row["support"] or row["predicted"]]
    weights = {"macro": None, "weighted": [row["support"] for row in present]}
    return {
        kind: {name: float(np.average([row[name] for row in present], weights=weight)) for name in AVERAGED}
        for kind, weight in weights.items()
    }


def _share(part: Ints, whole: Ints) -> npt.NDArray[np.float64]:
    return np.divide(part, whole, out=np.zeros(len(part)), where=whole > 0)

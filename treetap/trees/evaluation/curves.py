"""ROC curves and calibration of one class against the rest."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Json = dict[str, Any]
#: Most points of a ROC curve.
MOST_POINTS = 200
#: Bins of equal width of the predicted probability.
CALIBRATION_BINS = 10


def roc_points(chance: Array, positive: Array) -> list[Json]:
    """Points of the ROC curve from (0, 0) to (1, 1): shares of negatives and of positives at or above a threshold.

    `chance` (N,), `positive` (N,) bool. Corners alone are kept, points between two on one line are not; of more than
    `MOST_POINTS` corners those that divide the length of the curve evenly. The first point has no threshold. No points
    where a class is absent.
    """
    truth = np.asarray(positive).astype(bool)
    positives = int(truth.sum())
    negatives = len(truth) - positives
    if not positives or not negatives:
        return []
    values, place = np.unique(np.asarray(chance, dtype=np.float64), return_inverse=True)
    hits = np.cumsum(np.bincount(place, weights=truth)[::-1])
    alarms = np.cumsum(np.bincount(place, weights=~truth)[::-1])
    hits, alarms = np.r_[0.0, hits], np.r_[0.0, alarms]
    thresholds = np.r_[math.inf, values[::-1]]
    turn = np.diff(hits)[:-1] * np.diff(alarms)[1:] != np.diff(hits)[1:] * np.diff(alarms)[:-1]
    kept = np.flatnonzero(np.r_[True, turn, True])
    if len(kept) > MOST_POINTS:
        length = alarms[kept] / negatives + hits[kept] / positives
        wanted = np.searchsorted(length, np.linspace(0.0, length[-1], MOST_POINTS))
        kept = kept[np.unique(np.minimum(wanted, len(kept) - 1))]
    return [
        {
            "false": float(alarms[k] / negatives),
            "true": float(hits[k] / positives),
            "threshold": float(thresholds[k]) if math.isfinite(thresholds[k]) else None,
        }
        for k in kept
    ]


def calibration_bins(chance: Array, positive: Array) -> list[Json]:
    """`CALIBRATION_BINS` bins of predicted probabilities (N,), the upper bound in the last one only.

    Of each its bounds, its number of records, their mean probability, and the share that is of the class; the last two
    are null where there is no record.
    """
    given, truth = np.asarray(chance, dtype=np.float64), np.asarray(positive).astype(bool)
    number = np.minimum((given * CALIBRATION_BINS).astype(np.int64), CALIBRATION_BINS - 1)
    count = np.bincount(number, minlength=CALIBRATION_BINS)
    total = np.bincount(number, weights=given, minlength=CALIBRATION_BINS)
    observed = np.bincount(number, weights=truth, minlength=CALIBRATION_BINS)
    return [
        {
            "low": k / CALIBRATION_BINS,
            "high": (k + 1) / CALIBRATION_BINS,
            "records": int(count[k]),
            "mean": float(total[k] / count[k]) if count[k] else None,
            "observed": float(observed[k] / count[k]) if count[k] else None,
        }
        for k in range(CALIBRATION_BINS)
    ]

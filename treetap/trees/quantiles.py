"""The quantile of some values, as XGBoost takes it of labels and of the residuals in a leaf."""

from __future__ import annotations

import math

import numpy as np

from treetap.arrays import Floats


def quantile(values: Floats, share: float, weights: Floats | None = None) -> float:
    """The value that a share of values (n,) does not exceed; 0 of none.

    Without weights it lies between the values of rank ⌊x⌋ and ⌈x⌉ with x = share · (n + 1), within 1..n. With weights
    (n,) it is the first at which the weights of all up to it reach the share of their sum.
    """
    if not len(values):
        return 0.0
    # equal records are interchangeable, so that sums of weights are of one order
    order = np.argsort(values, kind="stable") if weights is None else np.lexsort((weights, values))
    ascending, last = values[order], len(values) - 1
    if weights is not None:
        reached = np.cumsum(weights[order])
        return float(ascending[min(int(np.searchsorted(reached, reached[-1] * share)), last)])
    rank = min(max(share * (len(values) + 1), 1.0), float(len(values)))
    below = math.floor(rank) - 1
    return float(ascending[below] + (rank - 1 - below) * (ascending[min(below + 1, last)] - ascending[below]))

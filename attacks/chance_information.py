"""The part of a partition's information on the label that small groups alone explain."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from sklearn.metrics.cluster import contingency_matrix, expected_mutual_information

Ints = npt.NDArray[np.int64]


def chance_information(labels: Ints, groups: Ints) -> float:
    """The mean of `mutual_information`, in nats, if the labels (N,) were assigned to the records in random order.

    The mean over all permutations (Vinh, Epps, Bailey 2010, equation 24a).
    """
    if not labels.size:
        return 0.0
    return max(0.0, float(expected_mutual_information(contingency_matrix(labels, groups, sparse=True), len(labels))))

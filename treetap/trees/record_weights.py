"""Checks of sample weights (N,), by which the derivatives and the metrics of records are multiplied."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from treetap.errors import DataError
from treetap.trees.job_params import REGRESSIONS
from treetap.trees.loss import LARGEST_TARGET
from treetap.trees.params import BoostingParams

Floats = npt.NDArray[np.float64]


def check_weights(weights: Floats, labels: npt.NDArray[Any], params: BoostingParams) -> None:
    """Check weights of the records of a job, with their labels (N,); 0 leaves a record out of sums, as in XGBoost.

    Raises:
        DataError: one is no finite number from 0 to `max_sample_weight`, or all records to train on, or all that are
            set aside for early stopping, have 0; or targets and weights are so large that sums of squares overflow.
    """
    if not ((weights >= 0) & (weights <= params.max_sample_weight)).all():
        raise DataError(
            f"sample weights must be numbers from 0 to max_sample_weight = {params.max_sample_weight:g} of the job"
        )
    training = params.training_rows(len(weights))
    for rows, what in ((training, "to train on"), (~training, "set aside for early stopping")):
        if rows.any() and not weights[rows].any():
            raise DataError(f"all records {what} have sample weight 0")
    if params.objective in REGRESSIONS and np.abs(labels).max() * max(1.0, weights.max()) > LARGEST_TARGET:
        raise DataError(f"targets times sample weights must not exceed {LARGEST_TARGET:g}")

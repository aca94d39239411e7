"""Mean and deviation of numbers that a network sees standardised."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from treetap.errors import DataError


def mean_and_deviation(values: npt.NDArray[Any], what: str) -> tuple[float, float]:
    """Mean and deviation of numbers (n,), n > 0; `what` names them in an error.

    Of equal numbers, which rounding would give a tiny deviation, it is 1.

    Raises:
        DataError: they are so large that there is none.
    """
    if values.min() == values.max():
        return float(values[0]), 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        mean, deviation = float(values.mean()), float(values.std())
    if not (math.isfinite(mean) and math.isfinite(deviation)):
        raise DataError(f"{what}: the numbers are too large to standardise; rescale them")
    return mean, deviation if deviation > 0 else 1.0

"""Figures of a regression: predictions (N,) against targets (N,)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
#: Shares at which a document has the quantiles of residuals.
QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)


def mae(predicted: Floats, targets: Floats) -> float:
    """Mean of the absolute differences."""
    return float(np.mean(np.abs(predicted - targets)))


def r2(predicted: Floats, targets: Floats) -> float:
    """Coefficient of determination: 1 less the squared error over that of the mean target; NaN if targets are equal."""
    spread = float(((targets - targets.mean()) ** 2).sum())
    return float("nan") if spread == 0 else 1.0 - float(((targets - predicted) ** 2).sum()) / spread


def residual_quantiles(predicted: Floats, targets: Floats) -> list[dict[str, float]]:
    """Quantiles of target less prediction, numpy's by linear interpolation, at `QUANTILES`."""
    found = np.quantile(targets - predicted, QUANTILES)
    return [{"share": share, "value": float(value)} for share, value in zip(QUANTILES, found, strict=True)]

"""A row of a party's split table: the meaning of a split handle."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

Bools = np.ndarray[tuple[int], np.dtype[np.bool_]]


@dataclass(frozen=True)
class OwnSplit:
    """A row of a party's split table: a handle's meaning. Left: value < threshold, or missing if `missing_left`."""

    handle: int
    node: int
    feature: int
    bin: int
    threshold: float
    missing_left: bool

    def goes_left(self, values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Bools:
        """The mask of those raw values (n,) of the split's column that go left."""
        return np.where(np.isnan(values), self.missing_left, values < self.threshold)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; a threshold above every value, which separates missing cells from the others, is null."""
        return {**vars(self), "threshold": None if math.isinf(self.threshold) else self.threshold}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> OwnSplit:
        """Back from JSON types."""
        threshold = math.inf if content["threshold"] is None else content["threshold"]
        return cls(**{**content, "threshold": threshold})

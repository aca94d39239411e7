"""Gains as whole numbers of 64 bits, so that comparing them openly and comparing them under encryption agree.

A gain counts in units of 2^-24. Its rounding is monotonic; gains closer than that are ties, which go to the lowest
source, and within a source to the lowest candidate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treetap.trees.boosting_criterion import LEAST_LOSS_CHANGE, leaf_weights, loss_changes
from treetap.trees.pivodl_params import PivodlParams

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
#: Fractional bits of a gain.
GAIN_BITS = 24
#: Bits of a gain with its sign; larger gains count as the largest.
WIDTH = 64
LARGEST = 2 ** (WIDTH - 2)
#: Stands for no gain: below every allowed one.
NO_GAIN = -1


def least_gain(params: PivodlParams) -> int:
    """The least gain that a split needs: `gamma`, and more than the rounding noise of XGBoost's 1e-6."""
    return max(_fixed(params.gamma), _fixed(LEAST_LOSS_CHANGE) + 1)


def _fixed(gain: float) -> int:
    return int(min(round(gain * 2.0**GAIN_BITS), LARGEST))


@dataclass(frozen=True)
class Best:
    """The best candidates of one source at a node: their gain in units of 2^-24, and the places of all that have it."""

    gain: int
    places: list[int]


def best_of(left: Ints, total: Ints, scale: float, params: PivodlParams) -> Best | None:
    """The best of a source's candidates whose gain is enough.

    Args:
        left: (candidates, 2K) fixed-point sums of g and h.
        total: (2K,) those of the node.
        scale: that of g, see `treetap.trees.loss`.
    """
    if not len(left):
        return None
    gains = gains_of(left, total, scale, params)
    top = int(gains.max())
    if top < least_gain(params):
        return None
    return Best(top, [int(place) for place in np.flatnonzero(gains == top)])


def gains_of(left: Ints, total: Ints, scale: float, params: PivodlParams) -> Ints:
    """Loss changes in units of 2^-24 of candidates (candidates, 2K) of a node (2K,); `NO_GAIN` where not allowed."""
    changes = loss_changes(_counted(left, 1)[np.newaxis], _counted(total, 2)[np.newaxis], scale, params)[0]
    allowed = np.isfinite(changes)
    fixed = np.rint(np.where(allowed, changes, 0.0) * 2.0**GAIN_BITS)
    return np.where(allowed, np.minimum(fixed, float(LARGEST)), NO_GAIN).astype(np.int64)


def weights_of(total: Ints, scale: float, params: PivodlParams) -> Floats:
    """The weight (K,) of a leaf with the sums (2K,)."""
    return leaf_weights(_counted(total, 2), scale, params)


def _counted(sums: Ints, count: int) -> Ints:
    """Sums with a slot for the number of records, which no party adds up: each side of a candidate has some."""
    return np.concatenate([sums, np.full((*sums.shape[:-1], 1), count, dtype=np.int64)], axis=-1)

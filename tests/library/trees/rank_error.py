"""How far quantiles of sketches may be off."""

from __future__ import annotations

from treetap.trees.binning import BLOCK


def rank_error(count: int, size: int = BLOCK) -> float:
    """The bound of `QuantileSketch`, as a share of `count` values; 0 while they fit one block."""
    return 0.0 if count < 2 * size else ((count // size).bit_length() - 1 + 2) / (4 * size)

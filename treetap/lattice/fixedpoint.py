"""Scores as integers modulo t: leaf weights, centred per tree and rounded to one step, whose sums never wrap."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from treetap.errors import BadInput, DataError, Malformed, PlaintextOverflow

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class FixedPoint:
    """The scale of one output of an ensemble.

    Every tree contributes exactly one leaf. Its weights are taken relative to the middle of the tree's range, which the
    label holder adds again after opening; the step is the smallest with which all possible sums fit below t/2.

    Args:
        weights: per tree the weights (leaves,) of one output.
        modulus: t.
        tolerance: largest error of a score as a part of the range Σ_k (max - min).

    Attributes:
        step: value of one unit.
        integers: per tree its rounded weights (leaves,).
        limit: largest absolute sum that can occur.
        span: distance from the least to the greatest sum of one weight per tree.

    Raises:
        DataError: a weight that is not finite, a tree without leaves.
        BadInput: the modulus is too small for the tolerance.
    """

    def __init__(self, weights: Sequence[Floats], modulus: int, tolerance: float = 1e-4) -> None:
        if any(len(tree) == 0 for tree in weights) or not all(np.isfinite(tree).all() for tree in weights):
            raise DataError("every tree needs leaves with finite weights")
        trees = len(weights)
        half = (modulus - 1) // 2
        middles = [(tree.max() + tree.min()) / 2 for tree in weights]
        reach = float(sum((tree.max() - tree.min()) / 2 for tree in weights))
        if trees / 2 > tolerance * (modulus - 1 - trees):
            raise BadInput(
                f"{trees} trees need a larger plaintext modulus than {modulus} for a tolerance of {tolerance}"
            )
        self.modulus = modulus
        # The smallest step at which every possible sum stays below half of the modulus, rounding included.
        self.step = reach / (half - trees / 2) if reach > 0 else 1.0
        self._offset = float(sum(middles))
        self.integers: list[Ints] = [
            np.rint((tree - middle) / self.step).astype(np.int64) for tree, middle in zip(weights, middles, strict=True)
        ]
        self.limit = int(sum(np.abs(tree).max() for tree in self.integers))
        self.span = int(sum(tree.max() - tree.min() for tree in self.integers))
        if self.limit > half:
            raise PlaintextOverflow(f"sums of {trees} trees exceed {half}, the most that a plaintext holds")

    def decode(self, sums: Ints) -> Floats:
        """Scores from opened sums, same shape.

        Raises:
            Malformed: a sum that no choice of one leaf per tree has.
        """
        if sums.size and int(np.abs(sums).max()) > self.limit:
            raise Malformed("an opened score exceeds the largest that the model's weights can make")
        return np.asarray(self._offset + sums * self.step, dtype=np.float64)

    def wrap(self, values: Ints) -> Ints:
        """The representatives modulo t between -t/2 and t/2: exact again once a whole score has been summed."""
        half = (self.modulus - 1) // 2
        return (values + half) % self.modulus - half

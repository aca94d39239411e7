"""Quantiles of columns of any length in bounded memory, by a deterministic summary (Manku, Rajagopalan, Lindsay 1998).

Sorted blocks of `size` values; two blocks of one weight are *collapsed* into one of twice the weight, which keeps every
other value of both together. Neither chance nor the ways in which values come in batches decide anything: the same
values in the same order have the same summary.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
#: Values of a block: with it the bound is 10⁻⁴ for up to 2⁴¹ values, and a column takes up 0.5 MB per level.
BLOCK = 1 << 16


class QuantileSketch:
    """A summary of a column's present values, from which its cuts follow.

    The estimate of the number of values ≤ t, for every t at once, and of those < t, is off by at most `rank_error(n)`
    of the n values, that is by (L + 2) / (4·size), with L = ⌊log₂(n / size)⌋ levels above the first.

    Proof: a collapse of 2·size values of weight w = 2ˡ keeps ⌈c/2⌉ or ⌊c/2⌋ of the c values ≤ t, each with weight 2w,
    which is w too much or too little if c is odd; a level has at most n / (2·size·w) collapses, which keep the even
    places and the odd ones in turn, so that their errors have opposite signs and all of them together are at most
    n / (4·size) + w/2. The sum over L levels is L·n / (4·size) + 2ᴸ/2, and 2ᴸ·size ≤ n.

    The distinct values are kept besides while they are at most `few`; the cuts between these are exact. So are least
    and largest value.
    """

    def __init__(self, few: int, size: int) -> None:
        self.count = 0
        self.least, self.largest = math.inf, -math.inf
        self._few_most, self._size = few, size
        self._few: Floats | None = np.empty(0)
        self._open = np.empty(size)  # values that have not come to a block
        self._filled = 0
        self._levels: list[Floats | None] = []  # at level l a block of weight 2^l
        self._odd: list[bool] = []  # places that the next collapse of the level keeps

    def add(self, values: npt.NDArray[Any]) -> None:
        """Further values (n,), none of them NaN."""
        first = 0
        while first < len(values):
            part = values[first : first + self._size - self._filled]
            self._open[self._filled : self._filled + len(part)] = part
            self._filled += len(part)
            first += len(part)
            if self._filled == self._size:
                block = np.sort(self._open)
                self._keep_few(block)
                self._push(block)
                self._filled = 0
        if len(values):
            self.least = min(self.least, float(values.min()))
            self.largest = max(self.largest, float(values.max()))
        self.count += len(values)

    def distinct(self) -> Floats | None:
        """The distinct values, ascending, where they are few; else None."""
        self._keep_few(self._open[: self._filled])
        return self._few

    def weighted(self) -> tuple[Floats, npt.NDArray[np.int64]]:
        """Values of the column, ascending and distinct, with the numbers of values for which each stands."""
        blocks = [self._open[: self._filled], *self._levels]
        held = [(1 << max(number - 1, 0), block) for number, block in enumerate(blocks) if block is not None]
        values = np.concatenate([block for _, block in held])
        weights = np.repeat([weight for weight, _ in held], [len(block) for _, block in held])
        present, place = np.unique(values, return_inverse=True)
        counts = np.zeros(len(present), dtype=np.int64)
        np.add.at(counts, place, weights)
        return present, counts

    def _keep_few(self, values: Floats) -> None:
        if self._few is not None:
            found = np.union1d(self._few, values)
            self._few = found if len(found) <= self._few_most else None

    def _push(self, block: Floats, level: int = 0) -> None:
        """A sorted block of a level, collapsed with the one that is there, and so on."""
        while True:
            while len(self._levels) <= level:
                self._levels.append(None)
                self._odd.append(False)
            held = self._levels[level]
            if held is None:
                self._levels[level] = block
                return
            both = np.concatenate([held, block])
            both.sort(kind="stable")  # two ascending runs
            block = both[int(self._odd[level]) :: 2].copy()
            self._odd[level], self._levels[level] = not self._odd[level], None
            level += 1


def rank_error(count: int, size: int = BLOCK) -> float:
    """The bound of `QuantileSketch`, as a share of `count` values; 0 while they fit one block."""
    return 0.0 if count < 2 * size else ((count // size).bit_length() - 1 + 2) / (4 * size)


def most_blocks(count: int, size: int = BLOCK) -> int:
    """The most blocks that a sketch of `count` values has in memory: one for each level, two where they collapse."""
    return max(count // size, 1).bit_length() + 3

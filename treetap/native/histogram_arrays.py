"""Sizes of encrypted histograms in the kernels, and what calls of `histograms.py` are given."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from treetap.native.library import in_bounds

DEGREE = 4096
HALF = DEGREE // 2
LIMBS = 4
LIMB_BITS = 26
HALF_BITS = 52
WORD_BYTES = 13
SEED_BYTES = 32
#: Blocks whose products are added before they are rounded to whole numbers: see the bound in fourier.h.
MOST_BLOCKS = 64
MOST_BINS = 256
MOST_WORDS = 81
MOST_VALUE_WORDS = 64
WORD_BITS = range(16, 43)
FLOOD_BITS = range(10, LIMBS * LIMB_BITS)
#: Number of the block of zeros, beyond those of records.
ZERO_BLOCK = (1 << 32) - 1
#: The most coefficients of a secret or of u_k that are not 0; heavier ones are drawn again.
LARGEST_WEIGHT = DEGREE * 3 // 4

Reals = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.uint64]
Small = npt.NDArray[np.int8]
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Moduli:
    """t_j = 2^bits - less_j, one for each word of a record.

    Raises:
        ValueError: a size that the kernels do not take.
    """

    bits: int
    less: tuple[int, ...]

    def __post_init__(self) -> None:
        in_bounds(self.bits in WORD_BITS, "the kernels take moduli of 16 to 42 bits")
        in_bounds(1 <= len(self.less) <= MOST_WORDS, "more words than the kernels take")
        in_bounds(all(0 <= less < 1 << (self.bits - 1) for less in self.less), "a modulus of another length")

    @property
    def array(self) -> npt.NDArray[np.uint32]:
        """The less_j, shape (words,)."""
        return np.array(self.less, dtype=np.uint32)


class Binned:
    """Codes of records' bins, checked once; cell `starts[f] + codes[f, i]` is that of record i in column f.

    Attributes:
        codes: (columns, n) uint8, read only.
        bins: number of bins of each column.
        starts: the first cell of each column, and the number of all cells, (columns + 1,) uint32.

    Raises:
        ValueError: a code beyond its column's bins, or more than 256 bins.
    """

    def __init__(self, codes: Bytes, bins: tuple[int, ...]) -> None:
        in_bounds(codes.dtype == np.uint8 and codes.ndim == 2, "codes are rows of bytes")
        in_bounds(len(codes) == len(bins), "not a number of bins for each column")
        in_bounds(all(1 <= count <= MOST_BINS for count in bins), "the kernels take 1 to 256 bins")
        largest = codes.max(axis=1, initial=0)
        in_bounds(all(int(code) < count for code, count in zip(largest, bins, strict=True)), "a code beyond the bins")
        self.codes = np.ascontiguousarray(codes).view()
        self.codes.flags.writeable = False
        self.bins = bins
        self.starts = np.array([0, *accumulate(bins)], dtype=np.uint32)

    @property
    def cells(self) -> int:
        """Cells of all columns."""
        return int(self.starts[-1])


@dataclass(frozen=True)
class Secrets:
    """A query's secrets.

    Attributes:
        small: ternary coefficients, (words, DEGREE) int8.
        values: their transforms, (words, HALF, 2) float64.
    """

    small: Small
    values: Reals

    def forget(self) -> None:
        """Overwrite them."""
        self.small[...] = 0
        self.values[...] = 0

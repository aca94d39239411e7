"""Sizes of encrypted histograms in the kernels, and what calls of `histograms.py` are given.

Roots of unity and products of polynomials by integers: what `fourier.h` is given and compared with.

Kronecker's substitution: a polynomial of small coefficients is one integer, its value at X = 2^128, and a product of
polynomials one product of integers, which gmpy2 computes exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
from gmpy2 import mpz

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
        in_bounds(
            self.bits in WORD_BITS and 1 <= len(self.less) <= MOST_WORDS,
            f"the kernels take 1 to {MOST_WORDS} moduli of 16 to 42 bits",
        )
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
        in_bounds(
            codes.dtype == np.uint8 and codes.ndim == 2 and len(codes) == len(bins),
            "codes are rows of bytes, with a number of bins for each",
        )
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


LOW_HALF = np.uint64((1 << HALF_BITS) - 1)
_SLOT_BYTES = 16


@cache
def circle() -> Reals:
    """e^(2πik/8192), (8192, 2), each part the double nearest to it: from integers of 256 bits, not from a library."""
    one, count = 1 << 256, 8192
    cosine = 0  # of a quarter of the circle, then of halves of that
    for _ in range(11):
        cosine = math.isqrt((one + cosine) * one // 2)
    sine = math.isqrt(one * one - cosine * cosine)
    points, real, imaginary = [], one, 0
    for _ in range(count // 8 + 1):
        points.append((real / one, imaginary / one))
        real, imaginary = (real * cosine - imaginary * sine) >> 256, (real * sine + imaginary * cosine) >> 256
    octant = np.array(points)
    quarter = np.concatenate([octant, octant[-2:0:-1, ::-1]])
    half = np.concatenate([quarter, np.stack([-quarter[:, 1], quarter[:, 0]], axis=1)])
    return np.concatenate([half, -half])


def integer(coefficients: npt.NDArray[Any]) -> mpz:
    """A polynomial of coefficients between -2^63 and 2^63 at X = 2^128."""
    slots = np.zeros((2, len(coefficients), 2), dtype=np.int64)
    slots[0, :, 0], slots[1, :, 0] = np.maximum(coefficients, 0), np.maximum(-coefficients.astype(np.int64), 0)
    positive, negative = (int.from_bytes(part.tobytes(), "little") for part in slots)
    return mpz(positive - negative)


def halves(product: mpz) -> Numbers:
    """Coefficients modulo 2^104 and X^DEGREE + 1, as (2, DEGREE) halves, of a polynomial at 2^128 of small ones."""
    offset = int.from_bytes((bytes(_SLOT_BYTES - 1) + b"\x80") * (2 * DEGREE), "little")  # makes all of them positive
    data = int(product + offset).to_bytes(2 * DEGREE * _SLOT_BYTES, "little")
    (low, high), (more_low, more_high) = np.moveaxis(np.frombuffer(data, dtype="<u8").reshape(2, DEGREE, 2), 2, 1)
    top = high - more_high - (low < more_low)
    low = low - more_low
    return np.stack([low & LOW_HALF, (low >> np.uint64(HALF_BITS) | top << np.uint64(12)) & LOW_HALF])


def exact(
    limbs: npt.NDArray[np.int32], indicator: npt.NDArray[np.uint8], product: Numbers, secret: Small, zeros: Numbers
) -> bool:
    """True if a·indicator is the product, and -a·secret the zeros up to errors, by the products of integers.

    Args:
        limbs: of a, (DEGREE, LIMBS).
        indicator: (DEGREE,).
        product: halves (2, DEGREE).
        secret: (DEGREE,).
        zeros: halves (2, DEGREE), -a·secret and centred binomial errors of 42 bits.
    """
    a = sum(integer(limbs[:, limb]) << (LIMB_BITS * limb) for limb in range(LIMBS))
    low, high = zeros + halves(a * integer(secret))
    low += np.uint64(21)  # hence 0 to 42
    rest = (high + (low >> np.uint64(HALF_BITS))) & LOW_HALF
    errors = low & LOW_HALF
    same = (halves(a * integer(indicator)) == product).all()
    return bool(same and not rest.any() and errors.max() <= 42 and errors.min() < errors.max())

"""Roots of unity and products of polynomials by integers: what `fourier.h` is given and compared with.

Kronecker's substitution: a polynomial of small coefficients is one integer, its value at X = 2^128, and a product of
polynomials one product of integers, which gmpy2 computes exactly.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from gmpy2 import mpz

from treetap.native.histogram_arrays import DEGREE, HALF_BITS, LIMB_BITS, LIMBS, Numbers, Reals, Small

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

"""Numbers as elements of the ring of whole numbers modulo 2^64, in which masked shares are added up.

A number x is rint(x · 2^fraction); negative ones are the upper half of the ring.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from treetap.errors import DataError

Floats = npt.NDArray[np.float64]
Ring = npt.NDArray[np.uint64]
#: Fractional bits.
FRACTION = 32


def largest(terms: int, fraction: int = FRACTION) -> float:
    """The largest |x| of which sums of `terms` numbers stay in the ring's range."""
    return 2.0 ** (62 - fraction) / terms


def encode(values: Floats, terms: int, fraction: int = FRACTION) -> Ring:
    """Numbers (n,) as elements of the ring (n,).

    Args:
        terms: how many encoded vectors are added up before one is decoded.

    Raises:
        DataError: numbers that are not finite or too large for it; states how many, and no number.
    """
    limit = largest(terms, fraction)
    if over := int((~(np.abs(values) <= limit)).sum()):
        raise DataError(f"{over} of {len(values)} numbers are beyond ±{limit:g}, the range of masked sums")
    return np.rint(values * 2.0**fraction).astype(np.int64).view(np.uint64)


def decode(elements: Ring, fraction: int = FRACTION) -> Floats:
    """The numbers (n,) that elements of the ring (n,) stand for."""
    return elements.astype(np.uint64).view(np.int64) / 2.0**fraction

"""Blinded identifiers: the group arithmetic of private set intersection, over blocks of points.

Elliptic-curve Diffie–Hellman in the prime-order subgroup of edwards25519, by libsodium. An id is hashed to two curve
points that are added (the shape of RFC 9380, hash_to_curve) and raised to a secret exponent; raising commutes, so only
lists that all parties have raised can be compared. A block of points is their 32-byte encodings side
by side. The functions that take blocks are kernels for the workers of `treetap.workers`: they keep nothing there.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Any

import numpy as np
import numpy.typing as npt
from nacl import bindings
from nacl.exceptions import RuntimeError as Refusal

from treetap.errors import Malformed

POINT_BYTES = 32
#: Separates this use of the hash from every other.
DOMAIN = b"treetap record alignment 1\x00"
#: Points as numpy compares and sorts them: fixed width, by their bytes.
Points = npt.NDArray[np.bytes_]
Rows = npt.NDArray[np.int64]


class Exponent:
    """A secret, nonzero number modulo the group's order. Has no text form, and lives in memory only."""

    __slots__ = ("_raw",)

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    @classmethod
    def draw(cls) -> Exponent:
        """Uniform, from the operating system."""
        while True:
            raw = bindings.crypto_core_ed25519_scalar_reduce(secrets.token_bytes(64))
            if any(raw):
                return cls(raw)

    def over(self, other: Exponent) -> Exponent:
        """This exponent divided by another: raising by it takes `other` away and puts this one on."""
        inverse = bindings.crypto_core_ed25519_scalar_invert(other._raw)
        return Exponent(bindings.crypto_core_ed25519_scalar_mul(self._raw, inverse))

    def for_kernel(self) -> bytes:
        """The number, only for a worker of this party's own engine."""
        return self._raw

    def __repr__(self) -> str:
        return "<Exponent>"


def hash_to_group(value: bytes) -> bytes:
    """A point of the prime-order subgroup whose logarithm is unknown to every party."""
    digest = hashlib.sha512(DOMAIN + value).digest()
    first, second = (bindings.crypto_core_ed25519_from_uniform(half) for half in (digest[:32], digest[32:]))
    point: bytes = bindings.crypto_core_ed25519_add(first, second)
    return point


def blind(_state: dict[str, Any], exponent: bytes, ids: list[str]) -> bytes:
    """Kernel: every id hashed to the group and raised."""
    multiply = bindings.crypto_scalarmult_ed25519_noclamp
    return b"".join(multiply(exponent, hash_to_group(value.encode("utf-8"))) for value in ids)


def raise_points(_state: dict[str, Any], exponent: bytes, block: bytes) -> bytes:
    """Kernel: every point of a block raised, in the same order.

    Raises:
        Malformed: not a whole number of points, or one that is outside the prime-order subgroup (libsodium checks
            the encoding, the curve, small order and the subgroup of each).
    """
    if len(block) % POINT_BYTES:
        raise Malformed(f"{len(block)} bytes are not a whole number of blinded identifiers")
    multiply = bindings.crypto_scalarmult_ed25519_noclamp
    try:
        return b"".join(multiply(exponent, block[at : at + POINT_BYTES]) for at in range(0, len(block), POINT_BYTES))
    except Refusal:
        raise Malformed("a blinded identifier is not a point of the group") from None


def check_points(_state: dict[str, Any], block: bytes) -> bytes:
    """Kernel: the block as it is, once every point of it is known to be in the group; `Malformed` otherwise."""
    valid = bindings.crypto_core_ed25519_is_valid_point
    if not all(valid(block[at : at + POINT_BYTES]) for at in range(0, len(block), POINT_BYTES)):
        raise Malformed("a blinded identifier is not a point of the group")
    return block


def points(block: bytes) -> Points:
    """A block as an array (n,) that can be sorted and compared."""
    return np.frombuffer(block, dtype=f"S{POINT_BYTES}")


def shuffled(block: bytes) -> bytes:
    """The points of a block in an order drawn from the operating system."""
    rows = np.frombuffer(block, dtype=np.uint8).reshape(-1, POINT_BYTES)
    return rows[permutation(len(rows))].tobytes()


def permutation(n: int) -> Rows:
    """A uniform order of n things, from the operating system.

    Sorting by random 128-bit keys: two keys of a million are equal with probability below 2**-88.
    """
    keys = np.frombuffer(secrets.token_bytes(16 * n), dtype=[("high", "<u8"), ("low", "<u8")])
    return np.lexsort((keys["low"], keys["high"])).astype(np.int64)


def common(own: Points, *others: Points) -> tuple[Points, Rows]:
    """The points that every list holds, sorted, and their places in the first list.

    Raises:
        Malformed: a list holds a point twice, which no honest list does: ids are distinct.
    """
    for each in (own, *others):
        if len(np.unique(each)) != len(each):
            raise Malformed("a list of blinded identifiers holds one twice")
    found, places = own, np.arange(len(own), dtype=np.int64)
    for other in others:
        found, kept, _ = np.intersect1d(found, other, assume_unique=True, return_indices=True)
        places = places[kept]
    order = np.argsort(found, kind="stable")
    return found[order], places[order]

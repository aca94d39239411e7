"""The group of blinded identifiers: the subgroup of prime order ℓ of Curve25519, points known by u alone.

The curve is v² = u³ + 486662·u² + u over the integers modulo p = 2²⁵⁵ - 19 (RFC 7748). A point P and its negative have
the same u, and are one here: the elements are pairs ±P, and multiples of them are well defined. An encoding is u as 32
bytes, the lowest first, below p; it is canonical, so that lists are compared byte by byte. The neutral element has
none.

An id is hashed to the group by SHA-512: each half of the digest is mapped to the curve as by libsodium's
`crypto_core_ed25519_from_uniform` (Elligator 2, times the cofactor), and the two points are added (the shape of
RFC 9380's hash_to_curve). The sum on edwards25519 becomes u = (1 + y)/(1 - y). No party knows its logarithm.

Exponents are elements of the field of ℓ elements (`treetap.psi.exponents`); a kernel receives one as a clamped number
of X25519.
"""

from __future__ import annotations

import hashlib
from typing import Protocol

PRIME = 2**255 - 19
#: ℓ, from RFC 8032.
ORDER = 2**252 + 27742317777372353535851937790883648493
POINT_BYTES = 32
#: Bytes of a digest that become a point.
UNIFORM_BYTES = 64
#: Separates this use of the hash from every other. Number 1 gave points of edwards25519, in its encoding.
DOMAIN = b"treetap record alignment 2\x00"


class Group(Protocol):
    """The operations of a backend, over blocks: encodings side by side."""

    def hash_points(self, uniform: bytes) -> bytes:
        """Points from blocks of 64 uniform bytes."""
        ...

    def raise_points(self, scalar: bytes, points: bytes) -> bytes:
        """Every point times a clamped number of 32 bytes; the points are of the group."""
        ...

    def leading_valid(self, points: bytes) -> int:
        """The number of leading points that are of the group.

        Refused are encodings of p or more, points of the curve's twist and of no curve, and those outside of the
        subgroup, among them all of low order.
        """
        ...


def uniform_bytes(value: bytes) -> bytes:
    """The digest of an id that is mapped to the group."""
    return hashlib.sha512(DOMAIN + value).digest()

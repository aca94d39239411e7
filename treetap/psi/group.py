"""The group of blinded identifiers: the subgroup of prime order ℓ of Curve25519, points known by u alone.

The curve is v² = u³ + 486662·u² + u over the integers modulo p = 2²⁵⁵ - 19 (RFC 7748). A point P and its negative have
the same u, and are one here: the elements are pairs ±P, and multiples of them are well defined. An encoding is u as 32
bytes, the lowest first, below p; it is canonical, so that lists are compared byte by byte. The neutral element has
none.

An id is hashed to the group by SHA-512: each half of the digest is mapped to the curve as by libsodium's
`crypto_core_ed25519_from_uniform` (Elligator 2, times the cofactor), and the two points are added (the shape of
RFC 9380's hash_to_curve). The sum on edwards25519 becomes u = (1 + y)/(1 - y). No party knows its logarithm.

Exponents are secret, nonzero elements s of the field of ℓ elements; a kernel receives one as a clamped number of
X25519, which multiplies by 2²⁵⁴ + 8j for 0 ≤ j < 2²⁵¹ (RFC 7748, "clamping"). Multiples of ±P by s and by -s are the
same, and points have order ℓ, so s is served by either

    j = (s - 2²⁵⁴)/8  or  j' = (-s - 2²⁵⁴)/8  modulo ℓ = 2²⁵² + c,

of which one is below 2²⁵¹: j + j' is c modulo ℓ, so both are above only for 2²⁵¹ ≤ j ≤ 2²⁵¹ + 2c, a fraction of
2·2^(124.6)/2²⁵² < 2⁻¹²⁶ of all s. A drawn s of that kind is drawn again. Being multiples of 8, these numbers also take
any part of low order off a point.
"""

from __future__ import annotations

import secrets

PRIME = 2**255 - 19
#: ℓ, from RFC 8032.
ORDER = 2**252 + 27742317777372353535851937790883648493
POINT_BYTES = 32
#: Bytes of a digest that become a point.
UNIFORM_BYTES = 64
#: Separates this use of the hash from every other. Number 1 gave points of edwards25519, in its encoding.
DOMAIN = b"treetap record alignment 2\x00"


_EIGHTH = pow(8, -1, ORDER)


class NotClamped(ArithmeticError):
    """An exponent that no number of X25519 stands for: 2⁻¹²⁶ of all."""


class Exponent:
    """A secret, nonzero number modulo the group's order. Has no text form, and lives in memory only."""

    __slots__ = ("_number", "_scalar")

    def __init__(self, number: int) -> None:
        """Raises `NotClamped` for a number that kernels cannot take."""
        self._number = number
        self._scalar = _clamped(number).to_bytes(32, "little")

    @classmethod
    def draw(cls) -> Exponent:
        """Uniform, from the operating system."""
        while True:
            try:
                return cls(1 + secrets.randbelow(ORDER - 1))
            except NotClamped:
                continue

    def over(self, other: Exponent) -> Exponent:
        """This exponent divided by another: raising by it takes `other` away and puts this one on.

        Raises:
            NotClamped: with probability 2⁻¹²⁶ for drawn ones.
        """
        return Exponent(self._number * pow(other._number, -1, ORDER) % ORDER)

    def for_kernel(self) -> bytes:
        """The clamped number, only for a worker of this party's own engine."""
        return self._scalar

    def __repr__(self) -> str:
        return "<Exponent>"


def _clamped(number: int) -> int:
    for signed in (number, -number):
        eighth = (signed - 2**254) * _EIGHTH % ORDER
        if eighth < 2**251:
            return 2**254 + 8 * eighth
    raise NotClamped(
        "an exponent without a clamped form was drawn, which happens once in 2^126 times; run the job again"
    )

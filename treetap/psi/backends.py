"""The group by the arithmetic of this process (`treetap.native.arithmetic`); no other file asks which it is.

Compiled kernels raise eight points at a time. libsodium, through PyNaCl, takes one: it adds, hashes and checks on
edwards25519, and multiplies on Curve25519. The curves are the same but for a change of coordinates,
y = (u - 1)/(u + 1), which GMP computes; a u does not say which of two points ±P is meant, which matters nowhere here.
"""

from __future__ import annotations

from gmpy2 import invert, mpz
from nacl import bindings

from treetap.native import arithmetic, curve
from treetap.psi.group import POINT_BYTES, PRIME, UNIFORM_BYTES, Group

_P = mpz(PRIME)


def group() -> Group:
    """The arithmetic of this process for blinded identifiers."""
    return IfmaGroup() if arithmetic.in_use() == "ifma" else SodiumGroup()


class IfmaGroup:
    """The compiled kernels, eight points at a time.

    Raises:
        Unavailable: there are no kernels for this processor.
    """

    def __init__(self) -> None:
        curve.load()

    def hash_points(self, uniform: bytes) -> bytes:
        """See `Group.hash_points`."""
        return curve.hash_points(uniform)

    def raise_points(self, scalar: bytes, points: bytes) -> bytes:
        """See `Group.raise_points`."""
        return curve.raise_points(scalar, points)

    def leading_valid(self, points: bytes) -> int:
        """See `Group.leading_valid`."""
        return curve.leading_valid(points)


class SodiumGroup:
    """libsodium, a point at a time; what the kernels are tested against."""

    def hash_points(self, uniform: bytes) -> bytes:
        """See `Group.hash_points`."""
        return b"".join(_hash(uniform[at : at + UNIFORM_BYTES]) for at in range(0, len(uniform), UNIFORM_BYTES))

    def raise_points(self, scalar: bytes, points: bytes) -> bytes:
        """See `Group.raise_points`."""
        multiply = bindings.crypto_scalarmult
        return b"".join(multiply(scalar, points[at : at + POINT_BYTES]) for at in range(0, len(points), POINT_BYTES))

    def leading_valid(self, points: bytes) -> int:
        """See `Group.leading_valid`."""
        for at in range(0, len(points), POINT_BYTES):
            if not _valid(points[at : at + POINT_BYTES]):
                return at // POINT_BYTES
        return len(points) // POINT_BYTES


def _hash(uniform: bytes) -> bytes:
    first, second = (bindings.crypto_core_ed25519_from_uniform(uniform[at : at + 32]) for at in (0, 32))
    y = mpz.from_bytes(bindings.crypto_core_ed25519_add(first, second), "little").bit_clear(255)  # the sign of x
    u = (1 + y) * invert(1 - y, _P) % _P if y != 1 else mpz(0)  # the neutral element: by chance only
    point: bytes = u.to_bytes(POINT_BYTES, "little")
    return point


def _valid(point: bytes) -> bool:
    """True if the point is of the group: libsodium checks one of the two points of edwards25519 with this y."""
    u = mpz.from_bytes(point, "little")
    if u >= _P - 1:  # u = -1 is of the twist, and has no y
        return False
    y = (u - 1) * invert(u + 1, _P) % _P
    return bool(bindings.crypto_core_ed25519_is_valid_point(y.to_bytes(POINT_BYTES, "little")))

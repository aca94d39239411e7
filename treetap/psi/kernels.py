"""Kernels over blocks of ids and points, for the workers of `treetap.workers`; they keep nothing there.

They have the group by the arithmetic of their process (`treetap.native.arithmetic`), and no other file asks which it
is. Compiled kernels raise several points at a time. libsodium, through PyNaCl, takes one: it adds, hashes and checks on
edwards25519, and multiplies on Curve25519. The curves are the same but for a change of coordinates,
y = (u - 1)/(u + 1), which GMP computes; a u does not say which of two points ±P is meant, which matters nowhere here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from gmpy2 import invert, mpz
from nacl import bindings

from treetap.errors import Malformed
from treetap.native import arithmetic
from treetap.native.curve import Curve, digests
from treetap.psi.group import DOMAIN, POINT_BYTES, PRIME, UNIFORM_BYTES
from treetap.psi.proof import digits_of

_P = mpz(PRIME)


class SodiumGroup:
    """libsodium, a point at a time; what the kernels are tested against. Blocks are encodings side by side."""

    def hash_ids(self, prefix: bytes, texts: bytes, ends: bytes) -> bytes:
        """Points from ids, by SHA-512 of a prefix and each id; `texts`, `ends`: see `Ids.packed`."""
        places = np.frombuffer(ends, dtype=np.int64).tolist()
        digests = [hashlib.sha512(prefix + texts[first:last]).digest() for first, last in pairwise(places)]
        return self.hash_points(b"".join(digests))

    def hash_points(self, uniform: bytes) -> bytes:
        """Points from blocks of 64 uniform bytes."""
        return b"".join(_hash(uniform[at : at + UNIFORM_BYTES]) for at in range(0, len(uniform), UNIFORM_BYTES))

    def raise_points(self, scalar: bytes, points: bytes) -> bytes:
        """Every point times a clamped number of 32 bytes; the points are of the group."""
        multiply = bindings.crypto_scalarmult
        return b"".join(multiply(scalar, points[at : at + POINT_BYTES]) for at in range(0, len(points), POINT_BYTES))

    def leading_valid(self, points: bytes) -> int:
        """The number of leading points that are of the group.

        Refused are encodings of p or more, points of the curve's twist and of no curve, and those outside of the
        subgroup, among them all of low order.
        """
        for at in range(0, len(points), POINT_BYTES):
            if not _valid(points[at : at + POINT_BYTES]):
                return at // POINT_BYTES
        return len(points) // POINT_BYTES


#: The backends.
Group = SodiumGroup | Curve


def group() -> Group:
    """The arithmetic of this process for blinded identifiers."""
    form = arithmetic.form_in_use()
    return SodiumGroup() if form is None else Curve(form)


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


def blind(_state: dict[str, Any], scalar: bytes, texts: bytes, ends: bytes) -> bytes:
    """Kernel: every id hashed to the group and raised; `texts`, `ends`: see `treetap.tables.record_ids.Ids.packed`."""
    points = group()
    return points.raise_points(scalar, points.hash_ids(DOMAIN, texts, ends))


def raise_points(_state: dict[str, Any], scalar: bytes, block: bytes) -> bytes:
    """Kernel: every point of a block checked and raised, in the same order.

    Raises:
        Malformed: not a whole number of points, or one that is not of the group.
    """
    return group().raise_points(scalar, check_points(_state, block))


def check_points(_state: dict[str, Any], block: bytes) -> bytes:
    """Kernel: the block as it is, once every point of it is known to be in the group.

    Raises:
        Malformed: not a whole number of points, or one that is not of the group.
    """
    return _checked(block, lambda: POINT_BYTES * group().leading_valid(block))


def _checked(block: bytes, valid: Callable[[], int]) -> bytes:
    """The block, once its length is known to be one of points; `valid`: how many bytes of it are of valid ones."""
    if len(block) % POINT_BYTES:
        raise Malformed(f"{len(block)} bytes are not a whole number of blinded identifiers")
    if valid() < len(block):
        raise Malformed("a blinded identifier is not a point of the group")
    return block


# ---- with both coordinates, for proofs (`treetap.psi.proof`): by compiled kernels alone. A list is summed where it is
# made or checked, by numbers that follow from `numbers`, for points from place `first` on: see `Curve.sum_multiples`.


def blind_summed(
    _state: dict[str, Any], scalar: bytes, texts: bytes, ends: bytes, numbers: bytes, first: int
) -> tuple[bytes, bytes]:
    """Kernel: as `blind`, and the sums of the points with an even v."""
    points = _curve()
    hashed = points.hash_rooted(digests(DOMAIN, texts, np.frombuffer(ends, dtype=np.int64)))
    raised, roots = points.raise_rooted(scalar, *hashed)
    return raised, _sums(raised, roots, bytes(len(raised) // POINT_BYTES), numbers, first)


def raise_signed(_state: dict[str, Any], scalar: bytes, block: bytes) -> tuple[bytes, bytes]:
    """Kernel: as `raise_points`, and a byte for each: 1 where the point with the even v becomes one with the odd v."""
    raised, made = _curve().raise_rooted(scalar, block, _roots(block))
    return raised, (np.frombuffer(made, dtype=np.uint8)[::POINT_BYTES] & 1).tobytes()


def raise_summed(
    _state: dict[str, Any], scalar: bytes, block: bytes, signs: bytes, numbers: bytes, first: int
) -> tuple[bytes, bytes]:
    """Kernel: as `raise_points`, and the sums of the points before, with their signs."""
    sums = check_summed(_state, block, signs, numbers, first)
    return _curve().raise_points(scalar, block), sums


def check_summed(_state: dict[str, Any], block: bytes, signs: bytes, numbers: bytes, first: int) -> bytes:
    """Kernel: the sums of points with their signs, once each is known to be in the group; raises as `check_points`."""
    return _sums(block, _roots(block), signs, numbers, first)


def _roots(block: bytes) -> bytes:
    """The even v of every point, 32 bytes, once each is known to be in the group."""
    roots = bytearray()

    def valid() -> int:
        roots.extend(_curve().leading_roots(block))
        return len(roots)

    _checked(block, valid)
    return bytes(roots)


def _sums(points: bytes, roots: bytes, signs: bytes, numbers: bytes, first: int) -> bytes:
    return _curve().sum_multiples(points, roots, signs, digits_of(numbers, first, first + len(signs)))


def _curve() -> Curve:
    """The compiled arithmetic of this process."""
    points = group()
    assert isinstance(points, Curve)  # as `treetap.party.alignment.proofs` has checked
    return points

"""Curve25519 by the definitions, in integers: what all arithmetics are compared with."""

from __future__ import annotations

import hashlib

from gmpy2 import invert, mpz, powmod
from nacl import bindings

from treetap.psi.group import DOMAIN, ORDER, PRIME

A = 486662
#: A point of order 8 of edwards25519.
ORDER_8 = bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05")


def uniform_bytes(value: bytes) -> bytes:
    """The digest of an id that is mapped to the group."""
    return hashlib.sha512(DOMAIN + value).digest()


def multiple(number: int, u: int) -> int | None:
    """number·(u, ·) by the differential ladder, for any u; None for the neutral element."""
    base = mpz(u)
    x2, z2, x3, z3 = mpz(1), mpz(0), base, mpz(1)
    for bit in bin(number)[2:]:
        if bit == "1":
            x2, z2, x3, z3 = x3, z3, x2, z2
        x3, z3, x2, z2 = (
            (x2 * x3 - z2 * z3) ** 2 % PRIME,
            base * (x2 * z3 - z2 * x3) ** 2 % PRIME,
            (x2 * x2 - z2 * z2) ** 2 % PRIME,
            4 * x2 * z2 * (x2 * x2 + A * x2 * z2 + z2 * z2) % PRIME,
        )
        if bit == "1":
            x2, z2, x3, z3 = x3, z3, x2, z2
    return int(x2 * invert(z2, PRIME) % PRIME) if z2 % PRIME else None


def is_square(number: int) -> bool:
    """True for squares modulo p, 0 among them (Euler)."""
    return powmod(number, (PRIME - 1) // 2, PRIME) in (0, 1)


def on_curve(u: int) -> bool:
    """True if a point of the curve, not of its twist, has this u."""
    return is_square(u * (u * u + A * u + 1))


def is_member(point: bytes) -> bool:
    """True for an encoding of a point of the subgroup of prime order, but for its neutral element."""
    u = int.from_bytes(point, "little")
    return 0 < u < PRIME and on_curve(u) and multiple(ORDER, u) is None


def cosets(edwards: bytes) -> list[bytes]:
    """u of P + T for a point P of edwards25519 and every T of low order, T = 0 first."""
    found = []
    for _ in range(8):
        found.append(to_u(edwards))
        edwards = bindings.crypto_core_ed25519_add(edwards, ORDER_8)
    return found


def to_u(edwards: bytes) -> bytes:
    """(1 + y)/(1 - y), in 32 bytes; 0 for the neutral element."""
    y = int.from_bytes(edwards, "little") % 2**255
    u = (1 + y) * pow(1 - y, -1, PRIME) % PRIME if y != 1 else 0
    return u.to_bytes(32, "little")

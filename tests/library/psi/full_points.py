"""Points of Curve25519 with both coordinates, by the chord-and-tangent rule in integers: what proofs are checked by."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import reduce

from tests.library.psi.naive import A
from treetap.psi.group import ORDER, PRIME

#: (u, v); None is the neutral element.
Point = tuple[int, int] | None
#: sqrt(-486664), the one of RFC 7748's map to edwards25519.
TO_EDWARDS = 6853475219497561581579357271197624642482790079785650197046958215289687604742
#: u = 9, and the v that edwards25519's base point has.
BASE: Point = (9, 43114425171068552920764898935933967039370386198203806730763910166200978582548)


def plus(p: Point, q: Point) -> Point:
    """The sum of two points."""
    if p is None or q is None:
        return p or q
    (u, v), (s, t) = p, q
    if u == s and (v + t) % PRIME == 0:
        return None
    slope = ((3 * u * u + 2 * A * u + 1) * pow(2 * v, -1, PRIME) if p == q else (t - v) * pow(s - u, -1, PRIME)) % PRIME
    w = (slope * slope - A - u - s) % PRIME
    return w, (slope * (u - w) - v) % PRIME


def minus(p: Point) -> Point:
    """The negative of a point."""
    return None if p is None else (p[0], -p[1] % PRIME)


def times(number: int, p: Point) -> Point:
    """A multiple of a point, by doubling and adding."""
    if number < 0:
        return times(-number, minus(p))
    made: Point = None
    for bit in bin(number)[2:]:
        made = plus(made, made)
        if bit == "1":
            made = plus(made, p)
    return made


def even(u: int) -> Point:
    """The point with this u and the even one of the two v."""
    square = (u**3 + A * u * u + u) % PRIME
    v = pow(square, (PRIME + 3) // 8, PRIME)
    v = v if v * v % PRIME == square else v * pow(2, (PRIME - 1) // 4, PRIME) % PRIME
    assert v * v % PRIME == square
    return u, v if v % 2 == 0 else PRIME - v


def total(points: Sequence[Point]) -> Point:
    """The sum of several points."""
    return reduce(plus, points, None)


def encoded(p: Point) -> bytes:
    """A point other than the neutral element as 32 bytes of edwards25519 (RFC 8032, section 5.1.2)."""
    assert p is not None
    u, v = p
    x, y = TO_EDWARDS * u * pow(v, -1, PRIME) % PRIME, (u - 1) * pow(u + 1, -1, PRIME) % PRIME
    return (y | (x & 1) << 255).to_bytes(32, "little")


def proves(statement: bytes, key: Point, source: Point, raised: Point, proof: bytes, domain: bytes) -> bool:
    """True for a proof of log_B(key) = log_source(raised) (Chaum and Pedersen, CRYPTO 1992), by its definition."""
    challenge, response = (int.from_bytes(proof[at : at + 32], "little") for at in (0, 32))
    nonces = [
        plus(times(response, base), minus(times(challenge, multiple)))
        for base, multiple in ((BASE, key), (source, raised))
    ]
    parts: Sequence[Point] = (key, source, raised, *nonces)
    hashed = hashlib.sha512(domain + statement + b"".join(map(encoded, parts))).digest()
    return challenge == int.from_bytes(hashed, "little") % ORDER

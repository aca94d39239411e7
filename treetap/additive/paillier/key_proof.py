"""Proof that n is a Paillier–Blum modulus: a product of two primes p ≡ q ≡ 3 (mod 4), with gcd(n, φ(n)) = 1.

Canetti, Gennaro, Goldfeder, Makriyannis and Peled, "UC Non-Interactive, Proactive, Threshold ECDSA with Identifiable
Aborts" (2021), Figure 16 (Π_mod), made non-interactive by Fiat and Shamir's transform.

1. The prover draws w with the Jacobi symbol (w/n) = −1.
2. y_1, …, y_128 < n follow from n, w and what the proof is bound to: job, attempt and prover (`challenges`).
3. The prover finds a_i, b_i for which y'_i = (−1)^a_i · w^b_i · y_i is a square modulo both primes, its fourth root
   x_i, and z_i = y_i^(1/n mod φ(n)). One fourth root of a square is a square itself: x_i says no more than y'_i.
4. The verifier checks that n is odd and composite, (w/n) = −1, z_i^n = y_i and x_i^4 = y'_i.

Where gcd(n, φ(n)) > 1, at most a third of all numbers are n-th powers. Where n has three prime factors or more, or one
that is 1 modulo 4, none of the four y'_i has a fourth root for half of all y_i. So a false proof succeeds once in some
2^128 tries, each of which takes another w.

Two prime factors may still be of any size. The verifier also refuses factors below 2^16: blinding by random units
(`treetap.additive.sums.comparison`) takes small numbers for units modulo n.

A proof is w, the bits a_i, the bits b_i, all x_i and all z_i: numbers as long as n, big-endian, bits highest first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache

import gmpy2
from gmpy2 import mpz

from treetap.additive.paillier.public_key import random_unit, residues
from treetap.additive.residues.batches import power
from treetap.errors import Malformed
from treetap.protocols import key_options
from treetap.usage import finish_unit

ROUNDS = key_options.PROOF_ROUNDS
_DOMAIN = b"treetap Paillier-Blum modulus, CGGMP21 figure 16"
#: Prime factors of n are larger than this.
_SMALL = 1 << 16
#: Draws for one challenge, each of which fits with a probability of a half or more.
_DRAWS = 512


def prove(p: mpz, q: mpz, bound_to: bytes, rounds: int = ROUNDS) -> bytes:
    """The proof of n = p · q, for primes p ≡ q ≡ 3 (mod 4) with gcd(n, φ(n)) = 1.

    Args:
        p: one prime.
        q: the other one.
        bound_to: what the proof is for: the verifier must have the same.
        rounds: a multiple of eight.
    """
    n = p * q
    width = _width(n)
    w = random_unit(n)
    while gmpy2.jacobi(w, n) != -1:
        w = random_unit(n)
    drawn = challenges(n, w, bound_to, rounds)
    of_w = gmpy2.legendre(w, p), gmpy2.legendre(w, q)
    negated, twisted, squares = [], [], []
    for y in drawn:
        of_y = gmpy2.legendre(y, p), gmpy2.legendre(y, q)
        # −1 is a square modulo neither prime, w modulo one of them
        twist = of_y[0] != of_y[1]
        negate = of_y[0] * (of_w[0] if twist else 1) == -1
        negated.append(negate)
        twisted.append(twist)
        squares.append((-y if negate else y) * (w if twist else 1) % n)
    of_p, of_q = (residues(prime, max(p.bit_length(), q.bit_length())) for prime in (p, q))
    parts = [int(w).to_bytes(width, "big"), _packed(negated), _packed(twisted)]
    for numbers, exponents in (
        # the square root of a square modulo p ≡ 3 (mod 4), taken twice
        (squares, [gmpy2.powmod((prime + 1) // 4, 2, prime - 1) for prime in (p, q)]),
        (drawn, [gmpy2.invert(n, prime - 1) for prime in (p, q)]),
    ):
        roots = [
            power(ring, ring.batch(numbers), int(exponent))
            for ring, exponent in zip((of_p, of_q), exponents, strict=True)
        ]
        parts.append(of_p.join(roots[0], of_q, roots[1], width))
    return b"".join(parts)


def check(n: mpz, proof: bytes, bound_to: bytes, rounds: int = ROUNDS) -> None:
    """Check a proof, in a time that n's length bounds: `rounds` powers modulo n.

    Args:
        n: the modulus.
        proof: the other party's.
        bound_to: the job, the attempt and the prover, as this party has them.
        rounds: as for `prove`.

    Raises:
        Malformed: n is no such modulus, or the proof is of another modulus, job, attempt or party.
    """
    width, bits = _width(n), rounds // 8
    at = width + 2 * bits
    if len(proof) != at + 2 * rounds * width:
        raise Malformed(f"a proof of {rounds} rounds has {at + 2 * rounds * width} bytes, this one {len(proof)}")
    if n % 2 == 0 or gmpy2.is_prime(n) or gmpy2.gcd(n, _small_primes()) != 1:
        raise Malformed("the modulus is even or prime, or it has a small factor")
    finish_unit()
    w = mpz.from_bytes(proof[:width], "big")
    if not 0 < w < n or gmpy2.jacobi(w, n) != -1:
        raise Malformed("w is not below n, or does not have the Jacobi symbol -1")
    ring = residues(n)
    (fourth, below), (nth, also) = (
        ring.read(part, width) for part in (proof[at : at + rounds * width], proof[at + rounds * width :])
    )
    if not below == also == rounds:
        raise Malformed("a root is zero or not below n")
    drawn = challenges(n, w, bound_to, rounds)
    if ring.numbers(power(ring, nth, int(n))) != drawn:
        raise Malformed("an n-th root is none")
    signs, twists = _unpacked(proof[width : width + bits]), _unpacked(proof[width + bits : at])
    squares = [
        (-y if negate else y) * (w if twist else 1) % n for y, negate, twist in zip(drawn, signs, twists, strict=True)
    ]
    if ring.numbers(power(ring, fourth, 4)) != squares:
        raise Malformed("a fourth root is none")


def challenges(n: mpz, w: mpz, bound_to: bytes, rounds: int = ROUNDS) -> list[mpz]:
    """y_1, …: uniform numbers below n, drawn again until they are, from SHAKE-256 over all that the proof is about."""
    width, above = _width(n), -n.bit_length() % 8
    fixed = hashlib.shake_256()
    for part in (_DOMAIN, int(n).to_bytes(width, "big"), bound_to, int(w).to_bytes(width, "big")):
        fixed.update(len(part).to_bytes(8, "big") + part)
    drawn = []
    for place in range(rounds):
        for draw in range(_DRAWS):
            state = fixed.copy()
            state.update(place.to_bytes(4, "big") + draw.to_bytes(4, "big"))
            y = mpz.from_bytes(state.digest(width), "big") >> above
            if y < n:
                drawn.append(y)
                break
        else:
            raise Malformed(f"no challenge is below n after {_DRAWS} draws")
    return drawn


@cache
def _small_primes() -> mpz:
    """The product of all primes up to `_SMALL`."""
    return gmpy2.primorial(_SMALL)


def _width(n: mpz) -> int:
    """Bytes of a number below n."""
    return -(-int(n.bit_length()) // 8)


def _packed(bits: Sequence[bool]) -> bytes:
    """Bits of eight to a byte, the first one highest."""
    return bytes(sum(bits[start + place] << (7 - place) for place in range(8)) for start in range(0, len(bits), 8))


def _unpacked(packed: bytes) -> list[bool]:
    return [bool(byte >> (7 - place) & 1) for byte in packed for place in range(8)]

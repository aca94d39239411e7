"""Moduli that no honest party makes, and the best proof that their maker can give: it knows all factors."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import gmpy2

from treetap.additive.paillier.key_proof import ROUNDS, challenges


def prime(draw: random.Random, bits: int, rest: int = 3, of: int = 4, beside: int = 1) -> int:
    """A prime of exactly `bits` bits that is `rest` modulo `of`, and 1 modulo a prime `beside`."""
    return _between(draw, 1 << (bits - 1), 1 << bits, rest, of, beside)


def last_prime(draw: random.Random, bits: int, *factors: int, beside: int = 1) -> int:
    """A prime that is 3 modulo 4 whose product with the factors has exactly `bits` bits; `beside`: as for `prime`."""
    others = math.prod(factors)
    return _between(draw, (1 << (bits - 1)) // others + 1, (1 << bits) // others, 3, 4, beside)


def _between(draw: random.Random, least: int, most: int, rest: int, of: int, beside: int) -> int:
    while True:
        number = draw.randrange(least, most - of * beside)
        number += (1 - number) % beside
        while number % of != rest:
            number += beside
        if gmpy2.is_prime(number):
            return number


@dataclass(frozen=True)
class Factored:
    """A modulus as the product of coprime powers of primes: (prime, exponent)."""

    powers: Sequence[tuple[int, int]]

    @classmethod
    def of(cls, *primes: int) -> Factored:
        return cls([(each, primes.count(each)) for each in dict.fromkeys(primes)])

    @property
    def n(self) -> int:
        return math.prod(each**exponent for each, exponent in self.powers)

    def root(self, number: int, degree: int) -> int:
        """A root if there is one of an order that is coprime to the degree, else some number."""
        root, so_far = 0, 1
        for each, exponent in self.powers:
            modulus, order = each**exponent, each ** (exponent - 1) * (each - 1)
            while (common := math.gcd(order, degree)) > 1:
                order //= common
            part = pow(number, pow(degree, -1, order) if order > 1 else 0, modulus)
            root += so_far * ((part - root) * pow(so_far, -1, modulus) % modulus)
            so_far *= modulus
        return root

    def _is_like_minus_one(self, w: int) -> bool:
        """True if w is a square modulo no prime, as -1 is: that leaves half of the choices."""
        return len(self.powers) > 2 and all(gmpy2.legendre(w, each) == -1 for each, _ in self.powers)

    def forged(self, draw: random.Random, bound_to: bytes, rounds: int = ROUNDS) -> tuple[bytes, int]:
        """The proof, and the number of rounds that a verifier would take."""
        n = self.n
        width = -(-n.bit_length() // 8)
        w = draw.randrange(2, n)
        for _ in range(100):  # of a square and of an even number there is none
            if n % 2 and gmpy2.jacobi(w, n) == -1 and not self._is_like_minus_one(w):
                break
            w = draw.randrange(2, n)
        signs, twists, good = 0, 0, 0
        fourth, nth = [], []
        for y in map(int, challenges(gmpy2.mpz(n), gmpy2.mpz(w), bound_to, rounds)):
            for negate, twist in ((0, 0), (0, 1), (1, 0), (1, 1)):
                square = (-1) ** negate * w**twist * y % n
                x = self.root(square, 4)
                if pow(x, 4, n) == square:
                    break
            z = self.root(y, n)
            good += pow(x, 4, n) == square and pow(z, n, n) == y
            signs, twists = signs * 2 + negate, twists * 2 + twist
            fourth.append(x or 1)
            nth.append(z or 1)
        bits = [each.to_bytes(rounds // 8, "big") for each in (signs, twists)]
        return b"".join([w.to_bytes(width, "big"), *bits, *(x.to_bytes(width, "big") for x in fourth + nth)]), good

"""A naive twin of the histograms' lattice in Python integers; each random part is an argument that attacks leave out.

Polynomials modulo X^n + 1 are arrays of n Python integers. Products are Kronecker's: both factors are written into one
long integer each, and gmpy2 multiplies. The symbols are those of `docs/cryptography.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gmpy2
import numpy as np
import numpy.typing as npt

from treetap.lattice.histogram_parameters import MODULUS_BITS, HistogramParameters
from treetap.native.histogram_arrays import DEGREE
from treetap.trees.slots import width_for

#: Python integers (n,), or (records, r).
Whole = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
DITHER_BITS = 22


def whole(values: Any) -> Whole:
    """Numbers as Python integers."""
    return np.array([int(value) for value in values], dtype=object)


def uniform(rng: np.random.Generator, count: int, bits: int) -> Whole:
    """Numbers below 2^bits."""
    size = -(-bits // 8)
    data = rng.bytes(count * size)
    return np.array(
        [int.from_bytes(data[at : at + size], "little") % (1 << bits) for at in range(0, count * size, size)], object
    )


def ternary(rng: np.random.Generator, n: int) -> Ints:
    """A secret: uniform in {-1, 0, 1}^n, drawn again above the weight 3n/4."""
    while True:
        drawn = rng.integers(-1, 2, n)
        if 4 * np.count_nonzero(drawn) <= 3 * n:
            return drawn


def errors(rng: np.random.Generator, *shape: int) -> Ints:
    """Centred binomial errors of 42 bits."""
    return np.bitwise_count(rng.integers(0, 1 << 42, shape)).astype(np.int64) - 21


def flood(rng: np.random.Generator, count: int, bits: int) -> Whole:
    """Sums of three uniform numbers from 1 - 2^(bits-1) to 2^(bits-1)."""
    total = sum(uniform(rng, count, bits) for _ in range(3))
    return np.asarray(total - 3 * ((1 << (bits - 1)) - 1))


def product(x: Whole | Ints, y: Whole | Ints) -> Whole:
    """x·y modulo X^n + 1, in whole numbers."""
    n = len(x)
    bits = sum(max(abs(int(p.max())), abs(int(p.min())), 1).bit_length() for p in (x, y)) + n.bit_length() + 1
    size = -(-bits // 8)
    high = 1 << (8 * size - 1)
    borrowed = int.from_bytes(high.to_bytes(size, "little") * (2 * n), "little")
    data = int(_long(x, size) * _long(y, size) + borrowed).to_bytes(2 * n * size + 1, "little")
    digits = whole(int.from_bytes(data[at : at + size], "little") - high for at in range(0, 2 * n * size, size))
    return np.asarray(digits[:n] - digits[n:])


def _long(p: Whole | Ints, size: int) -> gmpy2.mpz:
    """Σ p_i·2^(8·size·i)."""
    parts = (b"".join(max(sign * int(c), 0).to_bytes(size, "little") for c in p) for sign in (1, -1))
    more, less = (gmpy2.mpz(int.from_bytes(part, "little")) for part in parts)
    return more - less


def at_end(x: Whole | Ints, y: Whole | Ints) -> int:
    """Coefficient n - 1 of x·y."""
    return int((x * y[::-1]).sum())


def inverse(a: Whole, bits: int) -> Whole:
    """1/a modulo X^n + 1 and 2^bits; n is a power of two, and the sum of a's coefficients odd.

    Modulo 2, a^n = a(1) = 1, hence 1/a = a^(n-1), the product of a^(2^i); Newton's step doubles the bits.
    """
    n, odd = len(a), (a % 2).astype(np.int64)
    if not odd.sum() % 2:
        raise ValueError("not invertible")
    known_bits, power, result = 1, odd, whole([1] + [0] * (n - 1))
    for _ in range(n.bit_length() - 1):
        result = product(result, power) % 2
        squared = np.zeros(n, dtype=np.int64)
        np.add.at(squared, 2 * np.arange(n) % n, power)
        power = squared % 2
    while known_bits < bits:
        known_bits = min(2 * known_bits, bits)
        below = 1 << known_bits
        twice = -product(a % below, result) % below
        twice[0] += 2
        result = product(result, twice) % below
    return result


def centred(values: Whole, bits: int) -> Whole:
    """Representatives modulo 2^bits in [-2^(bits-1), 2^(bits-1))."""
    half = 1 << (bits - 1)
    return np.asarray((values + half) % (1 << bits) - half)


def indicator(inside: Bools) -> Ints:
    """Σ X^(n-1-i) over the records i inside."""
    return inside[::-1].astype(np.int64)


def combined(residues: Sequence[int], moduli: Sequence[int]) -> int:
    """The signed plaintext of its residues."""
    whole_modulus = int(np.prod(whole(moduli)))
    plain = sum(
        residue * (whole_modulus // t) * pow(whole_modulus // t, -1, t)
        for residue, t in zip(residues, moduli, strict=True)
    )
    plain %= whole_modulus
    return plain - whole_modulus if 2 * plain > whole_modulus else plain


@dataclass(frozen=True)
class Twin:
    """Sizes of a scheme: n, log2 q, the moduli t_j, and the bits qp of replies (log2 q: full precision)."""

    degree: int
    modulus_bits: int
    moduli: tuple[int, ...]
    reply_bits: int

    @classmethod
    def of(cls, parameters: HistogramParameters) -> Twin:
        """The twin of a job's sizes."""
        return cls(DEGREE, MODULUS_BITS, parameters.moduli, parameters.reply_bits)

    @property
    def q(self) -> int:
        """The modulus."""
        return 1 << self.modulus_bits

    def public(self, rng: np.random.Generator) -> Whole:
        """A uniform polynomial with an inverse, as every second one has."""
        while True:
            if sum(drawn := uniform(rng, self.degree, self.modulus_bits)) % 2:
                return drawn

    def encoded(self, values: Whole, t: int, rng: np.random.Generator | None) -> Whole:
        """(q/t)·(m mod t), rounded at random, or to the nearest without `rng`."""
        dither = whole(rng.integers(0, 1 << DITHER_BITS, len(values))) if rng else 1 << (DITHER_BITS - 1)
        return np.asarray(((values % t) * (self.q << DITHER_BITS) + dither * t) // (t << DITHER_BITS))

    def words(self, a: Whole, secret: Ints, error: Ints, encoded: Whole | int = 0) -> Whole:
        """b = -(a·s) + e + (q/t)·m of the places of a block."""
        return np.asarray((error - product(a, secret) + encoded) % self.q)

    def second_half(
        self, a: Sequence[Whole], inside: Sequence[Bools], zero: tuple[Whole, Ints, Ints] | None = None
    ) -> Whole:
        """a* = Σ a·I + a0·u + e' in full precision, for each block of records its a; zero: (a0, u, e') or nothing."""
        total = sum(product(block, indicator(places)) for block, places in zip(a, inside, strict=True))
        if zero is not None:
            total = total + product(zero[0], zero[1]) + zero[2]
        return np.asarray(total % self.q)

    def first_half(self, words: Whole, inside: Bools, zero: tuple[Whole, Ints] | None = None, noise: int = 0) -> int:
        """b* = Σ b + (b0·u)[n-1] + flood in full precision, of one word of all records; zero: (b0, u) or nothing."""
        return (sum(words[inside]) + (at_end(*zero) if zero else 0) + noise) % self.q

    def reply(self, value: Any) -> Any:
        """Halves rounded to qp bits."""
        dropped = self.modulus_bits - self.reply_bits
        return (value + ((1 << dropped) >> 1) >> dropped) % (1 << self.reply_bits)

    def opened(self, first: int, second: Whole, secret: Ints, t: int) -> tuple[int, float]:
        """(Σm modulo t, its error as a part of what decrypts) of one word's rounded halves."""
        scaled = t * ((first + at_end(second, secret)) % (1 << self.reply_bits))
        nearest = scaled + (1 << (self.reply_bits - 1)) >> self.reply_bits
        return nearest % t, abs(scaled - (nearest << self.reply_bits)) / (1 << (self.reply_bits - 1))


def sizes(records: int, candidates: int = 100, queries: int = 20) -> HistogramParameters:
    """Sizes of a job of boosting: g, h and a count."""
    widths = (width_for(records, 1 << 32), width_for(records, 1 << 30), width_for(records, 1))
    return HistogramParameters.choose(records, widths, 32, candidates, queries)


def half_of(rng: np.random.Generator, n: int = 4096) -> Bools:
    """A set of records, each with probability 1/2."""
    return np.asarray(rng.random(n) < 0.5)


def fits(twin: Twin, second: Whole, a: Whole, inside: Bools) -> bool:
    """True if a second half is a times the guessed set's indicator, but for an error of a few last bits."""
    guessed = twin.reply(product(a, indicator(inside)) % twin.q)
    return bool(abs(centred(second - guessed, twin.reply_bits)).max() <= 2)

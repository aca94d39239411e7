"""Sizes of a BFV sum of masked columns, and how far the flooding hides the masks from the key owner.

Ring R = Z[X]/(X^N + 1), ciphertext modulus q = product of primes, plaintext modulus t. A ciphertext (c0, c1) under the
ternary secret s satisfies c0 + c1·s = (q/t)·m + e; multiplication by a mask polynomial p (|coefficients| ≤ t/2) turns e
into p·e, so the noise of a masked sum carries the masks, and the key owner can read it. The last member therefore adds
to c0 a polynomial with coefficients uniform in [-A, A] (noise flooding: Gentry 2009, chapter 21). With |masked noise|
≤ V the statistical distance to a noise that does not depend on the masks is at most N·V/(2A+1).

Bits that an attack on ring LWE takes, as estimated: the formula of docs/cryptography.md, for both lattices.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache
from itertools import islice

import gmpy2

from treetap.errors import BadInput, refuse

#: log2 of a sieve's gates by its dimension, as MATZOV 2022 counts them ("Report on the Security of LWE") and the
#: lattice-estimator fits them (Albrecht, Player, Scott 2015, and later costs): slope, and bits at 0.
_GATES = (0.29613500308205365, 20.387885985467914)
#: log2 of what the smaller sieves of one, and of one tour of blocks, take in units of the largest.
_PROGRESSIVE = math.log2(5.46)
#: Deviation of a coefficient of a ternary secret.
_SECRET = math.sqrt(2 / 3)
#: The least and the most block size that is tried.
_BLOCKS = (60, 8192)


def estimated_bits(unknown: int, samples: int, modulus_bits: int, deviation: float) -> float:
    """Least log2 of the cost of the primal attack, classical: 0.292·β + 16.4 + log2(8d).

    Secrets are rescaled by ν = σ/√(2/3) (Bai and Galbraith 2014); the block size β is the least at which some m of the
    samples, d = n + m + 1, give σ·√β ≤ δ^(2β-d-1)·(q^m·ν^n)^(1/d).

    Args:
        unknown: places of the ternary secret that are not known.
        samples: equations, most of them used.
        modulus_bits: log2 q.
        deviation: of an error, σ.
    """
    block, d = _attack(unknown, samples, modulus_bits, deviation)
    return 0.292 * block + 16.4 + math.log2(8 * d)


def matzov_bits(unknown: int, samples: int, modulus_bits: int, deviation: float) -> float:
    """The log2 of the gates of the same attack by MATZOV 2022, with dimensions for free (Ducas 2018)."""
    block, d = _attack(unknown, samples, modulus_bits, deviation)
    slope, first = _GATES
    sieved = block - block * math.log(4 / 3) / math.log(block / (2 * math.pi * math.e))
    return slope * sieved + first + 2 * _PROGRESSIVE + math.log2(d - block)


@cache
def _attack(unknown: int, samples: int, modulus_bits: int, deviation: float) -> tuple[int, int]:
    """The least block size β and the least dimension d at which it reaches the secret."""

    def broken(block: int) -> bool:
        return any(_short(block, unknown, used, modulus_bits, deviation) for used in range(step, samples + 1, step))

    step, (low, high) = max(samples // 64, 1), _BLOCKS
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if broken(middle) else (middle + 1, high)
    used = next(m for m in range(step, samples + 1, step) if _short(low, unknown, m, modulus_bits, deviation))
    return low, unknown + used + 1


def _short(block: int, unknown: int, used: int, modulus_bits: int, deviation: float) -> bool:
    """True if blocks of that size reach the secret, with that many samples."""
    d = unknown + used + 1
    root = ((math.pi * block) ** (1 / block) * block / (2 * math.pi * math.e)) ** (1 / (2 * block - 2))
    volume = (used * modulus_bits + unknown * math.log2(deviation / _SECRET)) / d
    return math.log2(deviation * math.sqrt(block)) <= (2 * block - d - 1) * math.log2(root) + volume


STATISTICAL_BITS = 40
TAIL = 14  # 2·N·exp(-TAIL²/2) < 2^-120: the noise leaves its sub-Gaussian bound with that probability
ERROR_BOUND = 21  # centred binomial errors are sums of 42 halves ±1/2
ERROR_DEVIATION = math.sqrt(ERROR_BOUND / 2)
PARTIAL_SUMS = 128  # fresh encryptions of zero that may go into one sum
PRIME_BITS = 30  # residues of 32 bits: see treetap/native/polynomials.h
#: Degree → largest log2 of q at which ternary secrets have 128 bits of security, classically: Bossuat et al. 2024
#: (ePrint 2024/463). Histograms use the first (`treetap.lattice.histogram_parameters`), sums of columns the others.
TOTAL_BITS = {4096: 106, 8192: 214, 16384: 430}
DEGREES = (8192, 16384)
PLAIN_BITS = range(20, 31)
SPARE_PLAIN_BITS = 2
MOST_COLUMNS = 1 << 24
MOST_MEMBERS = 64
_FORMAT = struct.Struct("<5Q")
SEED_BYTES = 32


@dataclass(frozen=True)
class Parameters:
    """One agreed set of sizes; all parties of a job hold equal ones.

    Attributes:
        degree: N, also the number of records in one ciphertext.
        data_primes: number of 30-bit primes in q.
        plain_bits: bits of the prime t ≡ 1 (mod 2N).
        columns: most columns in one sum.
        members: number of members that mask each ciphertext, one after the other.

    Raises:
        BadInput: below 128-bit security, or the flooding would reach less than `STATISTICAL_BITS`.
    """

    degree: int
    data_primes: int
    plain_bits: int
    columns: int
    members: int

    def __post_init__(self) -> None:
        refuse(
            (
                self.degree not in DEGREES,
                f"the ring degree is one of {', '.join(map(str, DEGREES))}, not {self.degree}",
            ),
            (
                self.plain_bits not in PLAIN_BITS,
                f"plaintexts have {PLAIN_BITS[0]} to {PLAIN_BITS[-1]} bits, not {self.plain_bits}",
            ),
            (
                self.columns < 1 or self.members < 1 or self.data_primes < 1,
                "a masked sum needs at least one column, one member and one prime",
            ),
            # before anything is computed with them
            (
                self.columns > MOST_COLUMNS or self.members > MOST_MEMBERS,
                f"a masked sum has at most {MOST_COLUMNS} columns and {MOST_MEMBERS} members, not {self.columns} and "
                f"{self.members}",
            ),
            kind=BadInput,
        )
        if PRIME_BITS * self.data_primes > TOTAL_BITS[self.degree]:
            raise BadInput(
                f"{PRIME_BITS * self.data_primes} bits of modulus at degree {self.degree} "
                f"are below 128-bit security: at most {TOTAL_BITS[self.degree]}"
            )
        if self.statistical_bits < STATISTICAL_BITS:
            raise BadInput(
                f"the masks of {self.columns} columns and {self.members} members would be hidden by "
                f"{self.statistical_bits:.0f} bits only, {STATISTICAL_BITS} are required: take more primes"
            )

    @classmethod
    def choose(cls, trees: int, columns: int, members: int, tolerance: float = 1e-4) -> Parameters:
        """The cheapest set that fits, its plaintext up to two bits finer than asked where that costs nothing.

        Args:
            trees: leaf weights that add up in one score.
            columns: most columns in one sum.
            members: feature parties in the chain.
            tolerance: largest error of a score, as a part of the range of scores.

        Raises:
            BadInput: nothing fits.
        """
        needed = plain_bits_for(trees, tolerance)
        for degree in DEGREES:
            for primes in range(2, TOTAL_BITS[degree] // PRIME_BITS + 1):
                for bits in range(min(needed + SPARE_PLAIN_BITS, PLAIN_BITS[-1]), needed - 1, -1):
                    try:
                        return cls(degree, primes, bits, columns, members)
                    except BadInput:
                        continue
        raise BadInput(
            f"no lattice parameters hide {columns} columns masked by {members} members at a tolerance of {tolerance}: "
            "use Paillier, or fewer feature parties"
        )

    @property
    def plain(self) -> int:
        """t: the largest prime of its bits that is 1 modulo 2N."""
        return next(_primes(self.degree, self.plain_bits))

    @property
    def primes(self) -> tuple[int, ...]:
        """The largest primes of 30 bits that are 1 modulo 2N, without t."""
        return _data_primes(self.degree, self.data_primes, self.plain_bits)

    @property
    def modulus(self) -> int:
        """q."""
        return math.prod(self.primes)

    @property
    def masked_noise(self) -> int:
        """V: bound of every coefficient of the noise before flooding, for honest encryptions and any masks.

        The encryption errors are independent of the masks and sub-Gaussian with variance proxy ERROR_BOUND/2, hence
        so is their sum with any fixed weights; the owner's rounding of (q/t)·m and the members' fresh encryptions of
        zero are bounded in the worst case. A product with a mask multiplies a bound by N·t/2. The last member's blinds
        (`treetap.lattice.kernels.blinds`) round once more.
        """
        n, columns, members = self.degree, self.columns, self.members
        half = 1 << (self.plain_bits - 1)
        growth = n * half
        # ‖p₁⋯p_M‖₂ ≤ √N·N^(M-1)·(t/2)^M
        weights: int = n ** (members - 1) * half**members
        errors = math.isqrt(TAIL**2 * ERROR_BOUND * columns * n // 2) + 1
        rounding = columns * growth**members // 2 + 1  # |rounding of (q/t)·m| ≤ 1/2
        fresh = self.fresh_noise * sum(columns * growth**hops for hops in range(1, members))
        return int(errors * weights + rounding + fresh + PARTIAL_SUMS * self.fresh_noise) + 1

    @property
    def fresh_noise(self) -> int:
        """Bound of the noise u·e + e₁ + s·e₂ of a public-key encryption of zero."""
        return ERROR_BOUND * (2 * self.degree + 1)

    @property
    def flood(self) -> int:
        """A: as large as leaves the owner at least one bit of noise budget; 0 where not even the masked sum fits."""
        return max(0, self.modulus // (4 * self.plain) - self.masked_noise)

    @property
    def statistical_bits(self) -> float:
        """-log2 of the statistical distance N·V/(2A+1), for one returned ciphertext."""
        return math.log2(2 * self.flood + 1) - math.log2(self.degree * self.masked_noise)

    @property
    def secrecy_bits(self) -> float:
        """Estimated bits of secrecy of what is encrypted."""
        return estimated_bits(self.degree, self.degree, PRIME_BITS * self.data_primes, ERROR_DEVIATION)

    @property
    def ciphertext_bytes(self) -> int:
        """Size of a ciphertext's two polynomials."""
        return 2 * self.degree * self.data_primes * 4

    @property
    def seeded_bytes(self) -> int:
        """Size of a ciphertext or public key whose second polynomial is a seed."""
        return SEED_BYTES + self.degree * self.data_primes * 4

    def to_bytes(self) -> bytes:
        """A fixed-size form that goes ahead of a public key."""
        return _FORMAT.pack(*(getattr(self, field.name) for field in fields(self)))


PARAMETERS_BYTES = _FORMAT.size

#: Bytes of the largest public key that any parameters have, with its parameters.
MOST_KEY_BYTES = PARAMETERS_BYTES + SEED_BYTES + max(n * (TOTAL_BITS[n] // PRIME_BITS) * 4 for n in DEGREES)


def plain_bits_for(trees: int, tolerance: float) -> int:
    """Bits of t at which `trees` rounded leaf weights keep a score within `tolerance` of its range.

    Raises:
        BadInput: no offered size does.
    """
    for bits in PLAIN_BITS:
        # the largest prime t ≡ 1 (mod 2N) of that many bits is at least 3/4·2^bits at all offered sizes
        if trees / 2 <= tolerance * (2**bits * 3 // 4 - 1 - trees):
            return bits
    raise BadInput(f"{trees} trees at a tolerance of {tolerance} need larger plaintexts than lattices offer here")


def _primes(degree: int, bits: int) -> Iterator[int]:
    """The primes of that many bits that are 1 modulo 2N, the largest first."""
    return (p for p in range((1 << bits) - 2 * degree + 1, 1 << (bits - 1), -2 * degree) if gmpy2.is_prime(p))


@cache
def _data_primes(degree: int, count: int, plain_bits: int) -> tuple[int, ...]:
    plain = next(_primes(degree, plain_bits))
    return tuple(islice((prime for prime in _primes(degree, PRIME_BITS) if prime != plain), count))

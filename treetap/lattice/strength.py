"""Bits that an attack on ring LWE takes, as estimated: the formula of docs/cryptography.md, for both lattices."""

from __future__ import annotations

import math
from functools import cache

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

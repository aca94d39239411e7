"""Powers of one base with a table: base^e from one multiplication per window of the exponent.

The exponent is written in digits of `window` bits; row k of the table holds base^(digit · 2^(window·k)) for every
digit, so a power is a product of one entry per row (fixed-base windowing; Brickell, Gordon, McCurley and Wilson 1992).
A wider window means fewer products and an exponentially larger table: `window_for` takes the widest that fits a memory
bound. Tables are public arithmetic; the caller decides whether its exponents are secret.
"""

from __future__ import annotations

import secrets

import numpy as np
import numpy.typing as npt
from gmpy2 import mpz, powmod

from treetap.additive.residues.batches import Batch, Digits, Residues

WINDOWS = range(4, 14)
_ENTRY_BYTES = 72  # of an entry beyond its number, at most: an integer's object, or words that are not full

Exponents = npt.NDArray[np.uint8]


def table_bytes(exponent_bits: int, window: int, modulus_bits: int) -> int:
    """Estimated memory of a table in bytes."""
    rows = -(-exponent_bits // window)
    return rows * (1 << window) * (modulus_bits // 8 + _ENTRY_BYTES)


def window_for(exponent_bits: int, modulus_bits: int, limit: int) -> int:
    """Widest window, in bits, that saves a row and whose table stays within `limit` bytes; the narrowest offered if
    none does.
    """
    fitting = [window for window in WINDOWS if table_bytes(exponent_bits, window, modulus_bits) <= limit]
    return min(fitting, key=lambda window: -(-exponent_bits // window), default=min(WINDOWS))


def random_exponents(count: int, bits: int) -> Exponents:
    """`count` uniform exponents of `bits` bits from the operating system, little-endian bytes (count, bytes)."""
    width = -(-bits // 8)
    drawn = np.frombuffer(secrets.token_bytes(count * width), dtype=np.uint8).reshape(count, width).copy()
    if bits % 8:
        drawn[:, -1] &= (1 << bits % 8) - 1
    return drawn


def digits_of(exponents: Exponents, exponent_bits: int, window: int) -> Digits:
    """Exponents in digits of `window` bits, least significant first, shape (n, ceil(exponent_bits / window))."""
    count, rows = len(exponents), -(-exponent_bits // window)
    bits = np.zeros((count, rows * window), dtype=np.uint16)
    bits[:, :exponent_bits] = np.unpackbits(exponents, axis=1, count=exponent_bits, bitorder="little")
    return bits.reshape(count, rows, window) @ (1 << np.arange(window)).astype(np.uint16)


class FixedBase:
    """Powers of `base` modulo the ring's modulus for exponents below 2^exponent_bits.

    Attributes:
        window: bits of a digit.
    """

    def __init__(
        self, ring: Residues, base: mpz, exponent_bits: int, window: int | None = None, limit: int | None = None
    ) -> None:
        """`window`: by default the one for tables of up to `limit` bytes, and by default of the ring's largest."""
        limit, modulus = ring.table_bytes if limit is None else limit, ring.modulus
        self.window = window if window is not None else window_for(exponent_bits, modulus.bit_length(), limit)
        self._ring, self._bits = ring, exponent_bits
        rows = -(-exponent_bits // self.window)
        # step^(2^k) of each row's base, for the entries' highest bits
        squares = [mpz(base) % modulus]
        while len(squares) < rows * self.window:
            squares.append(powmod(squares[-1], 2, modulus))
        entries = ring.ones(rows)
        for bit in range(self.window):
            # entries 2^bit … 2^(bit+1) - 1 of every row, row by row: those below times base^(2^bit)
            steps = np.repeat(ring.batch(squares[bit :: self.window]), 1 << bit, axis=0)
            entries = _joined(entries, ring.multiply(entries, steps), rows)
        self._table = entries

    def powers(self, exponents: Exponents) -> Batch:
        """base^e for each exponent of shape (n, bytes), little-endian."""
        return self._ring.fixed_base(self._table, digits_of(exponents, self._bits, self.window))

    def random_powers(self, count: int) -> Batch:
        """`count` powers with fresh uniform exponents from the operating system."""
        return self.powers(random_exponents(count, self._bits))


def _joined(low: Batch, high: Batch, rows: int) -> Batch:
    """The entries of each row of two tables, one after the other."""
    inner = low.shape[1:]
    both = [part.reshape(rows, -1, *inner) for part in (low, high)]
    return np.concatenate(both, axis=1).reshape(-1, *inner)

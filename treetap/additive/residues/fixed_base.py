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
#: Largest table, in bytes: a worker with a key has two, below 64 MB together. Twice as much saves a tenth of
#: the products, and takes longer to make than a hundred thousand powers gain.
LARGEST_TABLE = 18_000_000
#: Entries of a row from which on rows are computed one after the other.
_LONG = 32

Exponents = npt.NDArray[np.uint8]


def table_bytes(exponent_bits: int, window: int, number_bytes: int) -> int:
    """Memory of a table of numbers of so many bytes each."""
    return -(-exponent_bits // window) * (1 << window) * number_bytes


def window_for(exponent_bits: int, number_bytes: int, limit: int) -> int:
    """Widest window, in bits, that saves a row and whose table stays within `limit` bytes; the narrowest offered if
    none does.
    """
    fitting = [window for window in WINDOWS if table_bytes(exponent_bits, window, number_bytes) <= limit]
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

    def __init__(self, ring: Residues, base: mpz, exponent_bits: int, window: int | None = None) -> None:
        """`window`: by default the one for tables of up to `LARGEST_TABLE` bytes."""
        modulus = ring.modulus
        self.window = window if window is not None else window_for(exponent_bits, ring.number_bytes, LARGEST_TABLE)
        self._ring, self._bits = ring, exponent_bits
        rows = -(-exponent_bits // self.window)
        # step^(2^k) of each row's base, for the entries' highest bits
        squares = [mpz(base) % modulus]
        while len(squares) < rows * self.window:
            squares.append(powmod(squares[-1], 2, modulus))
        one = ring.ones(1)
        table = np.empty((rows, 1 << self.window, *one.shape[1:]), dtype=one.dtype)
        table[:, 0] = one
        for bit in range(self.window):
            # entries 2^bit … 2^(bit+1) - 1 of every row: those below times base^(2^bit)
            count, steps = 1 << bit, ring.batch(squares[bit :: self.window])
            if count < _LONG:
                low = table[:, :count].reshape(-1, *one.shape[1:])
                high = ring.multiply(low, np.repeat(steps, count, axis=0))
                table[:, count : 2 * count] = high.reshape(rows, count, *one.shape[1:])
                continue
            for row in range(rows):
                table[row, count : 2 * count] = ring.multiply(table[row, :count], steps[row : row + 1])
        self._table = table.reshape(-1, *one.shape[1:])

    @property
    def bytes(self) -> int:
        """Memory of the table, in bytes; of integers of gmpy2 at most."""
        return len(self._table) * self._ring.number_bytes

    def powers(self, exponents: Exponents) -> Batch:
        """base^e for each exponent of shape (n, bytes), little-endian."""
        return self._ring.fixed_base(self._table, digits_of(exponents, self._bits, self.window))

    def random_powers(self, count: int) -> Batch:
        """`count` powers with fresh uniform exponents from the operating system."""
        return self.powers(random_exponents(count, self._bits))

"""Powers of one base with a table: base^e from one multiplication per window of the exponent.

The exponent is written in digits of `window` bits; row k of the table holds base^(digit · 2^(window·k)) for every
digit, so a power is a product of one entry per row (fixed-base windowing; Brickell, Gordon, McCurley and Wilson 1992).
A wider window means fewer products and an exponentially larger table: `window_for` takes the widest that fits a memory
bound. Tables are public arithmetic; the caller decides whether its exponents are secret.
"""

from __future__ import annotations

import secrets

import numpy as np
from gmpy2 import mpz

from treetap.worker_process import finish_unit

TABLE_BYTES = 16 * 2**20
WINDOWS = range(4, 13)
_OBJECT_BYTES = 56  # an mpz and its list entry, beside its limbs


def table_bytes(exponent_bits: int, window: int, modulus_bits: int) -> int:
    """Estimated memory of a table in bytes."""
    rows = -(-exponent_bits // window)
    return rows * (1 << window) * (modulus_bits // 8 + _OBJECT_BYTES)


def window_for(exponent_bits: int, modulus_bits: int, limit: int = TABLE_BYTES) -> int:
    """Widest window, in bits, whose table stays within `limit` bytes; the narrowest offered if none does."""
    fitting = [window for window in WINDOWS if table_bytes(exponent_bits, window, modulus_bits) <= limit]
    return max(fitting, default=min(WINDOWS))


def random_digits(count: int, exponent_bits: int, window: int) -> list[list[int]]:
    """`count` uniform exponents from the operating system as digits of `window` bits, least significant first.

    An exponent has ceil(exponent_bits / window) whole digits, hence at least `exponent_bits` random bits.
    """
    digits = -(-exponent_bits // window)
    drawn = np.frombuffer(secrets.token_bytes(2 * count * digits), dtype=np.uint16)
    kept: list[list[int]] = (drawn & ((1 << window) - 1)).reshape(count, digits).tolist()
    return kept


class FixedBase:
    """Powers of `base` modulo `modulus` for exponents of `exponent_bits` bits, rounded up to whole digits.

    At 2048 bits (modulus p², 2048 bits), 256-bit exponents and 11-bit windows: 49,152 entries, 15 MB, built in 0.07 s.
    """

    def __init__(self, base: mpz, modulus: mpz, exponent_bits: int, window: int | None = None) -> None:
        self.modulus = mpz(modulus)
        self.exponent_bits = exponent_bits
        self.window = window if window is not None else window_for(exponent_bits, self.modulus.bit_length())
        self.rows: list[list[mpz]] = []
        step = mpz(base) % self.modulus
        for _ in range(-(-exponent_bits // self.window)):
            row = [mpz(1)]
            for _ in range(1 << self.window):
                row.append(row[-1] * step % self.modulus)
            step = row.pop()  # step^(2^window) is the base of the next row
            self.rows.append(row)

    def power(self, digits: list[int]) -> mpz:
        """base^Σ digits[k]·2^(window·k) mod modulus."""
        modulus = self.modulus
        product = self.rows[0][digits[0]]
        for row, digit in zip(self.rows[1:], digits[1:], strict=True):
            product = product * row[digit] % modulus
        finish_unit()
        return product

    def random_powers(self, count: int) -> list[mpz]:
        """`count` powers with fresh uniform exponents from the operating system."""
        return [self.power(digits) for digits in random_digits(count, self.exponent_bits, self.window)]

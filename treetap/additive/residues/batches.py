"""Batches of residues modulo one odd number: what a scheme asks of an arithmetic.

A scheme's files compute with whole batches and do not know by which arithmetic: `residues` of
`treetap.additive.paillier.public_key` gives that of this process. A batch is an array whose first axis counts the
numbers; take rows of it and join batches with NumPy. Its elements mean something to the arithmetic that made them only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from gmpy2 import mpz

from treetap.native import pairs

Batch = npt.NDArray[Any]
Places = npt.NDArray[np.int64]
Digits = npt.NDArray[np.uint16]
#: Bits of a window of a power's exponent.
WINDOW = 6


@dataclass(frozen=True)
class Powers:
    """A program for Π base^e · Π values[k]^(2^position_k): factors by falling position.

    Attributes:
        factors: (position, operand); operand -1-w is the (2w+1)-th power of the base, k ≥ 0 the k-th value.
        odd_powers: odd powers of the base that occur.
    """

    factors: tuple[tuple[int, int], ...]
    odd_powers: int

    @classmethod
    def of(cls, exponent: int, positions: Sequence[int] = ()) -> Powers:
        """The base to an exponent > 0, by sliding windows, times each value to a power of two."""
        factors = [(position, -1 - (digit >> 1)) for position, digit in _odd_windows(mpz(exponent))]
        odd = 1 << (WINDOW - 1)
        factors += [(position, value) for value, position in enumerate(positions)]
        return cls(tuple(sorted(factors, key=lambda factor: factor[0], reverse=True)), odd)


def _odd_windows(exponent: mpz) -> list[tuple[int, int]]:
    """(position, odd digit below 2^6) with Σ digit·2^position = exponent, most significant first."""
    windows = []
    top = exponent.bit_length()
    while top > 0:
        if not exponent.bit_test(top - 1):
            top -= 1
            continue
        low = max(0, top - WINDOW)
        while not exponent.bit_test(low):
            low += 1
        windows.append((low, int((exponent >> low) & ((1 << (top - low)) - 1))))
        top = low
    return windows


@dataclass(frozen=True)
class Cells:
    """The cell of each of some values: what is multiplied together. Made once for all values of the same cells.

    Attributes:
        places: rows of the values' batch, shape (n,); a row may occur several times.
        numbers: the cell of each, 0..count-1, shape (n,).
        count: number of cells.
        held: the first `held` cells hold products already, into which their values go.
    """

    places: Places
    numbers: Places
    count: int
    held: int = 0

    @cached_property
    def passes(self) -> list[pairs.Pass]:
        """The order of the native kernels' products."""
        return list(pairs.passes(self.places, self.numbers, self.count, self.held, pairs.SPARES))


class Residues(Protocol):
    """Arithmetic modulo one odd number.

    Attributes:
        modulus: the number.
        number_bytes: memory of a number, at most.
    """

    modulus: mpz
    number_bytes: int

    def read(self, data: bytes, width: int) -> tuple[Batch, int]:
        """Residues from whole big-endian blocks of `width` bytes, and the number of leading ones in 1..modulus-1.

        The others mean nothing.
        """
        ...

    def write(self, batch: Batch, width: int) -> bytes:
        """Residues as big-endian blocks of `width` bytes."""
        ...

    def read_factors(self, data: bytes, width: int) -> tuple[Batch, int]:
        """As `read`, but for factors: numbers that are multiplied together by cells, and the products then written."""
        ...

    def write_products(self, batch: Batch, factors: Places, width: int) -> bytes:
        """Products of so many factors each, shape (n,), and of any residues beside, as big-endian blocks.

        A product of none is 1.
        """
        ...

    def batch(self, numbers: Iterable[int]) -> Batch:
        """Residues of integers of any sign and size."""
        ...

    def numbers(self, batch: Batch) -> list[mpz]:
        """The integers 0..modulus-1."""
        ...

    def multiples(self, data: bytes, width: int, factor: int) -> Batch:
        """Residues of factor times each number of whole big-endian blocks, whose size does not matter."""
        ...

    def ones(self, count: int) -> Batch:
        """`count` ones."""
        ...

    def add(self, left: Batch, right: Batch) -> Batch:
        """Sums by row, or with one row (a batch of one)."""
        ...

    def multiply(self, left: Batch, right: Batch) -> Batch:
        """Products by row, or with one row (a batch of one)."""
        ...

    def cell_products(self, values: Batch, cells: Cells) -> Batch:
        """Products of the values of each cell, none of which is held; 1 for an empty cell."""
        ...

    def multiply_into(self, products: Batch, values: Batch, cells: Cells) -> Batch:
        """Multiply values into the held products, and begin those of the further cells, which all have values.

        Args:
            products: those of the first `cells.held` cells, with room behind them, in which this may compute.
            values: numbers (m, …).
            cells: the cell of each.

        Returns:
            The products of `cells.count` cells with room behind them: the same memory if it has enough of it.
        """
        ...

    def fixed_base(self, table: Batch, digits: Digits) -> Batch:
        """Product over rows of table[row · entries + digit]; digits (n, rows), table (rows · entries, …)."""
        ...

    def powers(self, base: Batch, program: Powers, values: Batch, places: Places) -> Batch:
        """A program's result for each base.

        Args:
            base: numbers (n, …).
            program: one for all.
            values: numbers (m, …).
            places: (n, width) the rows of `values` of each result.
        """
        ...

    def join(self, low: Batch, other: Residues, high: Batch, width: int) -> bytes:
        """Numbers below the product of two coprime moduli from their residues (Chinese remainder theorem).

        Args:
            low: residues modulo this modulus.
            other: the arithmetic modulo the other.
            high: residues modulo the other.
            width: bytes of a block.
        """
        ...


def power(ring: Residues, base: Batch, exponent: int) -> Batch:
    """Each number to one exponent > 0."""
    return ring.powers(base, Powers.of(exponent), ring.ones(0), np.empty((len(base), 0), dtype=np.int64))

"""Residues by GMP, one number at a time: a batch is an array (n,) of integers of gmpy2."""

from __future__ import annotations

from collections.abc import Iterable

import gmpy2
import numpy as np
from gmpy2 import mpz

from treetap.additive.residues.batches import Batch, Cells, Digits, Places, Powers, Residues
from treetap.usage import finish_unit

_OBJECT = 72  # bytes of a number's object beyond the number, at most
UNIT = 4096  # products; some 16 ms modulo 4,096 bits


class Gmpy2Residues:
    """Arithmetic by GMP; methods are those of `treetap.additive.residues.batches.Residues`."""

    def __init__(self, modulus: int) -> None:
        self.modulus = mpz(modulus)
        self.number_bytes = self.modulus.bit_length() // 8 + _OBJECT

    def read(self, data: bytes, width: int) -> tuple[Batch, int]:
        limit, read = self.modulus, mpz.from_bytes
        numbers = [read(data[start : start + width], "big") for start in range(0, len(data), width)]
        bad = next((place for place, number in enumerate(numbers) if not 0 < number < limit), len(numbers))
        return _array(numbers), bad

    def write(self, batch: Batch, width: int) -> bytes:
        return b"".join([number.to_bytes(width, "big") for number in batch])

    def read_factors(self, data: bytes, width: int) -> tuple[Batch, int]:
        return self.read(data, width)

    def write_products(self, batch: Batch, _factors: Places, width: int) -> bytes:
        return self.write(batch, width)

    def batch(self, numbers: Iterable[int]) -> Batch:
        return _array([mpz(number) % self.modulus for number in numbers])

    def numbers(self, batch: Batch) -> list[mpz]:
        return list(batch)

    def multiples(self, data: bytes, width: int, factor: int) -> Batch:
        starts = range(0, len(data), width)
        return self.batch(mpz.from_bytes(data[start : start + width], "big") * factor for start in starts)

    def ones(self, count: int) -> Batch:
        return _array([mpz(1)] * count)

    def add(self, left: Batch, right: Batch) -> Batch:
        total: Batch = (left + right) % self.modulus
        return total

    def multiply(self, left: Batch, right: Batch) -> Batch:
        parts = []
        for start in range(0, len(left), UNIT):
            other = right if len(right) == 1 else right[start : start + UNIT]
            parts.append(left[start : start + UNIT] * other % self.modulus)
            finish_unit()
        return np.concatenate(parts) if parts else left

    def cell_products(self, values: Batch, cells: Cells) -> Batch:
        products: list[mpz | None] = [None] * cells.count
        self._multiply_into(products, values, cells)
        one = mpz(1)
        return _array([one if product is None else product for product in products])

    def multiply_into(self, products: Batch, values: Batch, cells: Cells) -> Batch:
        if len(products) < cells.count:
            grown = np.empty(max(cells.count, 3 * cells.held // 2), dtype=object)
            grown[: cells.held] = products[: cells.held]
            products = grown
        products[cells.held : cells.count] = None
        self._multiply_into(products, values, cells)
        return products

    def _multiply_into(self, products: Batch | list[mpz | None], values: Batch, cells: Cells) -> None:
        """Multiply values into their cells' products, of which None is none yet."""
        modulus = self.modulus
        for start in range(0, len(cells.places), UNIT):
            part = slice(start, start + UNIT)
            for cell, value in zip(cells.numbers[part].tolist(), values[cells.places[part]], strict=True):
                known = products[cell]
                products[cell] = value if known is None else known * value % modulus
            finish_unit()

    def fixed_base(self, table: Batch, digits: Digits) -> Batch:
        count, rows = digits.shape
        entries = len(table) // rows
        starts = np.arange(rows) * entries
        step = max(1, UNIT // rows)
        parts = []
        for start in range(0, count, step):
            factors = table[starts + digits[start : start + step]]
            product = factors[:, 0]
            for row in range(1, rows):
                product = product * factors[:, row] % self.modulus
            parts.append(product)
            finish_unit()
        return np.concatenate(parts) if parts else self.ones(0)

    def powers(self, base: Batch, program: Powers, values: Batch, places: Places) -> Batch:
        if not places.shape[1]:
            # GMP's own power, which is faster than a program of products.
            exponent = sum(mpz(-1 - 2 * operand) << position for position, operand in program.factors)
            powers = []
            for number in base:
                powers.append(gmpy2.powmod(number, exponent, self.modulus))
                finish_unit()
            return _array(powers)
        return _array([self._power(number, program, values[row]) for number, row in zip(base, places, strict=True)])

    def _power(self, base: mpz, program: Powers, values: Batch) -> mpz:
        modulus = self.modulus
        square = base * base % modulus
        odd = [base]
        while len(odd) < program.odd_powers:
            odd.append(odd[-1] * square % modulus)
        product, level = mpz(1), program.factors[0][0]
        for position, operand in program.factors:
            factor = odd[-1 - operand] if operand < 0 else values[operand]
            if operand >= 0 and factor == 1:  # the trivial ciphertext of an empty sum changes nothing
                continue
            for _ in range(level - position):
                product = product * product % modulus
            level = position
            product = product * factor % modulus
        for _ in range(level):
            product = product * product % modulus
        finish_unit()
        return product

    def join(self, low: Batch, other: Residues, high: Batch, width: int) -> bytes:
        """Join by Garner's form."""
        inverse = gmpy2.invert(self.modulus, other.modulus)
        return self.write(low + self.modulus * ((high - low) * inverse % other.modulus), width)


def _array(numbers: list[mpz]) -> Batch:
    held = np.empty(len(numbers), dtype=object)
    held[:] = numbers
    return held

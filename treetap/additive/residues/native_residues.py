"""Residues by the native kernels, four or eight at a time.

A batch is an array (n, limbs) of numbers in Montgomery form, below four times the modulus. Factors are not brought into
that form, which would take a product each: one without it is as good as the form of the number divided by R, so that
the product of c of them lacks R^c. Products are written through a product in any case, by one out of the form, and with
R^c in its place this puts back what lacks.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from gmpy2 import invert, mpz, powmod

from treetap.additive.residues.batches import Batch, Cells, Digits, Places, Powers, Residues
from treetap.native.library import Form, in_bounds
from treetap.native.numbers import WORDS, Modulus


class NativeResidues:
    """Arithmetic by one form of the native kernels; methods are those of `treetap.additive.residues.batches.Residues`.

    Raises:
        Unavailable: this processor cannot run the form.
    """

    def __init__(self, modulus: int, bits: int, form: Form) -> None:
        self.modulus = mpz(modulus)
        self._words = WORDS[form]
        self._kernel = Modulus(int(modulus), self._words.limbs_for(bits), form)
        self.number_bytes = 8 * self._kernel.limbs
        self._entry = self._constant(pow(self._kernel.r, 2, int(modulus)))  # a product with it enters Montgomery's form
        self._one = self._constant(self._kernel.r % int(modulus))
        self._powers_of_r = _PowersOfR(self._kernel, self.modulus)

    def _constant(self, number: int) -> Batch:
        return self._kernel.constant(int(number))

    def read(self, data: bytes, width: int) -> tuple[Batch, int]:
        raw, good = self.read_factors(data, width)
        return self._kernel.products(raw, self._entry, out=raw), good

    def write(self, batch: Batch, width: int) -> bytes:
        return self._words.write(self._kernel.leave(np.ascontiguousarray(batch)), width)

    def read_factors(self, data: bytes, width: int) -> tuple[Batch, int]:
        raw, good = self._kernel.read(data, width)
        return raw[:good], good

    def write_products(self, batch: Batch, factors: Places, width: int) -> bytes:
        counts, at = np.unique(factors, return_inverse=True)
        plain = self._kernel.products(
            np.ascontiguousarray(batch), self._powers_of_r.of(counts), None, at.astype(np.int64)
        )
        self._kernel.reduce(plain)
        return self._words.write(plain, width)

    def batch(self, numbers: Iterable[int]) -> Batch:
        width = -(-int(self.modulus).bit_length() // 8)
        data = b"".join([int(number % self.modulus).to_bytes(width, "big") for number in numbers])
        raw, _ = self._words.read(data, width, self._kernel.limbs)
        return self._kernel.products(raw, self._entry, out=raw)

    def numbers(self, batch: Batch) -> list[mpz]:
        width = -(-int(self.modulus).bit_length() // 8)
        data = self.write(batch, width)
        return [mpz.from_bytes(data[start : start + width], "big") for start in range(0, len(data), width)]

    def multiples(self, data: bytes, width: int, factor: int) -> Batch:
        limbs = self._kernel.limbs
        held = limbs * self._words.bits // 8  # bytes of a piece
        blocks = np.frombuffer(data, dtype=np.uint8).reshape(-1, width)
        total: Batch | None = None
        for piece, end in enumerate(range(width, 0, -held)):
            part = blocks[:, max(0, end - held) : end]
            words, _ = self._words.read(part.tobytes(), part.shape[1], limbs)
            weight = pow(2, 8 * held * piece, int(self.modulus)) * factor  # R² enters Montgomery's form
            entry = pow(self._kernel.r, 2, int(self.modulus)) * weight % int(self.modulus)
            product = self._kernel.products(words, self._constant(entry))
            total = product if total is None else self._kernel.sums(total, product)
        assert total is not None, "a number has at least one word"
        return total

    def ones(self, count: int) -> Batch:
        return np.tile(self._one, (count, 1))

    def add(self, left: Batch, right: Batch) -> Batch:
        return self._kernel.sums(left, right[0] if len(right) == 1 else right)

    def multiply(self, left: Batch, right: Batch) -> Batch:
        left, right = np.ascontiguousarray(left), np.ascontiguousarray(right)
        return self._kernel.products(left, right[0] if len(right) == 1 else right)

    def cell_products(self, values: Batch, cells: Cells) -> Batch:
        in_bounds(not cells.held, "no cell holds a product yet")
        products = self._empty(cells.count + max((order.spares for order in cells.passes), default=0))
        empty = np.ones(cells.count, dtype=np.bool_)
        empty[cells.numbers] = False
        products[: cells.count][empty] = self._one
        self._compute(products, values, cells)
        return products[: cells.count]

    def multiply_into(self, products: Batch, values: Batch, cells: Cells) -> Batch:
        needed = cells.count + max((order.spares for order in cells.passes), default=0)
        if len(products) < needed:
            grown = self._empty(max(needed, 3 * cells.held // 2))
            grown[: cells.held] = products[: cells.held]
            products = grown
        self._compute(products, values, cells)
        return products

    def _compute(self, products: Batch, values: Batch, cells: Cells) -> None:
        """Multiply in place: a value is copied only where it begins a row."""
        multiply = self._kernel.products
        for order in cells.passes:
            self._kernel.put(products, order.put, values, order.put_at)
            multiply(products, values, order.rows, order.rows_at, out=products, out_at=order.rows)
            for left, right in order.rounds:
                multiply(products, products, left, right, out=products, out_at=left)

    def _empty(self, count: int) -> Batch:
        return np.empty((count, self._kernel.limbs), dtype=np.uint64)

    def fixed_base(self, table: Batch, digits: Digits) -> Batch:
        return self._kernel.fixed_base(table.reshape(digits.shape[1], -1, self._kernel.limbs), digits)

    def powers(self, base: Batch, program: Powers, values: Batch, places: Places) -> Batch:
        squarings, operands, level = [], [], program.factors[0][0]
        for position, operand in program.factors:
            squarings.append(level - position)
            operands.append(operand)
            level = position
        return self._kernel.chain(
            np.ascontiguousarray(base),
            program.odd_powers,
            values,
            places,
            np.array(squarings, dtype=np.int32),
            np.array(operands, dtype=np.int32),
            level,
        )

    def join(self, low: Batch, other: Residues, high: Batch, width: int) -> bytes:
        """Join by Garner's form, low + N·((high - low)/N mod M)."""
        assert isinstance(other, NativeResidues), "both residues are of one arithmetic"
        in_bounds(other._kernel.limbs == self._kernel.limbs, "the other modulus is kept in as many words")
        inverse, modulus = int(invert(self.modulus, other.modulus)), int(other.modulus)
        left = self._kernel.leave(low)
        wide = -(-int(self.modulus).bit_length() // 8)
        minus = other.multiples(self._words.write(left, wide), wide, -inverse)
        plus = other.multiply(high, other.batch([inverse]))
        short = other._kernel.leave(other._kernel.sums(minus, plus))
        most = self._words.limbs_for(int(self.modulus).bit_length() + modulus.bit_length())
        return self._words.write(self._kernel.join(left, short, min(most, 2 * self._kernel.limbs)), width)


class _PowersOfR:
    """R^e modulo N of small exponents e ≥ 0, from a table for each digit of theirs, which grows as they do."""

    _BITS = 8  # of a digit

    def __init__(self, kernel: Modulus, modulus: mpz) -> None:
        self._kernel, self._modulus = kernel, modulus
        # The k-th table has R^(256^k · digit) of the digits so far; the others than the first are in Montgomery form.
        # Threads share it: a table is replaced by a longer one, and never changed.
        self._tables: dict[int, Batch] = {}

    def of(self, exponents: Places) -> Batch:
        """The powers, shape (n, limbs)."""
        largest, powers = int(exponents.max(initial=0)), np.empty((0, 0), dtype=np.uint64)
        for place in range(max(1, -(-largest.bit_length() // self._BITS))):
            digits = exponents >> (self._BITS * place) & ((1 << self._BITS) - 1)
            table = self._table(place, int(digits.max(initial=0)))
            powers = self._kernel.products(powers, table, None, digits) if place else table[digits]
        return powers

    def _table(self, place: int, largest: int) -> Batch:
        """The table of a digit, at least up to its largest value."""
        table = self._tables.get(place)
        if table is None:
            table = self._kernel.constant(self._kernel.r % int(self._modulus) if place else 1)[np.newaxis]
        while len(table) <= largest:
            step = powmod(self._kernel.r, (len(table) << (self._BITS * place)) + 1, self._modulus)
            table = np.concatenate([table, self._kernel.products(table, self._kernel.constant(int(step)))])
        self._tables[place] = table
        return table

"""Residues by the native kernels, four or eight at a time.

A batch is an array (n, limbs) of numbers in Montgomery form, below four times the modulus.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from gmpy2 import invert, mpz

from treetap.additive.residues.batches import Batch, Digits, Places, Powers, Residues
from treetap.native.library import Form, in_bounds
from treetap.native.numbers import WORDS, Modulus

#: Values that are multiplied into cells at a time: their partial products stay below some 20 MB at 2,048-bit keys.
CHUNK = 1 << 16


class NativeResidues:
    """Arithmetic by one form of the native kernels; methods are those of `treetap.additive.residues.batches.Residues`.

    Raises:
        Unavailable: this processor cannot run the form.
    """

    table_bytes = 32 * 2**20  # a worker with the key has two

    def __init__(self, modulus: int, bits: int, form: Form) -> None:
        self.modulus = mpz(modulus)
        self._words = WORDS[form]
        self._kernel = Modulus(int(modulus), self._words.limbs_for(bits), form)
        self._entry = self._constant(pow(self._kernel.r, 2, int(modulus)))  # a product with it enters Montgomery's form
        self._one = self._constant(self._kernel.r % int(modulus))

    def _constant(self, number: int) -> Batch:
        return self._kernel.constant(int(number))

    def read(self, data: bytes, width: int) -> tuple[Batch, int]:
        raw, good = self._kernel.read(data, width)
        return self._kernel.products(raw[:good], self._entry), good

    def write(self, batch: Batch, width: int) -> bytes:
        return self._words.write(self._kernel.leave(np.ascontiguousarray(batch)), width)

    def batch(self, numbers: Iterable[int]) -> Batch:
        width = -(-int(self.modulus).bit_length() // 8)
        data = b"".join([int(number % self.modulus).to_bytes(width, "big") for number in numbers])
        raw, _ = self._words.read(data, width, self._kernel.limbs)
        return self._kernel.products(raw, self._entry)

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

    def cell_products(self, values: Batch, places: Places, cells: Places, count: int) -> Batch:
        """Products of the values of each cell.

        Values are sorted by cell, and neighbours of one cell multiplied in pairs until each cell has one: as many
        products as one after the other, all independent within a round.
        """
        order = np.argsort(cells, kind="stable")
        cells, places = cells[order], np.asarray(places, dtype=np.int64)[order]
        parts = [
            self._pairwise(values, places[at : at + CHUNK], cells[at : at + CHUNK])
            for at in range(0, len(cells), CHUNK)
        ]
        if len(parts) > 1:  # a cell may go on in the next part
            joined = np.concatenate([part for part, _ in parts])
            parts = [self._pairwise(joined, np.arange(len(joined)), np.concatenate([numbers for _, numbers in parts]))]
        products = self.ones(count)
        for part, numbers in parts:
            products[numbers] = part
        return products

    def _pairwise(self, values: Batch, places: Places, cells: Places) -> tuple[Batch, Places]:
        """Products of neighbours of one cell, until each cell has one; cells are sorted."""
        while True:
            begins = np.ones(len(cells), dtype=np.bool_)
            begins[1:] = cells[1:] != cells[:-1]
            if begins.all():
                return values[places], cells
            run = np.flatnonzero(begins)
            within = np.arange(len(cells)) - np.repeat(run, np.diff(np.append(run, len(cells))))
            kept = np.flatnonzero(within % 2 == 0)
            paired = np.zeros(len(kept), dtype=np.bool_)
            inside = kept + 1 < len(cells)
            paired[inside] = ~begins[kept[inside] + 1]
            left = kept[paired]
            joined = np.empty((len(kept), self._kernel.limbs), dtype=np.uint64)
            self._kernel.products(
                values, values, places[left], places[left + 1], out=joined, out_at=np.flatnonzero(paired)
            )
            joined[~paired] = values[places[kept[~paired]]]
            values, places, cells = joined, np.arange(len(kept)), cells[kept]

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
        in_bounds(other._kernel.limbs <= self._kernel.limbs, "the other modulus is kept in no more words")
        inverse, modulus = int(invert(self.modulus, other.modulus)), int(other.modulus)
        left = self._kernel.leave(low)
        wide = -(-int(self.modulus).bit_length() // 8)
        minus = other.multiples(self._words.write(left, wide), wide, -inverse)
        plus = other.multiply(high, other.batch([inverse]))
        short = other._kernel.leave(other._kernel.sums(minus, plus))
        factors = np.zeros_like(left)
        factors[:, : other._kernel.limbs] = short
        most = self._words.limbs_for(int(self.modulus).bit_length() + modulus.bit_length())
        return self._words.write(self._kernel.join(left, factors, min(most, 2 * self._kernel.limbs)), width)

"""Calls of the kernels for numbers (`numbers.c`, `words.c`), with arrays whose shapes are checked before their
addresses are used.

A number is a row of `limbs` words, a batch an array (n, limbs) of uint64; how many bits a word has depends on the form
of the kernels (`WORDS`). One call stays below 0.2 s: batches are cut into units here, and each ends with a sign of
life.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from treetap.native import library
from treetap.native.library import Form, argument, in_bounds
from treetap.usage import finish_unit

#: Spare bits of a number's words above its modulus: the kernels need R ≥ 16·N, see the bounds in multiply.h.
SPARE_BITS = 4
#: Words times words times numbers of one call, roughly: some 10 ms, or 0.1 s in the slowest form.
UNIT_WORDS = 1 << 26

Batch = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Words:
    """Numbers of a form of the kernels, as `multiply_ifma.h` or `multiply_fma.h` have them.

    Attributes:
        bits: of a word.
        rows: words that are multiplied at a time; a number has a multiple of as many.
        fewest: words of the smallest number.
        most: words of the largest.
        lanes: numbers that are computed side by side.
    """

    bits: int
    rows: int
    fewest: int
    most: int
    lanes: int

    def limbs_for(self, bits: int) -> int:
        """Words of a number modulo one of `bits` bits.

        Raises:
            ValueError: the modulus is larger than the kernels can compute with.
        """
        limbs = max(self.fewest, -(-(bits + SPARE_BITS) // (self.bits * self.rows)) * self.rows)
        if limbs > self.most:
            most = self.most * self.bits - SPARE_BITS
            raise ValueError(f"the native kernels take moduli of up to {most} bits, not {bits}")
        return limbs

    def split(self, number: int, limbs: int) -> Batch:
        """The words of a number, shape (limbs,)."""
        mask = (1 << self.bits) - 1
        return np.array([number >> (self.bits * place) & mask for place in range(limbs)], dtype=np.uint64)

    def read(self, data: bytes, width: int, limbs: int, bound: Batch | None = None) -> tuple[Batch, int]:
        """Numbers from blocks of `width` big-endian bytes, and the number of leading ones in 1..bound-1 (with no bound,
        of those that fit into the words).

        Raises:
            ValueError: more words than a number of the kernels has.
        """
        self._check(limbs)
        count, rest = divmod(len(data), width)
        in_bounds(not rest, "the caller has counted the blocks")
        in_bounds(bound is None or bound.shape == (limbs,), "a bound of other words than the numbers")
        numbers = np.empty((count, limbs), dtype=np.uint64)
        good = _call("treetap_read", self.bits, limbs, data, width, count, bound, numbers)
        return numbers, good

    def write(self, numbers: Batch, width: int) -> bytes:
        """Blocks of `width` big-endian bytes from numbers that fit into them."""
        in_bounds(numbers.dtype == np.uint64 and numbers.ndim == 2, "numbers are rows of 64-bit words")
        count, limbs = numbers.shape
        self._check(limbs)
        data = np.empty(count * width, dtype=np.uint8)
        _call("treetap_write", self.bits, limbs, numbers, count, width, data)
        return data.tobytes()

    def _check(self, limbs: int) -> None:
        """`ValueError` if a number has more words than the kernels' buffers."""
        if limbs > self.most:
            raise ValueError(f"the native kernels take numbers of up to {self.most} words, not {limbs}")


_FOURS, _SEVENS = (52, 4, 8, 256), (49, 7, 14, 273)
WORDS: dict[Form, Words] = {
    "ifma": Words(*_FOURS, lanes=8),
    "avx512": Words(*_SEVENS, lanes=8),
    "avx2": Words(*_SEVENS, lanes=4),
    "plain": Words(*_SEVENS, lanes=4),
}


class Modulus:
    """Montgomery arithmetic modulo one odd number N in one form of the kernels; R = 2^(bits of a word · limbs) ≥ 16·N.

    Every result of a product is below 3N, every sum below 4N, and every operand may be below 4N.

    Attributes:
        words: how the form keeps numbers.
        limbs: words of a number.
        n: the words of N, shape (limbs,).
        r: R.
    """

    def __init__(self, modulus: int, limbs: int, form: Form) -> None:
        self.words = WORDS[form]
        bits, rows = self.words.bits, self.words.rows
        in_bounds(
            limbs % rows == 0 and self.words.fewest <= limbs <= self.words.most,
            f"the kernels take numbers of {self.words.fewest} to {self.words.most} words, by {rows}",
        )
        in_bounds(
            modulus % 2 == 1 and modulus.bit_length() + SPARE_BITS <= bits * limbs,
            "the modulus is not odd, or does not fit its words",
        )
        self._form = library.checked(form)
        self.limbs = limbs
        self.r = 1 << (bits * limbs)
        self.n = self.constant(modulus)
        # What the kernels need of N, made once: see `modulus` in multiply.h.
        block = 1 << (self.words.bits * self.words.rows)
        inverse = -pow(modulus, -1, block) % block
        multiple = (inverse * modulus + 1) // block
        given = (self.limbs, self.n, self.constant(multiple), self.words.split(inverse, self.words.rows))
        made = np.zeros(self._kernel("modulus", None, *given, checked=False) // 8, dtype=np.uint64)
        self._kernel("modulus", made, *given)
        self._block = made
        self._one = self.constant(self.r % modulus)
        lanes = self.words.lanes
        self._unit = max(lanes, UNIT_WORDS // (limbs * limbs) // lanes * lanes)

    def constant(self, number: int) -> Batch:
        """The words of a number below R, shape (limbs,)."""
        return self.words.split(number, self.limbs)

    def read(self, data: bytes, width: int) -> tuple[Batch, int]:
        """Numbers from blocks of `width` big-endian bytes, and the number of leading ones in 1..N-1."""
        return self.words.read(data, width, self.limbs, self.n)

    def products(
        self,
        left: Batch,
        right: Batch,
        left_at: Places | None = None,
        right_at: Places | None = None,
        out: Batch | None = None,
        out_at: Places | None = None,
    ) -> Batch:
        """left·right/R mod N, below 3N, of rows at places; without places of all rows, and of one row with every other.

        Args:
            left: numbers (n, limbs).
            right: numbers (n, limbs), or one number (limbs,).
            left_at: rows of `left`, shape (count,).
            right_at: rows of `right`.
            out: where the results go; a new array by default.
            out_at: rows of `out`. Within eight consecutive results they are different, and none is among the operands'
                rows of another one.
        """
        count = len(left) if left_at is None else len(left_at)
        if out is None:
            out = np.empty((count, self.limbs), dtype=np.uint64)
        self._check(left, left_at, count)
        self._check(out, out_at, count)
        one = self._is_one(right, right_at, count)
        for first, last in self._units(count):
            self._kernel(
                "products", self._block, *_part(out, out_at, first, last), *_part(left, left_at, first, last),
                *((right, None) if one else _part(right, right_at, first, last)), int(not one), last - first,
            )  # fmt: skip
        return out

    def put(self, out: Batch, out_at: Places, numbers: Batch, at: Places) -> None:
        """Copy rows of `numbers` to rows of `out`."""
        self._check(out, out_at, len(at))
        self._check(numbers, at, len(at))
        _call("treetap_put", self.limbs, out, np.ascontiguousarray(out_at), numbers, np.ascontiguousarray(at), len(at))

    def sums(self, left: Batch, right: Batch) -> Batch:
        """left + right modulo 4N, of rows (n, limbs) below 4N, or with one row (limbs,)."""
        self._check(left, None, len(left))
        one = self._is_one(right, None, len(left))
        out = np.empty_like(left)
        _call("treetap_sums", self.words.bits, self.limbs, self.n, out, left, right, int(not one), len(left))
        return out

    def reduce(self, numbers: Batch) -> None:
        """Reduce results of products below N, in place."""
        self._check(numbers, None, len(numbers))
        _call("treetap_reduce", self.words.bits, self.limbs, self.n, 2, numbers, len(numbers))

    def leave(self, numbers: Batch) -> Batch:
        """numbers/R mod N, below N: the residues that Montgomery forms stand for."""
        self._check(numbers, None, len(numbers))
        out = np.empty_like(numbers)
        for first, last in self._units(len(numbers)):
            self._kernel("leave", self._block, out[first:last], numbers[first:last], last - first)
        return out

    def fixed_base(self, table: Batch, digits: npt.NDArray[np.uint16]) -> Batch:
        """Products over rows of table[row][digit]; table (rows, entries, limbs), digits (n, rows), below `entries`."""
        rows, entries, limbs = table.shape
        in_bounds(
            table.dtype == np.uint64 and limbs == self.limbs and table.flags.c_contiguous,
            "a table is one block of 64-bit words of this modulus",
        )
        in_bounds(digits.dtype == np.uint16 and digits.shape[1:] == (rows,), "not one digit of 16 bits for each row")
        in_bounds(not digits.size or int(digits.max()) < entries, "a digit above the table's last entry")
        digits = np.ascontiguousarray(digits)
        out = np.empty((len(digits), self.limbs), dtype=np.uint64)
        lanes = self.words.lanes
        step = max(lanes, self._unit // rows // lanes * lanes)
        for first in range(0, len(digits), step):
            part = digits[first : first + step]
            self._kernel("fixed_base", self._block, out[first:], table, rows, entries, part, len(part))
            finish_unit()
        return out

    def chain(
        self,
        base: Batch | None,
        powers: int,
        values: Batch,
        places: Places,
        squarings: npt.NDArray[np.int32],
        operands: npt.NDArray[np.int32],
        last: int,
    ) -> Batch:
        """Simultaneous powers of many numbers by one program; see `treetap_chain`.

        Args:
            base: numbers (n, limbs) whose first `powers` odd powers are operands; may be None.
            powers: odd powers of the base.
            values: numbers (m, limbs), further operands.
            places: (n, width) the rows of `values` of each result.
            squarings: (steps,) squarings before each step's product.
            operands: (steps,) -1-w for the (2w+1)-th power of the base, else a column of `places`.
            last: squarings after the last step.
        """
        count, width = places.shape
        if base is not None:
            self._check(base, None, count)
        places = np.ascontiguousarray(places)
        self._check(values, places.reshape(-1), places.size)
        in_bounds(
            squarings.dtype == operands.dtype == np.int32 and squarings.shape == operands.shape,
            "a program is two rows of 32-bit numbers, an operand for each step",
        )
        in_bounds(
            -powers <= int(operands.min()) and int(operands.max()) < width and (base is not None or not powers),
            "an operand that is neither a power of the base nor has places",
        )
        out = np.empty((count, self.limbs), dtype=np.uint64)
        lanes = self.words.lanes
        for first in range(0, count, lanes):  # some 20 ms at 4,096 bits
            end = min(first + lanes, count)
            self._kernel(
                "chain", self._block, self._one, out[first:], None if base is None else base[first:end], powers,
                values, places[first:end], width, squarings, operands, len(squarings), last, end - first,
            )  # fmt: skip
            finish_unit()
        return out

    def join(self, low: Batch, factors: Batch, wide: int) -> Batch:
        """low + factors·N in plain integers of `wide` words; all given numbers are below R."""
        self._check(low, None, len(low))
        self._check(factors, None, len(low))
        in_bounds(self.words.fewest <= wide <= 2 * self.limbs, "more words than a product has")
        out = np.empty((len(low), wide), dtype=np.uint64)
        self._kernel("join", self._block, wide, out, low, factors, len(low))
        return out

    def _is_one(self, right: Batch, places: Places | None, count: int) -> bool:
        """True for one number (limbs,), which goes with every other; what does not fit is refused."""
        if right.ndim == 1:
            self._check(right[np.newaxis], None, 1)
            return True
        self._check(right, places, count)
        return False

    def _check(self, batch: Batch, places: Places | None, count: int) -> None:
        """Refuse what the kernels would read or write outside of an array."""
        in_bounds(
            batch.dtype == np.uint64 and batch.shape[1:] == (self.limbs,) and batch.flags.c_contiguous,
            "a batch is one block, a row of 64-bit words for each number: these are of another modulus, or lie apart",
        )
        if places is None:
            in_bounds(len(batch) == count, "batches of different lengths")
            return
        in_bounds(places.dtype == np.int64 and places.shape == (count,), "not one place of 64 bits for each number")
        in_bounds(
            not count or (int(places.min()) >= 0 and int(places.max()) < len(batch)), "a place outside of a batch"
        )

    def _units(self, count: int) -> Iterator[tuple[int, int]]:
        for first in range(0, count, self._unit):
            yield first, min(first + self._unit, count)
            finish_unit()

    def _kernel(self, name: str, *args: Any, checked: bool = True) -> int:
        """Call a function of this form; what it answers is, unless not `checked`, why it could not compute."""
        status = _call(f"treetap_{name}_{self._form}", *args)
        if checked and status:
            fault, text = _FAULTS[status]
            raise fault(text)
        return status


#: Answers of the kernels: WRONG_ROUNDING and NO_MEMORY of numbers.c.
_FAULTS: dict[int, tuple[type[Exception], str]] = {
    1: (
        FloatingPointError,
        "this thread's rounding mode is not to the nearest: the native kernels would compute wrongly",
    ),
    2: (MemoryError, "no memory for a table of powers"),
}


def _part(batch: Batch, places: Places | None, first: int, last: int) -> tuple[Batch, Places | None]:
    if places is None:
        return batch[first:last], None
    return batch, np.ascontiguousarray(places[first:last])


def _call(name: str, *args: Any) -> int:
    """Call a kernel: arrays and bytes go as addresses, None as a null pointer, numbers as size_t."""
    status: int = getattr(library.compiled(), name)(*map(argument, args))
    return status

"""Calls of the kernels for numbers (`numbers.c`), with arrays whose shapes are checked before their addresses are used.

A number is a row of `limbs` words of 52 bits, a batch an array (n, limbs) of uint64. One call stays below 0.2 s:
batches are cut into units here, and each ends with a sign of life.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from treetap.native import library
from treetap.native.library import in_bounds
from treetap.process.signs_of_life import finish_unit

WORD_BITS = 52
#: Words of the largest number that the kernels take.
LARGEST = 256
#: Spare bits of a number's words above its modulus: the kernels need R ≥ 64·N.
SPARE_BITS = 6
LANES = 8
#: Words times words times numbers of one call, roughly: some 10 ms.
UNIT_WORDS = 1 << 26

Batch = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int64]


def limbs_for(bits: int) -> int:
    """Words of a number modulo one of `bits` bits, a multiple of 8.

    Raises:
        ValueError: the modulus is larger than the kernels can compute with.
    """
    limbs = -(-(bits + SPARE_BITS) // (WORD_BITS * LANES)) * LANES
    if limbs > LARGEST:
        raise ValueError(f"the native kernels take moduli of up to {LARGEST * WORD_BITS - SPARE_BITS} bits, not {bits}")
    return limbs


def read(data: bytes, width: int, limbs: int, bound: Batch | None = None) -> tuple[Batch, int]:
    """Numbers from blocks of `width` big-endian bytes, and the number of leading ones in 1..bound-1 (with no bound, of
    those that fit into the words).

    Raises:
        ValueError: more words than a number of the kernels has.
    """
    _check_words(limbs)
    count, rest = divmod(len(data), width)
    in_bounds(not rest, "the caller has counted the blocks")
    in_bounds(bound is None or bound.shape == (limbs,), "a bound of other words than the numbers")
    numbers = np.empty((count, limbs), dtype=np.uint64)
    good = _call("treetap_read", WORD_BITS, limbs, data, width, count, bound, numbers)
    return numbers, int(good)


def write(numbers: Batch, width: int) -> bytes:
    """Blocks of `width` big-endian bytes from numbers that fit into them."""
    in_bounds(numbers.dtype == np.uint64 and numbers.ndim == 2, "numbers are rows of 64-bit words")
    count, limbs = numbers.shape
    _check_words(limbs)
    data = np.empty(count * width, dtype=np.uint8)
    _call("treetap_write", WORD_BITS, limbs, numbers, count, width, data)
    return data.tobytes()


class Modulus:
    """Montgomery arithmetic modulo one odd number of up to 52·limbs - 6 bits; R = 2^(52·limbs).

    Every result of a product is below 2N, and every operand may be below 8N.

    Attributes:
        limbs: words of a number.
        words: N, shape (limbs,).
        r: R.
    """

    def __init__(self, modulus: int, limbs: int) -> None:
        in_bounds(modulus % 2 == 1, "Montgomery's form needs an odd modulus")
        in_bounds(limbs % LANES == 0, "the kernels take words by eight")
        in_bounds(modulus.bit_length() + SPARE_BITS <= WORD_BITS * limbs, "the modulus does not fit its words")
        library.load()
        self.limbs = limbs
        self.r = 1 << (WORD_BITS * limbs)
        self._modulus = modulus
        self.words = self.constant(modulus)
        self._inverse = -pow(modulus, -1, 1 << WORD_BITS) % (1 << WORD_BITS)
        self._one = self.constant(self.r % modulus)
        self._unit = max(LANES, UNIT_WORDS // (limbs * limbs) // LANES * LANES)

    def constant(self, number: int) -> Batch:
        """The words of a number below R, shape (limbs,)."""
        mask = (1 << WORD_BITS) - 1
        return np.array([number >> (WORD_BITS * place) & mask for place in range(self.limbs)], dtype=np.uint64)

    def products(
        self,
        left: Batch,
        right: Batch,
        left_at: Places | None = None,
        right_at: Places | None = None,
        out: Batch | None = None,
        out_at: Places | None = None,
    ) -> Batch:
        """left·right/R mod N, below 2N, of rows at places; without places of all rows, and of one row with every other.

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
        if right.ndim == 1:
            right, right_at = right[np.newaxis], np.zeros(count, dtype=np.int64)
        if out is None:
            out = np.empty((count, self.limbs), dtype=np.uint64)
        for batch, places in ((left, left_at), (right, right_at), (out, out_at)):
            self._check(batch, places, count)
        for first, last in self._units(count):
            _call(
                "treetap_products", self.limbs, self.words, _word(self._inverse),
                *_part(out, out_at, first, last), *_part(left, left_at, first, last),
                *_part(right, right_at, first, last), last - first,
            )  # fmt: skip
        return out

    def put(self, out: Batch, out_at: Places, numbers: Batch, at: Places) -> None:
        """Copy rows of `numbers` to rows of `out`."""
        self._check(out, out_at, len(at))
        self._check(numbers, at, len(at))
        _call("treetap_put", self.limbs, out, np.ascontiguousarray(out_at), numbers, np.ascontiguousarray(at), len(at))

    def sums(self, left: Batch, right: Batch) -> Batch:
        """left + right modulo 2N, of rows (n, limbs) below 2N, or with one row (limbs,)."""
        places = None
        if right.ndim == 1:
            right, places = right[np.newaxis], np.zeros(len(left), dtype=np.int64)
        self._check(left, None, len(left))
        self._check(right, places, len(left))
        out = np.empty_like(left)
        _call("treetap_sums", self.limbs, self.words, out, left, right, places, len(left))
        return out

    def reduce(self, numbers: Batch) -> None:
        """Reduce results of products below N, in place."""
        self._check(numbers, None, len(numbers))
        _call("treetap_reduce", WORD_BITS, self.limbs, self.words, 1, numbers, len(numbers))

    def leave(self, numbers: Batch) -> Batch:
        """numbers/R mod N, below N: the residues that Montgomery forms stand for."""
        self._check(numbers, None, len(numbers))
        out = np.empty_like(numbers)
        for first, last in self._units(len(numbers)):
            _call(
                "treetap_leave", self.limbs, self.words, _word(self._inverse), out[first:last], numbers[first:last],
                last - first,
            )  # fmt: skip
        return out

    def fixed_base(self, table: Batch, digits: npt.NDArray[np.uint16]) -> Batch:
        """Products over rows of table[row][digit]; table (rows, entries, limbs), digits (n, rows), below `entries`."""
        rows, entries, limbs = table.shape
        in_bounds(table.dtype == np.uint64, "a table holds 64-bit words")
        in_bounds(digits.dtype == np.uint16 and digits.ndim == 2, "digits are rows of 16-bit numbers")
        in_bounds(limbs == self.limbs, "a table of another modulus")
        in_bounds(digits.shape[1] == rows, "not one digit for each row")
        in_bounds(table.flags.c_contiguous, "a table is one block")
        in_bounds(not digits.size or int(digits.max()) < entries, "a digit above the table's last entry")
        digits = np.ascontiguousarray(digits)
        out = np.empty((len(digits), self.limbs), dtype=np.uint64)
        step = max(LANES, self._unit // rows // LANES * LANES)
        for first in range(0, len(digits), step):
            part = digits[first : first + step]
            _call(
                "treetap_fixed_base", self.limbs, self.words, _word(self._inverse), out[first:], table, rows, entries,
                part, len(part),
            )  # fmt: skip
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
        in_bounds(squarings.dtype == operands.dtype == np.int32, "a program is of 32-bit numbers")
        in_bounds(squarings.shape == operands.shape, "not one operand for each step")
        in_bounds(-powers <= int(operands.min()), "an odd power that is not made")
        in_bounds(int(operands.max()) < width, "an operand without places")
        in_bounds(base is not None or not powers, "powers of no base")
        out = np.empty((count, self.limbs), dtype=np.uint64)
        for first in range(0, count, LANES):  # some 20 ms at 4,096 bits
            end = min(first + LANES, count)
            failed = _call(
                "treetap_chain", self.limbs, self.words, _word(self._inverse), self._one, out[first:],
                None if base is None else base[first:end], powers, values, places[first:end], width,
                squarings, operands, len(squarings), last, end - first,
            )  # fmt: skip
            if failed:
                raise MemoryError("no memory for a table of powers")
            finish_unit()
        return out

    def join(self, low: Batch, factors: Batch, wide: int) -> Batch:
        """low + factors·N in plain integers of `wide` words; all given numbers are below 2^(52·limbs)."""
        self._check(low, None, len(low))
        self._check(factors, None, len(low))
        in_bounds(wide <= 2 * self.limbs, "more words than a product has")
        out = np.empty((len(low), wide), dtype=np.uint64)
        _call("treetap_join", self.limbs, wide, out, low, factors, self.words, len(low))
        return out

    def _check(self, batch: Batch, places: Places | None, count: int) -> None:
        """Refuse what the kernels would read or write outside of an array."""
        in_bounds(batch.dtype == np.uint64, "numbers are arrays of 64-bit words")
        in_bounds(batch.ndim == 2, "a batch has a row for each number")
        in_bounds(batch.shape[1] == self.limbs, "numbers of another modulus")
        in_bounds(batch.flags.c_contiguous, "a batch is one block")
        if places is None:
            in_bounds(len(batch) == count, "batches of different lengths")
            return
        in_bounds(places.dtype == np.int64, "places are 64-bit numbers")
        in_bounds(places.shape == (count,), "not one place for each number")
        in_bounds(
            not count or (int(places.min()) >= 0 and int(places.max()) < len(batch)), "a place outside of a batch"
        )

    def _units(self, count: int) -> Iterator[tuple[int, int]]:
        for first in range(0, count, self._unit):
            yield first, min(first + self._unit, count)
            finish_unit()


def _part(batch: Batch, places: Places | None, first: int, last: int) -> tuple[Batch, Places | None]:
    if places is None:
        return batch[first:last], None
    return batch, np.ascontiguousarray(places[first:last])


class _word(int):
    """A number that is passed as 64 bits without a sign."""


def _check_words(limbs: int) -> None:
    """`ValueError` if a number has more words than the kernels' buffers."""
    if limbs > LARGEST:
        raise ValueError(f"the native kernels take numbers of up to {LARGEST} words, not {limbs}")


def _call(name: str, *args: Any) -> int:
    """Call a kernel: arrays and bytes go as addresses, None as a null pointer, numbers as size_t or uint64."""
    status: int = getattr(library.load(), name)(*[_argument(argument) for argument in args])
    return status


def _argument(value: Any) -> Any:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, np.ndarray):
        in_bounds(value.flags.c_contiguous, "a kernel takes whole blocks")
        return ctypes.c_void_p(value.ctypes.data)
    return ctypes.c_uint64(value) if isinstance(value, _word) else ctypes.c_size_t(value)

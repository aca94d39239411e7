"""Calls of the kernels for encrypted histograms (`histogram_words.c`, `histogram_sums.c`); shapes of arrays are checked
before their addresses are used, and calls are cut into units below 0.2 s, each with a sign of life.

`histograms.h` says what words, first and second halves are. Blocks have 4,096 records; a polynomial of the public ones
takes 128 KiB transformed, 32 bytes a record, and is made again as fast as one group of cells uses it: `cells` takes up
to 64 blocks at once, so that a feature party of any size holds 8 MiB of them. Seeds are 32 bytes; a call that is
repeated with the same seed gives the same bytes.
"""

from __future__ import annotations

import ctypes
import math
import secrets as system
from functools import cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from treetap.errors import Interrupted
from treetap.native import library
from treetap.native.histogram_arrays import (
    DEGREE,
    FLOOD_BITS,
    HALF,
    HALF_BITS,
    LARGEST_WEIGHT,
    LIMBS,
    MOST_BLOCKS,
    MOST_VALUE_WORDS,
    MOST_WORDS,
    SEED_BYTES,
    WORD_BYTES,
    Binned,
    Bytes,
    Moduli,
    Numbers,
    Reals,
    Secrets,
    Small,
    circle,
    exact,
)
from treetap.native.library import Form, Unavailable, argument, in_bounds
from treetap.usage import finish_unit

#: A limb as far as this from a whole number is none that the bound allows.
FARTHEST = 0.25

#: The forms that these kernels are compiled in.
Own = Literal["avx512", "avx2", "plain"]
_OWN: dict[Form, Own] = {"ifma": "avx512", "avx512": "avx512", "avx2": "avx2", "plain": "plain"}


class Inexact(Interrupted, FloatingPointError):
    """This machine's floating-point numbers are not those that the kernels need; no message depends on data."""


class Histograms:
    """The kernels in one form, after a comparison with integers when it is first used in a process.

    Args:
        form: the processor's fastest by default; `ifma` and `avx512` are the same here.

    Raises:
        Unavailable: nothing was compiled, the processor lacks the form, or its products are not those of integers.
    """

    def __init__(self, form: Form | None = None) -> None:
        chosen = library.forms()[0] if form is None else library.checked(form)
        self._bind(_OWN[chosen])
        _compare(_OWN[chosen])

    def _bind(self, form: Own) -> None:
        self.form, self._library = form, library.compiled()
        self._roots = np.zeros(self._call("roots", circle(), None, checked=False) // 8, dtype=np.float64)
        self._call("roots", circle(), self._roots, checked=False)

    # ---- both roles ----

    def limbs(self, seed: bytes, first: int, blocks: int) -> npt.NDArray[np.int32]:
        """Limbs of the public polynomials of blocks from number `first` on, (blocks, DEGREE, LIMBS), -2^25 to 2^25 - 1;
        a coefficient is Σ limb_l·2^(26l) modulo 2^104.
        """
        out = np.empty((blocks, DEGREE, LIMBS), dtype=np.int32)
        self._call("limbs", _seed(seed), _number(first), blocks, out)
        return out

    def transformed(self, limbs: npt.NDArray[np.int32]) -> Reals:
        """Transforms (blocks, HALF, 2·LIMBS) of limbs (blocks, DEGREE, LIMBS): all real parts, then imaginary ones."""
        in_bounds(limbs.dtype == np.int32 and limbs.shape[1:] == (DEGREE, LIMBS), "limbs of other polynomials")
        out = np.empty((len(limbs), HALF, 2 * LIMBS), dtype=np.float64)
        self._call("public", self._roots, limbs, len(limbs), out)
        return out

    def public(self, seed: bytes, first: int, blocks: int) -> Reals:
        """Transforms of the public polynomials that a joint seed stands for, (blocks, HALF, 2·LIMBS)."""
        return self.transformed(self.limbs(seed, first, blocks))

    def unpack(self, data: bytes | Bytes, words: int) -> Numbers:
        """Words of records, (n, words, 2) uint64 of 52 bits each, from n·words·13 bytes."""
        read = np.frombuffer(data, dtype=np.uint8)
        in_bounds(1 <= words <= MOST_WORDS and len(read) % (words * WORD_BYTES) == 0, "not whole records")
        out = np.empty((len(read) // (words * WORD_BYTES), words, 2), dtype=np.uint64)
        self._call("unpack", read, len(out) * words, out)
        return out

    def write(self, halves: Numbers, bits: int) -> bytes:
        """Numbers, in any shape, at `bits` ≤ 52 bits each, lowest first; the last byte is filled up with zeros."""
        in_bounds(
            halves.dtype == np.uint64 and 1 <= bits <= HALF_BITS and not (halves.size and int(halves.max()) >> bits),
            "halves are numbers of up to 52 bits: one has more bits",
        )
        out = np.empty(-(-halves.size * bits // 8), dtype=np.uint8)
        self._call("write", halves, halves.size, bits, out)
        return out.tobytes()

    def read(self, data: bytes, shape: tuple[int, ...], bits: int) -> Numbers:
        """The numbers of `write`; `ValueError` for another length, or bits beyond the last number."""
        spare = 8 * len(data) - math.prod(shape) * bits
        in_bounds(1 <= bits <= HALF_BITS and 0 <= spare < 8, "halves of another length, or of more than 52 bits")
        in_bounds(not data or data[-1] >> (8 - spare) == 0, "bits beyond the last number")
        out = np.empty(shape, dtype=np.uint64)
        self._call("read", data, out.size, bits, out)
        return out

    # ---- the key holder ----

    def secrets(self, seed: bytes, words: int, most: int = LARGEST_WEIGHT) -> Secrets:
        """A query's secrets, ternary, drawn again where more than `most` coefficients are not 0."""
        in_bounds(
            1 <= words <= MOST_WORDS and most >= DEGREE * 5 // 8,
            "more words than the kernels take, or secrets too light to be drawn in reasonable time",
        )
        made = Secrets(np.empty((words, DEGREE), dtype=np.int8), np.empty((words, HALF, 2), dtype=np.float64))
        self._call("secrets", self._roots, _seed(seed), words, _number(most), made.small, made.values)
        return made

    def encrypt(
        self, public: Reals, first: int, secrets: Secrets, seed: bytes, moduli: Moduli, values: Numbers | int
    ) -> tuple[Bytes, float]:
        """Words of the records of blocks from number `first` on, (n, words, 13) uint8, and the farthest limb.

        Args:
            public: the blocks' transforms; the last block may have fewer records.
            first: the first block's number, `ZERO_BLOCK` for the block of zeros.
            secrets: of the query.
            seed: of the query; every (block, word) of it has its own errors.
            moduli: one for each secret.
            values: plaintexts in two's complement, (value words, n) uint64, lowest first, rows contiguous; or a number
                of records whose values are 0.
        """
        rows, count = (0, values) if isinstance(values, int) else values.shape
        blocks = -(-count // DEGREE)
        self._check_public(public, blocks)
        words = len(moduli.less)
        in_bounds(secrets.values.shape == (words, HALF, 2), "not one secret for each modulus")
        stride = 0
        if not isinstance(values, int):
            in_bounds(values.dtype == np.uint64 and 1 <= rows <= MOST_VALUE_WORDS, "values are rows of 64-bit words")
            stride, rest = divmod(values.strides[0], 8)
            in_bounds(
                (values.strides[1] == 8 or count < 2) and not rest and (stride > 0 or rows < 2),
                "a row of values is one block, and rows go forward",
            )
        out = np.empty((count, words, WORD_BYTES), dtype=np.uint8)
        farthest = 0.0
        step = max(1, 64 // words)
        for block in range(0, blocks, step):
            start, end = block * DEGREE, min((block + step) * DEGREE, count)
            at = None if isinstance(values, int) else ctypes.c_void_p(values.ctypes.data + 8 * start)
            given = (
                public[block:],
                _number(first + block),
                secrets.values,
                words,
                _seed(seed),
                moduli.bits,
                moduli.array,
            )
            farthest = max(farthest, self._rounded("encrypt", *given, at, rows, stride, end - start, out[start:]))
        return out, farthest

    def open(
        self, second: Numbers, firsts: Numbers, secrets: Secrets, bits: int, moduli: Moduli
    ) -> tuple[Numbers, float]:
        """Residues of candidates' sums, (count, words) uint64, and the largest noise as a part of what would open.

        Args:
            second: second halves, (count, DEGREE), of `bits` bits.
            firsts: first halves, (count, words), of as many.
            secrets: of the query.
            bits: of both halves.
            moduli: those that it was encrypted with.
        """
        count, words = len(second), len(moduli.less)
        in_bounds(
            second.dtype == firsts.dtype == np.uint64
            and second.shape == (count, DEGREE)
            and firsts.shape == (count, words)
            and moduli.bits < bits <= HALF_BITS,
            "halves of other candidates, or with no room for a modulus, in 64-bit words",
        )
        in_bounds(secrets.small.shape == (words, DEGREE), "not one secret for each modulus")
        out, worst = np.empty((count, words), dtype=np.uint64), 0.0
        step = max(1, 4096 // words)
        for at in range(0, count, step):
            some, noise = min(step, count - at), ctypes.c_double()
            given = (second[at:], firsts[at:], some, secrets.small, words, bits, moduli.bits, moduli.array, out[at:])
            self._call("open", *given, ctypes.byref(noise))
            worst = max(worst, noise.value)
            finish_unit()
        return out, worst

    # ---- the feature party ----

    def sum_words(self, words: Numbers, binned: Binned, first: int, sums: Numbers) -> None:
        """Add words of records to their cells' sums, in place; both halves of a sum come out below 2^52.

        Args:
            words: (n, words, 2) of records `first` to first + n - 1.
            binned: cells of all records.
            first: the first record.
            sums: (cells, words, 2).
        """
        count, r = words.shape[:2]
        in_bounds(words.dtype == sums.dtype == np.uint64 and words.shape[2:] == (2,), "words are pairs of 52 bits")
        in_bounds(sums.shape == (binned.cells, r, 2) and r <= MOST_WORDS, "sums of other cells")
        in_bounds(first >= 0 and first + count <= binned.codes.shape[1], "more records than codes")
        codes = binned.codes[:, first:]
        step = max(DEGREE, (1 << 24) // max(1, len(codes) * r) // DEGREE * DEGREE)
        for at in range(0, count, step):
            some = min(step, count - at)
            rest = (some, len(codes), _column(codes[:, at:]), binned.codes.shape[1])
            self._call("sum", words[at:], r, *rest, binned.starts, binned.cells, sums)
            finish_unit()

    def cells(
        self, public: Reals, binned: Binned, first: int, cells: range, out: Numbers, inside: Bytes | None = None
    ) -> float:
        """Add the sums of a·I over up to 64 blocks to those of some cells, in place, and give the farthest limb.

        Args:
            public: transforms of blocks `first`.., (blocks ≤ 64, HALF, 2·LIMBS).
            binned: cells of all records.
            first: the first block's number.
            cells: consecutive cells.
            out: (cells, 2, DEGREE) uint64, the low and the high 52 bits of each coefficient; they come out below 2^52.
            inside: 0 for records that do not count, (n,) uint8 of all records.
        """
        records = binned.codes.shape[1]
        start, blocks = first * DEGREE, len(public)
        self._check_public(public, blocks)
        in_bounds(blocks <= MOST_BLOCKS and 0 <= start <= records, "the kernels add up to 64 blocks")
        count = min(records - start, blocks * DEGREE)
        in_bounds(
            cells.step == 1
            and 0 <= cells.start <= cells.stop <= binned.cells
            and out.dtype == np.uint64
            and out.shape == (len(cells), 2, DEGREE),
            "cells beyond the last one, or sums of others",
        )
        if inside is not None:
            in_bounds(inside.dtype == np.uint8 and inside.shape == (records,), "not a byte for each record")
            inside = inside[start:]
        codes, farthest = _column(binned.codes[:, start:]), 0.0
        step = max(8, 8192 // max(1, blocks) // 8 * 8)
        for at in range(0, len(cells), step):
            some = min(step, len(cells) - at)
            given = (public, blocks, count, len(binned.bins), codes, records, inside, binned.starts)
            farthest = max(farthest, self._rounded("cells", *given, cells.start + at, some, out[at:]))
        return farthest

    def hide(
        self, sums: Numbers, zero: Reals, bits: int, seed: bytes, first: int, most: int = LARGEST_WEIGHT
    ) -> tuple[Small, Numbers, float]:
        """Fresh u_k (count, DEGREE) int8 of candidates, their second halves (count, DEGREE) of `bits` bits, and the
        farthest limb.

        Args:
            sums: of a·I, (count, 2, DEGREE), of up to 2,048 cells each, added without carries.
            zero: transform of the public polynomial of the block of zeros, (1, HALF, 2·LIMBS).
            bits: of second halves, at most 52.
            seed: fresh for these candidates.
            first: the first candidate's number under this seed.
            most: coefficients of u_k that are not 0.
        """
        count = len(sums)
        in_bounds(sums.dtype == np.uint64 and sums.shape == (count, 2, DEGREE), "sums of other polynomials")
        in_bounds(1 <= bits <= HALF_BITS and most >= DEGREE * 5 // 8, "second halves of more bits, or too light a u")
        self._check_public(zero, 1)
        u, out = np.empty((count, DEGREE), dtype=np.int8), np.empty((count, DEGREE), dtype=np.uint64)
        farthest = 0.0
        for at in range(0, count, 64):
            given = (sums[at:], min(64, count - at), zero, bits, _seed(seed), _number(first + at), _number(most))
            farthest = max(farthest, self._rounded("hide", *given, u[at:], out[at:]))
        return u, out, farthest

    def answer(self, sums: Numbers, zero: Numbers, u: Small, flood: int, bits: int, seed: bytes, first: int) -> Numbers:
        """First halves of candidates, (count, words) uint64 of `bits` bits.

        Args:
            sums: of words, (count, words, 2), of up to 2,048 cells each, added without carries.
            zero: the query's words of the block of zeros, (DEGREE, words, 2).
            u: of the candidates' second halves, (count, DEGREE).
            flood: bits of each of the three uniform numbers.
            bits: of first halves, at most 52.
            seed: fresh for this answer.
            first: the first candidate's number under this seed.
        """
        count, words = sums.shape[:2]
        in_bounds(
            sums.dtype == np.uint64 and sums.shape == (count, words, 2) and 1 <= words <= MOST_WORDS,
            "sums of other numbers, or of more words",
        )
        in_bounds(
            zero.dtype == np.uint64
            and zero.shape == (DEGREE, words, 2)
            and u.dtype == np.int8
            and u.shape == (count, DEGREE),
            "zeros of another query",
        )
        in_bounds(flood in FLOOD_BITS and 1 <= bits <= HALF_BITS, "a flood or first halves of more bits")
        out = np.empty((count, words), dtype=np.uint64)
        step = max(1, 4096 // words)
        for at in range(0, count, step):
            given = (
                sums[at:],
                min(step, count - at),
                zero,
                words,
                u[at:],
                flood,
                bits,
                _seed(seed),
                _number(first + at),
            )
            self._call("answer", *given, out[at:])
            finish_unit()
        return out

    def sum_masks(self, count: int, moduli: Moduli, seed: bytes) -> tuple[Numbers, Numbers]:
        """Masks r of candidates' sums, (count, words), uniform modulo each t_j, and words (count, words, 2) that add
        them, ⌊(q/t_j)·r_j⌉. `seed`: fresh for this answer.
        """
        words = len(moduli.less)
        masks, out = np.empty((count, words), dtype=np.uint64), np.empty((count, words, 2), dtype=np.uint64)
        self._call("sum_masks", _seed(seed), count, moduli.bits, moduli.array, words, masks, out)
        return masks, out

    def _check_public(self, public: Reals, blocks: int) -> None:
        in_bounds(
            public.dtype == np.float64 and public.shape == (blocks, HALF, 2 * LIMBS),
            "not one transform of a public polynomial for each block",
        )

    def _rounded(self, name: str, *given: Any) -> float:
        """Call a kernel that rounds to whole numbers; the farthest limb from one.

        Raises:
            Inexact: a limb is farther than the bound of fourier.h allows.
        """
        farthest = ctypes.c_double()
        self._call(name, self._roots, *given, ctypes.byref(farthest))
        if not farthest.value <= FARTHEST:
            raise Inexact(
                f"encrypted histograms, {name}: a limb is {farthest.value:.2g} from a whole number and may be "
                f"{FARTHEST}: this machine's transforms are not exact enough"
            )
        finish_unit()
        return farthest.value

    def _call(self, name: str, *arguments: Any, checked: bool = True) -> int:
        """Call a function of this form: arrays go as addresses, numbers as size_t."""
        status: int = getattr(self._library, f"treetap_histograms_{name}_{self.form}")(*map(argument, arguments))
        if checked and status:
            fault, text = _FAULTS[status]
            raise fault(text)
        return status


#: Answers of the kernels: WRONG_ROUNDING and NO_MEMORY of histograms.h.
_FAULTS: dict[int, tuple[type[Exception], str]] = {
    1: (
        Inexact,
        "this thread's rounding mode is not to the nearest: encrypted histograms would be computed wrongly",
    ),
    2: (MemoryError, "no memory for encrypted histograms"),
}


@cache
def _compare(form: Own) -> None:
    """Compare products of this form with those of integers, by Kronecker's substitution, once in a process.

    Raises:
        Unavailable: they differ.
    """
    kernels = Histograms.__new__(Histograms)
    kernels._bind(form)
    try:
        # True if products with an indicator and with a secret, fresh ones, are those of integers.
        seed = system.token_bytes(SEED_BYTES)
        limbs = kernels.limbs(seed, 0, 1)
        public, codes = kernels.transformed(limbs), np.asarray(limbs[:, :, 0] % 2, dtype=np.uint8)
        sums = np.zeros((2, 2, DEGREE), dtype=np.uint64)
        kernels.cells(public, Binned(codes, (2,)), 0, range(2), sums)
        secrets = kernels.secrets(seed, 1)
        words, _ = kernels.encrypt(public, 0, secrets, seed, Moduli(38, (0,)), DEGREE)
        zeros = kernels.unpack(words.reshape(-1), 1)[:, 0].T
        same = exact(limbs[0], codes[0, ::-1], sums[1], secrets.small[0], zeros)
    except FloatingPointError:
        same = False
    if not same:
        raise Unavailable(
            f"the kernels for encrypted histograms (form {form}) give other products than integers: {library.built()}; "
            "install treetap again with another compiler"
        )


def _column(codes: Bytes) -> ctypes.c_void_p:
    """The address of the first code of rows that go on behind what is given."""
    return ctypes.c_void_p(codes.ctypes.data)


def _seed(seed: bytes) -> bytes:
    in_bounds(len(seed) == SEED_BYTES, "a seed of another length")
    return seed


def _number(number: int) -> ctypes.c_uint32:
    in_bounds(0 <= number < 1 << 32, "numbers of blocks and candidates have 32 bits")
    return ctypes.c_uint32(number)

"""Numbers modulo 2^(64·w) for shared sums, many in a call of the kernels (`rings.c`).

A number is the last axis of an array of uint64: w words, 1 to 8, the lowest first. Operands broadcast as numpy's do and
need not lie in one block, their words apart: neither repeated numbers nor parts of wider rows are copied.
The kernels check no size: what a peer sent is brought to a shape before it comes here.
"""

from __future__ import annotations

import ctypes
import math
from functools import cache
from typing import Any

import numpy as np

from treetap.arrays import Array, Ints, Words
from treetap.native import library
from treetap.native.library import in_bounds

#: Words of a number, and digits of bits that make one.
MOST_WORDS, MOST_DIGITS = 8, 6


def add(a: Words, b: Words) -> Words:
    """a + b."""
    return _sum(a, b, 0)


def sub(a: Words, b: Words) -> Words:
    """a - b."""
    return _sum(a, b, 1)


def mul(a: Words, b: Words) -> Words:
    """a·b."""
    return mac(np.zeros(np.broadcast(a, b).shape, np.uint64), a, b)


def mac(out: Words, a: Words, b: Words, minus: bool = False) -> Words:
    """Add a·b to `out` in place, or subtract it, and give `out`.

    Raises:
        ValueError: `out` is not one block, or of another shape.
    """
    _call("mac", _block(out), *_rows(out, a, b), int(minus))
    return out


def bits_of(a: Words, bits: int, rows: int) -> Words:
    """The lowest bits of n numbers in any shape, side by side, after rows of zeros: (rows, ⌈n/64⌉).

    Number k has bit k mod 64 of word ⌊k/64⌋ of each row; bits beyond the last number are 0.
    """
    outer, inner, w = _sizes(a)
    in_bounds(a.dtype == np.uint64 and 1 <= bits <= min(64 * w, rows), "not as many bits as numbers have")
    out = np.zeros((rows, -(-outer * inner // 64)), np.uint64)
    _call("bits", out[rows - bits :], np.ascontiguousarray(a), outer * inner, w, bits)
    return out


def joined(table: Words, opened: Words, highest: Words, starts: int) -> Words:
    """Shares of g and p of k digits, (starts, ...): by shares of products of masks, openings of wires, and g_{k-1}.

    `treetap.shares.signs` has the rows of the table and of the wires; there are two starts, or g alone is made.
    """
    out = np.zeros((starts, *highest.shape), np.uint64)
    out[0] = highest
    k = (len(opened) + 3 - starts) // 2
    fits = 2 <= k <= MOST_DIGITS and starts in (1, 2) and table.shape == ((2 + starts << k - 1) - 2, *highest.shape)
    in_bounds(fits and opened.shape[1:] == highest.shape, "not a row for each product")
    _call("joined", out, _block(table), _block(opened), highest.size, starts, k)
    return out


def minors(out: Words, a: Words, b: Words, i: Ints, j: Ints) -> Words:
    """Add a_j·b_i - a_i·b_j to `out` in place, and give `out`.

    Args:
        out: (nodes, pairs, w).
        a, b: (nodes, n, w).
        i, j: places of a pair among n, (pairs,), the same in all nodes.
    """
    in_bounds(out.shape == (len(a), len(i), a.shape[-1]) and i.shape == j.shape, "not a number for each pair")
    in_bounds(
        i.dtype == j.dtype == np.int64 and bool((np.stack([i, j]).view(np.uint64) < a.shape[1]).all()),
        "a place beyond the last number",
    )
    _call("minors", _block(out), *_rows(a, a, b), len(i), *map(np.ascontiguousarray, (i, j)))
    return out


# ---- from residues


def crt(residues: Words, moduli: tuple[int, ...], w: int, minus: bool = False) -> Words:
    """Numbers (n, w) modulo P = Πt_j, or their negatives, from residues (n, len(moduli)), t_j ≤ 2^42, P < 2^(64·w).

    With masks r that a feature party keeps, a label holder opens the residues of m + r: the numbers of these, and the
    negatives of r, are shares of m modulo P.
    """
    pairs, parts, whole = _remainders(moduli, w)
    in_bounds(
        residues.dtype == np.uint64 and residues.shape[1:] == pairs.shape[:1] and bool((residues < pairs[:, 0]).all()),
        "not a residue of each modulus",
    )
    if minus:
        residues = np.where(residues, pairs[:, 0] - residues, 0)
    out = np.empty((len(residues), w), dtype=np.uint64)
    _call("crt", out, np.ascontiguousarray(residues), pairs, parts, whole, len(residues), len(moduli), w)
    return out


@cache
def _remainders(moduli: tuple[int, ...], w: int) -> tuple[Words, Words, Words]:
    """(t_j, inverse of P/t_j) and P/t_j of all moduli, and P."""
    product = math.prod(moduli)
    in_bounds(1 <= w <= MOST_WORDS and product < 1 << 64 * w, "numbers of fewer words than their residues stand for")
    in_bounds(all(1 < t <= 1 << 42 for t in moduli), "moduli of more than 42 bits")
    parts = [product // t for t in moduli]
    pairs = [(t, pow(part, -1, t)) for t, part in zip(moduli, parts, strict=True)]
    words = [[part >> 64 * word & (1 << 64) - 1 for word in range(w)] for part in (*parts, product)]
    numbers = np.array(words, dtype=np.uint64)
    return np.array(pairs, dtype=np.uint64), numbers[:-1], numbers[-1]


def _sum(a: Words, b: Words, minus: int) -> Words:
    out = np.empty(a.shape if a.shape == b.shape else np.broadcast(a, b).shape, np.uint64)
    _call("sum", out, *_rows(out, a, b), minus)
    return out


def _rows(out: Words, *operands: Words) -> list[Any]:
    """Operands as the kernels take them, each an array and words from row to row of the axes before the last; sizes."""
    shape, (outer, inner, w) = out.shape, _sizes(out)
    rows: list[Any] = []
    for a in operands:
        in_bounds(a.dtype == np.uint64 and a.shape[-1:] == (w,), "numbers are of as many words of 64 bits")
        if a.shape == shape and a.flags.c_contiguous and a.flags.aligned:
            rows += a, inner * w, w
            continue
        in_bounds(np.broadcast(a, out).shape == shape, "an operand is beyond the result")
        if a.ndim != 3 or out.ndim > 3:
            a = np.broadcast_to(a, shape).reshape(outer, inner, w)  # noqa: PLW2901
        if a.strides[2] != 8 or not a.flags.aligned:
            a = np.ascontiguousarray(a)  # noqa: PLW2901
        rows += a, *(step // 8 * (size > 1) for step, size in zip(a.strides[:2], a.shape, strict=False))
    return [*rows, outer, inner, w]


def _block(out: Words) -> Words:
    """What a kernel writes to."""
    in_bounds(out.dtype == np.uint64 and out.flags.c_contiguous and out.flags.writeable, "numbers go into one block")
    return out


def _sizes(a: Words) -> tuple[int, int, int]:
    """Rows of the axes before the last two, of the last but one, and words of a number."""
    *outer, inner, w = (1, *a.shape) if a.ndim < 2 else a.shape
    in_bounds(1 <= w <= MOST_WORDS, "numbers have 1 to 8 words")
    return math.prod(outer), inner, w


def _call(name: str, *given: Words | Ints | int) -> None:
    """Call a kernel: arrays go as addresses, numbers as size_t, which ctypes takes fastest as it takes addresses."""
    kernel = _kernel(name)
    if not kernel.argtypes:
        kernel.argtypes = [_Array if isinstance(one, np.ndarray) else ctypes.c_void_p for one in given]
    kernel(*given)


@cache
def _kernel(name: str) -> Any:
    kernel, one = getattr(library.compiled(), f"treetap_rings_{name}"), np.zeros(1)
    in_bounds(_Array.from_param(one).value == one.ctypes.data, "numpy's arrays have their addresses elsewhere")
    return kernel


class _Array:
    """An array as an argument, at whose object the address of its numbers comes after the head of every object.

    So numpy's C interface has it (`PyArrayObject_fields`). To ask the array takes ten times as long.
    """

    @staticmethod
    def from_param(array: Array) -> ctypes.c_void_p:
        """The address, while the array is an argument of the call."""
        return ctypes.c_void_p.from_address(id(array) + object.__basicsize__)

"""Calls of the kernels for blinded ids (`curve.c`, `sha512.c`), with blocks whose lengths are checked beforehand.

A block is whole encodings side by side. One call stays below 0.2 s: blocks are cut into units here, and each ends with
a sign of life. What a unit makes stays in a core's cache, and below the size for which the C library asks the system
for new pages each time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from treetap.native import library
from treetap.native.library import Form, in_bounds
from treetap.usage import finish_unit

POINT_BYTES = 32
UNIFORM_BYTES = 64
SCALAR_BYTES = 32
#: A number of a sum of multiples has this number of digits of a byte with a sign, -128 to 127, the lowest first.
WINDOWS = 16
#: Words of the space that a sum of multiples needs: WINDOWS * BUCKETS * BUCKET_WORDS of curve.c.
_BUCKET_WORDS = WINDOWS * 129 * 24
#: Points of one call: some milliseconds, of the plain form some tens; a multiple of what shares an inversion.
UNIT = 1_024

Bytes = npt.NDArray[np.uint8]


class Curve:
    """Curve25519 by one form of the kernels; see `treetap.psi.group`."""

    def __init__(self, form: Form) -> None:
        """`form`: one that `library.checked` lets pass."""
        kernels = library.compiled()
        self._hash = getattr(kernels, f"treetap_hash_points_{form}")
        self._raise = getattr(kernels, f"treetap_raise_points_{form}")
        self._check = getattr(kernels, f"treetap_check_points_{form}")
        self._check.restype = ctypes.c_size_t
        self._sum = getattr(kernels, f"treetap_sum_multiples_{form}")

    def hash_ids(self, prefix: bytes, texts: bytes, ends: bytes) -> bytes:
        """n points: of the SHA-512 of a prefix and each of n texts; `ends`: the n+1 places, 64-bit numbers."""
        in_bounds(len(ends) % 8 == 0 and len(ends) > 0, "the places of texts are 64-bit numbers")
        places = np.frombuffer(ends, dtype=np.int64)
        return b"".join(
            self.hash_points(digests(prefix, texts, places[first : last + 1]))
            for first, last in _units(len(places) - 1)
        )

    def hash_points(self, uniform: bytes) -> bytes:
        """n points from n·64 uniform bytes; see `treetap_hash_points`."""
        return self.hash_rooted(uniform, rooted=False)[0]

    def hash_rooted(self, uniform: bytes, *, rooted: bool = True) -> tuple[bytes, bytes]:
        """The points of `hash_points`, and v of each, 32 bytes; nothing if not `rooted`."""
        source = _view(uniform, UNIFORM_BYTES)
        parts, roots = [], []
        for first, last in _units(len(source)):
            parts.append(part := bytearray((last - first) * POINT_BYTES))
            root = None
            if rooted:
                roots.append(bytearray(len(part)))
                root = _at(_view(roots[-1], 1), 0)
            self._hash(_at(source, first), _at(_view(part, 1), 0), root, ctypes.c_size_t(last - first))
        return b"".join(parts), b"".join(roots)

    def raise_points(self, scalar: bytes, points: bytes) -> bytes:
        """n points times one clamped scalar, n·32 bytes; see `treetap_raise_points`. The points have been checked."""
        return self.raise_rooted(scalar, points, None)[0]

    def raise_rooted(self, scalar: bytes, points: bytes, roots: bytes | None) -> tuple[bytes, bytes]:
        """The points of `raise_points`, and v of each, 32 bytes; `roots`: v of each point before. None: of none."""
        in_bounds(len(scalar) == SCALAR_BYTES, "a scalar of another length")
        source, root = _view(points, POINT_BYTES), None if roots is None else _view(roots, POINT_BYTES)
        in_bounds(root is None or len(root) == len(source), "a root for each point")
        parts, made = [], []
        for first, last in _units(len(source)):
            parts.append(part := bytearray((last - first) * POINT_BYTES))
            before = after = None
            if root is not None:
                made.append(bytearray(len(part)))
                before, after = _at(root, first), _at(_view(made[-1], 1), 0)
            count = ctypes.c_size_t(last - first)
            self._raise(scalar, _at(source, first), before, _at(_view(part, 1), 0), after, count)
        return b"".join(parts), b"".join(made)

    def sum_multiples(self, points: bytes, roots: bytes, signs: bytes, digits: bytes) -> bytes:
        """WINDOWS sums over n points of the group, each times its digit of the window; see `treetap_sum_multiples`.

        `signs`: n bytes, 0 where the v that is even is meant, 1 where it is odd, whichever of them `roots` has.
        `digits`: n·WINDOWS bytes. Returns x, y, z and t of edwards25519, x of all windows first, 32 bytes each.
        """
        source, root = _view(points, POINT_BYTES), _view(roots, POINT_BYTES)
        sign, digit = _view(signs, 1), _view(digits, WINDOWS)
        in_bounds(len(source) == len(root) == len(sign) == len(digit), "a root, a sign and digits for each point")
        buckets, sums = np.empty(_BUCKET_WORDS, dtype=np.uint64), bytearray(4 * WINDOWS * POINT_BYTES)
        blocks = [_at(rows, 0) for rows in (source, root, sign, digit)]
        self._sum(*blocks, ctypes.c_size_t(len(source)), ctypes.c_void_p(buckets.ctypes.data), _at(_view(sums, 1), 0))
        finish_unit()
        return bytes(sums)

    def leading_roots(self, points: bytes) -> bytes:
        """v of each leading point that is of the group, 32 bytes: of the two roots of u³ + Au² + u the even number."""
        roots = bytearray(len(points))
        return bytes(roots[: self.leading_valid(points, roots) * POINT_BYTES])

    def leading_valid(self, points: bytes, roots: bytearray | None = None) -> int:
        """The number of leading points of n·32 bytes that are of the group; see `treetap_check_points`.

        `roots`: gets v of each of these, 32 bytes.
        """
        source, target = _view(points, POINT_BYTES), None if roots is None else _view(roots, POINT_BYTES)
        for first, last in _units(len(source)):
            root = None if target is None else _at(target, first)
            good = int(self._check(_at(source, first), root, ctypes.c_size_t(last - first)))
            if first + good < last:
                return first + good
        return len(source)


def digests(prefix: bytes, texts: bytes, places: npt.NDArray[np.int64]) -> bytes:
    """SHA-512 of a prefix and each of n texts, n·64 bytes; `places`: where each begins, and the end."""
    inside = places[0] >= 0 and places[-1] <= len(texts) and bool((places[1:] >= places[:-1]).all())
    in_bounds(inside, "a text ends beyond the texts or before it begins")
    count, length = len(places) - 1, ctypes.c_size_t(len(prefix))
    made = bytearray(count * UNIFORM_BYTES)
    at, source = ctypes.c_void_p(places.ctypes.data), _at(_view(texts, 1), 0)
    library.compiled().treetap_sha512(prefix, length, source, at, ctypes.c_size_t(count), _at(_view(made, 1), 0))
    return bytes(made)


def _view(block: bytes | bytearray, width: int) -> Bytes:
    in_bounds(len(block) % width == 0, "the caller has counted the points")
    return np.frombuffer(block, dtype=np.uint8).reshape(-1, width)


def _at(rows: Bytes, first: int) -> ctypes.c_void_p:
    return ctypes.c_void_p(rows[first:].ctypes.data)


def _units(count: int) -> Iterator[tuple[int, int]]:
    for first in range(0, count, UNIT):
        yield first, min(first + UNIT, count)
        finish_unit()

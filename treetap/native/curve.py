"""Calls of the kernels for points of Curve25519 (`curve.c`), with blocks whose lengths are checked beforehand.

A block is whole encodings side by side. One call stays below 0.2 s: blocks are cut into units here, and each ends with
a sign of life.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from treetap.native import library
from treetap.native.library import in_bounds
from treetap.process.signs_of_life import finish_unit

POINT_BYTES = 32
UNIFORM_BYTES = 64
SCALAR_BYTES = 32
#: Points of one call: some tens of milliseconds; a multiple of what shares an inversion.
UNIT = 4_096

Bytes = npt.NDArray[np.uint8]


def load() -> None:
    """Load the kernels; `Unavailable` if there are none for this processor."""
    library.load()


def hash_points(uniform: bytes) -> bytes:
    """n points from n·64 uniform bytes; see `treetap_hash_points`."""
    source, made = _view(uniform, UNIFORM_BYTES), bytearray(len(uniform) // 2)
    target = _view(made, POINT_BYTES)
    for first, last in _units(len(source)):
        library.load().treetap_hash_points(_at(source, first), _at(target, first), ctypes.c_size_t(last - first))
    return bytes(made)


def raise_points(scalar: bytes, points: bytes) -> bytes:
    """n points times one clamped scalar, n·32 bytes; see `treetap_raise_points`. The points have been checked."""
    in_bounds(len(scalar) == SCALAR_BYTES, "a scalar of another length")
    source, made = _view(points, POINT_BYTES), bytearray(len(points))
    target = _view(made, POINT_BYTES)
    for first, last in _units(len(source)):
        library.load().treetap_raise_points(
            scalar, _at(source, first), _at(target, first), ctypes.c_size_t(last - first)
        )
    return bytes(made)


def leading_valid(points: bytes) -> int:
    """The number of leading points of n·32 bytes that are of the group; see `treetap_check_points`."""
    source = _view(points, POINT_BYTES)
    check = library.load().treetap_check_points
    check.restype = ctypes.c_size_t
    for first, last in _units(len(source)):
        good = int(check(_at(source, first), ctypes.c_size_t(last - first)))
        if first + good < last:
            return first + good
    return len(source)


def _view(block: bytes | bytearray, width: int) -> Bytes:
    in_bounds(len(block) % width == 0, "the caller has counted the points")
    return np.frombuffer(block, dtype=np.uint8).reshape(-1, width)


def _at(rows: Bytes, first: int) -> ctypes.c_void_p:
    return ctypes.c_void_p(rows[first:].ctypes.data)


def _units(count: int) -> Iterator[tuple[int, int]]:
    for first in range(0, count, UNIT):
        yield first, min(first + UNIT, count)
        finish_unit()

"""Kernels over blocks of ids and points, for the workers of `treetap.workers`; they keep nothing there."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from treetap.errors import Malformed
from treetap.psi.backends import group
from treetap.psi.group import POINT_BYTES, uniform_bytes


def blind(_state: dict[str, Any], scalar: bytes, texts: bytes, ends: bytes) -> bytes:
    """Kernel: every id hashed to the group and raised; `texts`, `ends`: see `treetap.tables.record_ids.Ids.packed`."""
    places = np.frombuffer(ends, dtype=np.int64).tolist()
    arithmetic = group()
    uniform = b"".join([uniform_bytes(texts[first:last]) for first, last in pairwise(places)])
    return arithmetic.raise_points(scalar, arithmetic.hash_points(uniform))


def raise_points(_state: dict[str, Any], scalar: bytes, block: bytes) -> bytes:
    """Kernel: every point of a block checked and raised, in the same order.

    Raises:
        Malformed: not a whole number of points, or one that is not of the group.
    """
    return group().raise_points(scalar, check_points(_state, block))


def check_points(_state: dict[str, Any], block: bytes) -> bytes:
    """Kernel: the block as it is, once every point of it is known to be in the group.

    Raises:
        Malformed: not a whole number of points, or one that is not of the group.
    """
    if len(block) % POINT_BYTES:
        raise Malformed(f"{len(block)} bytes are not a whole number of blinded identifiers")
    if group().leading_valid(block) * POINT_BYTES < len(block):
        raise Malformed("a blinded identifier is not a point of the group")
    return block

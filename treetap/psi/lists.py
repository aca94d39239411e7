"""Lists of points in files, shuffled and intersected by parts: memory does not grow with a list's points.

A list is a file of encodings side by side. What needs all of a list's points at once is done by groups: points are
distributed to up to 256 stretches of a second file, and each stretch is then taken into memory. The groups of an
intersection are ranges of the points' first byte, those of a shuffle are drawn. Points of honest parties are uniform;
a list of which far too many begin alike is refused.

Kernels over blocks of ids and points, for the workers of `treetap.workers`; they keep nothing there.

They have the group by the arithmetic of their process (`treetap.native.arithmetic`), and no other file asks which it
is. Compiled kernels raise several points at a time. libsodium, through PyNaCl, takes one: it adds, hashes and checks on
edwards25519, and multiplies on Curve25519. The curves are the same but for a change of coordinates,
y = (u - 1)/(u + 1), which GMP computes; a u does not say which of two points ±P is meant, which matters nowhere here.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import IO

import numpy as np
import numpy.typing as npt
from gmpy2 import invert, mpz
from nacl import bindings

from treetap.arrays import Rows, Words
from treetap.errors import Malformed
from treetap.native import arithmetic
from treetap.native.curve import Curve, digests
from treetap.process.grouped_rows import GroupedRows, Open, Raw, raw_rows, read_at, write_at
from treetap.psi.group import DOMAIN, POINT_BYTES, PRIME, UNIFORM_BYTES
from treetap.psi.proof import digits_of

_P = mpz(PRIME)


class SodiumGroup:
    """libsodium, a point at a time; what the kernels are tested against. Blocks are encodings side by side."""

    def hash_ids(self, prefix: bytes, texts: bytes, ends: bytes) -> bytes:
        """Points from ids, by SHA-512 of a prefix and each id; `texts`, `ends`: see `Ids.packed`."""
        places = np.frombuffer(ends, dtype=np.int64).tolist()
        digests = [hashlib.sha512(prefix + texts[first:last]).digest() for first, last in pairwise(places)]
        return self.hash_points(b"".join(digests))

    def hash_points(self, uniform: bytes) -> bytes:
        """Points from blocks of 64 uniform bytes."""
        return b"".join(_hash(uniform[at : at + UNIFORM_BYTES]) for at in range(0, len(uniform), UNIFORM_BYTES))

    def raise_points(self, scalar: bytes, points: bytes) -> bytes:
        """Every point times a clamped number of 32 bytes; the points are of the group."""
        multiply = bindings.crypto_scalarmult
        return b"".join(multiply(scalar, points[at : at + POINT_BYTES]) for at in range(0, len(points), POINT_BYTES))

    def leading_valid(self, points: bytes) -> int:
        """The number of leading points that are of the group.

        Refused are encodings of p or more, points of the curve's twist and of no curve, and those outside of the
        subgroup, among them all of low order.
        """
        for at in range(0, len(points), POINT_BYTES):
            if not _valid(points[at : at + POINT_BYTES]):
                return at // POINT_BYTES
        return len(points) // POINT_BYTES


#: The backends.
Group = SodiumGroup | Curve


def group() -> Group:
    """The arithmetic of this process for blinded identifiers."""
    form = arithmetic.form_in_use()
    return SodiumGroup() if form is None else Curve(form)


def _hash(uniform: bytes) -> bytes:
    first, second = (bindings.crypto_core_ed25519_from_uniform(uniform[at : at + 32]) for at in (0, 32))
    y = mpz.from_bytes(bindings.crypto_core_ed25519_add(first, second), "little").bit_clear(255)  # the sign of x
    u = (1 + y) * invert(1 - y, _P) % _P if y != 1 else mpz(0)  # the neutral element: by chance only
    point: bytes = u.to_bytes(POINT_BYTES, "little")
    return point


def _valid(point: bytes) -> bool:
    """True if the point is of the group: libsodium checks one of the two points of edwards25519 with this y."""
    u = mpz.from_bytes(point, "little")
    if u >= _P - 1:  # u = -1 is of the twist, and has no y
        return False
    y = (u - 1) * invert(u + 1, _P) % _P
    return bool(bindings.crypto_core_ed25519_is_valid_point(y.to_bytes(POINT_BYTES, "little")))


def blind(scalar: bytes, texts: bytes, ends: bytes) -> bytes:
    """Kernel: every id hashed to the group and raised; `texts`, `ends`: see `treetap.tables.record_ids.Ids.packed`."""
    points = group()
    return points.raise_points(scalar, points.hash_ids(DOMAIN, texts, ends))


def raise_points(scalar: bytes, block: bytes) -> bytes:
    """Kernel: every point of a block checked and raised, in the same order.

    Raises:
        Malformed: not a whole number of points, or one that is not of the group.
    """
    return group().raise_points(scalar, check_points(block))


def check_points(block: bytes) -> bytes:
    """Kernel: the block as it is, once every point of it is known to be in the group.

    Raises:
        Malformed: not a whole number of points, or one that is not of the group.
    """
    return _checked(block, lambda: POINT_BYTES * group().leading_valid(block))


def _checked(block: bytes, valid: Callable[[], int]) -> bytes:
    """The block, once its length is known to be one of points; `valid`: how many bytes of it are of valid ones."""
    if len(block) % POINT_BYTES:
        raise Malformed(f"{len(block)} bytes are not a whole number of blinded identifiers")
    if valid() < len(block):
        raise Malformed("a blinded identifier is not a point of the group")
    return block


# ---- with both coordinates, for proofs (`treetap.psi.proof`): by compiled kernels alone. A list is summed where it is
# made or checked, by numbers that follow from `numbers`, for points from place `first` on: see `Curve.sum_multiples`.


def blind_summed(scalar: bytes, texts: bytes, ends: bytes, numbers: bytes, first: int) -> tuple[bytes, bytes]:
    """Kernel: as `blind`, and the sums of the points with an even v."""
    points = _curve()
    hashed = points.hash_rooted(digests(DOMAIN, texts, np.frombuffer(ends, dtype=np.int64)))
    raised, roots = points.raise_rooted(scalar, *hashed)
    return raised, _sums(raised, roots, bytes(len(raised) // POINT_BYTES), numbers, first)


def raise_signed(scalar: bytes, block: bytes) -> tuple[bytes, bytes]:
    """Kernel: as `raise_points`, and a byte for each: 1 where the point with the even v becomes one with the odd v."""
    raised, made = _curve().raise_rooted(scalar, block, _roots(block))
    return raised, (np.frombuffer(made, dtype=np.uint8)[::POINT_BYTES] & 1).tobytes()


def raise_summed(scalar: bytes, block: bytes, signs: bytes, numbers: bytes, first: int) -> tuple[bytes, bytes]:
    """Kernel: as `raise_points`, and the sums of the points before, with their signs."""
    sums = check_summed(block, signs, numbers, first)
    return _curve().raise_points(scalar, block), sums


def check_summed(block: bytes, signs: bytes, numbers: bytes, first: int) -> bytes:
    """Kernel: the sums of points with their signs, once each is known to be in the group; raises as `check_points`."""
    return _sums(block, _roots(block), signs, numbers, first)


def _roots(block: bytes) -> bytes:
    """The even v of every point, 32 bytes, once each is known to be in the group."""
    roots = bytearray()

    def valid() -> int:
        roots.extend(_curve().leading_roots(block))
        return len(roots)

    _checked(block, valid)
    return bytes(roots)


def _sums(points: bytes, roots: bytes, signs: bytes, numbers: bytes, first: int) -> bytes:
    return _curve().sum_multiples(points, roots, signs, digits_of(numbers, first, first + len(signs)))


def _curve() -> Curve:
    """The compiled arithmetic of this process."""
    points = group()
    assert isinstance(points, Curve)  # as `treetap.party.alignment.lists` has checked
    return points


#: Points as numpy compares and sorts them: fixed width, by their bytes.
Points = npt.NDArray[np.bytes_]

#: Points that are read at a time: 2 MiB.
BLOCK = 1 << 16
#: Groups of a list at most: of MOST_IDS points each has half a million.
MOST_GROUPS = 256
_PLACE_BYTES = 8
#: Points that a group may have beyond twice its share: by chance none comes near it.
SPARE = 4096


class PointList:
    """Points in a file, which this object owns.

    Attributes:
        signs: beside a list with a proof, a byte for each point, in a list of its own: see `treetap.psi.proof`.
    """

    signs: PointList | None = None

    def __init__(self, file: IO[bytes], points: int = 0, width: int = POINT_BYTES) -> None:
        """`points`: the length of a list that will be written by `put`. `width`: bytes of each."""
        self._file, self._points, self._width = file, points, width

    def __len__(self) -> int:
        return self._points

    def append(self, block: bytes) -> None:
        """Add whole points at the end."""
        write_at(self._file, block, self._points * self._width)
        self._points += len(block) // self._width

    def put(self, first: int, block: bytes) -> None:
        """Write the points from place `first` on."""
        write_at(self._file, block, first * self._width)

    def take(self, first: int, count: int) -> bytes:
        """`count` points from place `first` on, fewer at the end."""
        count = min(count, self._points - first)
        return read_at(self._file, first * self._width, count * self._width)

    def blocks(self, count: int = BLOCK) -> Iterator[bytes]:
        """All points in order, `count` at a time."""
        for first in range(0, self._points, count):
            yield self.take(first, count)

    def close(self) -> None:
        """Delete the file, and that of signs."""
        self._file.close()
        if self.signs is not None:
            self.signs.close()


def shuffled(points: PointList, files: Open) -> PointList:
    """A new list of the same points in an order drawn from the operating system; the former one is closed.

    Every point's group is drawn, then the order within each group, which makes all orders equally likely.
    """
    groups = _drawn_groups(len(points))
    with files() as file:
        parted = GroupedRows(file, POINT_BYTES, _counts(groups, _groups_of(len(points))))
        for place, block in enumerate(points.blocks()):
            parted.put(raw_rows(block, POINT_BYTES), groups[place * BLOCK : place * BLOCK + len(block) // POINT_BYTES])
        points.close()
        made = PointList(files())
        for group in range(len(parted)):
            rows = parted.rows(group)
            made.append(rows[_small_permutation(len(rows))].tobytes())
    return made


def permutation(count: int) -> Rows:
    """A uniform order of `count` things, from the operating system, drawn as in `shuffled`."""
    groups = _drawn_groups(count)
    order = np.argsort(groups, kind="stable").astype(np.int64, copy=False)
    first = 0
    for size in _counts(groups, _groups_of(count)).tolist():
        part = order[first : first + size]
        part[:] = part[_small_permutation(size)]
        first += size
    return order


def _drawn_groups(count: int) -> Raw:
    """A group for each of `count` things, uniform and independent."""
    return np.frombuffer(secrets.token_bytes(count), dtype=np.uint8) & np.uint8(_groups_of(count) - 1)


def _small_permutation(count: int) -> Rows:
    """By sorting random 128-bit keys: two keys of a million are equal with probability below 2**-88."""
    keys = np.frombuffer(secrets.token_bytes(16 * count), dtype=[("high", "<u8"), ("low", "<u8")])
    return np.lexsort((keys["low"], keys["high"])).astype(np.int64)


def common(files: Open, own: PointList, *others: PointList) -> Iterator[tuple[Points, Rows]]:
    """The points that every list holds, in the order of their bytes, and their places in the first list; by groups.

    Raises:
        Malformed: a list holds a point twice, which no honest list does: ids are distinct.
    """
    number = _groups_of(max(map(len, (own, *others))))
    with files() as first:
        parted = [_by_first_byte(first, own, number)]
        opened = [files() for _ in others]
        try:
            parted += [_by_first_byte(file, other, number) for file, other in zip(opened, others, strict=True)]
            for group in range(number):
                shared, places = _sorted(parted[0].rows(group))
                for other in parted[1:]:
                    kept = _held(shared, _sorted(other.rows(group))[0])
                    shared, places = shared[kept], places[kept]
                yield shared, places
        finally:
            for file in opened:
                file.close()


def _by_first_byte(file: IO[bytes], points: PointList, number: int) -> GroupedRows:
    """Points with their places, grouped by ranges of the first byte: groups in order hold points in order."""
    shift = 8 - (number.bit_length() - 1)

    def groups_of(block: bytes) -> Raw:
        return (raw_rows(block, POINT_BYTES)[:, 0].astype(np.uint16) >> shift).astype(np.uint8)

    counts = np.zeros(number, dtype=np.int64)
    for block in points.blocks():
        counts += _counts(groups_of(block), number)
    if int(counts.max()) > 2 * (len(points) // number) + SPARE:  # an honest list's are uniform
        raise Malformed("a list of blinded identifiers is no list of hashed ids: too many of its points begin alike")
    made = GroupedRows(file, POINT_BYTES + _PLACE_BYTES, counts)
    for at, block in enumerate(points.blocks()):
        rows = raw_rows(block, POINT_BYTES)
        places = np.arange(at * BLOCK, at * BLOCK + len(rows), dtype=np.int64)
        made.put(np.hstack((rows, places.view(np.uint8).reshape(-1, _PLACE_BYTES))), groups_of(block))
    return made


def _sorted(rows: Raw) -> tuple[Points, Rows]:
    points = np.ascontiguousarray(rows[:, :POINT_BYTES]).view(f"S{POINT_BYTES}").reshape(-1)
    places = np.ascontiguousarray(rows[:, POINT_BYTES:]).view(np.int64).reshape(-1)
    order = np.argsort(points)
    points = points[order]
    if (points[1:] == points[:-1]).any():
        raise Malformed("a list of blinded identifiers holds one twice")
    return points, places[order]


def _held(left: Points, right: Points) -> Rows:
    """The places in a sorted list of what another sorted list holds too; no list holds a point twice."""
    if not len(left) or not len(right):
        return np.zeros(0, dtype=np.int64)
    keys = _keys(left)
    if (keys[1:] == keys[:-1]).any():  # points that begin alike, which do not come about by chance
        _, places, _ = np.intersect1d(left, right, assume_unique=True, return_indices=True)
        return places.astype(np.int64)
    at = np.minimum(np.searchsorted(keys, _keys(right)), len(left) - 1)
    kept: Rows = at[left[at] == right].astype(np.int64)
    return kept


def _keys(points: Points) -> Words:
    """The first eight bytes of each point as a number of the same order."""
    words = points.view(">u8").reshape(len(points), -1)
    return np.asarray(words[:, 0], dtype=np.uint64)


def _groups_of(points: int) -> int:
    """A power of two such that a group has some BLOCK points, or MOST_GROUPS."""
    return min(MOST_GROUPS, 1 << max(0, (points - 1) // BLOCK).bit_length())


def _counts(groups: Raw, number: int) -> Rows:
    return np.bincount(groups, minlength=number).astype(np.int64)

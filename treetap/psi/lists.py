"""Lists of points in files, shuffled and intersected by parts: memory does not grow with a list's points.

A list is a file of encodings side by side. What needs all of a list's points at once is done by groups: points are
distributed to up to 256 stretches of a second file, and each stretch is then taken into memory. The groups of an
intersection are ranges of the points' first byte, those of a shuffle are drawn. Points of honest parties are uniform;
a list of which far too many begin alike is refused.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import IO

import numpy as np
import numpy.typing as npt

from treetap.arrays import Rows, Words
from treetap.errors import Malformed
from treetap.process.grouped_rows import GroupedRows, Open, Raw, raw_rows, read_at, write_at
from treetap.psi.group import POINT_BYTES

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

"""Rows of bytes in files: by group, for what needs all of them at once, and read and written at their places.

Rows are distributed to up to 256 stretches of a file, and each stretch is then taken into memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import IO

import numpy as np
import numpy.typing as npt

from treetap.arrays import Rows

Raw = npt.NDArray[np.uint8]
#: Opens an empty file for reading and writing.
Open = Callable[[], IO[bytes]]
_GROUPS = 256
_PLACE_BYTES = 8


class GroupedRows:
    """Rows of one width in a file, by group; each group's in the order in which they were put."""

    def __init__(self, file: IO[bytes], width: int, counts: Rows) -> None:
        """`width`: bytes of a row. `counts`: rows of each group (groups,), at most 256 of them."""
        self._file, self._width, self._counts = file, width, counts
        self._first = np.cumsum(counts) - counts
        self._next = self._first.copy()

    def put(self, rows: Raw, groups: Raw) -> None:
        """Add rows (n, width) to the groups (n,) that are named."""
        ordered = rows[np.argsort(groups, kind="stable")]
        ends = np.cumsum(np.bincount(groups, minlength=len(self._counts)))
        first = 0
        for group, last in enumerate(ends.tolist()):
            if last > first:
                write_at(self._file, ordered[first:last].tobytes(), int(self._next[group]) * self._width)
                self._next[group] += last - first
            first = last

    def rows(self, group: int) -> Raw:
        """The rows of a group (n, width)."""
        first, count = int(self._first[group]), int(self._counts[group])
        return raw_rows(read_at(self._file, first * self._width, count * self._width), self._width)

    def __len__(self) -> int:
        return len(self._counts)


class PlacedRows:
    """Rows of one width in a file, each at its place; memory does not grow with their number."""

    def __init__(self, file: IO[bytes], width: int) -> None:
        self._file, self._width = file, width

    @classmethod
    def of(cls, parts: Iterable[tuple[Rows, Raw]], total: int, width: int, files: Open) -> PlacedRows:
        """Rows (n, width) with their places (n,) among `total`, in parts of any order; each place is there once.

        They are distributed to groups of neighbouring places, and each group is then put into order.
        """
        size = max(1, -(-total // _GROUPS))
        counts = np.full(max(1, -(-total // size)), size, dtype=np.int64)
        counts[-1] = total - size * (len(counts) - 1)
        made = cls(files(), width)
        with files() as file:
            grouped = GroupedRows(file, _PLACE_BYTES + width, counts)
            for places, rows in parts:
                placed = np.hstack([places.astype(np.int64).view(np.uint8).reshape(-1, _PLACE_BYTES), rows])
                grouped.put(placed, (places // size).astype(np.uint8))
            for group in range(len(grouped)):
                rows = grouped.rows(group)
                places = np.ascontiguousarray(rows[:, :_PLACE_BYTES]).view(np.int64).reshape(-1)
                ordered = np.empty((len(rows), width), dtype=np.uint8)
                ordered[places - group * size] = rows[:, _PLACE_BYTES:]
                write_at(made._file, ordered.tobytes(), group * size * width)
        return made

    def take(self, first: int, count: int) -> Raw:
        """The rows from place `first` on, (count, width)."""
        return raw_rows(read_at(self._file, first * self._width, count * self._width), self._width)

    def close(self) -> None:
        """Delete the file."""
        self._file.close()


def raw_rows(block: bytes, width: int) -> Raw:
    """The rows of a block, (n, width)."""
    return np.frombuffer(block, dtype=np.uint8).reshape(-1, width)


def write_at(file: IO[bytes], block: bytes, at: int) -> None:
    """Write a block at an offset of a file without a buffer."""
    view = memoryview(block)
    while view:
        written = os.pwrite(file.fileno(), view, at)
        view, at = view[written:], at + written


def read_at(file: IO[bytes], at: int, count: int) -> bytes:
    """Read `count` bytes at an offset of a file without a buffer; `OSError` if it has fewer."""
    content = bytearray()
    while len(content) < count:
        part = os.pread(file.fileno(), count - len(content), at + len(content))
        if not part:
            raise OSError(f"{len(content)} of {count} bytes were read from a file of the state folder")
        content += part
    return bytes(content)

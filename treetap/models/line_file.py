"""A file of JSON lines with checksums that grows line by line and is read again after a crash."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from treetap.errors import DataError
from treetap.models.checksums import bodies_of, checked_line, first, parse_json, whole_lines
from treetap.models.durable import append, make_folder, write_whole

Line = dict[str, Any]


class LineFile:
    """One file of JSON objects, a line each; file and folder are made on the first write.

    The file is read once; then memory holds where each of its lines ends, and a line is appended without reading.
    """

    def __init__(self, path: Path, seed: Callable[[], str]) -> None:
        """`seed`: returns the seed of the checksums, which names the file's job; called at each read or write."""
        self.path, self._seed = path, seed
        self._ends: list[int] = []  # of each whole line, in bytes
        self._digests: list[str] = []  # the checksum of each
        self._size = -1  # of the file when it was last read or written; -1: it was not read yet

    def read(self) -> list[Line]:
        """The stored lines; one that a crash tore does not count. Reads the whole file.

        Raises:
            DataError: a line is not what was written.
        """
        try:
            return [parse_json(body) for body in self._bodies()]
        except ValueError:
            raise DataError(f"{self.path}: is damaged; bring a back-up of the file back") from None

    def plain(self) -> bytes:
        """The stored lines without their checksums, which are compared first; raises as `read` does."""
        return b"".join(body + b"\n" for body in self._bodies())

    def count(self) -> int:
        """The number of stored lines. Reads the file only if it is not as this object last read or wrote it."""
        if self._size != (self.path.stat().st_size if self.path.is_file() else 0):
            self._bodies()
        return len(self._ends)

    def digest(self, lines: int) -> str:
        """The checksum of the first `lines` lines, hexadecimal; `IndexError` where there are fewer."""
        stored = self.count()
        if stored < lines:
            raise IndexError(f"{self.path}: holds {stored} lines, not {lines}")
        return self._digests[lines - 1] if lines else first(self._seed())

    def put(self, content: Line, index: int) -> None:
        """Make `content` the line number `index`, dropping what an interrupted attempt left at or after it."""
        stored = self.count()
        if stored < index:
            raise DataError(f"{self.path}: holds {stored} lines, cannot store line {index}; lines count from 0")
        line, digest = checked_line(content, self._digests[index - 1] if index else first(self._seed()))
        kept = self._ends[index - 1] if index else 0
        whole, self._size = self._size, -1  # where the writing fails, the file is read again
        if 0 < kept == whole:
            append(self.path, line)
        else:
            make_folder(self.path.parent)
            before = self.path.read_bytes()[:kept] if kept else b""
            write_whole(self.path, before + line)
        self._ends[index:], self._digests[index:] = [kept + len(line)], [digest]
        self._size = kept + len(line)

    def fill(self, contents: Sequence[Line]) -> None:
        """Make these the only lines, whole or not at all."""
        lines, digests, before = list[bytes](), list[str](), first(self._seed())
        for content in contents:
            line, before = checked_line(content, before)
            lines.append(line)
            digests.append(before)
        self._size = -1  # where the writing fails, the file is read again
        make_folder(self.path.parent)
        write_whole(self.path, b"".join(lines))
        self._ends, self._digests = list(accumulate(map(len, lines))), digests
        self._size = sum(map(len, lines))

    def _bodies(self) -> list[bytes]:
        raw = self.path.read_bytes() if self.path.is_file() else b""
        lines = whole_lines(raw)
        bodies, self._digests = bodies_of(self.path, lines, self._seed())
        self._ends, self._size = list(accumulate(map(len, lines))), len(raw)
        return bodies

"""A file of JSON lines that grows line by line and is read again after a crash."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import accumulate
from pathlib import Path
from typing import Any

from treetap.errors import DataError
from treetap.models.durable import append, make_folder, write_whole

Line = dict[str, Any]


class LineFile:
    """One file of JSON objects, a line each; file and folder are made on the first write.

    The file is read once; then memory holds where each of its lines ends, and a line is appended without reading.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ends: list[int] = []  # of each whole line, in bytes
        self._size = -1  # of the file when it was last read or written; -1: it was not read yet

    def read(self) -> list[Line]:
        """The stored lines; one that a crash tore does not count. Reads the whole file."""
        raw = self.path.read_bytes() if self.path.is_file() else b""
        lines = _whole_lines(raw)
        found = _parse(self.path, lines)
        self._ends, self._size = list(accumulate(map(len, lines))), len(raw)
        return found

    def count(self) -> int:
        """The number of stored lines. Reads the file only if it is not as this object last read or wrote it."""
        if self._size != (self.path.stat().st_size if self.path.is_file() else 0):
            self.read()
        return len(self._ends)

    def put(self, content: Line, index: int) -> None:
        """Make `content` the line number `index`, dropping what an interrupted attempt left at or after it."""
        line, stored = _line(content), self.count()
        if stored < index:
            raise DataError(f"{self.path}: holds {stored} lines, cannot store line {index}; lines count from 0")
        kept = self._ends[index - 1] if index else 0
        whole, self._size = self._size, -1  # where the writing fails, the file is read again
        if 0 < kept == whole:
            append(self.path, line)
        else:
            make_folder(self.path.parent)
            before = self.path.read_bytes()[:kept] if kept else b""
            write_whole(self.path, before + line)
        self._ends[index:] = [kept + len(line)]
        self._size = kept + len(line)


def _whole_lines(raw: bytes) -> list[bytes]:
    """The lines of a content, each with its end; what a crash tore at the end of the file is none."""
    return raw[: raw.rfind(b"\n") + 1].splitlines(keepends=True)


def _parse(path: Path, lines: Iterable[bytes]) -> list[Line]:
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(json.loads(line))
        except ValueError:
            raise DataError(f"{path}: line {number} is damaged; bring a back-up of the file back") from None
    return found


def _line(content: Line) -> bytes:
    return json.dumps(content, separators=(",", ":"), allow_nan=False).encode() + b"\n"

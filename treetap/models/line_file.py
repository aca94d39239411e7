"""Files of JSON lines with checksums that grow line by line: written durably, held against others, read once.

A line's checksum (SHA-256) covers its bytes and the checksum of the line before it: a line that is changed, missing,
doubled or moved is found. That of the first line covers a `seed`, which names the file's purpose: a file in the place
of another is found. What is cut off the end of a file is not found here, and a last line that a crash tore does not
count.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from itertools import accumulate
from pathlib import Path
from typing import Any

from treetap.errors import DataError, Interrupted
from treetap.models.durable import KEY, append, make_folder, parse_json, stamp_of, write_whole

Line = dict[str, Any]
#: Tries to hold a file against other processes, which take the time of one write, and seconds between two.
TRIES, TRY_S = 100, 0.05
_BEFORE, _AFTER = f',"{KEY}":"'.encode(), b'"}\n'
#: Bytes that a checksum adds to a line, its end included.
_ADDED = len(_BEFORE) + 64 + len(_AFTER)


class LineFile:
    """One file of JSON objects, a line each; file and folder are made on the first write.

    The file is read once; then memory holds where each of its lines ends, and a line is appended without reading. It is
    read again where its stamp on the disk is another than after the last reading or writing.
    """

    def __init__(self, path: Path, seed: Callable[[], str], place: Callable[[], object] | None = None) -> None:
        """`seed`: returns the seed of the checksums, which names the file's job; called at each read or write.

        `place`: makes the file's folder, before the file is written whole.
        """
        self.path, self._seed = path, seed
        self._place = place or (lambda: make_folder(path.parent))
        self._ends: list[int] = []  # of each whole line, in bytes
        self._digests: list[str] = []  # the checksum of each
        self._lock = threading.RLock()
        #: of the file when it was last read or written, and when the caller took its lines; None: anew the next time
        self.stamp: tuple[int, ...] | None = None
        self._taken: tuple[int, ...] | None = None
        self._sure = True  # what the file holds is on disk: no line was refused

    @contextmanager
    def held(self, take: Callable[[], None], *, to_write: bool = False) -> Iterator[None]:
        """Hold the file against other threads; `take` reads what the caller keeps of it, unless that is the newest.

        `to_write`: against other processes too, since commands write while a party serves.

        Raises:
            Interrupted: another process holds it all the time.
            OSError: the disk refuses it.
        """
        with self._lock, self._alone() if to_write else nullcontext():
            if self._taken is None or self._taken != stamp_of(self.path):
                try:
                    take()
                except BaseException:
                    self._taken = None
                    raise
            yield

    def read(self) -> list[Line]:
        """The stored lines; one that a crash tore does not count. Reads the whole file.

        Raises:
            DataError: a line is not what was written.
        """
        try:
            lines = [parse_json(body) for body in self._bodies()]
        except ValueError:
            raise DataError(f"{self.path}: is damaged; bring a back-up of the file back") from None
        self._taken = self.stamp
        return lines

    def count(self) -> int:
        """The number of stored lines. Reads the file only if it is not as this object last read or wrote it."""
        if self.stamp is None or self.stamp != stamp_of(self.path):
            self._bodies()
        return len(self._ends)

    def digest(self, lines: int) -> str:
        """The checksum of the first `lines` lines, hexadecimal; `IndexError` where there are fewer."""
        stored = self.count()
        if stored < lines:
            raise IndexError(f"{self.path}: holds {stored} lines, not {lines}")
        return self._before(lines)

    def put(self, content: Line, index: int) -> None:
        """Make `content` the line number `index`, dropping what an interrupted attempt left at or after it.

        What the caller keeps of the lines stays the newest, if it was.
        """
        stored = self.count()
        if stored < index:
            raise DataError(f"{self.path}: holds {stored} lines, cannot store line {index}; lines count from 0")
        line, digest = checked_line(content, self._before(index))
        kept = self._ends[index - 1] if index else 0
        newest = self._taken == self.stamp
        whole, self.stamp, self._taken = self.stamp, None, None  # where the writing fails, the file is read again
        sure, self._sure = self._sure, False
        if sure and whole and 0 < kept == whole[-1]:
            append(self.path, line)
        else:  # the first line, or one in the place of others, of what a crash tore, or after what the disk refused
            self._write((self.path.read_bytes()[:kept] if kept else b"") + line)
        self._sure = True
        self._ends[index:], self._digests[index:] = [kept + len(line)], [digest]
        self.stamp = stamp_of(self.path)
        self._taken = self.stamp if newest else None

    def fill(self, contents: Sequence[Line]) -> None:
        """Make these the only lines, whole or not at all; they are what the caller keeps."""
        self.stamp = self._taken = None  # where the writing fails, the file is read again
        lines, digests, before = list[bytes](), list[str](), first(self._seed())
        for content in contents:
            line, before = checked_line(content, before)
            lines.append(line)
            digests.append(before)
        self._write(b"".join(lines))
        self._ends, self._digests = list(accumulate(map(len, lines))), digests
        self.stamp = self._taken = stamp_of(self.path)

    def _write(self, content: bytes) -> None:
        self._place()
        write_whole(self.path, content)

    def _before(self, index: int) -> str:
        """The checksum before the line of this number."""
        return self._digests[index - 1] if index else first(self._seed())

    def _bodies(self) -> list[bytes]:
        """The lines as they are on the disk, without their checksums, which are compared."""
        stamp = stamp_of(self.path)  # first: the file may grow meanwhile
        raw = self.path.read_bytes() if stamp else b""
        lines = raw[: raw.rfind(b"\n") + 1].splitlines(keepends=True)  # without a last one that a crash cut short
        checked = list(checked_bodies(self.path, lines, self._seed()))
        self._digests = [digest for _, digest in checked]
        self._ends, self.stamp = list(accumulate(map(len, lines))), stamp
        return [body for body, _ in checked]

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the file's folder against other processes."""
        make_folder(self.path.parent)
        descriptor = os.open(self.path.parent, os.O_RDONLY)
        try:
            for _ in range(TRIES):
                with suppress(BlockingIOError):
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                time.sleep(TRY_S)
            else:
                raise Interrupted(f"{self.path}: another process has held it for {TRIES * TRY_S:g} s; end that one")
            yield
        finally:
            os.close(descriptor)


def first(seed: str) -> str:
    """The checksum before the first line."""
    return hashlib.sha256(seed.encode()).hexdigest()


def plain_lines(contents: Iterable[Mapping[str, Any]]) -> bytes:
    """A line of each object, without checksums: the content of a file that something else vouches for."""
    return b"".join(_body(content) + b"\n" for content in contents)


def _body(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":"), allow_nan=False).encode()


def checked_line(content: Mapping[str, Any], before: str) -> tuple[bytes, str]:
    """A line of an object that is not empty, with its checksum; and the checksum, hexadecimal."""
    body = _body(content)
    digest = _chained(before, body)
    return body[:-1] + _BEFORE + digest.encode() + _AFTER, digest


def checked_bodies(path: Path, lines: Iterable[bytes], seed: str) -> Iterator[tuple[bytes, str]]:
    """The bytes of each line's object without its checksum, and the checksum; a last line that a crash tore ends them.

    Raises:
        DataError: a line of the file `path` is not what was written.
    """
    before = first(seed)
    for number, line in enumerate(lines, start=1):
        if not line.endswith(b"\n"):
            return
        fitting = _body_of(line, before)
        if fitting is None:
            raise DataError(f"{path}: line {number} is damaged; bring a back-up of the file back")
        before = fitting[1]
        yield fitting


def _body_of(line: bytes, before: str) -> tuple[bytes, str] | None:
    """The bytes of a line's object without its checksum, and the checksum; None where it does not fit."""
    if not line.endswith(_AFTER) or line[-_ADDED:][: len(_BEFORE)] != _BEFORE:
        return None
    body, digest = line[:-_ADDED] + b"}", line[-_ADDED + len(_BEFORE) : -len(_AFTER)]
    expected = _chained(before, body)
    return (body, expected) if digest == expected.encode() else None


def _chained(before: str, body: bytes) -> str:
    return hashlib.sha256(before.encode() + body).hexdigest()

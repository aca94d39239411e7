"""Transcripts from a tar or zip archive of any origin: no more is unpacked than a transcript can hold."""

from __future__ import annotations

import bz2
import gzip
import lzma
import tarfile
import tempfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import IO, Any

from treetap.errors import BadInput
from treetap.wire.tap_file import TAP

_UNREADABLE = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError)
#: Most times an archive's size that it may unpack to: files of a transcript are compressed already.
_TIMES = 20
_AT_LEAST = 16 << 20
_BLOCK = 1 << 20
_COMPRESSIONS: tuple[Any, ...] = (gzip.open, bz2.open, lzma.open)


def unpack(archive: Path, into: Path) -> None:
    """Unpack the .tap files of an archive below `into`, with their folders.

    Raises:
        BadInput: it is no archive, is damaged, leads out of `into`, or unpacks to too much.
    """
    try:
        budget = _Budget(archive)
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as zipped:
                for entry in zipped.infolist():
                    if not entry.is_dir():
                        with zipped.open(entry) as content:
                            _place(budget, entry.filename, content, into)
            return
        with tempfile.TemporaryFile() as plain:
            _decompress(budget, archive, plain)
            plain.seek(0)
            # Of a plain file no header can take up more memory than the file is long.
            with tarfile.open(fileobj=plain, mode="r:") as tar:
                for member in tar:
                    if member.isfile() and (taken := tar.extractfile(member)) is not None:
                        _place(budget, member.name, taken, into)
    except (*_UNREADABLE, ValueError) as failure:
        raise BadInput(
            f"{archive}: cannot be unpacked ({type(failure).__name__}): give a transcript's folder, one .tap file, or "
            "a tar or zip archive"
        ) from failure


class _Budget:
    """Limits the bytes that are unpacked from an archive."""

    def __init__(self, archive: Path) -> None:
        self.archive = archive
        self._left = self._limit = _AT_LEAST + _TIMES * archive.stat().st_size

    def copy(self, source: IO[bytes], target: IO[bytes]) -> None:
        while block := source.read(_BLOCK):
            self._left -= len(block)
            if self._left < 0:
                raise BadInput(f"{self.archive}: unpacks to more than {self._limit} bytes, which no transcript does")
            target.write(block)


def _decompress(budget: _Budget, archive: Path, plain: IO[bytes]) -> None:
    """Copy an archive, decompressed if it is compressed."""
    for compression in _COMPRESSIONS:
        with compression(archive) as decompressed:
            try:
                decompressed.read(1)
            except _UNREADABLE:
                continue
            decompressed.seek(0)
            budget.copy(decompressed, plain)
            return
    with archive.open("rb") as file:
        budget.copy(file, plain)


def _place(budget: _Budget, name: str, content: IO[bytes], into: Path) -> None:
    place = PurePosixPath(name)
    if not TAP.fullmatch(place.name):
        return
    if place.is_absolute() or ".." in place.parts:
        raise BadInput(f"{budget.archive}: {name!r} leads out of the archive")
    target = into / place
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as file:
        budget.copy(content, file)

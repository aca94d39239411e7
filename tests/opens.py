"""Opens of files, counted for the whole process, however a file is opened."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_watched: list[tuple[str, bool, list[Path]]] = []


def _heard(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open" and _watched and isinstance(arguments[0], str | os.PathLike):
        path, flags = os.fspath(arguments[0]), arguments[2]
        if isinstance(path, str) and isinstance(flags, int):
            for folder, reading, found in _watched:
                if path.startswith(folder) and (flags & os.O_ACCMODE == os.O_RDONLY) == reading:
                    found.append(Path(path))


sys.addaudithook(_heard)  # stays for as long as the process; nothing is kept without a watcher


@contextmanager
def _watching(folder: Path, reading: bool) -> Iterator[list[Path]]:
    watch: tuple[str, bool, list[Path]] = (f"{folder}{os.sep}", reading, [])
    _watched.append(watch)
    try:
        yield watch[2]
    finally:
        _watched[:] = [each for each in _watched if each is not watch]


@contextmanager
def opened_to_read(folder: Path) -> Iterator[list[Path]]:
    """The paths below `folder` that are opened to be read within the block, as often as they are."""
    with _watching(folder, reading=True) as found:
        yield found


@contextmanager
def opened_to_write(folder: Path) -> Iterator[list[Path]]:
    """The same for files that are opened to be written."""
    with _watching(folder, reading=False) as found:
        yield found

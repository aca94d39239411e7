"""Opens of files, counted for the whole process, however a file is opened."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_watched: list[tuple[str, list[Path]]] = []


def _heard(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open" and _watched and isinstance(arguments[0], str | os.PathLike):
        path, flags = os.fspath(arguments[0]), arguments[2]
        if isinstance(path, str) and isinstance(flags, int) and flags & os.O_ACCMODE == os.O_RDONLY:
            for folder, found in _watched:
                if path.startswith(folder):
                    found.append(Path(path))


sys.addaudithook(_heard)  # stays for as long as the process; nothing is kept while nobody watches


@contextmanager
def opened_to_read(folder: Path) -> Iterator[list[Path]]:
    """The paths below `folder` that are opened to be read within the block, as often as they are."""
    watch: tuple[str, list[Path]] = (f"{folder}{os.sep}", [])
    _watched.append(watch)
    try:
        yield watch[1]
    finally:
        _watched.remove(watch)

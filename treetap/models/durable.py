"""Files that are on disk whole or not at all, whatever crash comes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def write_whole(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Write a file so that after a crash either the old or the new content is there, never half."""
    with writing_whole(path, mode) as file:
        file.write(content)


@contextmanager
def writing_whole(path: Path, mode: int = 0o600) -> Iterator[BinaryIO]:
    """The same for content that comes in parts: the file is there when the block ends, unless by an error."""
    temporary = path.with_name(path.name + ".part")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make a rename or a new entry in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""Files that are on disk whole or not at all, and lines added to them, also after a crash."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL


def write_whole(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Write a file so that after a crash either the old or the new content is there, never half."""
    with writing_whole(path, mode) as file:
        file.write(content)


@contextmanager
def writing_whole(path: Path, mode: int = 0o600, draft: Path | None = None) -> Iterator[BinaryIO]:
    """The same for content that comes in parts: the file exists once the block ends without an error.

    `draft`: the file in which the content grows, in the same folder; each of several processes that may write the file
    at once needs its own. One that a crash has left there is replaced, and an error leaves none.
    """
    draft = draft or path.with_name(path.name + ".part")
    try:
        descriptor = os.open(draft, _NEW, mode)
    except FileExistsError:
        draft.unlink()
        descriptor = os.open(draft, _NEW, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def append(path: Path, content: bytes) -> os.stat_result:
    """Add to a file's end; it is on disk when this returns the file's new state."""
    with path.open("ab") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
        return os.fstat(file.fileno())


def make_folder(folder: Path) -> None:
    """Make a folder for the process's own user, durably; its parent is there."""
    if not folder.is_dir():
        folder.mkdir(mode=0o700, parents=True)
        sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Make a rename or a new entry in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""The system's file operations, intercepted below the code under test: those of a simulated process pass its disk."""

from __future__ import annotations

import builtins
import errno
import io
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.campaign.disk import SYSTEM, Disk

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class _Written(io.FileIO):
    """A file that is written."""

    disk: Disk
    where: str

    def write(self, content: Any, /) -> int:
        disk, data = self.disk, bytes(content)
        fault = disk.begin("write")
        disk.writes(self.where, os.fstat(self.fileno()).st_ino)
        if fault is not None and fault.how == "torn":
            super().write(data[: disk.rng.randint(0, max(0, len(data) - 1))])
            disk.end(fault)
        written: int = super().write(data)
        disk.end(fault)
        return written

    def truncate(self, size: int | None = None, /) -> int:
        fault = self.disk.begin("truncate")
        self.disk.writes(self.where, os.fstat(self.fileno()).st_ino)
        left = super().truncate(size)
        self.disk.end(fault)
        return left


class Disks:
    """The disks of all processes of a federation whose folders lie in `root`; in force within `active()`."""

    def __init__(self, root: Path) -> None:
        self._root = os.path.abspath(root) + os.sep
        self.of: dict[str, Disk] = {}

    def find(self, path: Any, folder: int | None = None) -> tuple[Disk, str] | None:
        """The disk that holds a path, and the whole path; None for files on no disk of the rig."""
        if isinstance(path, int):
            whole = os.readlink(f"/proc/self/fd/{path}")
        else:
            text = os.fspath(path)
            text = os.fsdecode(text)
            base = os.readlink(f"/proc/self/fd/{folder}") if folder is not None else os.getcwd()
            whole = os.path.join(base, text) if not os.path.isabs(text) else text
        if not whole.startswith(self._root):
            return None
        disk = self.of.get(whole[len(self._root) :].split(os.sep, 1)[0])
        return None if disk is None or disk.failing else (disk, whole)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Within the block, the system's file operations pass the disks."""
        with ExitStack() as stack:
            for module, name, mine in (
                (os, "open", self._os_open),
                (os, "fdopen", self._fdopen),
                (os, "fsync", self._fsync),
                (os, "replace", self._replace),
                (os, "rename", self._replace),
                (os, "unlink", self._unlink),
                (os, "remove", self._unlink),
                (os, "mkdir", self._mkdir),
                (os, "rmdir", self._rmdir),
                (os, "ftruncate", self._ftruncate),
                (io, "open", self._open),
                (builtins, "open", self._open),
            ):
                stack.enter_context(patch.object(module, name, mine))
            yield

    def _os_open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        found = self.find(path, dir_fd)
        if found is None or not flags & _WRITING:
            if found is not None:
                found[0].end(found[0].begin("read"))
            return SYSTEM.os_open(path, flags, mode, dir_fd=dir_fd)
        disk, whole = found
        fault = disk.begin("create")
        new = not os.path.lexists(whole)
        if flags & os.O_TRUNC and not new:
            disk.writes(whole, os.stat(whole).st_ino)
        descriptor = SYSTEM.os_open(path, flags, mode, dir_fd=dir_fd)
        if new:
            disk.named(whole)
        if fault is not None:
            os.close(descriptor)
        disk.end(fault)
        return descriptor

    def _raw(self, file: Any, mode: str, disk: Disk, whole: str, opener: Any = None) -> _Written:
        plain = mode.replace("b", "").replace("t", "")
        raw = _Written(file, plain, opener=opener)
        raw.disk, raw.where = disk, whole
        return raw

    def _wrapped(self, raw: _Written, mode: str, buffering: int, text: dict[str, Any]) -> Any:
        if buffering == 0:
            return raw
        buffer = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        return buffer if "b" in mode else io.TextIOWrapper(buffer, **text)

    def _fdopen(self, fd: int, mode: str = "r", buffering: int = -1, *more: Any, **text: Any) -> Any:
        found = self.find(fd)
        if found is None or not set(mode) & set("wax+"):
            return SYSTEM.fdopen(fd, mode, buffering, *more, **text)
        return self._wrapped(self._raw(fd, mode, *found), mode, buffering, text)

    def _open(
        self, file: Any, mode: str = "r", buffering: int = -1, encoding: Any = None, errors: Any = None,
        newline: Any = None, closefd: bool = True, opener: Any = None,
    ) -> Any:  # fmt: skip
        found = None if isinstance(file, int) else self.find(file)
        if found is None or not set(mode) & set("wax+"):
            if found is not None:
                found[0].end(found[0].begin("read"))
            return SYSTEM.open(file, mode, buffering, encoding, errors, newline, closefd, opener)
        disk, whole = found
        # FileIO opens by itself, past os.open, unless there is an opener: its opener counts the operation.
        raw = self._raw(file, mode, disk, whole, opener or (lambda path, flags: self._os_open(path, flags, 0o666)))
        return self._wrapped(raw, mode, buffering, {"encoding": encoding, "errors": errors, "newline": newline})

    def _fsync(self, fd: Any) -> None:
        number = fd if isinstance(fd, int) else fd.fileno()
        found = self.find(number)
        fault = found[0].begin("fsync") if found else None
        if found and fault is not None and fault.how.startswith("power"):
            found[0].end(fault)  # the power fails while the disk is still at it
        # Nothing is brought to the real disk: what is durable is what this layer remembers.
        if found:
            found[0].synced(os.fstat(number).st_ino)
            found[0].end(fault)

    def _replace(self, src: Any, dst: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
        found, source = self.find(dst, dst_dir_fd), self.find(src, src_dir_fd)
        if found is None or source is None:
            SYSTEM.replace(src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
            return
        disk, whole = found
        fault = disk.begin("rename")
        before = disk.content(whole)
        place = disk.place(source[1])
        SYSTEM.replace(src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        disk.moved(place, whole, before)
        disk.end(fault)

    def _unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        found = self.find(path, dir_fd)
        if found is None:
            SYSTEM.unlink(path, dir_fd=dir_fd)
            return
        disk, whole = found
        if not os.path.lexists(whole):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), whole)
        fault = disk.begin("unlink")
        before = disk.content(whole)
        place = disk.place(whole)
        SYSTEM.unlink(path, dir_fd=dir_fd)
        disk.removed(place, before)
        disk.end(fault)

    def _mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        found = self.find(path, dir_fd)
        fault = found[0].begin("mkdir") if found and not os.path.lexists(found[1]) else None
        SYSTEM.mkdir(path, mode, dir_fd=dir_fd)
        if found:
            found[0].named(found[1])
            found[0].end(fault)

    def _rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        found = self.find(path, dir_fd)
        fault = found[0].begin("rmdir") if found else None
        SYSTEM.rmdir(path, dir_fd=dir_fd)
        if found:
            found[0].end(fault)

    def _ftruncate(self, fd: int, length: int) -> None:
        found = self.find(fd)
        fault = found[0].begin("truncate") if found else None
        if found:
            found[0].writes(found[1], os.fstat(fd).st_ino)
        SYSTEM.ftruncate(fd, length)
        if found:
            found[0].end(fault)

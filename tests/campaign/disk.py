"""Disks that fail, below the code under test: every file operation of a simulated process passes here.

A disk belongs to one process and holds everything below one folder. Any operation, by its number, can be the last one
of its process (before it, after it, or half of it), the one at which the power fails, or the first of some that the
system refuses.

What a power failure takes is what no fsync has made durable. Two kinds of file system:

* strict: a name (new, moved, removed) is durable once its folder was fsynced; names of one folder become durable in
  order, those of different folders in any. Data that was not fsynced is there, missing, there in part, or
  zeros, from where it begins or from a sector on.
* ext4: names become durable in the order of the operations, and any fsync makes all earlier ones durable; a file that
  was renamed over another has its data. Data that was not fsynced is there, missing, or there in part.
"""

from __future__ import annotations

import asyncio
import builtins
import errno
import io
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

How = Literal["before", "after", "torn", "power-ext4", "power-strict", "ENOSPC", "EIO", "EDQUOT", "EROFS"]
CRASHES: tuple[How, ...] = ("before", "after", "torn", "power-ext4", "power-strict")
REFUSALS: tuple[How, ...] = ("ENOSPC", "EIO", "EDQUOT", "EROFS")
#: Bytes that a disk writes as a whole.
SECTOR = 512
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


@dataclass
class DiskFault:
    """What happens at one operation; `for_s`: virtual seconds for which the system refuses operations."""

    at: int
    how: How
    for_s: float = 0.0
    hit: bool = False


@dataclass
class _Name:
    """A name that no fsync has made durable: what it takes to have the former state again."""

    kind: Literal["new", "moved", "removed"]
    folder: int
    name: str
    source: tuple[int, str] | None = None
    content: bytes | None = None  #: of the file that the name stood for before
    journaled: bool = False  #: ext4 has it

    @property
    def folders(self) -> set[int]:
        return {self.folder} | ({self.source[0]} if self.source else set())


@dataclass
class Disk:
    """One process's disk. `dead()`: the process is no more, and does nothing; `crash()` ends it."""

    root: Path
    dead: Callable[[], bool]
    crash: Callable[[], None]
    now: Callable[[], float]
    rng: random.Random
    faults: list[DiskFault] = field(default_factory=list)
    operations: int = 0
    failing: bool = False  #: the power fails just now: nobody's operations
    _names: list[_Name] = field(default_factory=list)
    _durable: dict[int, bytes] = field(default_factory=dict)  # of files whose content has changed since
    _replacing: set[int] = field(default_factory=set)  # files of these that were renamed over others
    _refused_until: tuple[float, int] | None = None

    def begin(self, kind: str) -> DiskFault | None:
        """One operation begins. Returns the fault that ends the process within it or after it."""
        if self.dead():
            raise asyncio.CancelledError
        number, self.operations = self.operations, self.operations + 1
        if self._refused_until is not None and kind != "read":
            until, code = self._refused_until
            if self.now() < until:
                raise OSError(code, os.strerror(code))
            self._refused_until = None
        fault = next((each for each in self.faults if each.at == number and not each.hit), None)
        if fault is None:
            return None
        fault.hit = True
        if fault.how in REFUSALS:
            code = getattr(errno, fault.how)
            self._refused_until = (self.now() + fault.for_s, code)
            raise OSError(code, os.strerror(code))
        if fault.how == "before" or (fault.how == "torn" and kind != "write"):
            self.end(fault)
        return fault

    def refuse_no_more(self) -> None:
        """The system takes operations again."""
        self._refused_until = None

    def end(self, fault: DiskFault | None) -> None:
        """The process ends here, if there is a fault."""
        if fault is not None:
            self.crash()
            if fault.how.startswith("power"):
                self.power_off(strict=fault.how == "power-strict")
            raise asyncio.CancelledError

    # --- what is durable

    def writes(self, path: str, inode: int) -> None:
        """The content of a file is about to change."""
        if inode not in self._durable:
            self._durable[inode] = _read(path)

    def synced(self, inode: int) -> None:
        """A file or folder was fsynced."""
        self._durable.pop(inode, None)
        self._names = [each for each in self._names if inode not in each.folders]
        for each in self._names:
            each.journaled = True

    def named(self, path: str) -> None:
        """A name is new."""
        self._names.append(_Name("new", *self.place(path)))

    def moved(self, source: tuple[int, str], to: str, before: bytes | None) -> None:
        """A name was given up for another, which stood for `before`."""
        self._names.append(_Name("moved", *self.place(to), source, before))
        self._replacing.add(os.stat(to).st_ino)

    def removed(self, place: tuple[int, str], before: bytes | None) -> None:
        """A name is gone."""
        self._names.append(_Name("removed", *place, content=before))

    def place(self, path: str) -> tuple[int, str]:
        """Where a name stands: its folder, its word."""
        folder, name = os.path.split(os.path.abspath(path))
        return os.stat(folder).st_ino, name

    def content(self, path: str) -> bytes | None:
        """What a file holds that is about to go, None where there is none; its number may soon be another file's."""
        if not os.path.isfile(path):
            return None
        inode = os.stat(path).st_ino
        self._durable.pop(inode, None)
        self._replacing.discard(inode)
        return _read(path)

    def power_off(self, *, strict: bool) -> None:
        """Take what is not durable, as chance has it."""
        self.failing = True
        try:
            self._take(strict)
        finally:
            self.failing = False

    def _take(self, strict: bool) -> None:
        undone = self._undone(strict)
        inodes = {path.stat().st_ino: path for path in [self.root, *self.root.rglob("*")]}
        for inode, durable in self._durable.items():
            if (path := inodes.get(inode)) is not None and path.is_file():
                keep = not strict and inode in self._replacing
                _REAL.write(path, path.read_bytes() if keep else self._left(durable, path.read_bytes(), strict))
        for each in reversed(self._names):
            if each in undone:
                self._undo(each, inodes)
        self._names, self._durable, self._replacing = [], {}, set()

    def _undone(self, strict: bool) -> list[_Name]:
        if not strict:
            open_ = [each for each in self._names if not each.journaled]
            return open_[self.rng.randint(0, len(open_)) :]
        found: list[_Name] = []
        for folder in {each.folder for each in self._names}:
            mine = [each for each in self._names if each.folder == folder]
            found += mine[self.rng.randint(0, len(mine)) :]
        return found

    def _left(self, durable: bytes, written: bytes, strict: bool) -> bytes:
        if not written.startswith(durable):
            return self.rng.choice([durable, written])
        added = written[len(durable) :]
        kept = self.rng.choice([0, len(added), self.rng.randint(0, len(added))])
        if strict and self.rng.random() < 0.3:
            first = len(durable) if kept == 0 else (len(durable) + kept) // SECTOR * SECTOR
            return written[: max(first, len(durable))] + bytes(len(written) - max(first, len(durable)))
        return durable + added[:kept]

    def _undo(self, name: _Name, inodes: dict[int, Path]) -> None:
        folder = inodes.get(name.folder)
        if folder is None or not folder.is_dir():
            return
        path = folder / name.name
        if name.kind == "new":
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
            return
        if name.kind == "moved" and name.source is not None and path.exists():
            source = inodes.get(name.source[0])
            if source is not None and source.is_dir():
                path.replace(source / name.source[1])
                for inode, each in list(inodes.items()):
                    if each == path or path in each.parents:
                        inodes[inode] = source / name.source[1] / each.relative_to(path)
        if name.content is not None:
            _REAL.write(path, name.content)


def _read(path: str) -> bytes:
    with _REAL.open(path, "rb") as file:
        content: bytes = file.read()
    return content


class _Real:
    """The system's own operations, kept from before they were replaced."""

    open = staticmethod(io.open)
    os_open, fdopen, fsync = staticmethod(os.open), staticmethod(os.fdopen), staticmethod(os.fsync)
    replace, unlink, mkdir, rmdir = (staticmethod(each) for each in (os.replace, os.unlink, os.mkdir, os.rmdir))
    ftruncate = staticmethod(os.ftruncate)

    def write(self, path: Path, content: bytes) -> None:
        with self.open(path, "wb") as file:
            file.write(content)


_REAL = _Real()


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
        """The disk that holds a path, and the whole path; None for files of nobody's."""
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
            return _REAL.os_open(path, flags, mode, dir_fd=dir_fd)
        disk, whole = found
        fault = disk.begin("create")
        new = not os.path.lexists(whole)
        if flags & os.O_TRUNC and not new:
            disk.writes(whole, os.stat(whole).st_ino)
        descriptor = _REAL.os_open(path, flags, mode, dir_fd=dir_fd)
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
            return _REAL.fdopen(fd, mode, buffering, *more, **text)
        return self._wrapped(self._raw(fd, mode, *found), mode, buffering, text)

    def _open(
        self, file: Any, mode: str = "r", buffering: int = -1, encoding: Any = None, errors: Any = None,
        newline: Any = None, closefd: bool = True, opener: Any = None,
    ) -> Any:  # fmt: skip
        found = None if isinstance(file, int) else self.find(file)
        if found is None or not set(mode) & set("wax+"):
            if found is not None:
                found[0].end(found[0].begin("read"))
            return _REAL.open(file, mode, buffering, encoding, errors, newline, closefd, opener)
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
            _REAL.replace(src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
            return
        disk, whole = found
        fault = disk.begin("rename")
        before = disk.content(whole)
        place = disk.place(source[1])
        _REAL.replace(src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        disk.moved(place, whole, before)
        disk.end(fault)

    def _unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        found = self.find(path, dir_fd)
        if found is None:
            _REAL.unlink(path, dir_fd=dir_fd)
            return
        disk, whole = found
        if not os.path.lexists(whole):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), whole)
        fault = disk.begin("unlink")
        before = disk.content(whole)
        place = disk.place(whole)
        _REAL.unlink(path, dir_fd=dir_fd)
        disk.removed(place, before)
        disk.end(fault)

    def _mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        found = self.find(path, dir_fd)
        fault = found[0].begin("mkdir") if found and not os.path.lexists(found[1]) else None
        _REAL.mkdir(path, mode, dir_fd=dir_fd)
        if found:
            found[0].named(found[1])
            found[0].end(fault)

    def _rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        found = self.find(path, dir_fd)
        fault = found[0].begin("rmdir") if found else None
        _REAL.rmdir(path, dir_fd=dir_fd)
        if found:
            found[0].end(fault)

    def _ftruncate(self, fd: int, length: int) -> None:
        found = self.find(fd)
        fault = found[0].begin("truncate") if found else None
        if found:
            found[0].writes(found[1], os.fstat(fd).st_ino)
        _REAL.ftruncate(fd, length)
        if found:
            found[0].end(fault)

"""Disks that fail: what their processes and the power leave of files (`file_calls` has every operation pass here).

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
import errno
import io
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

How = Literal["before", "after", "torn", "power-ext4", "power-strict", "ENOSPC", "EIO", "EDQUOT", "EROFS"]
CRASHES: tuple[How, ...] = ("before", "after", "torn", "power-ext4", "power-strict")
REFUSALS: tuple[How, ...] = ("ENOSPC", "EIO", "EDQUOT", "EROFS")
#: Bytes that a disk writes as a whole.
SECTOR = 512


@dataclass
class DiskFault:
    """Fault at one operation; `for_s`: virtual seconds for which the system refuses operations."""

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
            self._durable[inode] = SYSTEM.read(path)

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
        """The place of a path: the inode of its folder, and its name there."""
        folder, name = os.path.split(os.path.abspath(path))
        return os.stat(folder).st_ino, name

    def content(self, path: str) -> bytes | None:
        """Content of a file that is about to be deleted, None where there is none; its inode may be used again."""
        if not os.path.isfile(path):
            return None
        inode = os.stat(path).st_ino
        self._durable.pop(inode, None)
        self._replacing.discard(inode)
        return SYSTEM.read(path)

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
                SYSTEM.write(path, path.read_bytes() if keep else self._left(durable, path.read_bytes(), strict))
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
            SYSTEM.write(path, name.content)


class _System:
    """The system's own operations, kept from before they were replaced."""

    open = staticmethod(io.open)
    os_open, fdopen, fsync = staticmethod(os.open), staticmethod(os.fdopen), staticmethod(os.fsync)
    replace, unlink, mkdir, rmdir = (staticmethod(each) for each in (os.replace, os.unlink, os.mkdir, os.rmdir))
    ftruncate = staticmethod(os.ftruncate)

    def read(self, path: str | Path) -> bytes:
        with self.open(path, "rb") as file:
            content: bytes = file.read()
        return content

    def write(self, path: Path, content: bytes) -> None:
        with self.open(path, "wb") as file:
            file.write(content)


SYSTEM = _System()

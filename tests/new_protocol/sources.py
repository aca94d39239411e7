"""A copy of the sources to which a protocol is added, and the count of what that changes."""

from __future__ import annotations

import difflib
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
#: The folders and the file that the product, its tests and its import rules are made of.
SOURCES = (
    "attacks",
    "coordinator",
    "docs",
    "lab",
    "ops",
    "party",
    "protos",
    "tools",
    "tests",
    "treetap",
    "pyproject.toml",
)
#: Those of the new protocol, under the paths that they have in the sources.
FILES = Path(__file__).resolve().parent / "files"
#: Its name, in the paths of all its files.
NAME = "winsorised"


class Line(NamedTuple):
    """A line that goes into a file, after the only line there that begins with `after`."""

    file: str
    after: str
    text: str


PROTOCOLS = "protos/treetap/wire/v2/protocols.proto"
#: The lines that the protocol adds to files that are there.
LINES = (
    Line(PROTOCOLS, 'import "treetap/wire/v2/serving.proto";', 'import "treetap/wire/v2/winsorised.proto";'),
    Line(PROTOCOLS, "    ForestParams forest = ", "    WinsorisedParams winsorised = 99 [(reveals) = CONTROL];"),
    Line(PROTOCOLS, "    ForestStep forest = ", "    WinsorisedStep winsorised = 99 [(reveals) = CONTROL];"),
    Line(PROTOCOLS, "    ForestBody forest = ", "    WinsorisedBody winsorised = 99 [(reveals) = CONTROL];"),
    Line("treetap/protocols/registry.py", '    "forest": ', '    "winsorised": "treetap.protocols.winsorised",'),
    Line("party/protocols.py", '    "forest": ', '    "winsorised": "treetap.party.winsorised",'),
    Line("coordinator/protocols.py", '    "forest": ', '    "winsorised": "treetap.coordinator.winsorised",'),
)


def copy_of_sources(folder: Path) -> None:
    """Copy the sources, without what programs leave behind, and without this folder and its like."""
    folder.mkdir(parents=True, exist_ok=True)
    ignored = shutil.ignore_patterns("__pycache__", "new_*", "*.pyc")
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=ignored, symlinks=True)
        else:
            shutil.copy(source, folder / name)


def add_protocol(folder: Path, lines: Iterable[Line] = LINES, files: Path = FILES) -> None:
    """Add the protocol's own files to a copy, and the lines to those that are there.

    Raises:
        ValueError: the line after which one goes is not there, or more than once.
    """
    shutil.copytree(files, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    for line in lines:
        path = folder / line.file
        content = path.read_text(encoding="utf-8").splitlines(keepends=True)
        places = [number for number, each in enumerate(content, start=1) if each.startswith(line.after)]
        if len(places) != 1:
            raise ValueError(f"{line.file}: {len(places)} lines begin with {line.after!r}, not one")
        content.insert(places[0], line.text + "\n")
        path.write_text("".join(content), encoding="utf-8")


class Changes(NamedTuple):
    """Differences of two folders, by path: (lines added, lines removed) of files of both; files of one only."""

    edited: dict[str, tuple[int, int]]
    added: set[str]
    removed: set[str]


def changes(before: Path, after: Path) -> Changes:
    """The differences of two folders."""
    old, new = (_files(folder) for folder in (before, after))
    edited = {}
    for name in sorted(old.keys() & new.keys()):
        if (one := old[name].read_bytes()) != (other := new[name].read_bytes()):
            lines = list(difflib.ndiff(*(each.decode("utf-8").splitlines() for each in (one, other))))
            edited[name] = (sum(each.startswith("+ ") for each in lines), sum(each.startswith("- ") for each in lines))
    return Changes(edited, new.keys() - old.keys(), old.keys() - new.keys())


def assert_cheap(found: Changes) -> None:
    """A protocol is its own files, and seven lines in four files that are there; everything else stays as it was."""
    foreign = {name for name in found.added if NAME not in (*Path(name).parts, Path(name).stem)}
    assert not foreign, f"files of no protocol: {foreign}"
    assert not found.removed, f"files that were removed: {found.removed}"
    assert len(found.edited) == 4, f"{len(found.edited)} files edited, not 4: {sorted(found.edited)}"
    added, removed = (sum(counts) for counts in zip(*found.edited.values(), strict=True))
    assert (added, removed) == (7, 0), f"{added} lines added and {removed} removed, not 7 and 0: {found.edited}"


def _files(folder: Path) -> dict[str, Path]:
    paths = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(folder).as_posix(): path for path in paths}

"""Search for secrets by content in all that a cluster holds: object stores, memory of actors, logs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tests.ray_cluster import RayCluster

#: Bytes that are searched at a time, and how far from one start to the next: they overlap by more than a form is long.
CHUNK = 8 * 2**20
STEP = CHUNK - 4096


def forms_of(name: str, number: int) -> dict[bytes, str]:
    """The texts and bytes in which a number could lie somewhere, each with its name in words.

    Pickles of numbers, and GMP, have them little-endian.
    """
    size = -(-number.bit_length() // 8)
    return {
        number.to_bytes(size, "big"): f"{name}, big-endian",
        number.to_bytes(size, "little"): f"{name}, little-endian",
        str(number).encode(): f"{name}, decimal",
        f"{number:x}".encode(): f"{name}, hexadecimal",
        f"{number:X}".encode(): f"{name}, hexadecimal",
        number.to_bytes(size, "little").hex().encode(): f"{name}, hexadecimal, little-endian",
    }


def actors(cluster: RayCluster) -> list[int]:
    """Process ids of the actors on the cluster's nodes."""
    raylets = {pids["raylet"] for pids in cluster.pids}
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            parent = int((folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
            command = (folder / "cmdline").read_bytes()
        except OSError:  # it has ended
            continue
        if parent in raylets and command.startswith(b"ray::WorkerActor"):
            found.append(int(folder.name))
    return sorted(found)


def held_by(cluster: RayCluster, forms: Mapping[bytes, str]) -> dict[str, set[str]]:
    """Place (kind of memory) → what of the forms is there."""
    places = {
        "object store": _stores(cluster),
        "memory of an actor": (chunk for pid in actors(cluster) for chunk in _memory(pid)),
        "log": (path.read_bytes() for path in cluster.folder.rglob("*") if path.is_file()),
    }
    return {place: _found(chunks, forms) for place, chunks in places.items()}


def _found(chunks: Iterable[bytes], forms: Mapping[bytes, str]) -> set[str]:
    return {name for chunk in chunks for form, name in forms.items() if form in chunk}


def _stores(cluster: RayCluster) -> Iterator[bytes]:
    """The object stores: files in memory, which only their processes still name."""
    for pids in cluster.pids:
        seen = False
        for link in Path(f"/proc/{pids['raylet']}/fd").iterdir():
            try:
                if "plasma" not in os.readlink(link):
                    continue
                with link.open("rb") as file:
                    yield from _written(file.fileno())
            except OSError:
                continue
            seen = True
        assert seen, "a node's object store was not found"


def _written(file: int) -> Iterator[bytes]:
    """The parts of a sparse file that were ever written, which overlap where they are cut."""
    end = os.fstat(file).st_size
    at = 0
    while at < end:
        try:
            at = os.lseek(file, at, os.SEEK_DATA)
        except OSError:  # a hole to the end
            return
        until = os.lseek(file, at, os.SEEK_HOLE)
        while at < until:
            yield os.pread(file, min(CHUNK, until - at), at)
            at += STEP
        at = until


def held_in(pid: int, forms: Iterable[bytes]) -> set[bytes]:
    """Those of the forms that lie in a process's memory."""
    return {form for chunk in _memory(pid) for form in forms if form in chunk}


def _memory(pid: int) -> Iterator[bytes]:
    """Descriptors that a process can write to, without files."""
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            extent, rights, _, _, inode, *_ = line.split()
            first, last = (int(end, 16) for end in extent.split("-"))
            if not rights.startswith("rw") or inode != "0":
                continue
            for at in range(first, last, STEP):
                try:
                    memory.seek(at)
                    yield memory.read(min(CHUNK, last - at))
                except (OSError, ValueError):  # no page there
                    break

"""Search for secrets by content in the memory of processes; the actors of a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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

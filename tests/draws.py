"""The draws of a job's seed once more, as `treetap.trees.sampling` defines them: word by word, in plain Python."""

from __future__ import annotations

import hashlib
import itertools
import struct
from collections.abc import Iterator
from fractions import Fraction

import numpy as np


def words(seed: int, *path: str | int) -> Iterator[int]:
    """The words of a named draw, without end."""
    name = f"treetap draw\x1fi:{seed}\x1f"
    for part in path:
        name += ("s:" if isinstance(part, str) else "i:") + str(part) + "\x1f"
    for block in itertools.count():
        yield from struct.unpack("<4Q", hashlib.sha256(name.encode() + struct.pack("<Q", block)).digest())


def happens(chance: float, count: int, seed: int, *path: str | int) -> list[bool]:
    """Events of this chance each."""
    return [Fraction(word, 2**64) < Fraction(chance) for word in itertools.islice(words(seed, *path), count)]


def smallest(count: int, n: int, seed: int, *path: str | int) -> list[int]:
    """`count` of n places, none twice."""
    keys = list(itertools.islice(words(seed, *path), n))
    return sorted(sorted(range(n), key=lambda place: (keys[place], place))[:count])


def integers(below: int, count: int, seed: int, *path: str | int) -> list[int]:
    """Whole numbers below a bound."""
    fair = 2**64 - 2**64 % below
    return list(itertools.islice((word % below for word in words(seed, *path) if word < fair), count))


def takes_part(seed: int, tree: int, party: str, dropout: float) -> bool:
    """False for a party that sits a tree out."""
    digest = hashlib.sha256(f"i:{seed}\x1fs:party\x1fi:{tree}\x1fs:{party}".encode()).digest()
    return Fraction(struct.unpack("<Q", digest[:8])[0], 2**64) >= Fraction(dropout)


def rows(seed: int, tree: int, subsample: float, eligible: list[bool]) -> list[bool]:
    """The records that a tree of boosting draws."""
    hit = happens(subsample, len(eligible), seed, "rows", tree)
    return [drawn and may for drawn, may in zip(hit, eligible, strict=True)]


def drawn(seed: int, tree: int, n: int, subsample: float, *, bootstrap: bool) -> list[int]:
    """The times that a tree of a forest draws each record."""
    count = max(1, int(subsample * n))
    name = seed, "records", tree
    chosen = integers(n, count, *name) if bootstrap else smallest(count, n, *name)
    return [chosen.count(record) for record in range(n)]


def columns(seed: int, tree: int, party: str, d: int, share: float) -> list[int]:
    """The columns of a party that a tree uses."""
    count = min(d, max(1, int(np.float32(share) * np.float32(d))))
    return smallest(count, d, seed, "columns", tree, party)


def set_aside(seed: int, n: int, share: float) -> list[bool]:
    """The records by which a training stops early."""
    chosen = smallest(min(max(1, round(share * n)), n - 1), n, seed, "validation")
    return [record in chosen for record in range(n)]

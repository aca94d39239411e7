"""The part of a transcript that is kept in memory: numbered series of messages, within a budget.

Messages of a series may come in any order and repeatedly; a small file can describe sets of any size.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from treetap.errors import BadInput, Malformed
from treetap.usage import half_of_memory
from treetap.wire.frame import name_of
from treetap.wire.v2 import exchange_pb2

_SETS = 16  # sets of all records that must fit


class MemoryBudget:
    """Counts the bytes that are kept of a transcript. `limit`: in bytes, by default half of this machine's memory."""

    def __init__(self, limit: int | None = None) -> None:
        self._limit = self._left = half_of_memory() if limit is None else limit

    def take(self, size: int) -> None:
        """Count `size` bytes that are kept, below 0 that are released. Raises BadInput above the limit."""
        self._left -= size
        if self._left < 0:
            raise BadInput(f"its records take up more than {self._limit >> 20} MiB, half of this machine's memory")

    def rows(self, total: int) -> npt.NDArray[np.int64]:
        """The positions of all records, (total,). Raises BadInput for more than this machine could read a tree of."""
        if 8 * _SETS * total > self._limit:
            raise BadInput(f"its sets are of {total} records, too many for this machine's memory")
        return np.arange(total, dtype=np.int64)


T = TypeVar("T")


@dataclass
class Series(Generic[T]):
    """The parts of one series; a part whose content is not kept is None. `last`: number of the last one, once known."""

    parts: dict[int, T | None] = field(default_factory=dict)
    last: int | None = None

    def add(self, message: exchange_pb2.PeerMessage, content: T | None) -> bool:
        """Take a part; returns True if there is more to keep. Raises Malformed if it came with another content."""
        known = message.part in self.parts
        before = self.parts.setdefault(message.part, content)
        if None not in (before, content) and before != content:
            raise Malformed(f"{name_of(message)}: part {message.part} came twice with different content")
        if message.last:
            self.last = message.part
        return content is not None and not known

    @property
    def whole(self) -> bool:
        """True if no part is missing."""
        return self.last is not None and len(self.parts) == self.last + 1 == max(self.parts) + 1

    def in_order(self) -> list[T]:
        """The contents that are kept, by their numbers."""
        return [content for _, content in sorted(self.parts.items()) if content is not None]

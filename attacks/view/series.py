"""A numbered series of messages, which may come in any order and repeatedly."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from treetap.errors import Malformed
from treetap.wire.frame import name_of
from treetap.wire.v2 import exchange_pb2

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

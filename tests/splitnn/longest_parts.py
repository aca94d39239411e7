"""The longest part of every kind of message of split networks: see `tests.runtime.test_longest_parts`."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from treetap.party.runtime.context import Body
from treetap.party.splitnn.bodies import EMBEDDINGS, GRADIENTS, bodies


def _numbers(kind: str) -> Iterable[Body]:
    """A block of wide embeddings, and rows of which one fills a message."""
    yield from bodies(kind, bytes(4096 * 3000 * 4), 3000, "float32")
    yield from bodies(kind, bytes(8 * 65_536 * 2), 65_536, "bfloat16")


#: Kind → its parts.
PARTS: dict[str, Callable[[], Iterable[Body]]] = {
    kind: lambda kind=kind: _numbers(kind)  # type: ignore[misc]
    for kind in (EMBEDDINGS, GRADIENTS)
}

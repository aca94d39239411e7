"""The part of a transcript that is kept in memory: numbered series of messages, within a budget.

Of a split network embeddings or their gradients, by epoch and batch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar, cast

import numpy as np
import numpy.typing as npt

from treetap.errors import BadInput, Malformed
from treetap.usage import half_of_memory
from treetap.wire.frame import content_of, name_of
from treetap.wire.v2 import exchange_pb2, splitnn_pb2

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


# The messages of a split network that a party received, embeddings or their gradients, by epoch and batch.


#: The messages with the numbers of a batch: at a label holder, and at a feature party.
EMBEDDINGS, GRADIENTS = "embeddings", "embedding_gradients"
Numbers = splitnn_pb2.Embeddings | splitnn_pb2.EmbeddingGradients


@dataclass
class NetworkMessages:
    """Numbers that a party received.

    Attributes:
        kind: the name of their messages.
        epochs: those whose numbers are kept; None: all, or with `newest` those from the last stored one on.
        newest: as soon as an epoch is stored, the numbers of those before it are dropped: the party had all of its own.
        of_blocks: they are of a prediction: an attempt, which has records of its own, counts as an epoch, and a block
            of its records as a batch.
        senders: their senders.
    """

    kind: str = GRADIENTS
    epochs: Collection[int] | None = None
    newest: bool = False
    of_blocks: bool = False
    senders: set[str] = field(default_factory=set)
    _batches: defaultdict[tuple[str, int, int], dict[int, Series[Numbers]]] = field(  # sender, epoch, batch → attempt
        default_factory=lambda: defaultdict(dict)
    )

    def take(self, peer: str, message: exchange_pb2.PeerMessage, budget: MemoryBudget) -> None:
        """Take a received message; one that came before is the same message.

        Raises:
            Malformed: it is another one.
            BadInput: the numbers are more than the budget.
        """
        self.senders.add(peer)
        content = cast(Numbers, content_of(message, self.kind))
        epoch, batch, attempt = message.round, message.stage, message.attempt
        if self.of_blocks:
            epoch, batch, attempt = message.attempt, message.round, message.stage
        series = self._batches[peer, epoch, batch].setdefault(attempt, Series())
        try:
            if series.add(message, content if self.epochs is None or epoch in self.epochs else None):
                budget.take(content.ByteSize())
        except Malformed as fault:
            raise Malformed(f"{peer}, round {message.round}, stage {message.stage}: {fault}") from None

    def stored(self, epoch: int, budget: MemoryBudget) -> None:
        """Note that the party was asked to store an epoch, of which it has received all."""
        if self.newest:
            self.drop({earlier for _, earlier, _ in self._batches if earlier < epoch}, budget)

    def drop(self, epochs: Iterable[int], budget: MemoryBudget) -> None:
        """Drop the numbers of these epochs; which batches there were is still known."""
        dropped = frozenset(epochs)
        for (_, epoch, _), attempts in self._batches.items():
            for series in attempts.values() if epoch in dropped else ():
                budget.take(-sum(content.ByteSize() for content in series.in_order()))
                series.parts = dict.fromkeys(series.parts)

    def places(self, sender: str) -> dict[int, list[int]]:
        """Epoch → the batches whose numbers a sender has sent whole, ascending."""
        batches: defaultdict[int, list[int]] = defaultdict(list)
        for peer, epoch, batch in sorted(self._batches):
            if peer == sender and any(series.whole for series in self._batches[peer, epoch, batch].values()):
                batches[epoch].append(batch)
        return dict(batches)

    def held(self, sender: str) -> list[int]:
        """The epochs of a sender with numbers that are kept, ascending."""
        return sorted(
            {
                epoch
                for (peer, epoch, _), attempts in self._batches.items()
                if peer == sender and any(series.in_order() for series in attempts.values())
            }
        )

    def parts(self, sender: str, epoch: int, batch: int) -> list[Numbers]:
        """The parts of a batch in order, of the last attempt that has all of them; none where no attempt has."""
        for _, series in sorted(self._batches.get((sender, epoch, batch), {}).items(), reverse=True):
            if series.whole:
                return series.in_order()
        return []

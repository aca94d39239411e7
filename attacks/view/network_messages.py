"""The messages of a split network that a feature party received, by epoch and batch."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from treetap.errors import Malformed
from treetap.wire.v2 import exchange_pb2, splitnn_pb2

#: The message with the gradients of a batch.
GRADIENTS = "embedding_gradients"


@dataclass
class _Batch:
    """The parts of one batch's gradients in one attempt, which may come in any order and repeatedly."""

    parts: dict[int, splitnn_pb2.EmbeddingGradients] = field(default_factory=dict)
    last: int | None = None

    def add(self, message: exchange_pb2.PeerMessage) -> None:
        content = message.protocol.splitnn.embedding_gradients
        if self.parts.setdefault(message.part, content) != content:
            raise Malformed(
                f"{GRADIENTS}: part {message.part} of epoch {message.round}, batch {message.stage} came twice with "
                "different content"
            )
        if message.last:
            self.last = message.part

    @property
    def whole(self) -> bool:
        return self.last is not None and len(self.parts) == self.last + 1 == max(self.parts) + 1


@dataclass
class NetworkMessages:
    """Gradients that a party received. `senders`: their senders."""

    senders: set[str] = field(default_factory=set)
    _batches: defaultdict[tuple[int, int], dict[int, _Batch]] = field(default_factory=lambda: defaultdict(dict))

    def take(self, peer: str, message: exchange_pb2.PeerMessage) -> None:
        """Take a received message; one that came before is the same message. Raises Malformed."""
        self.senders.add(peer)
        self._batches[message.round, message.stage].setdefault(message.attempt, _Batch()).add(message)

    def places(self) -> dict[int, list[int]]:
        """Epoch → its batches with whole gradients, ascending."""
        found: defaultdict[int, list[int]] = defaultdict(list)
        for epoch, batch in sorted(self._batches):
            if any(each.whole for each in self._batches[epoch, batch].values()):
                found[epoch].append(batch)
        return dict(found)

    def parts(self, epoch: int, batch: int) -> list[splitnn_pb2.EmbeddingGradients]:
        """The parts of a batch in order, of the last attempt that has all of them; none where no attempt has."""
        for _, each in sorted(self._batches.get((epoch, batch), {}).items(), reverse=True):
            if each.whole:
                return [content for _, content in sorted(each.parts.items())]
        return []

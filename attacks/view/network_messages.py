"""The messages of a split network that a party received, embeddings or their gradients, by epoch and batch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import cast

from treetap.attacks.view.kept_messages import MemoryBudget, Series
from treetap.errors import Malformed
from treetap.wire.frame import content_of
from treetap.wire.v2 import exchange_pb2, splitnn_pb2

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

"""The messages of a prediction, by attempt, that say which records its blocks hold."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from attacks.view.known_trees import Ints
from attacks.view.series import Series
from treetap.wire.records import rows_of
from treetap.wire.v2 import exchange_pb2, prediction_pb2


@dataclass
class PredictionMessages:
    """The attempts at a prediction in one party's log.

    Attributes:
        openings: attempt → what it opened.
        written: the attempts that scored all their blocks, so that the predictions were to be written.
    """

    openings: dict[int, prediction_pb2.OpenModel] = field(default_factory=dict)
    written: set[int] = field(default_factory=set)
    _blocks: dict[tuple[int, int], Series[exchange_pb2.PeerMessage]] = field(default_factory=dict)

    def take(self, message: exchange_pb2.PeerMessage) -> None:
        """Take a message with the records of a block, which the party sent; each receiver's is the same.

        Raises Malformed if it is another.
        """
        self._blocks.setdefault((message.attempt, message.round), Series()).add(message, message)

    def block(self, attempt: int, number: int, total: int) -> Ints | None:
        """Places (n,) of the records of a block among the `total` common ones; None where the log does not have them.

        Raises Malformed if there are no such records.
        """
        series = self._blocks.get((attempt, number))
        if series is None or not series.whole:
            return None
        chunks = [chunk for part in series.in_order() for chunk in part.prediction.block_records.chunks]
        return np.asarray(rows_of(chunks, total), dtype=np.int64)

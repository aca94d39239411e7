"""The messages of a PIVODL job that name records or numbers in plaintext, as a transcript brings them.

Ciphertexts are counted by class like any message, and not kept: a party's transcript has no key.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from attacks.view.known_trees import Ints
from treetap.errors import Malformed
from treetap.wire.frame import content_of
from treetap.wire.records import rows_of
from treetap.wire.v2 import exchange_pb2, types_pb2

#: Steps of a tree whose messages are kept, by level and sender.
OF_TREES = ("node_sums", "best_gains", "divided_nodes", "node_records", "leaf_weights")
#: Of these, the ones whose content a party knows also when it is the sender.
SENT = ("node_sums", "best_gains", "leaf_weights")
#: Most bins of a column, the one of missing values included, whose numbers take one byte each.
_ONE_BYTE = 256


@dataclass
class JobMessages:
    """Messages that a party received before the first tree, by attempt, and lists of records of wire form "paper"."""

    _labelled: dict[tuple[int, str], dict[int, list[types_pb2.RecordChunk]]] = field(default_factory=dict)
    _bins: defaultdict[tuple[int, str], dict[tuple[int, int], int]] = field(default_factory=lambda: defaultdict(dict))
    _listed: dict[tuple[str, int, int, int, int], int] = field(default_factory=dict)

    def take(self, peer: str, message: exchange_pb2.PeerMessage, step: str) -> None:
        """Take a received message; one that came before is the same message."""
        content: Any = content_of(message, step)
        if step == "labelled_records":
            parts = self._labelled.setdefault((message.attempt, peer), {})
            parts[message.part] = list(content.chunks)
        elif step == "record_bins":
            for column in content.columns:
                width = 1 if column.bins + column.has_missing <= _ONE_BYTE else 2
                self._bins[message.attempt, peer][column.column, column.first] = len(column.codes) // width
        elif step == "candidate_records":
            ids = sum(len(listed.records) for listed in content.sets)
            self._listed[peer, message.attempt, message.round, message.stage, message.part] = ids

    def ownership(self, party: str, parties: list[str], total: int) -> dict[str, Ints]:
        """Party → the records that it labels; the transcript's party labels those that no other does.

        Empty where the transcript does not have every other party's. Raises Malformed if two parties label a record.
        """
        others = [name for name in parties if name != party]
        for attempt in sorted({attempt for attempt, _ in self._labelled}, reverse=True):
            # an interrupted attempt may lack the message of some party; an earlier one says the same
            if all((attempt, name) in self._labelled for name in others):
                labelled = {name: self._rows(attempt, name, total) for name in others}
                times = np.zeros(total, dtype=np.int64)
                for rows in labelled.values():
                    times[rows] += 1
                if (times > 1).any():
                    raise Malformed("two parties are said to label the same record")
                return {name: labelled.get(name, np.flatnonzero(times == 0)) for name in parties}
        return {}

    def _rows(self, attempt: int, party: str, total: int) -> Ints:
        parts = self._labelled[attempt, party]
        return rows_of((chunk for _, chunks in sorted(parts.items()) for chunk in chunks), total)

    def bins(self) -> dict[str, int]:
        """Source → bins that it sent this party in its last attempt: records × columns."""
        return {peer: sum(codes.values()) for (_, peer), codes in sorted(self._bins.items())}

    def listed(self) -> int:
        """Ids of records in the lists of candidates, of the paper's wire form."""
        return sum(self._listed.values())


def contents(series: Any, kind: str) -> Iterator[Any]:
    """The contents of a series of messages, in order."""
    return (content_of(message, kind) for message in series.in_order())

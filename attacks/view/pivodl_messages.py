"""The messages of a PIVODL job that name records or numbers in plaintext, as a transcript brings them.

Ciphertexts are counted by class like any message, and not kept: a party's transcript has no key.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from treetap.attacks.view.known_trees import Ints
from treetap.errors import Malformed
from treetap.trees.candidates import Shape
from treetap.wire.frame import content_of
from treetap.wire.records import rows_of
from treetap.wire.v2 import exchange_pb2, pivodl_pb2, types_pb2

#: Steps of a tree whose messages are kept, by level and sender.
OF_TREES = ("node_sums", "best_gains", "divided_nodes", "node_records", "leaf_weights")
#: Of these, the ones whose content a party knows also when it is the sender.
SENT = ("node_sums", "best_gains", "leaf_weights")
#: Most bins of a column, the one of missing values included, whose numbers take one byte each.
_ONE_BYTE = 256


@dataclass(frozen=True, eq=False)
class ReceivedBins:
    """A source's columns, by number, for the m records that a party labels: shapes, and bins (m, columns).

    Missing has the number of bins, as in `treetap.trees.binning`.
    """

    shapes: tuple[Shape, ...]
    codes: Ints = field(repr=False)


@dataclass
class JobMessages:
    """Messages that a party received before the first tree, by attempt, and lists of records of wire form "paper"."""

    _labelled: dict[tuple[int, str], dict[int, list[types_pb2.RecordChunk]]] = field(default_factory=dict)
    _bins: defaultdict[tuple[int, str], dict[tuple[int, int], pivodl_pb2.ColumnBins]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    _listed: dict[tuple[str, int, int, int, int], int] = field(default_factory=dict)

    def take(self, peer: str, message: exchange_pb2.PeerMessage, step: str) -> None:
        """Take a received message; one that came before is the same message."""
        content: Any = content_of(message, step)
        if step == "labelled_records":
            parts = self._labelled.setdefault((message.attempt, peer), {})
            parts[message.part] = list(content.chunks)
        elif step == "record_bins":
            for column in content.columns:
                self._bins[message.attempt, peer][column.column, column.first] = column
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
        return {
            peer: sum(len(part.codes) // _code_type(part).itemsize for part in parts.values())
            for (_, peer), parts in sorted(self._bins.items())
        }

    def columns(self, labelled: int) -> dict[str, ReceivedBins]:
        """Source → bins of the `labelled` records of the transcript's party, where all of them came.

        Raises Malformed for bins that are out of place or outside their column's.
        """
        # bins of every attempt are the same; an interrupted one may lack some
        received = {peer: _whole(peer, parts, labelled) for (_, peer), parts in sorted(self._bins.items())}
        return {peer: bins for peer, bins in received.items() if bins is not None}

    def listed(self) -> int:
        """Ids of records in the lists of candidates, of the paper's wire form."""
        return sum(self._listed.values())


def _code_type(part: pivodl_pb2.ColumnBins) -> np.dtype[Any]:
    """The type of a column's bins in a message."""
    return np.dtype("u1" if part.bins + part.has_missing <= _ONE_BYTE else "<u2")


def _whole(peer: str, parts: dict[tuple[int, int], pivodl_pb2.ColumnBins], labelled: int) -> ReceivedBins | None:
    """The columns of one source; None where parts are missing, as of an attempt that was cut short."""
    shapes: dict[int, Shape] = {}
    codes: dict[int, list[Ints]] = {}
    for (column, first), part in sorted(parts.items()):
        kind, shape = _code_type(part), Shape(part.bins, part.has_missing)
        if len(part.codes) % kind.itemsize or shapes.setdefault(column, shape) != shape:
            raise Malformed(f"{peer} sent bins of column {column} that contradict each other")
        numbers = np.frombuffer(part.codes, dtype=kind).astype(np.int64)
        if len(numbers) and int(numbers.max()) >= part.bins + part.has_missing:
            raise Malformed(f"{peer} sent a bin outside column {column}'s {part.bins} bins")
        if first != sum(map(len, codes.setdefault(column, []))):
            return None
        codes[column].append(numbers)
    columns = [np.concatenate(codes[column]) for column in sorted(codes)]
    if sorted(codes) != list(range(len(codes))) or any(len(column) != labelled for column in columns):
        return None
    return ReceivedBins(tuple(shapes[column] for column in sorted(shapes)), np.stack(columns, axis=1))


def contents(series: Any, kind: str) -> Iterator[Any]:
    """The contents of a series of messages, in order."""
    return (content_of(message, kind) for message in series.in_order())

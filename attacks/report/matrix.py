"""Bytes and messages by receiver and disclosure class."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import NamedTuple

from attacks.document import Document
from attacks.report.glossary import count, rank, share
from treetap import terminal
from treetap.wire.disclosure import CLASSES


class Cell(NamedTuple):
    """One receiver's bytes and messages of one class; `heat` from 0 to 1 grows with the logarithm of bytes."""

    bytes: str
    messages: str
    heat: str


class MatrixRow(NamedTuple):
    """A disclosure class; a cell is None where the receiver received none of it."""

    disclosure: str
    kind: str
    learns: str
    cells: list[Cell | None]


@dataclass(frozen=True)
class Matrix:
    """`partial` receivers have no transcript here: their cells count what other parties recorded as sent."""

    receivers: list[str]
    partial: set[str]
    rows: list[MatrixRow]


class Amount(NamedTuple):
    """Traffic of one class."""

    messages: int
    bytes: int


def amounts(document: Document) -> dict[str, dict[str, Amount]]:
    """Receiver → class → amount; of feature parties by their own transcripts, of others by the traffic."""
    messages: defaultdict[str, Counter[str]] = defaultdict(Counter)
    volume: defaultdict[str, Counter[str]] = defaultdict(Counter)
    rows = [(name, row) for name, party in document.parties.items() for row in party.received]
    others = [(row.receiver, row) for row in document.traffic if row.receiver not in document.parties]
    for receiver, row in [*rows, *others]:
        messages[receiver][row.disclosure] += row.messages
        volume[receiver][row.disclosure] += row.bytes
    order = [*document.parties, *sorted({receiver for receiver, _ in others}, key=lambda it: (it == "coordinator", it))]
    return {
        receiver: {kind: Amount(messages[receiver][kind], volume[receiver][kind]) for kind in messages[receiver]}
        for receiver in order
    }


def matrix(document: Document) -> Matrix:
    """All receivers against all classes that occur, readable classes first."""
    found = amounts(document)
    most = max((amount.bytes for row in found.values() for amount in row.values()), default=1)

    def cell(amount: Amount | None) -> Cell | None:
        if amount is None:
            return None
        heat = math.log1p(amount.bytes) / math.log1p(most) if most else 0.0
        return Cell(terminal.size(amount.bytes), count(amount.messages), f"{heat:.2f}")

    return Matrix(
        receivers=list(found),
        partial=set(found) - set(document.parties),
        rows=[
            MatrixRow(kind, CLASSES[kind].kind, CLASSES[kind].tells, [cell(row.get(kind)) for row in found.values()])
            for kind in sorted({kind for row in found.values() for kind in row}, key=rank)
        ],
    )


class Bar(NamedTuple):
    """A class's share of all traffic; `percent` is of the largest class."""

    disclosure: str
    kind: str
    bytes: str
    messages: str
    part: str
    percent: str


def bars(document: Document) -> list[Bar]:
    """Traffic of the whole job by class, largest first, as far as the given transcripts record it."""
    volume: Counter[str] = Counter()
    messages: Counter[str] = Counter()
    for row in document.traffic:
        volume[row.disclosure] += row.bytes
        messages[row.disclosure] += row.messages
    total, most = sum(volume.values()), max(volume.values(), default=0)
    return [
        Bar(
            kind,
            CLASSES[kind].kind,
            terminal.size(size),
            count(messages[kind]),
            share(size, total),
            f"{100 * size / most:.2f}" if most else "0",
        )
        for kind, size in volume.most_common()
    ]

"""Bytes and messages by receiver and disclosure class."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import NamedTuple

from treetap import terminal
from treetap.attacks.document import Document
from treetap.attacks.report.glossary import count, rank, share
from treetap.pages.pictures import Bar, Cell, Matrix, heat, percent
from treetap.wire.disclosure import CLASSES


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
    """All receivers against all classes that occur, readable classes first; a star: one without a transcript here."""
    received = amounts(document)
    most = max((amount.bytes for row in received.values() for amount in row.values()), default=1)

    def cell(amount: Amount | None) -> Cell:
        if amount is None:
            return Cell("·")
        messages = "message" if amount.messages == 1 else "messages"
        return Cell(terminal.size(amount.bytes), f"{count(amount.messages)} {messages}", heat(amount.bytes, most))

    return Matrix(
        [name if name in document.parties else f"{name} *" for name in received],
        [
            (kind, CLASSES[kind].tells, CLASSES[kind].kind, [cell(row.get(kind)) for row in received.values()])
            for kind in sorted({kind for row in received.values() for kind in row}, key=rank)
        ],
    )


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
            *(kind, "", [terminal.size(size), share(size, total), count(messages[kind])]),
            *(percent(size, most), CLASSES[kind].kind),
        )
        for kind, size in volume.most_common()
    ]

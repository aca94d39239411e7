"""Bytes and messages by receiver and disclosure class."""

from __future__ import annotations

from collections import Counter, defaultdict

from treetap import terminal
from treetap.attacks.document import Document
from treetap.attacks.report.glossary import KINDS, count, rank, share
from treetap.pages.pictures import Bar, Bars, Matrix, heat, percent
from treetap.pages.section import Cell, Key, Section, Table, Text
from treetap.wire.disclosure import CLASSES


def amounts(document: Document) -> dict[str, dict[str, tuple[int, int]]]:
    """Receiver → class → messages, bytes; of feature parties by their own transcripts, of others by the traffic."""
    sums: defaultdict[str, defaultdict[str, tuple[int, int]]] = defaultdict(lambda: defaultdict(lambda: (0, 0)))
    rows = [(name, row) for name, party in document.parties.items() for row in party.received]
    others = [(row.receiver, row) for row in document.traffic if row.receiver not in document.parties]
    for receiver, row in [*rows, *others]:
        messages, size = sums[receiver][row.disclosure]
        sums[receiver][row.disclosure] = messages + row.messages, size + row.bytes
    last = sorted({receiver for receiver, _ in others}, key=lambda name: (name == "coordinator", name))
    return {receiver: dict(sums[receiver]) for receiver in (*document.parties, *last)}


def learned(document: Document) -> Section:
    """All receivers against all classes that occur, readable classes first; a star: one without a transcript here."""
    received = amounts(document)
    most = max((size for row in received.values() for _, size in row.values()), default=1)

    def cell(messages: int, size: int) -> Cell:
        if not messages:
            return Cell("·")
        more = f"{count(messages)} {'message' if messages == 1 else 'messages'}"
        return Cell(terminal.size(size), more, heat(size, most))

    starred = [name if name in document.parties else f"{name} *" for name in received]
    star = "* Without a transcript of this receiver: only messages that feature parties recorded as sent to it. "
    rows = [
        (kind, CLASSES[kind].tells, CLASSES[kind].kind, [cell(*row.get(kind, (0, 0))) for row in received.values()])
        for kind in sorted({kind for row in received.values() for kind in row}, key=rank)
    ]
    return Section(
        "Who learned what",
        [
            Text(
                "Bytes and messages that each party received, by disclosure class. The stronger a cell's colour, the "
                "more bytes (logarithmic). Bytes are no measure of harm: a megabyte of ciphertext reveals nothing "
                "without its key, a few hundred bytes of instance space name records that tend to share a label."
            ),
            Key("chip", list(KINDS.items())),
            Matrix("class", starred, rows, "Who learned what: bytes and messages received, as far as recorded"),
            Text(
                f"{star if starred != list(document.parties) else ''}A message that carries several classes counts "
                "once in each."
                + (
                    ""
                    if document.of_network
                    else " Sets that a party derives itself, above all children of its own "
                    "splits, are in no message: see the trees."
                ),
                style="soft",
            ),
        ],
        "learned",
    )


def traffic(document: Document) -> Section:
    """Traffic of the whole job by class, largest first, as far as the given transcripts record it."""
    volume, messages = Counter[str](), Counter[str]()
    for row in document.traffic:
        volume[row.disclosure] += row.bytes
        messages[row.disclosure] += row.messages
    total, most = sum(volume.values()), max(volume.values(), default=0)
    order = sorted(document.traffic, key=lambda row: (row.sender, row.receiver, rank(row.disclosure), row.step))
    bars = [
        Bar(
            *(kind, "", [terminal.size(size), share(size, total), count(messages[kind])]),
            *(percent(size, most), CLASSES[kind].kind),
        )
        for kind, size in volume.most_common()
    ]
    nothing = "No transcript at hand holds a message of this job."
    words = "Bytes of serialised messages, without TLS and HTTP/2, as far as the given transcripts record them."
    return Section(
        "Traffic by class",
        [
            Bars(("class", "bytes", "of all", "messages"), bars, "Traffic by class"),
            Text(words if bars else nothing, style="soft"),
            Table(
                ("from", "to", "class", "step", "messages", "bytes"),
                [
                    [row.sender, row.receiver, row.disclosure, row.step, count(row.messages), count(row.bytes)]
                    for row in order
                ],
                "Traffic by sender, receiver, class and step",
                names=4,
                folded=True,
            ),
        ],
        "traffic",
        where="page",
    )

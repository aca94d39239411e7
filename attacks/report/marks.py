"""Crafted g and h in a report: what a label holder read by marks in them, and the most that it could have read."""

from __future__ import annotations

from treetap.attacks.document import Document
from treetap.attacks.report.glossary import count, share
from treetap.attacks.sums.schema import MarkedCells

#: Records whose g or h can have bits of their own in an honest training: of weights or labels like no others.
CHANCE = 3


def marked(document: Document) -> list[tuple[str, str]]:
    """A sentence for each feature party of which bits of single records tell, with the label holder's name."""
    return [
        (holder, _words(name, figures))
        for holder, party in document.parties.items()
        for name, figures in (party.marks_read or {}).items()
        if figures.marks
    ]


def _words(name: str, figures: MarkedCells) -> str:
    """The sentence follows the label holder's name."""
    if figures.records <= CHANCE:
        said = (
            f"summed bits of g and h that {count(figures.records)} of the records alone have, as odd weights give them"
        )
    else:
        said = (
            f"marked {count(figures.records)} records by bits of g and h of their own in {count(figures.trees)} trees"
        )
    if figures.read is None:
        return f"{said}, and read none of {name}'s cells by them: {'; '.join(figures.reasons.values())}."
    bound = "" if figures.given is None else f", {share(figures.given.placed, 1)} with all links given"
    return (
        f"{said}, and by these placed {share(figures.read.placed, 1)} of {name}'s cells"
        f"{bound}; {count(figures.read.wrong)} of its {count(figures.read.claims)} claims are wrong."
    )


def room(document: Document) -> str:
    """The sentence on the room of a plaintext, of the first party whose transcript tells it; empty without one."""
    rooms = [party.room for party in document.parties.values() if party.room is not None]
    if not rooms:
        return ""
    here, trees = rooms[0], -(-document.records // rooms[0].sum_bits)
    holds = f"{count(here.sums)} sums, in a ciphertext" if here.sums > 1 else "one sum"
    return (
        "The label holder could craft g and h, which no party detects. Only the room of a plaintext bounds "
        f"what sums would tell it then: {count(here.sum_bits)} bits a sum, {count(here.query_bits)} of {holds}. "
        f"With a bit for each record, {count(trees)} {'tree tells' if trees == 1 else 'trees tell'} every bin of all "
        f"{count(document.records)}."
    )

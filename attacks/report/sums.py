"""The columns of feature parties in jobs of trees: what the label holder read of them by the sums that it opened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from treetap.attacks.document import Document
from treetap.attacks.report.glossary import count, score, seconds, share
from treetap.attacks.sums.schema import CellsRead, ColumnFigures, ColumnPicture
from treetap.pages.pictures import Table

#: Way of reading → its name in tables; each way but the last has what those before it have.
WAYS: dict[Literal["left_sets", "differences", "together", "given"], str] = {
    "left_sets": "left sets alone (floor)",
    "differences": "and differences",
    "together": "and all equations",
    "given": "all links given (bound)",
}
#: The same of sums with noise, which are read with links given alone.
NOISED, ALLOWED = "noised sums, links given", "largest share of cells that ε allows to name"
WAY_HEADS = ("reading", "cells placed", "claims", "wrong", "wrong, of claims")
GLANCE_HEADS = ("of", "cells placed", "wrong, of claims", "left sets alone", "all links given", "best column", "rank")
CUT_HEADS = ("column", "cuts learned", "cells between two of them", "cells in one bin")
REASON_HEADS = ("what", "reason")
#: The sentence that a reader of the figures must have.
WHO_KNOWS = (
    "Which cells are placed and which claims are wrong the audit alone knows, by the feature party's table; the label "
    "holder has the claims."
)


@dataclass(frozen=True)
class ColumnsRead:
    """The section's part on one feature party."""

    name: str
    holder: str
    words: str
    facts: list[tuple[str, str]]
    ways: Table
    best: str | None
    picture: ColumnPicture | None
    reasons: Table
    cuts: Table


def columns_read(document: Document) -> list[ColumnsRead]:
    """The section of a label holder's attacks by opened sums; empty where no label holder of trees is audited."""
    return [
        ColumnsRead(
            name=name,
            holder=holder,
            words=words(name, figures),
            facts=_facts(figures),
            ways=Table(WAY_HEADS, way_rows(figures)),
            best=figures.best,
            picture=figures.picture,
            reasons=Table(REASON_HEADS, list(figures.reasons.items())),
            cuts=Table(CUT_HEADS, cut_rows(figures)),
        )
        for holder, party in document.parties.items()
        for name, figures in (party.columns_read or {}).items()
    ]


def words(name: str, figures: ColumnFigures) -> str:
    """A label holder's reading of one feature party's columns; the sentences follow the label holder's name."""
    size = f"{count(figures.records)} records × {count(figures.columns)} columns"
    if (read := figures.read) is None:
        why = "; ".join(figures.reasons.values())
        unread = f"was not measured as a reader of {name}'s columns: {why}."
        return f"{unread} {_answered(name, size, figures)}" if any(it.cuts for it in figures.cuts) else unread

    floor = share(figures.left_sets.placed, 1)
    if figures.noise is not None:
        return f"{_noised(name, size, read, figures)} {_answered(name, '', figures)}"
    bound = "" if figures.given is None else f"; with all links given it would place {share(figures.given.placed, 1)}"
    said = [
        f"placed {share(read.placed, 1)} of {name}'s cells ({size}) in their bins, by the sums that it opened in "
        f"{count(figures.trees)} trees; {count(read.wrong)} of its {count(read.claims)} claims are wrong, which the "
        "audit alone knows.",
        f"The left sets of splits that {name} won, which no noise on sums hides, place {floor} by themselves{bound}.",
        _answered(name, "", figures),
    ]
    if figures.best is not None:
        said.append(
            f"The order of {figures.best} is read best: its rank correlation is {score(figures.rank_correlation)}."
        )
    return " ".join(said)


def _noised(name: str, size: str, read: CellsRead, figures: ColumnFigures) -> str:
    """The sentences on sums with noise."""
    assert figures.noise is not None
    named = max(figures.named.values(), default=0.0)
    return (
        f"named {share(named, 1)} of {name}'s cells ({size}) rightly by the sums with noise that it opened in "
        f"{count(figures.trees)} trees, with links given, and was sure of {count(read.claims)}, of which "
        f"{count(read.wrong)} are wrong, which the audit alone knows. Epsilon {figures.noise.epsilon:g} allows anybody "
        f"to name {share(figures.noise.allowed, 1)} of them, given the left sets of splits that {name} won, which no "
        f"noise hides and which place {share(figures.left_sets.placed, 1)} by themselves."
    )


def _answered(name: str, size: str, figures: ColumnFigures) -> str:
    """The sentence on cuts that left sets alone tell."""
    cuts, cut = sum(it.cuts for it in figures.cuts), sum(it.cuts > 0 for it in figures.cuts)
    between = sum(it.between for it in figures.cuts) / max(1, len(figures.cuts))
    whose = "all records" if figures.over_all else "the records of a node"
    return (
        f"By left sets alone it learned {count(cuts)} cuts in {count(cut)} of {count(figures.columns)} columns, and "
        f"between which two of these {share(between, 1)} of the cells{size and f' ({size})'} lie: {name} answers for "
        f"{whose}."
    )


def cut_rows(figures: ColumnFigures) -> list[list[str]]:
    """The cuts of each column under `CUT_HEADS`."""
    return [[it.column, count(it.cuts), share(it.between, 1), share(it.placed, 1)] for it in figures.cuts]


def way_rows(figures: ColumnFigures) -> list[list[str]]:
    """The figures under `WAY_HEADS`, a row for each way of reading that was carried out."""
    names = dict(WAYS) if figures.noise is None else {**WAYS, "given": NOISED}
    read: list[tuple[str, CellsRead | None]] = [(label, getattr(figures, way)) for way, label in names.items()]
    rows = [
        [label, share(it.placed, 1), count(it.claims), count(it.wrong), share(it.wrong, it.claims)]
        for label, it in read
        if it is not None and (figures.read is not None or label == WAYS["left_sets"])
    ]
    return rows if figures.noise is None else [*rows, [ALLOWED, share(figures.noise.allowed, 1), *"–" * 3]]


def glance_table(document: Document) -> Table:
    """The attacks in a line each, under `GLANCE_HEADS`."""
    return Table(GLANCE_HEADS, [_glance(name, figures) for name, figures in document.columns_read.items()])


def _glance(name: str, figures: ColumnFigures) -> list[str]:
    placed = [None if it is None else it.placed for it in (figures.read, figures.left_sets, figures.given)]
    reached, floor, bound = ("–" if value is None else share(value, 1) for value in placed)
    read = figures.read
    if read is None:
        alone = floor if any(it.cuts for it in figures.cuts) else "–"
        return [name, "–", "–", alone, *["–"] * (len(GLANCE_HEADS) - 4)]
    return [
        *(name, reached, share(read.wrong, read.claims), floor, bound),
        *(figures.best or "–", score(figures.rank_correlation)),
    ]


def _facts(figures: ColumnFigures) -> list[tuple[str, str]]:
    """The size of what was opened, and the quality of the links."""
    return [
        ("records", count(figures.records)),
        ("columns", count(figures.columns)),
        ("trees", count(figures.trees)),
        ("candidates of a tree, at most", count(figures.candidates)),
        ("equations", count(figures.equations)),
        ("links right", "–" if figures.links is None else share(figures.links, 1)),
        ("contradictions", count(figures.contradictions)),
        ("rank correlation of the best-read column", score(figures.rank_correlation)),
        ("the same with links given", score(figures.given_correlation)),
        ("variance explained with links given", score(figures.given_explained)),
        *((f"cells named right, {how}", share(value, 1)) for how, value in figures.named.items()),
        ("processor time", seconds(figures.seconds)),
    ]

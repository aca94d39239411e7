"""The audit of a published model for readers: tables of what an intruder got, and the page."""

from __future__ import annotations

from treetap.attacks.published.schema import HELD, PublishedDocument
from treetap.attacks.report.glossary import NOT_A_PROOF, count, score, share
from treetap.attacks.report.verdict import TERMS, lines
from treetap.attacks.verdict import Compared
from treetap.pages.page import render
from treetap.pages.pictures import Table

_BEFORE = "without it, and how"
MEMBERSHIP_HEADS = ("a holder of", "AUC", "95 %", "found at 1 % false", "95 %", _BEFORE, "by", "word")
COLUMN_HEADS = ("a holder of", "column", "measure", "values", "records", _BEFORE, "with it", "gain", "word")
MEASURES = {"accuracy": "right", "explained": "variance explained"}
#: The terms of verdicts that occur here, and those of the tables.
_TERMS = {name: TERMS[name] for name in ("Nothing found", "Little, notable, severe", "Interval")} | {
    "Before": "what one knows without the artefact: by the other columns, the most frequent value or the mean; of "
    "membership by the records themselves, whose two halves may differ.",
    "Found at 1 % false": "the share of the training's records that are named if 1 % of the others are named wrongly.",
}


def membership(document: PublishedDocument) -> Table:
    """A row of each artefact."""
    rows = [
        [
            *(HELD[it.artefact][0], score(it.auc), _range(it.low, it.high, 3)),
            *(share(it.found, 1), _range(100 * it.found_low, 100 * it.found_high, 1)),
            *(f"{score(it.compared.before)}, {it.compared.before_how}", it.how, it.compared.word),
        ]
        for it in document.membership
    ]
    return Table(MEMBERSHIP_HEADS, rows)


def member_columns(document: PublishedDocument) -> Table:
    """A row of each column, artefact and measure; what gained most of what was left comes first."""
    every = sorted(document.member_columns, key=lambda it: -it.compared.share)
    rows = [
        [
            HELD[it.artefact][0],
            f"{it.party}: {it.column}" if it.party else it.column,
            *(MEASURES[it.compared.measure], count(it.bins), count(it.records)),
            f"{share(it.compared.before, 1)}, by {it.compared.before_how.rpartition(', by ')[2]}",
            *(share(it.compared.after, 1), _gain(it.compared), it.compared.word),
        ]
        for it in every
    ]
    return Table(COLUMN_HEADS, rows)


def tables(document: PublishedDocument) -> list[tuple[str, str, Table]]:
    """The tables with their titles and their places on the page."""
    return [
        ("Whether a record was of the training", "membership", membership(document)),
        ("Columns of records of the training", "member-columns", member_columns(document)),
    ]


def html(document: PublishedDocument) -> str:
    """The audit as a page that loads nothing; all names are escaped."""
    return render(
        "treetap.attacks.report",
        "published.html.j2",
        document=document,
        title=title(document),
        verdicts=lines(document.verdicts),
        tables=tables(document),
        terms=_TERMS,
        not_a_proof=NOT_A_PROOF,
    )


def title(document: PublishedDocument) -> str:
    parties = ", ".join(document.parties)
    return f"Motivated intruder test of {document.model}, a model of {parties} by {document.protocol}"


def _gain(it: Compared) -> str:
    low, high = it.interval
    return f"{100 * (it.after - it.before):+.1f} ({100 * low:+.1f} to {100 * high:+.1f})"


def _range(low: float, high: float, digits: int) -> str:
    return f"{low:.{digits}f} to {high:.{digits}f}"

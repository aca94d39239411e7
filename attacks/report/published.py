"""The audit of a published model for readers: tables of what an intruder got, and the page."""

from __future__ import annotations

from collections.abc import Sequence

from treetap.attacks.published.schema import HELD, PublishedDocument
from treetap.attacks.report.glossary import NOT_A_PROOF, count, score, share
from treetap.attacks.report.verdict import TERMS, learned
from treetap.attacks.verdict import Compared
from treetap.pages import page
from treetap.pages.section import Listed, Section, Table, Terms, Text, Where

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


def report(document: PublishedDocument, *, details: bool = True) -> Section:
    """The audit under its three headings; `details`: a terminal shows each column's figures too."""
    members = [
        [
            *(HELD[row.artefact][0], score(row.auc), _range(row.low, row.high, 3)),
            *(share(row.found, 1), _range(100 * row.found_low, 100 * row.found_high, 1)),
            *(f"{score(row.compared.before)}, {row.compared.before_how}", row.how, row.compared.word),
        ]
        for row in document.membership
    ]
    # what gained most of what was left comes first
    columns = [
        [
            HELD[row.artefact][0],
            f"{row.party}: {row.column}" if row.party else row.column,
            *(MEASURES[row.compared.measure], count(row.bins), count(row.records)),
            f"{share(row.compared.before, 1)}, by {row.compared.before_how.rpartition(', by ')[2]}",
            *(share(row.compared.after, 1), _gain(row.compared), row.compared.word),
        ]
        for row in sorted(document.member_columns, key=lambda row: -row.compared.share)
    ]
    tables: list[tuple[str, Sequence[str], list[list[str]], Where]] = [
        ("Whether a record was of the training", MEMBERSHIP_HEADS, members, "both"),
        ("Columns of records of the training", COLUMN_HEADS, columns, "both" if details else "page"),
    ]
    return Section(
        "",
        [
            Text(said=title(document), where="terminal"),
            *(
                Section(head, [Listed([(sentence, "") for sentence in sentences])], head.lower())
                for head, sentences in (("Knew", document.knew), ("Tried", document.tried))
            ),
            Section(
                "Got",
                [
                    *learned(document.verdicts),
                    *(
                        Section(label, [Table(heads, rows, label, 2, where=where)])
                        for label, heads, rows, where in tables
                        if rows
                    ),
                    Section("How the words are chosen", [Terms(_TERMS)], folded=True),
                ],
                "got",
            ),
            Text(NOT_A_PROOF, where="terminal"),
        ],
    )


def html(document: PublishedDocument) -> str:
    """The audit as a page that loads nothing; all names are escaped."""
    made = f"treetap {document.treetap}, {document.created:%Y-%m-%d %H:%M %Z}, seed {document.seed}."
    closing = [Text(NOT_A_PROOF), Text("{} Protect this file as you protect the labels.", made)]
    return page.html(title(document), Section("", []), [report(document)], Section("", closing))


def title(document: PublishedDocument) -> str:
    """The model, its parties and its protocol."""
    parties = ", ".join(document.parties)
    return f"Motivated intruder test of {document.model}, a model of {parties} by {document.protocol}"


def _gain(it: Compared) -> str:
    low, high = it.interval
    return f"{100 * (it.after - it.before):+.1f} ({100 * low:+.1f} to {100 * high:+.1f})"


def _range(low: float, high: float, digits: int) -> str:
    return f"{low:.{digits}f} to {high:.{digits}f}"

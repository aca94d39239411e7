"""Attacks by few known labels, or none, beside the party's own columns and reassigned labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from treetap.attacks.document import Document
from treetap.attacks.known_labels.schema import (
    Averaged,
    DrawnLabels,
    KnownLabelFigures,
    KnownLabelResult,
    Naming,
    RankedBy,
    RankedResult,
)
from treetap.attacks.registry import Needs, rows
from treetap.attacks.report.glossary import count, score, share
from treetap.pages.pictures import Dots, DottedTable, Table, dots

LABEL_HEADS = (
    *("party", "known labels", "draws", "classes without one", "records named", "left out", "nodes"),
    *("rarest class", "named first", "its share", "largest class"),
)
REASON_HEADS = ("party", "left out", "reason")
#: Field of a result → what the attack goes by, and its class in the style sheet.
KINDS = {
    "nodes": ("nodes", "graph"),
    "columns": ("own columns", "cl"),
    "both": ("both", "unicl"),
    "reassigned": ("nodes, reassigned", "received"),
    "reassigned_columns": ("own columns, reassigned", "chunked"),
}
HEADS = ("party", "attack", "figure", "guessing", *(label for label, _ in KINDS.values()))
#: What orders records without a label → its words.
RANKED_BY: dict[RankedBy, str] = {
    "splits": "own splits",
    "splits-alike": "own splits, trees alike",
    "leaves": "leaves",
    "nodes": "nodes",
    "columns": "own columns alone",
    "columns-second": "own columns alone, second component",
}
RANKED_HEADS = (
    *("party", "attack", "by", "AUC", "precision of the first", "accuracy", "side told by sizes", "by labels"),
    "V-measure",
)
#: Terms of the section.
TERMS = {
    "Nodes": "the nodes of which the party knows the records, over all trees; small ones count most.",
    "Own columns": "the same attack without the training: what the party could do anyway.",
    "Reassigned": (
        "the control. Labels are exchanged between records that look alike in the party's own columns, after the "
        "training, whose nodes stay. What the attack by nodes still scores comes from own columns and was there before "
        "the training; what it scores more on the true labels, the training told. Over the first five draws."
    ),
    "AUC": "of several classes the mean over the classes, each against all others; 0.5 is guessing.",
    "Side told": "of two classes, whether their sizes say which end of the order is the rarer class, and the share of "
    "draws whose known labels do. The figures are those of the right side, of several classes that of each; a verdict "
    "counts all sides as tries.",
    "V-measure": "of groups by an order: k-means, or as many records at one end as the rarest class has.",
    "Precision of the first": "the share of the rarest class among the records that the attack names first for it.",
}


@dataclass(frozen=True)
class KnownSection:
    """The section's content."""

    title: str
    terms: dict[str, str]
    kinds: list[tuple[str, str]]
    figures: DottedTable
    ranked: Table
    labels: Table
    reasons: Table


def known_labels(document: Document) -> KnownSection | None:
    """The section of a training of trees; None of another job."""
    parties = {name: it.known_labels for name, it in document.parties.items() if it.known_labels is not None}
    if not parties:
        return None
    figures = [
        row
        for name, known in parties.items()
        if known.drawn is not None
        for attack, result in _results(known)
        for row in _rows(name, attack, result, known.drawn)
    ]
    drawn = {(it.drawn.known, it.drawn.draws) for it in parties.values() if it.drawn is not None}
    return KnownSection(
        title="; ".join(["Few known labels", *(f"{known} in each of {draws} draws" for known, draws in sorted(drawn))]),
        terms={row.label: f"{row.line}." for row in rows(Needs.KNOWN_LABELS).values()} | TERMS,
        kinds=list(KINDS.values()),
        figures=DottedTable(HEADS, 3, "0 to 1", figures),
        ranked=Table(RANKED_HEADS, [row for name, known in parties.items() for row in _ranked(name, known)]),
        labels=Table(LABEL_HEADS, [_labels(name, it.drawn) for name, it in parties.items() if it.drawn is not None]),
        reasons=Table(REASON_HEADS, [[name, *pair] for name, it in parties.items() for pair in it.reasons.items()]),
    )


def _results(known: KnownLabelFigures) -> Iterator[tuple[str, KnownLabelResult]]:
    """Each attack that was run."""
    for label, result in (("neighbours", known.known_neighbours), ("regression", known.known_regression)):
        if result is not None:
            yield label, result


def _ranked(name: str, known: KnownLabelFigures) -> Iterator[list[str]]:
    """The orders of records under `RANKED_HEADS`."""
    for attack in rows(Needs.KNOWN_LABELS).values():
        result = getattr(known, attack.name.replace("-", "_"))
        if not isinstance(result, RankedResult):
            continue
        for kind, it in result.by.items():
            by_sizes = "–" if it.by_sizes is None else "yes" if it.by_sizes else "no"
            by_known = "–" if it.by_known is None else share(it.by_known, 1)
            left = f" ({count(result.left_out)} left out)" if result.left_out and kind.startswith("splits") else ""
            figures = (score(it.auc), score(it.precision), score(it.accuracy), by_sizes, by_known, score(it.v_measure))
            yield [name, attack.label, f"{RANKED_BY[kind]}{left}", *figures]


def _namings(result: KnownLabelResult) -> Iterator[tuple[str, Naming]]:
    """Each kind of rows that the attack went by."""
    for key in KINDS:
        naming: Naming | None = getattr(result, key)
        if naming is not None:
            yield key, naming


def _rows(name: str, attack: str, result: KnownLabelResult, drawn: DrawnLabels) -> Iterator[tuple[list[str], Dots]]:
    """Three figures of an attack under `HEADS`, each with what guessing reaches."""
    namings = dict(_namings(result))
    for field, label, guessed in (
        ("auc", "AUC", 0.5),
        ("precision", f"precision of the first {count(drawn.first)}", drawn.chance),
        ("accuracy", "accuracy", drawn.majority),
    ):
        by: dict[str, Averaged] = {key: getattr(naming, field) for key, naming in namings.items()}
        cells = [_figure(by[key]) if key in by else "–" for key in KINDS]
        placed = ((KINDS[key][1], by[key].mean) for key in reversed(KINDS) if key in by)
        yield [name, attack, label, score(guessed), *cells], dots(placed, limit=guessed)


def _figure(averaged: Averaged) -> str:
    spread = "" if averaged.deviation is None else f" ± {score(averaged.deviation)}"
    return f"{score(averaged.mean)}{spread}"


def _labels(name: str, drawn: DrawnLabels) -> list[str]:
    """A party's known labels under `LABEL_HEADS`."""
    return [
        *(name, count(drawn.known), count(drawn.draws), f"{drawn.unseen:.1f}", count(drawn.records)),
        *(count(drawn.left_out), count(drawn.nodes), drawn.rarest, count(drawn.first)),
        *(share(drawn.chance, 1), share(drawn.majority, 1)),
    ]

"""Attacks by few known labels, or none, beside the party's own columns and reassigned labels."""

from __future__ import annotations

from collections.abc import Iterator

from treetap.attacks.document import Document
from treetap.attacks.known_labels.schema import (
    Averaged,
    DrawnLabels,
    KnownLabelFigures,
    KnownLabelResult,
    RankedBy,
    RankedResult,
)
from treetap.attacks.registry import Needs, rows
from treetap.attacks.report.glossary import count, left_out, score, share
from treetap.pages.pictures import dots
from treetap.pages.section import Entry, Key, Section, Table, Terms, Text

LABEL_HEADS = (
    *("party", "known labels", "draws", "classes without one", "records named", "left out", "nodes"),
    *("rarest class", "named first", "its share", "largest class"),
)
#: Field of a result → what the attack goes by, and its class in the style sheet.
KINDS = {
    "nodes": ("nodes", "graph"),
    "columns": ("own columns", "cl"),
    "both": ("both", "unicl"),
    "reassigned": ("nodes, reassigned", "received"),
    "reassigned_columns": ("own columns, reassigned", "chunked"),
}
HEADS = ("party", "attack", "figure", "0 to 1", "guessing", *(label for label, _ in KINDS.values()))
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


def known_labels(document: Document) -> Section | None:
    """The section of a training of trees; None of another job."""
    parties = {name: party.known_labels for name, party in document.parties.items() if party.known_labels is not None}
    if not parties:
        return None
    figures = [
        row
        for name, known in parties.items()
        if known.drawn is not None
        for attack, result in (("neighbours", known.known_neighbours), ("regression", known.known_regression))
        if result is not None
        for row in _rows(name, attack, result, known.drawn)
    ]
    drawn = {(known.drawn.known, known.drawn.draws) for known in parties.values() if known.drawn is not None}
    title = "; ".join(["Few known labels", *(f"{known} in each of {draws} draws" for known, draws in sorted(drawn))])
    labels = [_labels(name, known.drawn) for name, known in parties.items() if known.drawn is not None]
    scored = [
        Key("dot", [(style, label) for label, style in KINDS.values()]),
        Table(HEADS, figures, title, names=3, words=(3,), style="cards"),
        Text(
            "Means over the draws of the known labels, ± the standard deviation. The line is **guessing**: 0.5, the "
            "share of the rarest class, and that of the largest one.",
            style="soft",
        ),
        Table(
            *(RANKED_HEADS, [row for name, known in parties.items() for row in _ranked(name, known)]),
            *("Orders of records without a label", 3),
        ),
        Table(LABEL_HEADS, labels, "Known labels by party", where="page"),
        Terms({row.label: f"{row.line}." for row in rows(Needs.KNOWN_LABELS).values()} | TERMS),
    ]
    return Section(
        "Few known labels, or none",
        [
            Text(
                "A party that knows the labels of few records names those of the others by the nodes in which its "
                "records lie, over all trees. The same attack by the party's **own columns alone** takes no part in "
                "the training. The control **reassigns** labels after the training, by own columns alone: what the "
                "attack by nodes scores there was there before the training. Without any label a party puts records "
                "in order by what its own splits, or the nodes that it knows, have in common."
            ),
            *(scored if figures else []),
            *left_out({name: known.reasons for name, known in parties.items()}),
        ],
        "known",
    )


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


def _rows(name: str, attack: str, result: KnownLabelResult, drawn: DrawnLabels) -> Iterator[list[Entry]]:
    """Three figures of an attack under `HEADS`, each with what guessing reaches."""
    # each kind of rows that the attack went by
    namings = {key: getattr(result, key) for key in KINDS if getattr(result, key) is not None}
    for field, label, guessed in (
        ("auc", "AUC", 0.5),
        ("precision", f"precision of the first {count(drawn.first)}", drawn.chance),
        ("accuracy", "accuracy", drawn.majority),
    ):
        by: dict[str, Averaged] = {key: getattr(naming, field) for key, naming in namings.items()}
        cells = [_figure(by[key]) if key in by else "–" for key in KINDS]
        placed = dots(((KINDS[key][1], by[key].mean) for key in reversed(KINDS) if key in by), limit=guessed)
        yield [name, attack, label, placed, score(guessed), *cells]


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

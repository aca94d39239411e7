"""The audit as one self-contained HTML page and as lines in a terminal, of the same sections; names are escaped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from treetap.attacks.document import Document, parse
from treetap.attacks.report.advice import advised
from treetap.attacks.report.bounds import bounds, together
from treetap.attacks.report.columns import columns
from treetap.attacks.report.glossary import NOT_A_PROOF, count, unscored
from treetap.attacks.report.known_labels import known_labels
from treetap.attacks.report.labels import at_a_glance, attacks
from treetap.attacks.report.networks import networks
from treetap.attacks.report.pivodl import shared_labels
from treetap.attacks.report.predictions import predictions
from treetap.attacks.report.sums import at_a_glance as columns_at_a_glance
from treetap.attacks.report.sums import columns_read, room
from treetap.attacks.report.traffic import learned, traffic
from treetap.attacks.report.trees import class_colours, trees
from treetap.attacks.report.verdict import TERMS, short_form
from treetap.pages import page
from treetap.pages.printing import print_section
from treetap.pages.section import Facts, Section, Terms, Text


def html(document: Document | Mapping[str, Any]) -> str:
    """Render the report; all names and paths from the document are escaped.

    Raises BadInput for a document that this version cannot read.
    """
    content = parse(document)
    records = f"{content.protocol}, {count(content.records)} records, labels at "
    header = Section(
        "",
        [
            Text(
                f"{records}{{}}. What each side could guess before this training, and what it can guess after:",
                content.label_holder,
                style="soft",
            ),
            *short_form(content),
            Section("How the words are chosen", [Terms(TERMS)], folded=True),
            Text(unscored(content), style="notice"),
        ],
    )
    colours = class_colours(content.classes or 0)
    return page.html(_title(content), header, sections(content), _closing(content), colours=colours)


def print_verdict(document: Document | Mapping[str, Any], console: Console) -> None:
    """Print what each side learned: the audit's short form.

    Raises BadInput for a document that this version cannot read.
    """
    print_section(Section("", short_form(parse(document))), console)


def print_summary(document: Document | Mapping[str, Any], console: Console) -> None:
    """Print the details: advice, traffic by receiver, every attack's scores and the nodes' leakage, with their limits.

    Raises BadInput for a document that this version cannot read.
    """
    content = parse(document)
    size = "" if content.of_network else f", {count(content.trees)} trees to depth {content.max_depth}"
    opening = [
        Text("{}", _title(content), where="terminal"),
        Text(
            f"{content.protocol}, {count(content.records)} records{size}, labels at {{}}",
            content.label_holder,
            where="terminal",
        ),
        *(
            Text("{}: {}", name, fault, where="terminal")
            for name, party in content.parties.items()
            for fault in party.faults
        ),
    ]
    print_section(
        Section("", [*opening, *sections(content), Text(unscored(content), where="terminal"), _closing(content)]),
        console,
    )


def sections(document: Document) -> list[Section]:
    """The sections of an audit in order."""
    on_labels = not document.of_network and bool(document.on_labels or not document.parties)
    own = "its own columns and its model alone" if document.of_network else "its own columns alone"
    every = [
        advised(document),
        Section(
            "Details",
            [
                Text(
                    ""
                    if document.parties
                    else "No feature party's transcript is at hand, so there is nothing to attack.",
                    style="notice",
                    where="both",
                ),
                Text(
                    (
                        f"Attacks on the labels, each from one feature party's own transcript of the training, {own}. "
                        if document.on_labels
                        else ""
                    )
                    + (
                        "Attacks on the columns of feature parties, from the label holder's own transcript, the ids "
                        "of its table, and records whose columns it knows. "
                        if document.victims
                        else ""
                    )
                    + (
                        "An attack on the columns of feature parties, from the label holder's own transcript with "
                        "the sums that it opened. "
                        if document.columns_read
                        else ""
                    )
                    + NOT_A_PROOF
                ),
            ],
        ),
        Section("At a glance", [at_a_glance(document), columns_at_a_glance(document)], "glance"),
        learned(document),
        networks(document),
        columns(document),
        attacks(document) if on_labels else None,
        known_labels(document),
        columns_read(document),
        shared_labels(document),
        predictions(document),
        bounds(document) if on_labels else None,
        together(document) if on_labels else None,
        trees(document) if on_labels else None,
        traffic(document),
    ]
    return [section for section in every if section]


def _title(document: Document) -> str:
    return f"Audit of {document.title or document.job}"


def _closing(document: Document) -> Section:
    """What was audited, and the limits of the report."""
    network, victims, read = document.of_network, bool(document.victims), bool(document.columns_read)
    of_trees = [
        ("trees", count(document.trees)),
        ("max depth", str(document.max_depth)),
        ("discount", f"{document.discount}"),
    ]
    parties = [("feature parties", str(len(document.on_labels)))] if document.on_labels or not (victims or read) else []
    facts = [
        *(("protocol", document.protocol), ("label holder", document.label_holder), *parties),
        *(("records", count(document.records)), ("classes", count(document.classes)), *([] if network else of_trees)),
        *(("attempt", str(document.attempt)), ("treetap", document.treetap)),
        ("made", f"{document.created:%Y-%m-%d %H:%M %Z}"),
    ]
    on_labels = {
        True: "Attacks on labels read one party's own transcript, columns and published model, and the labels that "
        "it is assumed to know; the others only score the results. ",
        False: "Attacks on labels read one party's own transcript and columns, and no labels but those of few "
        "records where the report says so: all others only score the results. ",
    }[network]
    on_columns = {
        True: "Attacks on columns read the label holder's own transcript and ids, and the auxiliary records; the "
        "victims' columns only score the results, and match-exact alone reads the feature party's model. ",
        False: "The attack on columns reads the label holder's own transcript and ids; the feature parties' tables "
        "only score its claims, and give the links of its bound. ",
    }[network]
    numbers = {
        True: "Epochs count from 1 here, and from 0 in the JSON document. Protect this file as you protect the labels",
        False: "Trees and nodes have the numbers of the JSON document: trees from 0, nodes as in a heap (the root is "
        "1, the children of u are 2u and 2u + 1). This file shows class counts and bounds of nodes, more about the "
        "labels than any party knew: protect it as you protect the labels",
    }[network]
    measured = (
        "V-measure: 0 if groups are independent of the classes, 1 if they are the classes. It is the largest over "
        "the number of trees, since an attacker may stop after any of them. CL uses the party's own columns alone. "
        "Bounds are per node, not joint."
    )
    labels_audited = bool(document.on_labels or not document.parties)
    return Section(
        "",
        [
            Section("This audit", [Facts(facts)], where="page"),
            *(
                Text("{}: {}", name, party.signed, where="both")
                for name, party in document.parties.items()
                if party.signed
            ),
            Section(
                "Limits of this report",
                [
                    Text("" if network or not labels_audited else measured, where="terminal"),
                    Text(NOT_A_PROOF, where="both"),
                    Text(
                        f"{on_labels if document.on_labels else ''}{on_columns if victims or read else ''}{numbers}"
                        f"{' and the columns' if victims or read else ''}."
                    ),
                    Text("" if network else room(document), where="both"),
                    *(
                        Text(
                            "{}: transcript {}"
                            + (f", columns {', '.join(['{}'] * len(party.columns))}." if party.columns else "."),
                            *(name, party.transcript, *party.columns),
                        )
                        for name, party in document.parties.items()
                    ),
                ],
            ),
        ],
    )

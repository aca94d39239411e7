"""The audit as one self-contained HTML page and as lines in a terminal, of the same sections; names are escaped."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from rich.console import Console

from treetap import terminal
from treetap.attacks.document import Document, parse
from treetap.attacks.published.schema import DecodedPaths
from treetap.attacks.registry import Needs, rows
from treetap.attacks.report.advice import advised
from treetap.attacks.report.bounds import bounds, together
from treetap.attacks.report.columns import columns
from treetap.attacks.report.glossary import KINDS, NOT_A_PROOF, count, rank, seconds, share, unscored
from treetap.attacks.report.labels import at_a_glance, attacks, known_labels
from treetap.attacks.report.networks import networks
from treetap.attacks.report.pivodl import shared_labels
from treetap.attacks.report.sums import at_a_glance as columns_at_a_glance
from treetap.attacks.report.sums import columns_read, room
from treetap.attacks.report.trees import class_colours, trees
from treetap.attacks.report.verdict import TERMS, remains, short_form, with_intervals
from treetap.pages import page
from treetap.pages.pictures import Bar, Bars, Matrix, heat, percent
from treetap.pages.printing import print_section
from treetap.pages.section import Cell, Facts, Key, Listed, Section, Table, Terms, Text
from treetap.wire.disclosure import CLASSES


def html(document: Document | Mapping[str, Any]) -> str:
    """Render the report; all names and paths from the document are escaped.

    Raises BadInput for a document that this version cannot read.
    """
    content = parse(document)
    records = f"{content.protocol}, {count(content.records)} records, labels at "
    header = Section(
        "",
        [
            *(Text(said=sentence, style="lead") for sentence in remains(content)[:1]),
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
        Text(said=_title(content), where="terminal"),
        Text(
            f"{content.protocol}, {count(content.records)} records{size}, labels at {{}}",
            content.label_holder,
            where="terminal",
        ),
        Listed([(said, "") for said in with_intervals(content.verdicts)], "terminal"),
        *(
            Text("{}: ", name, said=fault, where="terminal")
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
        None
        if document.of_network
        else Section("At a glance", [at_a_glance(document), columns_at_a_glance(document)], "glance"),
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
    """The facts of the audit, and the limits of the report."""
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
                Text("{}: ", name, said=party.signed, where="both")
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


# The attacks of recipients on the scores of predictions.

PATH_HEADS = (
    *("prediction", "by", "attack", "records", "trees", "bits of candidates", "bits of sums"),
    *("whole path known", "several paths", "undecided", "leaves known", "time"),
)
WEIGHT_HEADS = ("prediction", "by", "leaves", "weights not known", "of these found", "share")


def predictions(document: Document) -> Section | None:
    """The section of the predictions; None where the audit names none."""
    if not document.predictions:
        return None
    paths, weights = [], []
    for name, figures in document.predictions.items():
        if figures.path_decoding is not None:
            paths.append([name, figures.recipient, "path decoding", *_paths(figures.path_decoding)])
        # of an inversion without the weights that it found, and with them
        if (inverted := figures.prediction_inversion) is not None:
            paths.append([name, figures.recipient, "before inversion", *_paths(inverted.before)])
            paths.append([name, figures.recipient, "after inversion", *_paths(inverted.after)])
            sizes = (inverted.leaves, inverted.unknown, inverted.solved)
            weights.append([name, figures.recipient, *map(count, sizes), share(inverted.solved, inverted.unknown)])
    noise = (
        "Leaf weights below its own splits came to the recipient with noise: scores of records that share a leaf "
        "give the exact ones."
    )
    return Section(
        "Scores of predictions",
        [
            Text(
                "A score is a sum of one leaf weight of each tree. Its recipient knows weights and its own splits; "
                "where one choice of leaves alone gives the score, the **whole path** of the record is known, and "
                "with it what other parties' splits say of the record. More **bits of candidates** than bits of sums "
                "leave several paths; “undecided” is a bound of this attack, not safety."
            ),
            Terms({row.label: f"{row.line}." for row in rows(Needs.SCORES).values()}),
            Table(PATH_HEADS, paths, "Leaves behind the scores of predictions", names=3),
            Text(noise if weights else ""),
            Table(WEIGHT_HEADS, weights, "Leaf weights that scores give away", names=2),
            *(
                Text("{}: ", name, said=fault, style="notice fault", where="both")
                for name, figures in document.predictions.items()
                for fault in figures.faults
            ),
            *(
                Text("{}: ", name, said=figures.signed, style="notice")
                for name, figures in document.predictions.items()
                if figures.signed
            ),
        ],
        "scores",
    )


def _paths(paths: DecodedPaths) -> list[str]:
    bits = "–" if paths.output_bits is None else f"{paths.output_bits:.1f}"
    outcomes = (share(number, paths.records) for number in (paths.unique, paths.several, paths.undecided))
    sizes = [count(paths.records), count(paths.trees), f"{paths.candidate_bits:.1f}", bits]
    return [*sizes, *outcomes, share(paths.leaves_known, 1), seconds(paths.seconds)]


# Bytes and messages by receiver and disclosure class.


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

"""The audit in a terminal: tables that fit the terminal's width without cutting any figure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from treetap import terminal
from treetap.attacks.document import Document, parse
from treetap.attacks.published.schema import PublishedDocument
from treetap.attacks.report import columns as on_columns
from treetap.attacks.report import known_labels, marks, networks, pivodl, predictions, published, sums
from treetap.attacks.report.advice import terminal_lines
from treetap.attacks.report.glance import glances
from treetap.attacks.report.glossary import ATTACKS, NOT_A_PROOF, count, rank, unscored
from treetap.attacks.report.matrix import Amount, amounts
from treetap.attacks.report.scores import SCORE_HEADS, figures
from treetap.attacks.report.verdict import told, verdict_lines

Rows = Sequence[Sequence[str]]
#: Most columns of a line of text.
PROSE_COLUMNS = 100


def print_verdict(document: Document | Mapping[str, Any], console: Console) -> None:
    """Print what each side learned: the audit's short form.

    Raises BadInput for a document that this version cannot read.
    """
    for line in verdict_lines(parse(document)):
        # a bar stays on its line
        _say(console, *([line] if line.startswith(" ") else _wrapped(line, console, "  ")))


def print_published(document: PublishedDocument, console: Console, *, details: bool) -> None:
    """Print the audit of a published model under its three headings; `details`: with each column's figures."""
    _say(console, *_wrapped(published.title(document), console))
    for heading, sentences in (("Knew", document.knew), ("Tried", document.tried)):
        _say(console, f"{heading}:", *(line for it in sentences for line in _wrapped(f"- {it}", console, "  ")))
    _say(console, "Got:")
    for line in told(document.verdicts):
        _say(console, *([line] if line.startswith(" ") else _wrapped(line, console, "  ")))
    for title, place, made in published.tables(document):
        if made.rows and (details or place == "membership"):
            _table(console, title, made.heads, made.rows, names=2)
    _say(console, *_wrapped(NOT_A_PROOF, console))


def print_summary(document: Document | Mapping[str, Any], console: Console) -> None:
    """Print the details: advice, traffic by receiver, every attack's scores and the nodes' leakage, with their limits.

    Raises BadInput for a document that this version cannot read.
    """
    content = parse(document)
    size = "" if content.of_network else f", {count(content.trees)} trees to depth {content.max_depth}"
    line = f"{content.protocol}, {count(content.records)} records{size}, labels at {content.label_holder}"
    _say(console, f"audit of {content.title or content.job}", line)
    said, advice = terminal_lines(content)
    if said:
        _say(console, "What lowers this (the report has more):", *_wrapped(" ".join(said), console))
    for sentence, lines in advice:
        _say(console, *_wrapped(f"- {sentence}", console, "  "), *(f"    {line}" for line in lines))
    for name, party in content.parties.items():
        for fault in party.faults:
            _say(console, f"{name}: {fault}")
        if party.signed:
            _say(console, f"{name}: {party.signed}")
    if not content.parties:
        _say(console, "No feature party's transcript is at hand, so there is nothing to attack.")
    for whose, words in [*_of_columns(content), *marks.marked(content)]:
        _say(console, *_wrapped(f"{whose} {words}", console))
    _learned(content, console)
    # a split network has no trees, hence no groups by leaves and no bounds of nodes
    if content.of_network:
        _networks(content, console)
        _columns(content, console)
    else:
        _attacks(content, console)
        _known_labels(content, console)
        _sums(content, console)
        _shared(content, console)
        _leaks(content, console)
    _predictions(content, console)
    if reason := unscored(content):
        _say(console, reason)
    if content.of_network:
        said = [networks.COVERED] * bool(content.on_labels) + [on_columns.RESCALED] * bool(content.victims)
        _say(console, *_wrapped(" ".join([*said, NOT_A_PROOF]), console))
        return
    if bound := marks.room(content):
        _say(console, *_wrapped(bound, console))
    words = "" if content.on_labels or not content.parties else NOT_A_PROOF
    words = words or (
        "V-measure: 0 if groups are independent of the classes, 1 if they are the classes. It is the largest over the "
        "number of trees, since an attacker may stop after any of them. CL uses the party's own columns alone. Bounds "
        "are per node, not joint. " + NOT_A_PROOF
    )
    _say(console, *_wrapped(words, console))


def _of_columns(document: Document) -> Iterator[tuple[str, str]]:
    """Sentences on the columns that a party could read, each with the party's name."""
    for name, party in document.parties.items():
        for of, victim in (party.victims or {}).items():
            yield name, f"read embeddings of {of}. {' '.join(on_columns.words(victim))}"
        for of, read in (party.columns_read or {}).items():
            yield name, sums.words(of, read)
        if party.source_columns is not None and (said := pivodl.column_words(party.source_columns)) is not None:
            yield name, said[1]


def _wrapped(words: str, console: Console, indent: str = "") -> list[str]:
    """Words in lines, a percentage always in one."""
    kept = words.replace(" %", "\u00a0%")
    lines = textwrap.wrap(kept, min(console.width, PROSE_COLUMNS), subsequent_indent=indent)
    return [line.replace("\u00a0%", " %") for line in lines]


def _learned(document: Document, console: Console) -> None:
    received = amounts(document)
    kinds = sorted({kind for row in received.values() for kind in row}, key=rank)
    if not kinds:
        return
    cells = [[_amount(row[kind]) if kind in row else "·" for row in received.values()] for kind in kinds]
    _table(
        console,
        "Who learned what: bytes (messages) received, as far as recorded",
        ["class", *received],
        [[kind, *row] for kind, row in zip(kinds, cells, strict=True)],
    )


def _amount(it: Amount) -> str:
    return f"{terminal.size(it.bytes)} ({count(it.messages)})"


def _attacks(document: Document, console: Console) -> None:
    rows = [
        [name, ATTACKS[attack].label, *figures(it)]
        for name, party in document.on_labels.items()
        for attack, it in party.attacks.items()
    ]
    if rows:
        _table(console, "Attacks on the labels", ["party", "attack", *SCORE_HEADS], rows, names=2)
    for name, party in document.on_labels.items():
        for attack, why in (party.reasons or {}).items():
            _say(console, *_wrapped(f"{name}: {ATTACKS[attack].label} {why}.", console, "  "))
        if not party.attacks:
            _say(console, f"No attack was run on the view of {name}.")


def _known_labels(document: Document, console: Console) -> None:
    """The attacks by few known labels."""
    if (section := known_labels.known_labels(document)) is None:
        return
    rows = [row for row, _ in section.figures.rows]
    if rows:
        _table(console, section.title, section.figures.heads, rows, 3)
        _table(console, "Orders of records without a label", section.ranked.heads, section.ranked.rows, 3)
    for whose, what, why in section.reasons.rows:
        _say(console, *_wrapped(f"{whose}: {what} is left out: {why}.", console, "  "))


def _shared(document: Document, console: Console) -> None:
    """PIVODL's attacks."""
    if (shared := pivodl.shared_labels(document)) is None:
        return
    guesses = [row for row, _ in shared.guesses.rows]
    _table(console, "Guesses of other parties' labels: AUC", shared.guesses.heads, guesses)
    for title, table in (
        ("Gain inversion", shared.inversions),
        ("Differential attack", shared.differentials),
        ("What the messages disclose", shared.disclosed),
        ("Columns of other parties, as far as they are read", shared.columns),
    ):
        _table(console, title, table.heads, table.rows)


def _networks(document: Document, console: Console) -> None:
    """The attacks on split networks."""
    parties = {name: party.network for name, party in document.parties.items() if party.network is not None}
    if (section := networks.networks(document)) is not None:
        completions = [row for row, _ in section.completions.rows]
        for title, heads, rows, names in (
            ("Gradients: clusters", section.clusters.heads, section.clusters.rows, 2),
            ("Gradients: inferred labels", section.labels.heads, section.labels.rows, 1),
            ("Gradients: norm-based and direction-based scoring", section.scores.heads, section.scores.rows, 2),
            ("Model completion", section.completions.heads, completions, 4),
        ):
            if rows:
                _table(console, title, heads, rows, names)
    if gain := networks.gain_row(document):
        _table(console, "What the federation gains", networks.GAIN_HEADS, [gain])
    if document.gain is not None and document.gain.reason and document.on_labels:
        _say(console, *_wrapped(f"Gain over alone that is kept: {document.gain.reason}.", console))
    for name, own in parties.items():
        if own.amplified:
            _say(console, f'{name} trained with optimizer = "amplified": its completion is the active one.')
        for what, why in own.reasons.items():
            _say(console, *_wrapped(f"{name}: {what} is left out: {why}.", console, "  "))


def _columns(document: Document, console: Console) -> None:
    """The label holder's attacks on columns."""
    victims = on_columns.columns(document)
    for title, heads, rows in (
        (
            "Columns of feature parties, one by one",
            on_columns.ATTRIBUTE_HEADS,
            [[victim.name, *row] for victim in victims for row, _ in victim.attributes.rows],
        ),
        (
            "Columns of feature parties: whole records",
            on_columns.RECORD_HEADS,
            [[victim.name, *row] for victim in victims for row in victim.records.rows],
        ),
    ):
        if rows:
            _table(console, title, ("of", *heads), rows, 3)
    for victim in victims:
        for what, why in victim.reasons.rows:
            _say(console, *_wrapped(f"{victim.name}: {what}: {why}.", console, "  "))


def _sums(document: Document, console: Console) -> None:
    """The label holder's attacks on columns by opened sums."""
    read = sums.columns_read(document)
    if rows := [[it.name, *row] for it in read for row in it.ways.rows]:
        _table(console, "Columns of feature parties, read by opened sums", ("of", *sums.WAY_HEADS), rows, names=2)
        _say(console, *_wrapped(sums.WHO_KNOWS, console))
    if rows := [[it.name, *row] for it in read for row in it.cuts.rows]:
        _table(console, "Columns of feature parties, by left sets alone", ("of", *sums.CUT_HEADS), rows, names=2)
    for it in read:
        for what, why in it.reasons.rows:
            _say(console, *_wrapped(f"{it.name}: {what}: {why}.", console, "  "))


def _predictions(document: Document, console: Console) -> None:
    """The attacks on scores of predictions."""
    for title, table, names in (
        ("Leaves behind the scores of predictions", predictions.paths(document), 3),
        ("Leaf weights that scores give away", predictions.weights(document), 2),
    ):
        if table.rows:
            _table(console, title, table.heads, table.rows, names)
    for name, of_job in (document.predictions or {}).items():
        for fault in of_job.faults:
            _say(console, f"{name}: {fault}")


def _leaks(document: Document, console: Console) -> None:
    heads = ["party", "nodes known", "hidden", "largest bound, nats", "label entropy, nats"]
    heads += ["known by all nodes together", "by chance", "signatures"]
    rows = []
    for name, it in zip(document.on_labels, glances(document), strict=True):
        entropy = document.parties[name].signature.label_entropy
        shown = "–" if entropy is None else f"{entropy:.3f}"
        rows.append([name, it.known, it.hidden, it.bound, shown, it.information, it.chance, it.signatures])
    if rows:
        _table(console, "Leakage of the nodes", heads, rows)


def _table(console: Console, title: str, heads: Sequence[str], rows: Rows, names: int = 1) -> None:
    """Print a table whose first `names` columns identify a row.

    A table that is too wide is printed in parts, each with those columns; if not even one figure fits beside them, each
    figure gets a line. A column without any figure is left out.
    """
    # a column without any figure is left out
    kept = [k for k in range(len(heads)) if k < names or any(row[k] != "–" for row in rows)]
    heads, rows = [heads[k] for k in kept], [[row[k] for k in kept] for row in rows]
    console.print()
    console.print(Text(title, style="bold"), soft_wrap=True)
    parts = _parts(console, heads, rows, names)
    for part in parts:
        console.print(_made(heads, rows, part, names))
    if not parts:
        for row in rows:
            lines = [f"  {head}: {cell}" for head, cell in zip(heads, row, strict=True)]
            _say(console, " ".join(row[:names]), *lines[names:])


def _parts(console: Console, heads: Sequence[str], rows: Rows, names: int) -> list[list[int]]:
    """The columns of each part, as many as fit; no parts if one figure alone does not fit."""
    free = console.options.update(max_width=10_000)
    whose = list(range(names))
    parts: list[list[int]] = []
    for column in range(names, len(heads)):
        for columns in ([*parts[-1], column] if parts else None, [*whose, column]):
            if columns and Measurement.get(console, free, _made(heads, rows, columns, names)).maximum <= console.width:
                parts[-1:] = [columns] if parts and columns[:-1] == parts[-1] else [*parts[-1:], columns]
                break
        else:
            return []
    return parts


def _made(heads: Sequence[str], rows: Rows, columns: Sequence[int], names: int) -> Table:
    made = terminal.table()
    made.padding = (0, 1, 0, 0)
    for k in columns:
        made.add_column(terminal.text(heads[k]), justify="left" if k < names else "right", no_wrap=True)
    for row in rows:
        made.add_row(*(terminal.text(row[k]) for k in columns))
    return made


def _say(console: Console, *lines: str) -> None:
    """Print lines that only the terminal wraps; names in them are text, not markup."""
    for line in lines:
        console.print(terminal.text(line), soft_wrap=True)

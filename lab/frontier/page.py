"""A frontier as one HTML file, as a picture, and in the terminal."""

from __future__ import annotations

from treetap import terminal
from treetap.attacks.advice.names import named
from treetap.attacks.report import glossary
from treetap.attacks.report.glossary import ATTACKS
from treetap.lab.frontier.panels import LOOKS, RING, explained, of_attacks, of_columns, of_guesses, placed, written
from treetap.lab.frontier.recommended import RULE
from treetap.pages.page import render
from treetap.pages.pictures import Table
from treetap.privacy.frontiers import FrontierDocument, MeasuredPoint


def html(document: FrontierDocument) -> str:
    """The page: what to take, the panel that decides, a table of all points; by attack, folded; notes."""
    return _render("frontier.html.j2", document)


def picture(document: FrontierDocument) -> str:
    """The panel that decides, and that of columns, side by side as an SVG file."""
    return _render("picture.svg.j2", document)


def _render(template: str, document: FrontierDocument) -> str:
    return render(
        "treetap.lab.frontier",
        template,
        document=document,
        main=[of_guesses(document), *of_columns(document)],
        panels=of_attacks(document),
        looks=[LOOKS[name] for name in LOOKS if any(point.defence == name for point in document.points)],
        headline=headline(document),
        table=table_of(document),
        by_attack=by_attack(document),
        rule=RULE,
        ring=f"{RING:g}",
        words=glossary,
    )


def headline(document: FrontierDocument) -> str:
    """The AUC of the federation without a defence beside that of the label holder alone."""
    without, alone = document.undefended, document.alone.auc
    together = "" if without is None else f"Together {written(without.auc)} AUC, "
    return f"{together}{document.label_holder} alone {written(alone)}"


def table_of(document: FrontierDocument) -> Table:
    """All points: setting, AUC, gain, what the best attack has above own columns, cells read, variance explained."""
    cells = any(point.cells is not None for point in document.points)
    heads = ["setting", "AUC", "above alone", f"labels guessed, {document.measure}", "taken away"]
    return Table(
        [*heads, *(["columns: cells read", "variance explained"] if cells else [])],
        [
            [
                _name(document, number),
                written(point.auc),
                _signed(point.gain.mean),
                _guessed(document, point),
                _taken(document, point),
                *([placed(point.cells), explained(point.cells)] if cells else []),
            ]
            for number, point in enumerate(document.points)
        ],
    )


def by_attack(document: FrontierDocument) -> Table:
    """All points: accuracy, and V-measure by attack."""
    return Table(
        ["setting", "accuracy", *(ATTACKS[attack].label for attack in document.attacks)],
        [
            [
                _name(document, number),
                written(point.accuracy),
                *(written(point.v_measure[attack]) for attack in document.attacks),
            ]
            for number, point in enumerate(document.points)
        ],
    )


def print_frontier(document: FrontierDocument) -> None:
    """The part of the page to decide by: both AUCs, the recommended point with its lines, and all points."""
    terminal.out.print(terminal.text(headline(document)), soft_wrap=True)
    terminal.out.print(terminal.text(document.recommended.says), soft_wrap=True)
    for file, lines in document.recommended.lines.items():
        for line in (f"# {file}", *lines):
            terminal.out.print(terminal.text(f"    {line}"), soft_wrap=True)
    heads, rows = table_of(document)
    table = terminal.table(*heads)
    for row in rows:
        table.add_row(*map(terminal.text, row))
    terminal.out.print(table)
    for sentence in document.says:
        terminal.out.print(terminal.text(sentence), soft_wrap=True)


def _name(document: FrontierDocument, number: int) -> str:
    """A point by its defence and settings; the recommended one is marked."""
    point = document.points[number]
    return named(point.defence, point.settings) + (" ← take this" if number == document.recommended.point else "")


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.3f}".replace("-", "−")


def _guessed(document: FrontierDocument, point: MeasuredPoint) -> str:
    before, it = document.before.mean, point.added
    return "–" if before is None or it.mean is None else written(it.model_copy(update={"mean": before + it.mean}))


def _taken(document: FrontierDocument, point: MeasuredPoint) -> str:
    """The share of what the training adds without a defence that a point takes away."""
    without = document.undefended
    added = None if without is None else without.added.mean
    if point is without or not added or point.added.mean is None:
        return "–"
    taken = 100 * (1 - point.added.mean / added)
    return f"{taken:.0f} %" if taken >= 0.5 else "nothing"

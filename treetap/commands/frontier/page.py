"""A frontier as one self-contained HTML file, as a picture, and as a table in a terminal."""

from __future__ import annotations

from attacks.report import glossary
from treetap import terminal
from treetap.commands.frontier.panels import LOOKS, panels, setting, written
from treetap.pages.page import render
from treetap.pages.pictures import Table
from treetap.privacy.frontiers import FrontierDocument


def html(document: FrontierDocument) -> str:
    """The page: facts, a panel for each attack, a table of all points."""
    return _render("frontier.html.j2", document)


def picture(document: FrontierDocument) -> str:
    """The panels side by side as an SVG file."""
    return _render("picture.svg.j2", document)


def _render(template: str, document: FrontierDocument) -> str:
    return render(
        "treetap.commands.frontier",
        template,
        document=document,
        panels=panels(document),
        looks=[LOOKS[name] for name in LOOKS if any(point.defence == name for point in document.points)],
        table=table_of(document),
        words=glossary,
    )


def table_of(document: FrontierDocument) -> Table:
    """All points: defence and setting, AUC, accuracy, V-measure by attack."""
    return Table(
        ["defence", "AUC", "accuracy", *document.attacks],
        [
            [
                f"{LOOKS[point.defence].label} {setting(point)}".strip(),
                written(point.auc),
                written(point.accuracy),
                *(written(point.v_measure[attack]) for attack in document.attacks),
            ]
            for point in document.points
        ],
    )


def print_frontier(document: FrontierDocument) -> None:
    """The table for a person; the columns of attacks are V-measures."""
    heads, rows = table_of(document)
    table = terminal.table(*heads)
    for row in rows:
        table.add_row(*map(terminal.text, row))
    terminal.out.print(table)
    for sentence in document.says:
        terminal.out.print(terminal.text(sentence), soft_wrap=True)

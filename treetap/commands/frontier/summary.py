"""The points of a frontier as a table: in a terminal, and on its page."""

from __future__ import annotations

from treetap import terminal
from treetap.commands.frontier.panels import LOOKS, setting, written
from treetap.privacy.frontiers import FrontierDocument


def rows_of(document: FrontierDocument) -> tuple[list[str], list[list[str]]]:
    """Heads and rows: defence and setting, AUC, accuracy, V-measure by attack."""
    heads = ["defence", "AUC", "accuracy", *document.attacks]
    rows = [
        [
            f"{LOOKS[point.defence].label} {setting(point)}".strip(),
            written(point.auc),
            written(point.accuracy),
            *(written(point.v_measure[attack]) for attack in document.attacks),
        ]
        for point in document.points
    ]
    return heads, rows


def print_frontier(document: FrontierDocument) -> None:
    """The table for a person; the columns of attacks are V-measures."""
    heads, rows = rows_of(document)
    table = terminal.table(*heads)
    for row in rows:
        table.add_row(*map(terminal.text, row))
    terminal.out.print(table)
    for sentence in document.says:
        terminal.out.print(terminal.text(sentence), soft_wrap=True)

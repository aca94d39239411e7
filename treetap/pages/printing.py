"""Sections in a terminal: sentences, and tables that fit the terminal's width without cutting any figure."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table as Grid
from rich.text import Text as Line

from treetap import terminal
from treetap.errors import visible
from treetap.pages.pictures import Bars, Matrix
from treetap.pages.section import Cell, Code, Listed, Section, Table, Text

#: Most columns of a line of text.
PROSE_COLUMNS = 100


def print_section(section: Section, console: Console) -> None:
    """Print the parts of a section that a terminal shows, in order."""
    parts = section.shown("terminal")
    if section.title and parts and isinstance(parts[0], (Text, Listed)):
        console.print()
        console.print(Line(str(section.title), style="bold"))
    for part in parts:
        if isinstance(part, Section):
            print_section(part, console)
        elif isinstance(part, Text):
            print_words(console, visible(str(part)))
        elif isinstance(part, Listed):
            print_lines(console, *(line for words, _ in part.rows for line in wrapped(f"- {words}", console, "  ")))
        elif isinstance(part, Code):
            print_lines(console, f"    # {part.file}", *(f"    {line}" for line in part.lines))
        elif isinstance(part, Matrix):
            rows = [[name, *map(_words, cells)] for name, _, _, cells in part.rows]
            _print_table(console, part.label, [part.head, *part.columns], rows, 1)
        elif isinstance(part, Bars):
            rows = [[f"{row.name} ({row.more})" if row.more else row.name, *row.figures] for row in part.rows]
            _print_table(console, part.label, part.heads, rows, 1)
        elif isinstance(part, Table):
            # pictures, and columns without any figure, are left out
            texts = [[cell if isinstance(cell, (str, Cell)) else None for cell in row] for row in part.rows]
            kept = [
                k for k in range(len(part.heads)) if k < part.names or any(row[k] not in (None, "–") for row in texts)
            ]
            rows = [[_words(row[k] or "–") for k in kept] for row in texts]
            _print_table(console, part.label, [part.heads[k] for k in kept], rows, part.names)


def print_lines(console: Console, *lines: str) -> None:
    """Print lines that only the terminal wraps; names in them are text, not markup."""
    for line in lines:
        console.print(terminal.text(line), soft_wrap=True)


def print_words(console: Console, *sentences: str) -> None:
    """Print sentences in lines that fit, further ones set in; a line set in by four is to be copied, and stays one."""
    for line in (line for words in sentences for line in words.splitlines()):
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        print_lines(console, *([line] if line.startswith("    ") else wrapped(line, console, indent)))


def wrapped(words: str, console: Console, indent: str = "") -> list[str]:
    """Words in lines, each in one, and a percentage too; one that is wider than the terminal has a line of its own."""
    kept = words.replace(" %", "\u00a0%")
    width = min(console.width, PROSE_COLUMNS)
    lines = textwrap.wrap(kept, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return [line.replace("\u00a0%", " %") for line in lines]


def _words(cell: str | Cell) -> str:
    if isinstance(cell, str):
        return cell
    return f"{cell.figure} ({cell.more})" if cell.more else cell.figure


def _print_table(console: Console, title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], names: int) -> None:
    """Print a table whose first `names` columns identify a row.

    A table that is too wide is printed in parts, each with those columns; if not even one figure fits beside them, each
    figure gets a line.
    """

    def grid(columns: Sequence[int]) -> Grid:
        table = terminal.table()
        table.padding = (0, 1, 0, 0)
        for k in columns:
            table.add_column(terminal.text(heads[k]), justify="left" if k < names else "right", no_wrap=True)
        for row in rows:
            table.add_row(*(terminal.text(row[k]) for k in columns))
        return table

    console.print()
    console.print(Line(title, style="bold"))
    free, parts = console.options.update(max_width=10_000), list[list[int]]()
    for column in range(names, len(heads)):
        # beside the columns of the last part or, where there is no room, in a part of its own
        for columns in ([*parts[-1], column] if parts else None, [*range(names), column]):
            if columns and Measurement.get(console, free, grid(columns)).maximum <= console.width:
                parts[-1:] = [columns] if parts and columns[:-1] == parts[-1] else [*parts[-1:], columns]
                break
        else:
            for row in rows:
                cells = (f"  {head}: {cell}" for head, cell in zip(heads[names:], row[names:], strict=True))
                print_lines(console, " ".join(row[:names]), *cells)
            return
    for columns in parts:
        console.print(grid(columns))

"""Ways to write numbers: a decimal mark, a separator of thousands or none; and which of them columns of text show."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache

#: Decimal mark and separator of thousands; empty where there is none.
Style = tuple[str, str]
#: Numbers as `float` reads them.
PLAIN: Style = (".", "")
#: Separators of thousands: the last four are the apostrophe of typesetters and spaces that do not break.
THOUSANDS = (",", ".", " ", "'", "_", "\u2019", "\u00a0", "\u202f", "\u2009")
_STYLES = [(decimal, thousands) for thousands in ("", *THOUSANDS) for decimal in ".," if decimal != thousands]
_DIGITS = re.compile("[0-9]")
_WORDS = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)


def number(cell: str, style: Style = PLAIN) -> float:
    """A cell as a number of a style, rounded once as `float` does; `ValueError` if it is none.

    Plain ones are as CSV files write them: Python would take 1_000 and digits of other scripts too.
    """
    if style == PLAIN:
        if "_" in cell or not cell.isascii():
            raise ValueError
        return float(cell)
    cell = cell.strip()
    if re.fullmatch(pattern_of(style), cell):
        return value_of(cell, style)
    if _WORDS.fullmatch(cell):
        return float(cell)
    raise ValueError


def style_keys(style: Style) -> str:
    """The keys of a table's settings for a style."""
    decimal, thousands = style
    keys = [f"decimal = {json.dumps(decimal)}"] if decimal != "." or not thousands else []
    return " and ".join([*keys, *([f"thousands = {json.dumps(thousands)}"] if thousands else [])])


def styles_of(cells: Iterable[str | None], besides: Style) -> list[Style]:
    """The ways of writing, other than one, by which all cells with digits are numbers: the simplest of a reading."""
    held = [cell.strip() for cell in cells if cell is not None and _DIGITS.search(cell)]
    return [style for style in readings(held) if style != besides]


def number_columns(columns: Mapping[int, Collection[str]]) -> dict[int, tuple[list[str], list[Style]]]:
    """Place of a column → its cells with digits, and the ways in which they are numbers; only columns that have one.

    A cell may stand for all of its outline.
    """
    held = {place: [cell.strip() for cell in cells if _DIGITS.search(cell)] for place, cells in columns.items()}
    return {place: (cells, styles) for place, cells in held.items() if (styles := readings(cells))}


def decided_style(
    columns: Mapping[int, tuple[list[str], list[Style]]], decimal: str | None, thousands: str | None
) -> tuple[Style, bool]:
    """Decimal mark and thousands, as far as they are given or unmistakable, else those of plain numbers.

    And whether they are unmistakable: some columns have that reading alone, and all others have it too.
    """
    plain = decimal or ".", thousands or ""
    decided = [(cells, styles[0]) for cells, styles in columns.values() if len(styles) == 1]
    # a file has one style: columns with one reading decide for those with several, unless they contradict each other
    separators = {style[1] for _, style in decided} - {""}
    marks = {style[0] for cells, style in decided if any(style[0] in cell for cell in cells)}
    if len(separators) > 1 or len(marks) > 1 or not separators | marks:
        return plain, False
    separator = next(iter(separators), "") if thousands is None else thousands
    mark = decimal or next(iter(marks), "," if separator == "." else ".")
    style = mark, separator
    fits = mark != separator and all(all_numbers(cells, style) for cells, _ in columns.values())
    return (style, True) if fits or style == PLAIN else (plain, False)


def readings(cells: Collection[str]) -> list[Style]:
    """For each way to read all the cells as numbers the simplest way of writing that means it; none without a cell."""
    held = set("".join(cells))
    distinct: dict[tuple[float, ...], Style] = {}
    for style in _STYLES if cells else []:
        if (not style[1] or style[1] in held) and all_numbers(cells, style):
            distinct.setdefault(tuple(value_of(cell, style) for cell in cells), style)
    return list(distinct.values())


def all_numbers(cells: Iterable[str], style: Style) -> bool:
    """True if all cells are numbers of a style."""
    pattern = re.compile(pattern_of(style))
    return all(pattern.fullmatch(cell) for cell in cells)


def value_of(cell: str, style: Style) -> float:
    """A number of this style, rounded once."""
    decimal, thousands = style
    return float((cell.replace(thousands, "") if thousands else cell).replace(decimal, "."))


@lru_cache(maxsize=64)
def pattern_of(style: Style) -> str:
    """The numbers of a style, as a pattern of Python's and of Arrow's: thousands stand in groups of three digits."""
    decimal, thousands = style
    whole, mark = "[0-9]+", re.escape(decimal)
    if thousands:
        whole = f"(?:[0-9]+|[1-9][0-9]{{0,2}}(?:{re.escape(thousands)}[0-9]{{3}})+)"
    return f"[+-]?(?:{whole}(?:{mark}[0-9]*)?|{mark}[0-9]+)(?:[eE][+-]?[0-9]+)?"

"""Quotes of CSV that nothing closes: readers close them at the end of the file, or at a later quote, without a word."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import IO

#: Characters that are read at a time.
_PART = 1 << 20
_LINE = re.compile("\r\n|\r|\n")


def open_quote(text: IO[str], delimiter: str, quote: str, longest: int) -> int | None:
    """The line, from 1, of the first quote that no quote at the end of a cell closes, within `longest` characters.

    A quote opens at the start of a cell alone, and one within a line may close anywhere, as Arrow and Python's `csv`
    read it. One behind a line break must close at the end of a cell: else it is the opening quote of a later row.
    """
    closed = _closed(delimiter, quote)
    held, line = "\n", 1  # the end of the line before the first
    while part := text.read(_PART):
        while part[-1] in quote and (more := text.read(1)):  # it may be the first of two, which are one in a cell
            part += more
        if quote not in part and len(held) == 1:
            line += _lines(held, part)
            held = part[-1]
            continue
        held += part
        found = closed.match(held, 1)
        end = len(held) if found is None else found.end()
        line += _lines(held[0], held[1:end])
        held = held[end - 1 :]
        if len(held) > longest + _PART:
            return line
    found = closed.match(f"{held}\n", 1)
    return line if found is None or found.end() < len(held) else None


def _lines(before: str, text: str) -> int:
    """The lines that end in a text; `before`: the character before it, since a line may end with two."""
    if "\r" not in text:
        return text.count("\n") - (before == "\r" and text.startswith("\n"))
    return len(_LINE.findall(text)) - (before == "\r" and text.startswith("\n"))


@lru_cache(maxsize=16)
def _closed(delimiter: str, quote: str) -> re.Pattern[str]:
    """Text in which every quote that opens a cell is closed; cells end at the delimiter or the line's end."""
    q, ends = re.escape(quote), f"[{re.escape(delimiter)}\r\n]"
    within_line = f"(?<={ends}){q}(?:[^{q}\r\n]++|{q}{q})*+{q}"
    over_lines = f"(?<={ends}){q}(?:[^{q}]++|{q}{q})*+{q}(?= *{ends})"
    return re.compile(f"(?:[^{q}]++|{within_line}|{over_lines}|(?<!{ends}){q})*+")

"""Content of CSV that readers pass over without a word: quotes that nothing closes, hexadecimal numbers.

A reader closes an open quote at the end of the file, or at a later quote: the rows between are one cell.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import IO, NamedTuple

#: Characters that are read at a time.
_PART = 1 << 20
_LINE = re.compile("\r\n|\r|\n")


class Survey(NamedTuple):
    """`open_quote`: the line, from 1, of the first quote that nothing closes. `hexadecimal`: 0x or 0X is somewhere."""

    open_quote: int | None
    hexadecimal: bool


def survey(text: IO[str], delimiter: str, quote: str, longest: int) -> Survey:
    """One pass over a text; `quote`: empty where there is none.

    A quote must be closed by one at the end of a cell, within `longest` characters. It opens at the start of a cell
    alone, and one within a line may close anywhere, as Arrow and Python's `csv` read it. One behind a line break must
    close at the end of a cell: else it is the opening quote of a later row.
    """
    closed = _closed(delimiter, quote) if quote else re.compile("(?s:.*)")
    held, line, hexadecimal = "\n", 1, False  # the end of the line before the first
    while part := text.read(_PART):
        while part[-1] in (quote, "0") and (more := text.read(1)):  # it may be the first of two characters
            part += more
        hexadecimal = hexadecimal or "0x" in part or "0X" in part
        if len(held) == 1 and not (quote and quote in part):
            line += _lines(held, part)
            held = part[-1]
            continue
        held += part
        match = closed.match(held, 1)
        end = len(held) if match is None else match.end()
        line += _lines(held[0], held[1:end])
        held = held[end - 1 :]
        if len(held) > longest + _PART:
            return Survey(line, hexadecimal)
    match = closed.match(f"{held}\n", 1)
    return Survey(line if match is None or match.end() < len(held) else None, hexadecimal)


def _lines(before: str, text: str) -> int:
    """The lines that end in a text; `before`: the character before it, since a line may end with two."""
    if "\r" not in text:
        return text.count("\n") - (before == "\r" and text.startswith("\n"))
    return len(_LINE.findall(text)) - (before == "\r" and text.startswith("\n"))


@lru_cache(maxsize=16)
def _closed(delimiter: str, quote: str) -> re.Pattern[str]:
    """Text in which every quote that opens a cell is closed; cells end at the delimiter or the line's end.

    Without possessive repeats, which Python before 3.11.5 matches wrongly; a text that fails takes linear time all the
    same, since a run of other characters ends at a quote alone, and a quote that closes has none behind it.
    """
    q, ends = re.escape(quote), f"[{re.escape(delimiter)}\r\n]"
    within_line = f"(?<={ends}){q}[^{q}\r\n]*(?:{q}{q}[^{q}\r\n]*)*{q}(?!{q})"
    over_lines = f"(?<={ends}){q}[^{q}]*(?:{q}{q}[^{q}]*)*{q}(?!{q})(?= *{ends})"
    return re.compile(f"(?:[^{q}]+|{within_line}|{over_lines}|(?<!{ends}){q})*")

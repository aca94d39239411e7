"""Dialects of CSV: what separates cells and digits, and how a dialect is detected where it is unmistakable.

The delimiter is detected where the comma cannot be it, by the first rows alone: with exactly one other candidate the
header has several cells and most rows as many. The decimal comma and thousands are detected in such files only, where
they are the one reading of a column's first cells. Of encodings, byte order marks alone are believed.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from treetap.tables.source import number

#: Bytes of a CSV file that are parsed at once: no row can be longer than about this.
BLOCK = 1 << 20
#: Bytes from the start of a file by which its dialect is detected, and most rows of them.
HEAD, ROWS = 1 << 18, 1000
DELIMITERS = (",", ";", "\t", "|")
#: Separators of thousands: the last four are the apostrophe of typesetters and spaces that do not break.
THOUSANDS = (",", ".", " ", "'", "_", "\u2019", "\u00a0", "\u202f", "\u2009")
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_STYLES = [(decimal, thousands) for thousands in ("", *THOUSANDS) for decimal in ".," if decimal != thousands]
_EXCEL = re.compile("sep=([\t -~])(?:\r\n|\r|\n)")
_PLAIN = (".", "")
_DIGITS = re.compile("[0-9]")
_WORDS = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)


@dataclass(frozen=True)
class Dialect:
    """How a file is written. `thousands`, `quote`: empty where there is none. `skip`: lines before the header."""

    delimiter: str = ","
    decimal: str = "."
    thousands: str = ""
    encoding: str = "utf-8"
    quote: str = '"'
    skip: int = 0

    @property
    def reading(self) -> pacsv.ReadOptions:
        """Arrow's options."""
        plain = codecs.lookup(self.encoding).name in ("utf-8", "utf-8-sig", "ascii")
        return pacsv.ReadOptions(block_size=BLOCK, encoding="utf8" if plain else self.encoding, skip_rows=self.skip)

    @property
    def parsing(self) -> pacsv.ParseOptions:
        """Arrow's options."""
        return pacsv.ParseOptions(delimiter=self.delimiter, quote_char=self.quote or False, newlines_in_values=True)

    def rows(self, text: Iterable[str]) -> Any:
        """Python's `csv.reader`, which knows the line of a row."""
        csv.field_size_limit(BLOCK)  # for the whole process: the module's own limit is below Arrow's
        if not self.quote:
            return csv.reader(text, delimiter=self.delimiter, quoting=csv.QUOTE_NONE)
        return csv.reader(text, delimiter=self.delimiter, quotechar=self.quote)

    def number(self, cell: str) -> float:
        """A cell as a number, rounded once as `float` does; `ValueError` if it is none in this dialect."""
        if (self.decimal, self.thousands) == (".", ""):
            return number(cell)
        cell = cell.strip()
        if not re.fullmatch(_pattern(self.decimal, self.thousands), cell):
            if _WORDS.fullmatch(cell):
                return float(cell)
            raise ValueError
        return _value(cell, self.style)

    def numbers(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """A column of text as numbers, if the dialect has its own way to write them and every cell is one."""
        if self.style == (".", "") or not pa.types.is_string(column.type):
            return column
        cells = pc.utf8_trim_whitespace(column)
        cells = pc.if_else(pc.equal(cells, ""), pa.scalar(None, pa.string()), cells)
        pattern = f"^(?i:{_pattern(self.decimal, self.thousands)}|nan|[+-]?inf(?:inity)?)$"
        if cells.null_count == len(cells) or not pc.all(pc.match_substring_regex(cells, pattern)).as_py():
            return column
        whole = pc.replace_substring(cells, self.thousands, "") if self.thousands else cells
        return pc.replace_substring(whole, self.decimal, ".").cast(pa.float64())

    @property
    def style(self) -> tuple[str, str]:
        """Decimal mark and separator of thousands."""
        return self.decimal, self.thousands


@dataclass(frozen=True)
class Given:
    """The settings of a dialect that a configuration has; None: to be detected."""

    delimiter: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    encoding: str | None = None
    quote: str | None = None


@dataclass(frozen=True)
class Detected:
    """A file's dialect, and sentences about what was detected of it.

    `undecided`: columns of which 1.234 may be decimal or thousands, in a file whose delimiter is not the comma.
    """

    dialect: Dialect
    says: tuple[str, ...]
    undecided: tuple[str, ...] = ()


def detect(head: bytes, given: Given, *, whole: bool) -> Detected:
    """The dialect of a file by its first bytes. `whole`: they are the whole file."""
    says = []
    encoding = given.encoding
    if encoding is None:
        encoding = marked_encoding(head) or "utf-8"
        if encoding != "utf-8":
            says.append(f"read as {encoding.upper()}, by its byte order mark")
    elif _mistaken(head, encoding):
        says.append(f"is UTF-8 too: if letters are wrong by encoding = {_toml(encoding)}, leave encoding out")
    dialect = Dialect(encoding=encoding, quote='"' if given.quote is None else given.quote)
    text = head.decode(encoding, "replace").removeprefix("\ufeff")
    if excel := _EXCEL.match(text):  # its first line says how cells end
        dialect, text = replace(dialect, skip=1), text[excel.end() :]
    if given.delimiter is not None:
        dialect = replace(dialect, delimiter=given.delimiter)
    elif excel:
        dialect = replace(dialect, delimiter=excel[1])
        says.append(f"its first line, sep={_shown(excel[1])}, is no header: delimiter = {_toml(excel[1])}")
    elif (found := _delimiter(text, dialect, whole)) != ",":
        dialect = replace(dialect, delimiter=found)
        says.append(f"cells end at {_shown(found)}: delimiter = {_toml(found)}")
    if given.decimal is not None and given.thousands is not None:
        return Detected(replace(dialect, decimal=given.decimal, thousands=given.thousands), tuple(says))
    decimal, thousands, undecided = given.decimal, given.thousands, list[str]()
    if dialect.delimiter != ",":
        header, *rows = _rows(text, dialect, whole) or [[]]
        decimal, thousands = _style(rows, given)
        if (decimal, thousands) != (given.decimal or ".", given.thousands or ""):
            says.append(f"numbers are written with {style_keys(decimal, thousands)}")
        else:
            undecided = [header[place] for place in _undecided(rows, given)]
    dialect = replace(dialect, decimal=decimal or ".", thousands=thousands or "")
    return Detected(dialect, tuple(says), tuple(undecided))


def _mistaken(head: bytes, encoding: str) -> bool:
    """True for UTF-8 beyond ASCII, which is improbable to be text in an encoding of one byte a letter."""
    if codecs.lookup(encoding).name.startswith("utf") or head.isascii():
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True


def marked_encoding(head: bytes) -> str | None:
    """The encoding that a byte order mark names."""
    return next((name for mark, name in _MARKS if head.startswith(mark)), None)


def style_keys(decimal: str, thousands: str) -> str:
    """The keys of a table's settings for a way to write numbers."""
    keys = [f"decimal = {_toml(decimal)}"] if decimal != "." or not thousands else []
    return " and ".join([*keys, *([f"thousands = {_toml(thousands)}"] if thousands else [])])


def styles_of(cells: Iterable[str | None], besides: tuple[str, str]) -> list[tuple[str, str]]:
    """The ways of writing, other than one, by which all cells with digits are numbers: the simplest of a reading."""
    held = [cell.strip() for cell in cells if cell is not None and _DIGITS.search(cell)]
    return [style for style in _readings(held) if style != besides]


def _delimiter(text: str, dialect: Dialect, whole: bool) -> str:
    fitting = [each for each in DELIMITERS if _table(_rows(text, replace(dialect, delimiter=each), whole))]
    return fitting[0] if len(fitting) == 1 else ","


def _table(rows: Sequence[Sequence[str]]) -> bool:
    """True if the header has at least two cells, and most rows as many."""
    same = sum(len(row) == len(rows[0]) for row in rows) if rows else 0
    return bool(rows) and len(rows[0]) > 1 and 2 * same > len(rows)


def _rows(text: str, dialect: Dialect, whole: bool) -> list[list[str]]:
    """The first rows; without the last one where it may be cut off."""
    found: list[list[str]] = []
    try:
        for row in dialect.rows(io.StringIO(text, newline="")):
            if row:
                found.append(row)
            if len(found) > ROWS:
                return found
    except csv.Error:
        return []
    return found if whole else found[:-1]


def _style(rows: Sequence[Sequence[str]], given: Given) -> tuple[str, str]:
    """Decimal mark and thousands, as far as they are given or unmistakable; else those of plain numbers."""
    plain = given.decimal or ".", given.thousands or ""
    columns = _number_columns(rows).values()
    decided = [(cells, styles[0]) for cells, styles in columns if len(styles) == 1 and styles[0] != _PLAIN]
    thousands = {style[1] for _, style in decided} - {""}
    marks = {style[0] for cells, style in decided if any(style[0] in cell for cell in cells)}
    if len(thousands) > 1 or len(marks) > 1 or not decided:
        return plain
    separator = given.thousands or next(iter(thousands), "")
    mark = given.decimal or next(iter(marks), "," if separator == "." else ".")
    fits = mark != separator and all(_all_numbers(cells, (mark, separator)) for cells, _ in columns)
    return (mark, separator) if fits else plain


def _undecided(rows: Sequence[Sequence[str]], given: Given) -> list[int]:
    """Places of columns whose points may be decimal points or separate thousands, where no other column shows which."""
    columns = _number_columns(rows)
    shown = any(styles == [_PLAIN] and any("." in cell for cell in cells) for cells, styles in columns.values())
    if shown or given.decimal is not None or given.thousands is not None:
        return []
    return [place for place, (_, styles) in columns.items() if len(styles) > 1 and _PLAIN in styles]


def _number_columns(rows: Sequence[Sequence[str]]) -> dict[int, tuple[list[str], list[tuple[str, str]]]]:
    """Place of a column → its cells with digits, and the ways in which they are numbers; only columns that have one."""
    found = {}
    for place, column in enumerate(zip(*rows, strict=False)):
        cells = [cell.strip() for cell in column if _DIGITS.search(cell)]
        if styles := _readings(cells):
            found[place] = cells, styles
    return found


def _readings(cells: Sequence[str]) -> list[tuple[str, str]]:
    """For each way to read all the cells as numbers the simplest way of writing that means it; none without a cell."""
    held = set("".join(cells))
    found: dict[tuple[float, ...], tuple[str, str]] = {}
    for style in _STYLES if cells else []:
        if (not style[1] or style[1] in held) and _all_numbers(cells, style):
            found.setdefault(tuple(_value(cell, style) for cell in cells), style)
    return list(found.values())


def _all_numbers(cells: Iterable[str], style: tuple[str, str]) -> bool:
    pattern = re.compile(_pattern(*style))
    return all(pattern.fullmatch(cell) for cell in cells)


def _value(cell: str, style: tuple[str, str]) -> float:
    decimal, thousands = style
    return float((cell.replace(thousands, "") if thousands else cell).replace(decimal, "."))


@lru_cache(maxsize=64)
def _pattern(decimal: str, thousands: str) -> str:
    """A pattern of Python's and of Arrow's."""
    whole, mark = "[0-9]+", re.escape(decimal)
    if thousands:
        whole = f"(?:[0-9]+|[1-9][0-9]{{0,2}}(?:{re.escape(thousands)}[0-9]{{3}})+)"
    return f"[+-]?(?:{whole}(?:{mark}[0-9]*)?|{mark}[0-9]+)(?:[eE][+-]?[0-9]+)?"


def _shown(delimiter: str) -> str:
    return {"\t": "a tab", ";": "a semicolon", "|": "a bar"}.get(delimiter, repr(delimiter))


def _toml(text: str) -> str:
    return json.dumps(text)

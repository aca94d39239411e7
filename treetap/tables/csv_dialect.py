"""Dialects of CSV: what separates cells and digits, and how a dialect is detected where it is unmistakable.

The delimiter is detected where the comma cannot be it, by the first rows: with exactly one other candidate the header
has several cells and most rows as many; a later row that has not is refused. The decimal comma and thousands are
detected in such files only, where they are the one reading of all cells of a column. Of encodings, byte order marks
alone are believed.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from treetap.tables.number_styles import PLAIN, Style, pattern_of
from treetap.tables.source_keys import Given

#: Bytes of a CSV file that are parsed at once: no row can be longer than about this.
BLOCK = 1 << 20
#: Bytes from the start of a file by which its dialect is detected, and most rows of them.
HEAD, ROWS = 1 << 18, 1000
DELIMITERS = (",", ";", "\t", "|")
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_EXCEL = re.compile("sep=([\t -~])(?:\r\n|\r|\n)")


@dataclass(frozen=True)
class Dialect:
    """The dialect of a file. `thousands`, `quote`: empty where there is none. `skip`: lines before the header."""

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

    def numbers(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """A column of text as numbers, if the dialect has its own way to write them and every cell is one."""
        if self.style == PLAIN or not pa.types.is_string(column.type):
            return column
        cells = pc.utf8_trim_whitespace(column)
        cells = pc.if_else(pc.equal(cells, ""), pa.scalar(None, pa.string()), cells)
        pattern = f"^(?i:{pattern_of(self.style)}|nan|[+-]?inf(?:inity)?)$"
        if cells.null_count == len(cells) or not pc.all(pc.match_substring_regex(cells, pattern)).as_py():
            return column
        whole = pc.replace_substring(cells, self.thousands, "") if self.thousands else cells
        return pc.replace_substring(whole, self.decimal, ".").cast(pa.float64())

    @property
    def style(self) -> Style:
        """Decimal mark and separator of thousands."""
        return self.decimal, self.thousands


@dataclass(frozen=True)
class Detected:
    """A file's dialect but for its numbers, sentences about what was detected of it, and the first rows' `columns`."""

    dialect: Dialect
    says: tuple[str, ...]
    columns: tuple[tuple[str, ...], ...]


def detect(head: bytes, given: Given, *, whole: bool) -> Detected:
    """The dialect of a file by its first bytes; numbers as they are given. `whole`: they are the whole file."""
    says = []
    encoding = given.encoding
    if encoding is None:
        encoding = marked_encoding(head) or "utf-8"
        if encoding != "utf-8":
            says.append(f"read as {encoding.upper()}, by its byte order mark")
    quote = '"' if given.quote is None else given.quote
    dialect = Dialect(decimal=given.decimal or ".", thousands=given.thousands or "", encoding=encoding, quote=quote)
    text = head.decode(encoding, "replace").removeprefix("\ufeff")
    if excel := _EXCEL.match(text):  # its first line says how cells end
        dialect, text = replace(dialect, skip=1), text[excel.end() :]
    if given.delimiter is not None:
        dialect = replace(dialect, delimiter=given.delimiter)
    elif excel:
        dialect = replace(dialect, delimiter=excel[1])
        says.append(f"its first line, sep={_shown(excel[1])}, is no header: delimiter = {json.dumps(excel[1])}")
    else:
        ways = {delimiter: replace(dialect, delimiter=delimiter) for delimiter in DELIMITERS}
        fitting = [delimiter for delimiter, way in ways.items() if _table(_rows(text, way, whole))]
        if len(fitting) == 1 and fitting[0] != ",":
            dialect = ways[fitting[0]]
            says.append(f"cells end at {_shown(fitting[0])}: delimiter = {json.dumps(fitting[0])}")
    columns = zip(*_rows(text, dialect, whole)[1:], strict=False)
    return Detected(dialect, tuple(says), tuple(columns))


def marked_encoding(head: bytes) -> str | None:
    """The encoding that a byte order mark names."""
    return next((name for mark, name in _MARKS if head.startswith(mark)), None)


def _table(rows: Sequence[Sequence[str]]) -> bool:
    """True if the header has at least two cells, and most rows as many."""
    same = sum(len(row) == len(rows[0]) for row in rows) if rows else 0
    return bool(rows) and len(rows[0]) > 1 and 2 * same > len(rows)


def _rows(text: str, dialect: Dialect, whole: bool) -> list[list[str]]:
    """The first rows; without the last one where it may be cut off."""
    complete: list[list[str]] = []
    try:
        for row in dialect.rows(io.StringIO(text, newline="")):
            if row:
                complete.append(row)
            if len(complete) > ROWS:
                return complete
    except csv.Error:
        return []
    return complete if whole else complete[:-1]


def _shown(delimiter: str) -> str:
    return {"\t": "a tab", ";": "a semicolon", "|": "a bar"}.get(delimiter, repr(delimiter))

"""A CSV file with a header, in any dialect of `treetap.tables.csv_dialect`.

Readers pass over three things without a word, which one pass over the file finds beforehand: a quote that nothing
closes, which they close at the end of the file or at a later quote, so that the rows between are one cell; bytes of
value 0; and hexadecimal numbers. Where a decimal mark may be detected, another pass looks at all cells of all columns.
"""

from __future__ import annotations

import codecs
import csv
import json
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from itertools import islice
from typing import IO, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from treetap.errors import DataError, NotText
from treetap.tables.csv_dialect import BLOCK, DELIMITERS, HEAD, Detected, Dialect, detect, marked_encoding
from treetap.tables.files import NUL, FileSource, TableFile, decoding, missing
from treetap.tables.number_styles import (
    PLAIN,
    Style,
    all_numbers,
    decided_style,
    number_columns,
    readings,
    style_keys,
    styles_of,
)
from treetap.tables.source import FALSE, TRUE, Trouble
from treetap.tables.source_keys import Given


class Shown(NamedTuple):
    """How a file writes numbers. `mark`, `separator`: those of its decimals and thousands, if a cell has them.

    `undecided`: place of a column → its readings, of which no other column shows which is meant.
    """

    style: Style
    mark: str
    separator: str
    undecided: dict[int, list[Style]]

    def contradicts(self, other: Shown) -> bool:
        """True if no style writes the numbers of both."""
        marks, separators = {self.mark, other.mark} - {""}, {self.separator, other.separator} - {""}
        return len(marks) > 1 or len(separators) > 1 or bool(marks & separators)


class CsvFile(FileSource):
    """Cells as text, from which types are inferred."""

    typed = False

    def __init__(self, file: TableFile, given: Given) -> None:
        super().__init__(file)
        self.given = given

    @cached_property
    def detected(self) -> Detected:
        """The dialect but for its numbers."""
        with decoding(self.file, "CSV"):
            head = self.file.head(HEAD)
        marked = marked_encoding(head)
        if marked and self.given.encoding and not codecs.lookup(self.given.encoding).name.startswith(marked):
            raise DataError(
                f"{self}: begins with the byte order mark of {marked.upper()}, and encoding says otherwise: leave "
                "encoding out"
            )
        return detect(head, self.given, whole=len(head) < HEAD)

    @cached_property
    def shown(self) -> Shown:
        """How all cells of the file write numbers: with decimal points where the delimiter is the comma, else as the
        columns show that have one reading; if these contradict each other, as those of the first rows do.
        """
        given, columns = (self.given.decimal, self.given.thousands), number_columns(self._outlines())
        style, sure = self.detected.dialect.style, True
        if self.detected.dialect.delimiter != ",":
            style, sure = decided_style(columns, *given)
        if not sure:
            style, _ = decided_style(number_columns(dict(enumerate(self.detected.columns))), *given)
        read = {place: it for place, it in columns.items() if all_numbers(it[0], style)}
        undecided = {} if sure or given != (None, None) else {k: it for k, (_, it) in read.items() if len(it) > 1}
        cells = [cell for place, (held, _) in read.items() if place not in undecided for cell in held]
        mark, separator = (mark if any(mark in cell for cell in cells) else "" for mark in style)
        return Shown(style, mark, separator, undecided)

    @cached_property
    def dialect(self) -> Dialect:
        """The dialect, with the way to write numbers."""
        dialect = self.detected.dialect
        if dialect.delimiter == "," or None not in (self.given.decimal, self.given.thousands):
            return dialect
        decimal, thousands = self.shown.style
        return replace(dialect, decimal=decimal, thousands=thousands)

    @property
    def says(self) -> list[str]:
        said, own = list(self.detected.says), self.given.encoding
        if self.style != self.detected.dialect.style:
            said.append(f"numbers are written with {style_keys(self.style)}")
        if own and not codecs.lookup(own).name.startswith("utf") and self._is("utf-8") and not self._is("ascii"):
            said.append(f"is UTF-8 too: if letters are wrong by encoding = {json.dumps(own)}, leave encoding out")
        return [f"{self}: {sentence}" for sentence in said]

    def fields(self) -> list[tuple[str, pa.DataType]]:
        self._check_survey()
        with self._opened(None, "the names of its columns are not") as reader:
            return [(field.name, field.type) for field in reader.schema]

    def read(self, wanted: list[str], text: Collection[str]) -> pa.Table:
        """Ids are among the columns of text: as numbers, 007 would become 7. An unquoted NA or nothing is missing
        in a column of text as in one of numbers.
        """
        dialect = self.dialect
        self._check_survey()
        if dialect.delimiter != "," and (self.given.decimal, self.given.thousands) == (None, None):
            # refuse the first of these columns that may have decimal marks or separators of thousands
            header = next(self._rows(), (0, []))[1]
            for place, (small, large) in self.shown.undecided.items():
                if header[place] not in wanted or header[place] in text:
                    continue
                (mark, _), rows = small, islice(self._rows(), 1, None)
                line = next((line for line, cells in rows if mark in cells[place]), 0)
                raise DataError(
                    f"{self}: line {line}, column {header[place]!r}: three digits follow each "
                    f"{'point' if mark == '.' else 'comma'} of its cells, as in 1{mark}234: write {style_keys(small)} "
                    f"if it is less than 2, or {style_keys(large)} if it is more than 1000"
                )
        table = self._parsed(wanted, text)
        columns = {name: dialect.numbers(table.column(name)) for name in wanted}
        return pa.table(columns | self._as_written({name: columns[name] for name in wanted if name not in text}))

    def _outlines(self) -> dict[int, set[str]]:
        """Place of a column → the `outlines` of its cells; without most columns that no style reads as numbers."""
        names = [name for name, _ in self.fields()]
        kept = {place: set[str]() for place in range(len(names))}
        with self._opened(pacsv.ConvertOptions(column_types=dict.fromkeys(names, pa.binary()))) as reader:
            for batch in reader:
                for place in list(kept):
                    new = outlines(batch.column(place)) - kept[place]
                    kept[place] |= new
                    if new and not readings(new):
                        del kept[place]
        return kept

    def words_for_missing(self, names: list[str]) -> dict[str, int]:
        if not names:
            return {}
        by_word, empty = self._parsed(names, names), self._parsed(names, names, null_values=[""])
        counts = {name: by_word.column(name).null_count - empty.column(name).null_count for name in names}
        return {name: count for name, count in counts.items() if count}

    def _parsed(self, wanted: list[str], text: Collection[str], **options: Any) -> pa.Table:
        """These columns with the types that Arrow infers, those in `text` as bytes; `options`: of Arrow."""
        dialect = self.dialect
        conversion = pacsv.ConvertOptions(
            include_columns=wanted,
            # for text that is not UTF-8, Arrow would not name the row
            column_types={name: pa.binary() for name in text},
            true_values=list(TRUE),
            false_values=list(FALSE),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            decimal_point=dialect.decimal,
            **options,
        )
        with self._failing(), self.file.whole() as raw:
            return pacsv.read_csv(raw, dialect.reading, dialect.parsing, conversion)

    @contextmanager
    def _opened(self, conversion: pacsv.ConvertOptions | None, what: str = "is not") -> Iterator[Any]:
        """A reader of the file in parts; `what`: that is no text, if something is not."""
        dialect = self.detected.dialect
        options = dialect.reading, dialect.parsing, conversion
        with self._failing(what), self.file.unpacked() as raw, pacsv.open_csv(raw, *options) as reader:
            yield reader

    @contextmanager
    def _failing(self, what: str = "is not") -> Iterator[None]:
        """Have what Arrow raises become an error that names the file."""
        try:
            yield
        except UnicodeError:
            encoding = self.detected.dialect.encoding.upper()
            raise NotText(f"{self}: {what} {encoding} text; {self._other_encoding}") from None
        except (pa.ArrowException, OSError) as failure:
            raise self._unreadable(failure) from None

    def _as_written(self, columns: dict[str, pa.ChunkedArray]) -> dict[str, pa.ChunkedArray]:
        """Those that Arrow takes for times of day, or for numbers because of a cell as 0x10, as text."""
        # both are codes or texts to whoever wrote them, and a second reading alone has them as they were written
        times = [name for name, column in columns.items() if pa.types.is_time(column.type)]
        whole = [name for name, column in columns.items() if pa.types.is_integer(column.type)]
        whole = whole if self._survey.hexadecimal else []
        if not times and not whole:
            return {}
        again = self._parsed([*times, *whole], [*times, *whole])
        texts = {name: again.column(name).cast(pa.string()) for name in [*times, *whole]}
        hexadecimal = {
            name: pc.any(pc.match_substring(text, "0x", ignore_case=True)).as_py() for name, text in texts.items()
        }
        return {name: text for name, text in texts.items() if name in times or hexadecimal[name]}

    @property
    def style(self) -> Style:
        return self.dialect.style

    def row_name(self, index: int) -> str:
        """The line where a row ends, the header being line 1; the row where the file has changed since."""
        line, _ = next(islice(self._rows(), index + 1, None), (0, []))
        return f"line {line}" if line else super().row_name(index)

    def remedy(self, trouble: Trouble, content: Sequence[str | None]) -> str:
        if trouble == "no numbers":
            return self._as_numbers(content)
        if trouble == "maybe numbers":  # in a file with another delimiter than the comma, if of digits and commas
            held = [cell for cell in content if cell and cell.strip()]
            plain = self.dialect.delimiter == "," or self.given.decimal is not None
            return "" if plain or not all(any(map(str.isdecimal, cell)) for cell in held) else self._as_numbers(held)
        return self._other_encoding if trouble == "no text" else self._with_column(content[0])

    def _as_numbers(self, cells: Sequence[str | None]) -> str:
        """The settings with which all these cells would be numbers."""
        own, keys = self.dialect, []
        for style in styles_of(cells, own.style):
            without = " and no thousands" if own.thousands and not style[1] else ""
            keys.append(style_keys(style) + without)
        if not keys:
            return ""
        choice = "" if len(keys) == 1 else ": write the one that is meant"
        others = "" if own.style == PLAIN else ", if the others are written so too; else write this one as they are"
        return f"every cell with digits is a number with {' or with '.join(keys)}{choice}{others}"

    def _with_column(self, name: str | None) -> str:
        """The settings with which the header would have this column."""
        for delimiter in DELIMITERS:
            other = CsvFile(self.file, replace(self.given, delimiter=delimiter))
            if delimiter != self.dialect.delimiter and name in next(other._rows(), (0, []))[1]:
                return f"write delimiter = {json.dumps(delimiter)} in the table's settings, by which its header has it"
        plain = CsvFile(self.file, replace(self.given, encoding=None))
        if self.given.encoding is not None and name in next(plain._rows(), (0, []))[1]:
            return "leave encoding out, without which its header has that name"
        return ""

    @property
    def _other_encoding(self) -> str:
        """The encoding to try, by the first bytes that are not of the one in use."""
        if self.given.encoding is not None:
            return "leave encoding out, or write the one in which the file was saved"
        likely = "windows-1252" if self._is("windows-1252") else "latin-1"
        return f'write encoding = "{likely}" in the table\'s settings, if it was saved so in Western Europe'

    def _is(self, encoding: str) -> bool:
        """True if all of the file is text in an encoding."""
        with decoding(self.file, "CSV"), self.file.text(encoding) as text:
            return not any("\ufffd" in part for part in iter(partial(text.read, _PART), ""))

    def _check_survey(self) -> None:
        """Raise `DataError` for a byte of value 0, and for a quote that is never closed, so that rows were one cell."""
        if (line := self._survey.nul) is not None:
            raise DataError(f"{self}: line {line}: a byte of value 0 is no text: {NUL.remedy}")
        if (line := self._survey.open_quote) is not None:
            raise DataError(
                f"{self}: line {line}: no quote at the end of a cell closes the one that opens there "
                f"within {BLOCK >> 20} MiB: "
                'close it, or write quote = "" in the table\'s settings, if cells have no quotes'
            )

    @cached_property
    def _survey(self) -> Survey:
        """The content that Arrow's reader would not tell of, by one pass over the file."""
        dialect = self.detected.dialect
        with decoding(self.file, "CSV"):
            try:
                with self.file.text(dialect.encoding) as text:
                    return survey(text, dialect.delimiter, dialect.quote, BLOCK)
            except UnicodeError:  # of which Arrow's reader tells
                return Survey()

    def _unreadable(self, failure: Exception) -> DataError:
        """The error for a file that Arrow cannot read, without any of its content."""
        if known := missing(self.file, failure) or self._ragged():
            return known
        return DataError(
            f"{self}: is not readable CSV: it is empty, or its rows differ in their number of cells, or one is longer "
            f"than {BLOCK >> 20} MiB"
        )

    def _ragged(self) -> DataError | None:
        """The first row with more or fewer cells than the header.

        Arrow could report its number and width, but not for a row that is not UTF-8.
        """
        rows = self._rows()
        expected = len(next(rows, (0, []))[1])
        line, cells = next(((line, len(cells)) for line, cells in rows if len(cells) != expected), (0, 0))
        if not line:
            return None
        others = (CsvFile(self.file, replace(self.given, delimiter=delimiter)) for delimiter in DELIMITERS)
        other = next((other for other in others if other._even()), self).detected.dialect.delimiter
        own = self.detected.dialect.delimiter
        remedy = "" if other == own else f"; write delimiter = {json.dumps(other)} in its settings"
        return DataError(f"{self}: line {line}: {expected} cells expected, {cells} found{remedy}")

    def _even(self) -> bool:
        """True if all rows have one number of cells, several."""
        widths = {len(cells) for _, cells in self._rows()}
        return len(widths) == 1 and max(widths) > 1

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """The line where each row ends, from 1, and its cells, as far as the file can be read."""
        dialect = self.detected.dialect
        try:
            with self.file.text(dialect.encoding) as text:
                reader = dialect.rows(text)
                for cells in reader:
                    if cells and reader.line_num > dialect.skip:  # Arrow skips empty lines too
                        yield reader.line_num, cells
        except (csv.Error, pa.ArrowException, OSError, DataError):
            return


#: Characters that are read at a time.
_PART = 1 << 20
_LINE = re.compile("\r\n|\r|\n")


class Survey(NamedTuple):
    """`open_quote`: the line, from 1, of the first quote that nothing closes. `hexadecimal`: 0x or 0X is somewhere.

    `nul`: the line of the first character of value 0, behind which nothing was looked at.
    """

    open_quote: int | None = None
    hexadecimal: bool = False
    nul: int | None = None


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
        if (place := part.find("\0")) >= 0:
            return Survey(nul=line + _lines(held[0], held[1:] + part[:place]))
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


def outlines(cells: pa.BinaryArray) -> set[str]:
    """The outlines of cells (n,) with digits: each digit is 0, but a first one that is not 0 is 1.

    A style reads a cell if it reads its outline, and two readings that differ in one differ in the other.
    """
    _, ends, content = cells.buffers()
    bounds = np.frombuffer(ends, np.int32)[cells.offset : cells.offset + len(cells) + 1]
    raw = np.frombuffer(content or b"", np.uint8)[: bounds[-1]]
    digit = (raw >= ord("0")) & (raw <= ord("9"))
    first = digit & ~np.concatenate([[False], digit[:-1]])
    starts = bounds[:-1][bounds[:-1] < len(raw)]
    first[starts] = digit[starts]
    drawn = np.where(digit, ord("0") + (first & (raw != ord("0"))), raw).astype(np.uint8)
    same = pa.Array.from_buffers(pa.binary(), len(cells), [None, pa.py_buffer(bounds), pa.py_buffer(drawn)])
    texts = (text.decode("utf-8", "replace").strip() for text in same.unique().to_pylist())
    return {text for text in texts if re.search("[0-9]", text)}

"""A CSV file with a header, in any dialect of `treetap.tables.csv_dialect`."""

from __future__ import annotations

import codecs
import csv
import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from treetap.errors import DataError
from treetap.tables.csv_dialect import (
    BLOCK,
    DELIMITERS,
    HEAD,
    Detected,
    Dialect,
    Given,
    detect,
    marked_encoding,
)
from treetap.tables.csv_survey import Survey, survey
from treetap.tables.faults import decoding, missing
from treetap.tables.files import FileSource, TableFile
from treetap.tables.number_styles import PLAIN, Style, style_keys, styles_of
from treetap.tables.numbers import FALSE, TRUE


class CsvFile(FileSource):
    """Cells as text, from which types are inferred."""

    typed = False

    def __init__(self, file: TableFile, given: Given) -> None:
        super().__init__(file)
        self.given = given

    @cached_property
    def detected(self) -> Detected:
        """The dialect, what was detected being logged once."""
        with decoding(self.file, "CSV"):
            head = self.file.head(HEAD)
        marked = marked_encoding(head)
        if marked and self.given.encoding and not codecs.lookup(self.given.encoding).name.startswith(marked):
            raise DataError(
                f"{self}: begins with the byte order mark of {marked.upper()}, and encoding says otherwise: leave "
                "encoding out"
            )
        return detect(head, self.given, whole=len(head) < HEAD)

    @property
    def dialect(self) -> Dialect:
        """The dialect that is given or detected."""
        return self.detected.dialect

    @property
    def says(self) -> list[str]:
        return [f"{self}: {sentence}" for sentence in self.detected.says]

    def fields(self) -> list[tuple[str, pa.DataType]]:
        dialect = self.dialect
        self._check_quotes()
        try:
            with self.file.unpacked() as raw, pacsv.open_csv(raw, dialect.reading, dialect.parsing) as reader:
                return [(field.name, field.type) for field in reader.schema]
        except UnicodeError:
            raise DataError(
                f"{self}: the names of its columns are not {self._encoding} text; {self._other_encoding}"
            ) from None
        except (pa.ArrowException, OSError) as failure:
            raise self._unreadable(failure) from None

    def read(self, wanted: list[str], text: Collection[str]) -> pa.Table:
        """Ids are among the columns of text: as numbers, 007 would become 7. An unquoted NA or nothing is missing
        in a column of text as in one of numbers.
        """
        dialect = self.dialect
        self._check_quotes()
        for name in self.detected.undecided:
            if name in wanted and name not in text:
                raise DataError(
                    f"{self}: column {name!r}: three digits follow each point of its first cells, as in 1.234: write "
                    'decimal = "." if it is less than 2, or decimal = "," and thousands = "." if it is more than 1000'
                )
        table = self._parsed(wanted, text)
        columns = {name: dialect.numbers(table.column(name)) for name in wanted}
        return pa.table(columns | self._as_written({name: columns[name] for name in wanted if name not in text}))

    def _parsed(self, wanted: list[str], text: Collection[str]) -> pa.Table:
        """These columns with the types that Arrow infers, those in `text` as bytes."""
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
        )
        try:
            with self.file.whole() as raw:
                return pacsv.read_csv(raw, dialect.reading, dialect.parsing, conversion)
        except UnicodeError:
            raise DataError(f"{self}: is not {self._encoding} text; {self._other_encoding}") from None
        except (pa.ArrowException, OSError) as failure:
            raise self._unreadable(failure) from None

    def _as_written(self, columns: dict[str, pa.ChunkedArray]) -> dict[str, pa.ChunkedArray]:
        """Those that Arrow takes for times of day, or for numbers because of a cell as 0x10, as text."""
        times = [name for name, column in columns.items() if pa.types.is_time(column.type)]
        whole = [name for name, column in columns.items() if pa.types.is_integer(column.type)]
        whole = whole if self._survey.hexadecimal else []
        if not times and not whole:
            return {}
        again = self._parsed([*times, *whole], [*times, *whole])
        texts = {name: again.column(name).cast(pa.string()) for name in [*times, *whole]}
        return {name: text for name, text in texts.items() if name in times or _any_hexadecimal(text)}

    @property
    def style(self) -> Style:
        return self.dialect.style

    def row_name(self, index: int) -> str:
        """The line where a row ends, the header being line 1; the row where the file has changed since."""
        line, _ = next(islice(self._rows(), index + 1, None), (0, 0))
        return f"line {line}" if line else super().row_name(index)

    def number(self, cell: str) -> float:
        return self.dialect.number(cell)

    def remedy(self, cells: Iterable[str | None]) -> str:
        held, own = list(cells), self.dialect
        keys = []
        for style in styles_of(held, own.style):
            without = " and no thousands" if own.thousands and not style[1] else ""
            keys.append(style_keys(style) + without)
        if not keys:
            return ""
        choice = "" if len(keys) == 1 else ": write the one that is meant"
        others = "" if own.style == PLAIN else ", if the others are written so too; else write this one as they are"
        return f"every cell with digits is a number with {' or with '.join(keys)}{choice}{others}"

    def doubt(self, cells: Iterable[str | None]) -> str:
        """In a file with another delimiter than the comma, text of digits and commas may be numbers."""
        held = [cell for cell in cells if cell and cell.strip()]
        plain = self.dialect.delimiter == "," or self.given.decimal is not None
        return "" if plain or not all(any(map(str.isdecimal, cell)) for cell in held) else self.remedy(held)

    def remedy_of_absence(self, name: str) -> str:
        for delimiter in DELIMITERS:
            other = CsvFile(self.file, replace(self.given, delimiter=delimiter))
            if delimiter != self.dialect.delimiter and name in next(other._cells(), []):
                return f"write delimiter = {json.dumps(delimiter)} in the table's settings, by which its header has it"
        plain = CsvFile(self.file, replace(self.given, encoding=None))
        if self.given.encoding is not None and name in next(plain._cells(), []):
            return "leave encoding out, without which its header has that name"
        return ""

    @property
    def _encoding(self) -> str:
        return self.dialect.encoding.upper()

    @property
    def _other_encoding(self) -> str:
        """The encoding to try, by the first bytes that are not of the one in use."""
        if self.given.encoding is not None:
            return "leave encoding out, or write the one in which the file was saved"
        try:
            self.file.head(HEAD).decode("windows-1252")
            likely = "windows-1252"
        except (UnicodeDecodeError, pa.ArrowException, OSError):
            likely = "latin-1"
        return f'write encoding = "{likely}" in the table\'s settings, if it was saved so in Western Europe'

    def not_text(self) -> str:
        return self._other_encoding

    def _check_quotes(self) -> None:
        """Raise `DataError` for a quote that is never closed: the rows behind it would be one cell."""
        if (line := self._survey.open_quote) is not None:
            raise DataError(
                f"{self}: line {line}: no quote at the end of a cell closes the one that opens there "
                f"within {BLOCK >> 20} MiB: "
                'close it, or write quote = "" in the table\'s settings, if cells have no quotes'
            )

    @cached_property
    def _survey(self) -> Survey:
        """The content that Arrow's reader would not tell of, by one pass over the file."""
        with decoding(self.file, "CSV"):
            try:
                with self.file.text(self.dialect.encoding) as text:
                    return survey(text, self.dialect.delimiter, self.dialect.quote, BLOCK)
            except UnicodeError:  # of which Arrow's reader tells
                return Survey(None, hexadecimal=False)

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
        _, expected = next(rows, (0, 0))
        line, cells = next((row for row in rows if row[1] != expected), (0, 0))
        if not line:
            return None
        head = self.file.head(HEAD)
        other = detect(head, replace(self.given, delimiter=None), whole=len(head) < HEAD).dialect.delimiter
        remedy = "" if other == self.dialect.delimiter else f"; write delimiter = {json.dumps(other)} in its settings"
        return DataError(f"{self}: line {line}: {expected} cells expected, {cells} found{remedy}")

    def _rows(self) -> Iterator[tuple[int, int]]:
        """The line where each row ends, from 1, and its number of cells, as far as the file can be read."""
        try:
            with self.file.text(self.dialect.encoding) as text:
                reader = self.dialect.rows(text)
                for cells in reader:
                    if cells and reader.line_num > self.dialect.skip:  # Arrow skips empty lines too
                        yield reader.line_num, len(cells)
        except (csv.Error, pa.ArrowException, OSError, DataError):
            return

    def _cells(self) -> Iterator[list[str]]:
        """The rows' cells, as far as the file can be read."""
        try:
            with self.file.text(self.dialect.encoding) as text:
                yield from islice((cells for cells in self.dialect.rows(text) if cells), self.dialect.skip, None)
        except (csv.Error, pa.ArrowException, OSError, DataError):
            return


def _any_hexadecimal(cells: pa.ChunkedArray) -> bool:
    return bool(pc.any(pc.match_substring(cells, "0x", ignore_case=True)).as_py())

"""JSON lines: one object a line, whose keys are the columns.

Numbers are read as `float` reads them, whole ones of ids and of named categories as they are written.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Collection, Iterator
from contextlib import suppress
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pajson

from treetap.errors import DataError
from treetap.tables.csv_dialect import BLOCK
from treetap.tables.dates import is_date
from treetap.tables.files import FileSource, TableFile, decoding
from treetap.tables.source_keys import SourceKeys

_SURROGATE = re.compile("[\ud800-\udfff]")


class JsonLines(FileSource):
    """A file of objects; an absent key is a missing cell. Numbers, text and booleans have types, dates are text.

    Attributes:
        texts: the columns that are text whatever their cells are: those of features with a text that the table's
            settings call missing. Of several files all have the same.
    """

    def __init__(self, file: TableFile, keys: SourceKeys | None = None) -> None:
        super().__init__(file)
        self._missing = {cell for cell in keys.missing if isinstance(cell, str)} if keys is not None else set[str]()
        self._spared = frozenset(() if keys is None else keys.spared)

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """The keys of all lines, in the order in which they come."""
        with decoding(self, "JSON lines", self._fault):
            return [(field.name, field.type) for field in self._table().schema]

    def read(self, wanted: list[str], _text: Collection[str]) -> pa.Table:
        with decoding(self, "JSON lines", self._fault):
            table = self._table().select(wanted)
            if large := [name for name in wanted if _beyond_64_bits(table.column(name))]:
                with suppress(pa.ArrowInvalid):  # raised for more than 38 digits
                    return self._table(large).select(wanted)
            return table

    def row_name(self, index: int) -> str:
        return next((f"line {line}" for row, (line, _) in enumerate(self._lines()) if row == index), f"row {index + 1}")

    def _table(self, large: Collection[str] = ()) -> pa.Table:
        """All columns, the `large` ones of whole numbers."""
        table = self._parse(None)
        # Arrow takes text that looks like a time for one: ids and texts stay as they are written
        kinds = {field.name: pa.string() for field in table.schema if is_date(field.type)}
        kinds |= dict.fromkeys(large, pa.decimal128(38, 0))
        return self._parse(pa.schema(kinds)).select(table.column_names) if kinds else table

    def _parse(self, schema: pa.Schema | None) -> pa.Table:
        with self._with_texts() if self.texts else self.file.whole() as raw:
            return pajson.read_json(
                raw, pajson.ReadOptions(block_size=BLOCK), pajson.ParseOptions(explicit_schema=schema)
            )

    @cached_property
    def texts(self) -> frozenset[str]:
        cells = (item for line in (self._raw() if self._missing else ()) for item in _cells(line).items())
        gone = {name for name, cell in cells if type(cell) is str and cell.strip() in self._missing}
        return frozenset(gone - self._spared)

    def _with_texts(self) -> pa.BufferReader:
        """The content with numbers and booleans as text in these columns, as they are written."""
        lines = self._raw()
        for place, line in enumerate(lines):
            own = {name: it for name, it in _cells(line).items() if name in self.texts}
            texts = {name: str(it) for name, it in own.items() if isinstance(it, _Written)}
            texts |= {name: json.dumps(it) for name, it in own.items() if isinstance(it, bool)}
            lines[place] = json.dumps(json.loads(line) | texts).encode() + b"\n" if texts else line
        return pa.BufferReader(b"".join(lines))

    def _raw(self) -> list[bytes]:
        with decoding(self, "JSON lines", self._fault), self.file.whole() as raw:
            return list(raw.read().splitlines(keepends=True))

    def _fault(self) -> DataError:
        """The error for the first line that cannot be read with those before it."""
        kinds: dict[str, str] = {}
        for line, content in self._lines():
            if fault := _line_fault(content, kinds):
                return DataError(f"{self}: line {line}{fault}")
        return DataError(f"{self}: is not readable JSON lines: it is empty, or not UTF-8 text")

    def _lines(self) -> Iterator[tuple[int, str]]:
        """Number, from 1, and content of each line that is not empty, as far as the file can be read."""
        try:
            with self.file.text("utf-8") as text:
                for number, content in enumerate(text, start=1):
                    if content.strip():
                        yield number, content
        except (pa.ArrowException, OSError, DataError):
            return


def _beyond_64_bits(column: pa.ChunkedArray) -> bool:
    """True of doubles that are whole numbers, some of which 64 bits do not hold, and 38 digits do."""
    if not pa.types.is_floating(column.type):
        return False
    largest = pc.max(pc.abs(column)).as_py() or 0.0
    return 2.0**63 <= largest < 1e38 and bool(pc.all(pc.equal(column, pc.floor(column))).as_py())


def _line_fault(content: str, kinds: dict[str, str]) -> str:
    """The fault of a line, empty without one. `kinds`: those of the columns in the lines before it, and then in it."""
    if len(content) > BLOCK:
        return f" is longer than {BLOCK >> 20} MiB"
    try:
        cells = json.loads(content, object_pairs_hook=list)
    except (ValueError, RecursionError):
        return " is no JSON; each line is one object, as json.dumps writes it"
    # pairs of an object and an array of pairs are alike by now
    if not content.lstrip().startswith("{"):
        return " is no object; each line is one, with the columns as its keys"
    names = [name for name, _ in cells]
    if twice := next((name for name in names if names.count(name) > 1), None):
        return f" has key {twice!r} twice"
    faults = ((name, _cell_fault(name, value, kinds)) for name, value in cells)
    return next((f", column {name!r}: {fault}" for name, fault in faults if fault), "")


def _cell_fault(name: str, value: Any, kinds: dict[str, str]) -> str:
    if isinstance(value, int | float) and abs(value) > sys.float_info.max:
        return "the number is beyond double precision"
    if _SURROGATE.search(f"{name}{value if isinstance(value, str) else ''}"):
        return "half of a pair of surrogates, such as \\ud800 alone, is no character: remove it"
    kind = _kind(value)
    if kind and kinds.setdefault(name, kind) != kind:
        return (
            f"the cell is {kind}, and {kinds[name]} in the lines before it: write one kind, or list in missing a text "
            "that means a missing value"
        )
    return ""


class _Written(str):
    """A number as it is written."""

    __slots__ = ()


def _cells(line: bytes) -> dict[str, Any]:
    """The cells of a line; none of one that is no object, or has a key twice, of which Arrow's reader tells."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any] | None:
        return dict(pairs) if len(dict(pairs)) == len(pairs) else None

    try:
        cells = json.loads(line, object_pairs_hook=once, parse_int=_Written, parse_float=_Written)
    except (ValueError, RecursionError):
        return {}
    return cells if isinstance(cells, dict) else {}


def _kind(value: Any) -> str:
    """The content of a cell; empty for null."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    return "text" if isinstance(value, str) else "nested"

"""A source without cells that its settings call missing, and without all but one of several records with one id."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from treetap.arrays import Rows
from treetap.tables.cells import plain_column, plain_type
from treetap.tables.dates import is_date
from treetap.tables.number_styles import Style, pattern_of, value_of
from treetap.tables.record_ids import in_sorted_order, keys_in, repeated_ids
from treetap.tables.source import FALSE, TRUE, RowsOf, Source, doubles, is_number, is_text, sentinels
from treetap.tables.source_keys import SourceKeys

#: A text that is a code and no number: who pads a number writes one.
_PADDED = re.compile(r"[+].*|-?0[0-9].*")


class Cleaned(Source):
    """The rows of a source by `missing` and `duplicates` of its settings.

    A cell of a feature's column is missing if it is one of the texts, without blanks around it, or one of the numbers,
    in the column's own width; in a column of numbers, dates or booleans a text that is one counts as that value.
    """

    def __init__(self, source: Source, keys: SourceKeys) -> None:
        self._source, self._keys = source, keys
        for name in ("typed", "ordered", "orders", "streams", "opened", "stamp", "remedy", "words_for_missing"):
            setattr(self, name, getattr(source, name))  # as the source has them
        self._texts = {cell for cell in keys.missing if isinstance(cell, str)}
        self._numbers = {cell for cell in keys.missing if not isinstance(cell, str)}
        self._read: dict[str, int] = {}

    def __str__(self) -> str:
        return str(self._source)

    @property
    def style(self) -> Style:
        return self._source.style

    @property
    def file_ends(self) -> list[int]:
        return (self._source if self._kept is None else RowsOf(self._source, self._kept[0])).file_ends

    @property
    def says(self) -> list[str]:
        return [*self._source.says, *([self._kept[1]] if self._kept is not None else [])]

    def fields(self) -> list[tuple[str, pa.DataType]]:
        return self._source.fields()

    def read(self, wanted: list[str], text: Collection[str]) -> pa.Table:
        table, counts = self._cleaned(self._source.read(wanted, text), 0)
        self._read.update(counts)
        return table

    def batches(self, wanted: list[str], text: Collection[str]) -> Iterator[pa.Table]:
        first, total = 0, Counter[str]()
        for batch in self._source.batches(wanted, text):
            table, counts = self._cleaned(batch, first)
            first += batch.num_rows
            total.update(counts)
            yield table
        self._read.update(total)

    def cleared(self, names: Sequence[str]) -> list[str]:
        counts = {name: count for name in names if (count := self._read.get(name))}
        listed = f"missing = {json.dumps(self._keys.missing, ensure_ascii=False)}"
        shown = ", ".join(f"{name!r} {count:,}" for name, count in counts.items())
        return [f"{listed}: {sum(counts.values()):,} cells count as missing: {shown}"] if counts else []

    def count_rows(self) -> int | None:
        count = self._source.count_rows()
        return count if count is None or self._kept is None else len(self._kept[0])

    def row_name(self, index: int) -> str:
        return self._source.row_name(index if self._kept is None else int(self._kept[0][index]))

    @cached_property
    def _kept(self) -> tuple[Rows, str] | None:
        """The rows (n,) that are left, ascending, and what was left out, in words; None where each id is there once."""
        if self._keys.duplicates == "refuse" or not self._keys.keys:
            return None
        names = self._keys.keys
        table = self._source.read(names, names)
        columns = {name: plain_column(self._source, f"column {name!r}", table.column(name)) for name in names}
        place, ids = keys_in(self._source, columns, self._keys.rules, self._keys.key_places)
        _, order, same = in_sorted_order(ids)
        if not same.any():
            return None
        last = self._keys.duplicates == "last"
        kept = np.sort(order[np.append(~same, True) if last else np.append(True, ~same)])
        said = repeated_ids(self._source, place, order, same)
        return kept, f'{self}: {said}; duplicates = "{self._keys.duplicates}" leaves out {len(ids) - len(kept):,} rows'

    def _cleaned(self, table: pa.Table, first: int) -> tuple[pa.Table, dict[str, int]]:
        """Rows from number `first` on that are kept, and the cells of each column that became missing."""
        if self._kept is not None:
            rows = self._kept[0]
            low, high = np.searchsorted(rows, [first, first + table.num_rows])
            table, first = table.take(pa.array(rows[low:high] - first)), int(low)
        columns, counts = dict(zip(table.column_names, table.columns, strict=True)), dict[str, int]()
        for name, column in columns.items() if self._keys.missing else ():
            kind = plain_type(column.type)
            known = is_text(kind) or is_number(kind) or is_date(kind) or pa.types.is_boolean(kind)
            if name in self._keys.spared or not known:
                continue
            own = plain_column(RowsOf(self, range(first, first + len(column))), f"column {name!r}", column)
            if is_text(own.type):
                gone = self._of_text(own)
            elif is_number(own.type):
                gone = self._of_numbers(own)
            else:
                gone = self._of_values(own)
            counts[name] = int(gone.sum())
            columns[name] = own.take(pa.array(np.arange(len(own)), mask=gone)) if gone.any() else own
        return pa.table(columns), counts

    def _of_text(self, column: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
        gone = [cell for cell in column.unique().drop_null().to_pylist() if self._means_missing(cell.strip())]
        return np.asarray(pc.is_in(column, value_set=pa.array(gone, column.type)), dtype=bool)

    def _means_missing(self, cell: str) -> bool:
        one = re.fullmatch(pattern_of(self.style), cell) is not None and not _PADDED.fullmatch(cell)
        return cell in self._texts or (one and value_of(cell, self.style) in self._numbers)

    def _of_numbers(self, column: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
        values = {value_of(text, self.style) for text in self._texts if re.fullmatch(pattern_of(self.style), text)}
        return np.isin(doubles(column), [it for own in values | self._numbers for it in sentinels(own, column.type)])

    def _of_values(self, column: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
        """Of dates, in UTC where a text names no zone, and of booleans."""
        values: list[pa.Scalar] = []
        for text in self._texts:
            if pa.types.is_boolean(column.type):
                values += [pa.scalar(text in TRUE)] if text in {*TRUE, *FALSE} else []
                continue
            with suppress(ValueError):  # no date, or one for which the type has no room
                time = pa.scalar(datetime.fromisoformat(text), pa.timestamp("us", getattr(column.type, "tz", None)))
                own = time.cast(column.type)
                values += [own] if own.cast(time.type).equals(time) else []
        return np.asarray(pc.is_in(column, value_set=pa.array(values, column.type)), dtype=bool)

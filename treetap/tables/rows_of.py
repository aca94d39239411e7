"""Some rows of a source, under the names that they have in the whole: for messages about cells of a batch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import pyarrow as pa

from treetap.tables.source import Source


class RowsOf(Source):
    """Rows of a source that have been read. `place`: the number of a row among these → that among all, from 0."""

    def __init__(self, source: Source, place: Callable[[int], int]) -> None:
        self._source, self._place = source, place
        self.typed, self.ordered = source.typed, source.ordered

    def __str__(self) -> str:
        return str(self._source)

    def fields(self) -> list[tuple[str, pa.DataType]]:
        return self._source.fields()

    def read(self, wanted: list[str], text: Collection[str]) -> pa.Table:
        """All rows."""
        return self._source.read(wanted, text)

    def row_name(self, index: int) -> str:
        return self._source.row_name(self._place(index))

    def number(self, cell: str) -> float:
        return self._source.number(cell)

    def remedy(self, cells: Iterable[str | None]) -> str:
        return self._source.remedy(cells)

    def doubt(self, cells: Iterable[str | None]) -> str:
        return self._source.doubt(cells)

    def not_text(self) -> str:
        return self._source.not_text()

    def remedy_of_absence(self, name: str) -> str:
        return self._source.remedy_of_absence(name)

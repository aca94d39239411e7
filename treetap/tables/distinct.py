"""The different cells of a column whose rows come in batches, each with the first row that has it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from treetap.errors import DataError
from treetap.tables.rows_of import RowsOf
from treetap.tables.source import Source
from treetap.usage import half_of_memory

#: Cells that are put together at once, beside those that are known.
_PENDING = 1 << 16


class DistinctCells:
    """Different cells of a column, in the order in which they come; a missing one is none of them."""

    def __init__(self, source: Source, name: str, kind: pa.DataType) -> None:
        self._source, self._name = source, name
        narrow = pa.types.is_decimal32(kind) or pa.types.is_decimal64(kind)  # Arrow does not compare these
        self._known = pa.array([], pa.decimal128(kind.precision, kind.scale) if narrow else kind)
        self._rows = np.empty(0, dtype=np.int64)
        self._new: list[tuple[pa.Array, npt.NDArray[np.int64]]] = []

    def add(self, first: int, column: pa.ChunkedArray) -> None:
        """The cells of a batch whose first row is number `first`.

        Raises:
            DataError: the different cells take up more than half of the memory.
        """
        for chunk in column.cast(self._known.type).chunks:
            self._new.append(_first_of_each(chunk, np.arange(first, first + len(chunk))))
            first += len(chunk)
        if sum(len(cells) for cells, _ in self._new) > _PENDING + len(self._known):
            self._settle()

    def column(self) -> pa.ChunkedArray:
        """One cell of each."""
        self._settle()
        return pa.chunked_array([self._known])

    def origin(self) -> Source:
        """The source, in which a cell of `column` has the name of the first row that has it."""
        return RowsOf(self._source, lambda index: int(self._rows[index]))

    def _settle(self) -> None:
        parts = [(self._known, self._rows), *self._new]
        cells, rows = pa.concat_arrays([part for part, _ in parts]), np.concatenate([part for _, part in parts])
        self._known, self._rows = _first_of_each(cells, rows)
        self._new = []
        if self._known.nbytes + self._rows.nbytes > half_of_memory():
            raise DataError(
                f"{self._source}: the different cells of column {self._name!r} take up more than half of this "
                "machine's memory: leave it out"
            )


def _first_of_each(cells: pa.Array, rows: npt.NDArray[np.int64]) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """The different cells in the order in which they come, and the row of the first of each."""
    numbered = cells.dictionary_encode()
    present = np.asarray(numbered.is_valid())
    places = numbered.indices.drop_null().to_numpy()
    _, first = np.unique(places, return_index=True)
    return numbered.dictionary.drop_null(), rows[present][first]  # that of a column of nothing but nulls is one null

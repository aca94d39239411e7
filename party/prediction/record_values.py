"""Values of the features that a party's own splits compare, by records in their common order.

Those of a small table are in memory. Those of a large one are read from it once, after the alignment, and lie in an
unnamed file in the common order: a block of records is a stretch of it, and a record that a client asks about a row
(docs/adr/0179-predictions-of-large-tables.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from party.runtime.messages import Rows
from treetap.process.grouped_rows import Open, PlacedRows, Raw
from treetap.tables.features import Features, Held
from treetap.tables.reading import Floats, Table

Column = npt.NDArray[np.float64]
#: Records that lie between two of a block and are read with them rather than each by itself.
GAP = 32
_BYTES = 8


class HeldValues:
    """Features in memory, (N, d), by the records' places in the common order; NaN where missing."""

    def __init__(self, features: Floats) -> None:
        self._features = features

    def column(self, rows: Rows, feature: int) -> Column:
        """Those of one feature, (n,)."""
        found: Column = self._features[rows, feature]
        return found

    def columns(self, rows: Rows) -> Callable[[int], Column]:
        """Those of any feature, (n,) each; they are gathered once."""
        found = self._features[rows]
        return lambda feature: found[:, feature]


class StoredValues:
    """The same of some features in a file; of the last block that was asked for they stay in memory."""

    def __init__(self, values: PlacedRows, features: Sequence[int]) -> None:
        """`values`: a row of 64-bit numbers for each record; `features`: those that its numbers are of."""
        self._values, self._place = values, {feature: place for place, feature in enumerate(features)}
        self._last: tuple[Rows, Floats] = np.zeros(0, dtype=np.int64), np.zeros((0, len(self._place)))

    @classmethod
    def of(cls, features: Features, rows: Rows, compared: Sequence[int], files: Open) -> StoredValues:
        """Read the `compared` features of records, whose rows in the table are given, in one pass.

        Raises:
            DataError: the table cannot be read, or is another one than before.
        """
        parts = ((places, _raw(values)) for places, values in features.batches(rows, compared))
        return cls(PlacedRows.of(parts, len(rows), _BYTES * len(compared), files), compared)

    def column(self, rows: Rows, feature: int) -> Column:
        """Those of one feature, (n,)."""
        return self.columns(rows)(feature)

    def columns(self, rows: Rows) -> Callable[[int], Column]:
        """Those of any feature, (n,) each; they are gathered once."""
        known, values = self._last
        places = np.searchsorted(known, rows)
        if len(rows) and not (len(known) and np.array_equal(known[np.minimum(places, len(known) - 1)], rows)):
            known = np.unique(rows)
            values = np.concatenate(list(self._read(known)))
            self._last = known, values
            places = np.searchsorted(known, rows)
        return lambda feature: values[places, self._place[feature]]

    def _read(self, rows: Rows) -> Iterator[Floats]:
        """The values of records, which are ascending, stretch by stretch."""
        width = len(self._place)
        for stretch in np.split(rows, np.flatnonzero(np.diff(rows) > GAP) + 1):
            first, last = int(stretch[0]), int(stretch[-1])
            read = self._values.take(first, last + 1 - first).view(np.float64).reshape(-1, width)
            yield read[stretch - first]


RecordValues = HeldValues | StoredValues


def values_of(table: Table, compared: Sequence[int], files: Open) -> RecordValues:
    """The values at aligned records; of a table that is not in memory, the `compared` features alone."""
    if isinstance(table.values, Held):
        return HeldValues(table.features)
    if not compared:
        return HeldValues(np.empty((len(table.ids), 0)))
    return StoredValues.of(table.values, table.rows, compared, files)


def _raw(values: Floats) -> Raw:
    return np.ascontiguousarray(values, dtype=np.float64).view(np.uint8).reshape(len(values), -1)

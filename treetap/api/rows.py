"""Rows of the caller's data: which label, weight and prediction belongs to which, by index and id, never by chance."""

from __future__ import annotations

import sys
import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from treetap.api.errors import InvalidInput, checked
from treetap.api.frames import library_of, like
from treetap.api.loopback import ID
from treetap.protocols.prediction import id_column_fault
from treetap.tables.cells import plain_column
from treetap.tables.record_ids import Ids, ids_of

#: Column of ids whose own column is called as one of the predictions'.
_IDS = "id"


@dataclass(frozen=True)
class Rows:
    """The rows of the label holder's frame, or of the one frame or array of all parties.

    `data`: the frame; `ids`: of its rows, in their order; `id_column`: its name and content where there is one;
    `known`: the ids are the caller's own, of that column or of the index, and not the rows' numbers.
    """

    data: Any
    ids: Ids
    id_column: tuple[str, pa.ChunkedArray] | None = None
    known: bool = False

    @property
    def indexed(self) -> bool:
        """True if the rows have an index, which pandas alone gives them."""
        return library_of(self.data) == "pandas"

    def aligned(self, values: Any, name: str) -> Any:
        """Labels or weights in the order of these rows: pandas values by their index, all others by their place.

        `name`: of the values, for messages. Rows that ids identify may come in another order; of one frame, whose rows
        nothing but their place tells apart for other parties, the order has to be the same.

        Raises:
            InvalidInput: the index of the values is another one than that of the rows.
        """
        pandas = sys.modules.get("pandas")
        if pandas is None or not isinstance(values, pandas.Series | pandas.DataFrame) or len(values) != len(self.ids):
            return values
        own = values.index
        if own.equals(self.data.index) if self.indexed else own.equals(pandas.RangeIndex(len(own))):
            return values
        orders = [order for order in self._orders(own) if order is not None and (order >= 0).all()]
        if len(orders) == 2 and (orders[0] != orders[1]).any():
            raise InvalidInput(
                f"{name}: its index could be the rows' index or their ids, which differ: give it in the order of the "
                f"rows, as {name}.to_numpy()"
            )
        if orders:
            return values.iloc[orders[0]]
        if not self.indexed:  # there is nothing to compare the index with
            return values
        raise InvalidInput(
            f"{name} has another index than the rows of X, so that which row it belongs to is not known: take "
            f"{name}.loc[X.index], or {name}.to_numpy() if it is in the order of the rows"
        )

    def _orders(self, own: Any) -> list[np.ndarray[Any, np.dtype[np.int64]] | None]:
        """The places of the rows in an index, by the rows' index and by their ids, where each identifies them."""
        by_ids = by_index = None
        if self.known:
            with suppress(InvalidInput):
                by_ids = ids_of_index("the values", own).places_of(self.ids)
        if self.known and self.indexed and self.id_column is not None and own.is_unique and self.data.index.is_unique:
            by_index = own.get_indexer(self.data.index)
        return [by_index, by_ids]

    def places_in(self, found: pa.Table) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The row of each of these records in a table of predictions; -1 of one that is not there."""
        return Ids.of_column(found.column(ID)).places_of(self.ids)

    def framed(self, found: pa.Table) -> Any:
        """Predictions in the order of these rows, as a data frame of their library, with their index and id column.

        Ids of a column whose name is one of the predictions' columns come as `id`, with a warning; without a column of
        ids those of an index that has no name do, beside the index, unless it numbers the rows.
        """
        places = self.places_in(found)
        rows = np.flatnonzero(places >= 0)
        table = found.drop_columns([ID]).take(pa.array(places[rows]))
        if self.id_column is not None:
            name, column = self.id_column
            if id_column_fault(name) is not None:
                warnings.warn(f"column {name!r} has the predictions: the ids are in column {_IDS!r}", stacklevel=3)
                name = _IDS
            table = table.add_column(0, name, column.take(pa.array(rows)))
        frame = like(table, library_of(self.data))
        if self.indexed:
            index = frame.index = self.data.index.take(rows)
            numbers = self.data.index.equals(sys.modules["pandas"].RangeIndex(len(self.data)))
            if self.id_column is None and index.nlevels == 1 and index.name is None and not numbers:
                frame.insert(0, _IDS, index)
        return frame


def ids_in(frame: str, place: str, column: pa.ChunkedArray) -> Ids:
    """A column or an index as ids, by the rules of a file's; `frame` and `place`: for messages.

    Raises:
        InvalidInput: one is missing, empty or there twice, or they are no whole numbers and no text.
    """
    with checked():
        return ids_of(Path(frame), place, plain_column(Path(frame), place, column))


def ids_of_index(frame: str, index: Any) -> Ids:
    """The index of a pandas frame as ids. Raises as `ids_in`, and of an index of several levels or types."""
    if index.nlevels > 1:
        raise InvalidInput(
            f"{frame}: its index has {index.nlevels} levels, and an id is one: reset_index, and name the column of ids "
            "as id_column"
        )
    try:
        column = pa.chunked_array([pa.array(index)])
    except (pa.ArrowException, TypeError, ValueError):
        raise InvalidInput(
            f"{frame}: its index holds values of several types, or of one that no id has: ids are whole numbers or "
            "text; or name a column as id_column"
        ) from None
    return ids_in(frame, "the index", column)

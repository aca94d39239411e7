"""Tables of the caller in and out: pandas, polars and Arrow, without importing a library that is not in use.

What of them, and of other input, cannot be used is `InvalidInput`.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ValidationError

from treetap.arrays import Array, Floats, Ints
from treetap.errors import BadInput, DataError, each_of
from treetap.lab.experiment.results import Importance
from treetap.names import of_class
from treetap.protocols.prediction import id_column_fault
from treetap.strict import WHOLE, faults_of
from treetap.tables.categories import category_texts, order_of
from treetap.tables.cells import plain_column
from treetap.tables.labels import class_name
from treetap.tables.record_ids import Ids, ids_of
from treetap.tables.source import is_number, is_text

#: Name of the id column in the parties' tables.
ID = "treetap_id"
#: A library of data frames.
Library = Literal["pandas", "polars", "arrow"]
#: Types of polars that Arrow has not.
_NOT_IN_ARROW = ("Int128", "UInt128")
#: The place of faults in messages.
_FRAME = Path("the data frame")


class InvalidInput(BadInput, ValueError):
    """A table, a label or a parameter of the caller that cannot be used: a ValueError, as scikit-learn asks."""


@contextmanager
def checked(schema: type[BaseModel] = BaseModel) -> Iterator[None]:
    """Raise wrong input, which commands report as `BadInput` or the schema or Arrow refuses, as `InvalidInput`.

    Of what the Python API calls, this is all that its callers see beside `TreetapError`: also as a decorator.
    """
    try:
        yield
    except ValidationError as failure:
        faults = [fault.removeprefix(f"{WHOLE}: ") for fault in faults_of(failure, schema)]
        raise InvalidInput("; ".join(faults)) from None
    except InvalidInput:
        raise
    except BadInput as failure:
        raise InvalidInput(str(failure)) from failure
    except pa.ArrowException as failure:
        raise InvalidInput(
            f"Arrow cannot take this data: {next(iter(str(failure).splitlines()), 'no reason')}"
        ) from None


def library_of(data: object) -> Library | None:
    """The library whose data frame this is; None of anything else, such as an array."""
    if isinstance(data, pa.Table | pa.RecordBatch):
        return "arrow"
    pandas, polars = sys.modules.get("pandas"), sys.modules.get("polars")
    if pandas is not None and isinstance(data, pandas.DataFrame):
        return "pandas"
    if polars is not None and isinstance(data, polars.DataFrame):
        return "polars"
    if polars is not None and isinstance(data, polars.LazyFrame):
        raise InvalidInput("a polars.LazyFrame has no records yet: pass frame.collect()")
    return None


def names_of(data: Any) -> list[str]:
    """The names of a data frame's columns, which are the texts of their labels, whatever type these have.

    Raises:
        InvalidInput: two columns have one name.
    """
    labels = data.schema.names if library_of(data) == "arrow" else data.columns
    counted = Counter(map(str, labels))
    if twice := next((name for name, count in counted.items() if count > 1), None):
        raise InvalidInput(f"the data frame has column {twice!r} more than once")
    return list(counted)


def arrow_of(data: Any) -> pa.Table:
    """A data frame as an Arrow table, without its index; categories of a library are dictionaries of text.

    Raises:
        InvalidInput: a column holds objects of several types, or of one that no table has, or two have one name.
    """
    return _table_of(data, _typed)


def _table_of(data: Any, made: Callable[[str, pa.ChunkedArray], pa.ChunkedArray]) -> pa.Table:
    library, names = library_of(data), names_of(data)
    try:
        if library == "pandas":
            table = pa.Table.from_pandas(data.set_axis(names, axis=1), preserve_index=False)
        elif library == "polars":
            table = data.to_arrow()
        else:
            table = pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else data
    except (pa.ArrowException, TypeError, ValueError, ArithmeticError) as failure:
        kinds = data.schema.items() if library == "polars" else ()
        odd = (f"column {name!r} holds {kind}: cast it to Int64" for name, kind in kinds if str(kind) in _NOT_IN_ARROW)
        fault = next(odd, f"{failure.args[-1]}: give it one type, as text by astype(str)")
        raise InvalidInput(f"the data frame is no table of typed columns: {fault}") from None
    try:
        plain = each_of(*(partial(made, name, column) for name, column in zip(names, table.columns, strict=True)))
    except DataError as failure:
        raise InvalidInput(str(failure)) from None
    return pa.table(plain, names=names) if names else table


def _typed(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A plain column, but categories of a library as a dictionary of their texts, so that they are known as such."""
    plain = _plain(name, column)
    kind = plain.type
    if not pa.types.is_dictionary(column.type) or not (is_text(kind) or is_number(kind) or pa.types.is_boolean(kind)):
        return plain
    texts, ordered = category_texts(_FRAME, name, plain, None), column.type.ordered
    orders = [chunk.dictionary for chunk in column.chunks] if ordered else []
    return texts.dictionary(list(order_of(_FRAME, name, orders)) or texts.values(), ordered=ordered)


def _plain(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    return plain_column(_FRAME, f"column {name!r}", column)


def of_array(values: Floats, names: Sequence[str] | None = None) -> pa.Table:
    """Numbers (n, d) as a table; `names`: of the columns, by default those of their places, from 0."""
    own = [f"x{place}" for place in range(values.shape[1])] if names is None else names
    return pa.table({name: np.ascontiguousarray(values[:, place]) for place, name in enumerate(own)})


def column_in(data: Any, name: str) -> pa.ChunkedArray | None:
    """A column of a data frame, by the text of its label; None where there is none. Raises as `arrow_of`."""
    names = names_of(data)
    if name not in names:
        return None
    pandas = library_of(data) == "pandas"
    return _table_of(data.iloc[:, [names.index(name)]] if pandas else data.select([name]), _plain).column(0)


def column_of(values: Any) -> Any:
    """Values of a polars or Arrow column as numpy's; any others as they are."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values.to_numpy(zero_copy_only=False) if isinstance(values, pa.Array) else values.to_numpy()
    polars = sys.modules.get("polars")
    return values.to_numpy() if polars is not None and isinstance(values, polars.Series) else values


def array_of(values: list[Any]) -> Array:
    """Values (n,) as they are, of objects where numpy has no other type for them: its texts lose NULs at their end."""
    made = np.array(values)
    return made if made.tolist() == values else np.array(values, dtype=object)


def like(table: pa.Table, library: Library | None) -> Any:
    """A table as a data frame of a library; without one, as `data_frame` does."""
    if library is None:
        return data_frame(table)
    if library == "arrow":
        return table
    return table.to_pandas() if library == "pandas" else importlib.import_module("polars").from_arrow(table)


def data_frame(table: pa.Table) -> Any:
    """A table as a pandas data frame if pandas is installed, else as it is."""
    return table.to_pandas() if importlib.util.find_spec("pandas") is not None else table


def frame_of(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = ()) -> Any:
    """Rows as a data frame; `columns`: those of an empty one."""
    return data_frame(pa.Table.from_pylist(list(rows)) if rows else pa.table({name: pa.array([]) for name in columns}))


def importances_of(rows: Sequence[Importance]) -> Any:
    """Gain, cover and number of splits by party and feature, as a data frame."""
    return frame_of([row.plain() for row in rows], ("party", "feature", "weight", "gain", "cover"))


def probabilities_of(predicted: pa.Table, classes: Sequence[Any] | None) -> Array:
    """Probabilities (n, classes) in predictions as a label holder's file has them; None: of its own classes."""
    names = [name for name in predicted.column_names if name.startswith("probability_")]
    if len(names) == 1:  # of the second of two classes
        second = predicted.column(names[0]).to_numpy()
        return np.stack([1 - second, second], axis=1)
    if classes is not None:
        names = [of_class("probability", class_name(value)) for value in classes]
    return np.stack([predicted.column(name).to_numpy() for name in names], axis=1)


#: Column of ids whose own column is called as one of the predictions'.
_IDS = "id"


@dataclass(frozen=True)
class Rows:
    """The rows of a party's frame, or of the one frame or array of all parties: what belongs to them goes by names.

    `data`: the frame; `ids`: those by which the parties align its rows, in their order; `id_column`: its name and
    content where there is one; `index`: of these rows, by pandas; `joined`: the parties align by that index, so that it
    names the rows also where it numbers them.
    """

    data: Any
    ids: Ids
    id_column: tuple[str, pa.ChunkedArray] | None = None
    index: Any = None
    joined: bool = False

    def names(self) -> Ids | None:
        """The caller's names of the rows: their ids of a column, else of the index; None where nothing has names.

        Raises as `ids_in` and `ids_of_index`.
        """
        if self.id_column is not None:
            name, column = self.id_column
            return ids_in("X", f"column {name!r}", column)
        return ids_of_index("X", self.index) if self._named else None

    @property
    def _named(self) -> bool:
        return self.index is not None and (self.joined or not only_numbers(self.index))

    def aligned(self, values: Any, name: str) -> Any:
        """Labels or weights in the order of these rows, in a type that numpy takes.

        `name`: of the values, for messages. Pandas values go by their index, in whatever order they come: its labels
        are the rows' ids or those of their index. All others go by place, and so do these where rows have no names.

        Raises:
            InvalidInput: the index of the values is another one than that of the rows, or has two meanings.
        """
        pandas = sys.modules.get("pandas")
        if pandas is None or not isinstance(values, pandas.Series | pandas.DataFrame) or len(values) != len(self.ids):
            return column_of(values)
        own = values.index
        orders = [order for order in self._orders(own) if order is not None and (order >= 0).all()]
        same = self.index is not None and own.identical(self.index)
        if len(orders) == 2 and (orders[0] != orders[1]).any() and not same:
            raise InvalidInput(
                f"{name}: its index could be the rows' index or their ids, which differ: give it in the order of the "
                f"rows, as {name}.to_numpy()"
            )
        if orders:
            return values.iloc[orders[0]]
        if self.index is None and self.id_column is None:
            return values
        raise InvalidInput(
            f"{name} has another index than the rows of X, so that which row it belongs to is not known: give it the "
            f"index or the ids of these rows, or {name}.to_numpy() if it is in their order"
        )

    def _orders(self, own: Any) -> list[Ints | None]:
        """The places of the rows in an index, by the rows' index and by their names, where each identifies them."""
        by_index = by_names = None
        index = sys.modules["pandas"].RangeIndex(len(self.ids)) if self.index is None else self.index
        if own.equals(index):
            by_index = np.arange(len(own))
        elif self._named and own.nlevels == index.nlevels and own.is_unique and index.is_unique:
            by_index = own.get_indexer(index)
        with suppress(InvalidInput):
            if (names := self.names()) is not None:
                by_names = ids_of_index("the values", own).places_of(names)
        return [by_index, by_names]

    def all_in(self, records: pa.Table, remedy: str) -> Ints:
        """The row of each of these records in a table of records; InvalidInput: one of them is not there."""
        places = self.places_in(records)
        if lacking := int((places < 0).sum()):
            raise InvalidInput(
                f"{lacking} of {len(places)} records of the label holder are not at every party: {remedy}"
            )
        return places

    def places_in(self, predicted: pa.Table) -> Ints:
        """The row of each of these records in a table of predictions; -1 of one that is not there."""
        return Ids.of_column(predicted.column(ID)).places_of(self.ids)

    def framed(self, predicted: pa.Table) -> Any:
        """Predictions in the order of these rows, as a data frame of their library, with their index and id column.

        Ids of a column whose name is one of the predictions' columns come as `id`, with a warning; without a column of
        ids those of an index that has no name do, beside the index, unless it numbers the rows.
        """
        places = self.places_in(predicted)
        rows = np.flatnonzero(places >= 0)
        table = predicted.drop_columns([ID]).take(pa.array(places[rows]))
        if self.id_column is not None:
            name, column = self.id_column
            if id_column_fault(name) is not None:
                warnings.warn(f"column {name!r} has the predictions: the ids are in column {_IDS!r}", stacklevel=3)
                name = _IDS
            table = table.add_column(0, name, column.take(pa.array(rows)))
        frame = like(table, library_of(self.data))
        if library_of(self.data) == "pandas":
            index = frame.index = self.data.index.take(rows)
            numbers = self.data.index.equals(sys.modules["pandas"].RangeIndex(len(self.data)))
            if self.id_column is None and index.nlevels == 1 and index.name is None and not numbers:
                frame.insert(0, _IDS, index)
        return frame


def only_numbers(index: Any) -> bool:
    """True of the index that pandas gives rows without one: their numbers from 0, which name nothing."""
    return bool(index.identical(sys.modules["pandas"].RangeIndex(len(index))))


def ids_in(frame: str, place: str, column: pa.ChunkedArray, rules: tuple[str, ...] = ()) -> Ids:
    """A column or an index as ids, by the rules of a file's; `frame` and `place`: for messages. `rules`: see `Ids`.

    Raises:
        InvalidInput: one is missing, empty or there twice, or they are no whole numbers and no text.
    """
    with checked():
        return ids_of(Path(frame), place, plain_column(Path(frame), place, column), rules)


def ids_of_index(frame: str, index: Any, rules: tuple[str, ...] = ()) -> Ids:
    """The index of a pandas frame as ids. Raises as `ids_in`, and of an index of several levels or types."""
    if index.nlevels > 1:
        raise InvalidInput(
            f"{frame}: its index has {index.nlevels} levels, and an id is one: reset_index, and name the column of ids "
            "as id_column"
        )
    try:
        column = pa.chunked_array([pa.array(index)])
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise InvalidInput(
            f"{frame}: its index holds values of several types, or of one that no id has: ids are whole numbers or "
            "text; or name a column as id_column"
        ) from None
    return ids_in(frame, "the index", column, rules)

"""Tables of the caller in and out: pandas, polars and Arrow, without importing a library that is not in use."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from treetap.api.errors import InvalidInput
from treetap.errors import DataError
from treetap.tables.cells import plain_column

#: A library of data frames.
Library = Literal["pandas", "polars", "arrow"]
#: The place of faults in messages.
_FRAME = Path("the data frame")


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
    """A data frame as an Arrow table, without its index.

    Raises:
        InvalidInput: a column holds objects of several types, or of one that no table has, or two have one name.
    """
    library, names = library_of(data), names_of(data)
    try:
        if library == "pandas":
            table = pa.Table.from_pandas(data.set_axis(names, axis=1), preserve_index=False)
        elif library == "polars":
            table = data.to_arrow()
        else:
            table = pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else data
    except (pa.ArrowException, TypeError, ValueError, ArithmeticError) as failure:
        raise InvalidInput(f"the data frame is no table of typed columns: {failure}") from None
    try:
        columns = zip(names, table.columns, strict=True)
        plain = [plain_column(_FRAME, f"column {name!r}", column) for name, column in columns]
    except DataError as failure:
        raise InvalidInput(str(failure)) from None
    return pa.table(plain, names=names) if names else table


def place_name(place: int) -> str:
    """The name of a column of an array, which has places alone, from 0."""
    return f"x{place}"


def of_array(values: np.ndarray[Any, np.dtype[np.float64]], names: Sequence[str] | None = None) -> pa.Table:
    """Numbers (n, d) as a table; `names`: of the columns, by default those of their places."""
    own = map(place_name, range(values.shape[1])) if names is None else names
    return pa.table({name: np.ascontiguousarray(values[:, place]) for place, name in enumerate(own)})


def column_in(data: Any, name: str) -> pa.ChunkedArray | None:
    """A column of a data frame, by the text of its label; None where there is none. Raises as `arrow_of`."""
    names = names_of(data)
    if name not in names:
        return None
    pandas = library_of(data) == "pandas"
    return arrow_of(data.iloc[:, [names.index(name)]] if pandas else data.select([name])).column(0)


def column_of(values: Any) -> Any:
    """Values of a polars or Arrow column as numpy's; any others as they are."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values.to_numpy(zero_copy_only=False) if isinstance(values, pa.Array) else values.to_numpy()
    polars = sys.modules.get("polars")
    return values.to_numpy() if polars is not None and isinstance(values, polars.Series) else values


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

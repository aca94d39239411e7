"""A large table of a source that streams: ids, label and weights are read, features stay in the source.

1. One pass over ids, label, weights and the columns whose different cells decide their encoding.
2. One pass over the features, which checks every cell.

The messages are those of a table that is read whole; of two faults in different columns the one in the earlier rows is
named, whichever column it is in.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from treetap.errors import DataError
from treetap.tables.auto_encoding import Cells, Rules, Settled, codes, declared_in, settle
from treetap.tables.categories import Category, categories_of, merges
from treetap.tables.cells import is_tensor
from treetap.tables.config import AUTO, DAYS, TableConfig, encoding_of, is_encoded_by_name
from treetap.tables.dates import ISO, is_date
from treetap.tables.features import Streamed
from treetap.tables.opening import plain_batches
from treetap.tables.source import RowsOf, Source, is_text, may_be_numbers
from treetap.usage import half_of_memory

#: Bytes of the numbers of a table's features from which they are streamed.
STREAMED = 1 << 27
_NUMBER = 8  # bytes


def too_large_to_hold(source: Source, config: TableConfig) -> bool:
    """True if a table's features are better read in batches: there are many, and its source can."""
    count = source.count_rows() if source.streams else None
    if count is None or count * len(config.columns) * _NUMBER <= STREAMED:
        return False
    named = set(config.columns)
    return not any(is_tensor(kind) for name, kind in source.fields() if name in named)


def kinds_of(source: Source, config: TableConfig, text: Collection[str]) -> dict[str, pa.DataType]:
    """The types of the columns that the configuration names, by the first batch: several files have one in common.

    `text`: those that are read as they are written. `DataError` if the source cannot be read or has no rows.
    """
    for _, columns in plain_batches(source, config.columns, text):
        return {name: column.type for name, column in columns.items()}
    raise DataError(f"{source}: has no rows")


def first_pass(
    source: Source,
    config: TableConfig,
    kinds: Mapping[str, pa.DataType],
    further: Collection[str],
    known: Mapping[str, Category] | None,
) -> tuple[dict[str, pa.ChunkedArray], dict[str, DistinctCells]]:
    """The id columns and `further` ones whole, and the different cells of columns that may be categories.

    Raises:
        DataError: the source cannot be read, or the columns take up more than half of the memory.
    """
    declared, counted = declared_in(source), list[str]()
    if known is None:
        counted = [name for name in config.columns if _decided_by_cells(config, name, kinds, declared)]
    else:  # text that is compared by its numbers, or dates, which one format for all columns may be of
        dated = {name for name, it in known.items() if it.of_dates and isinstance(config.date_format, str)}
        apart = {name for name, it in known.items() if not it.numeric} - dated
        counted = [name for name in config.columns if is_text(kinds[name]) and name not in apart]
    cells = {name: DistinctCells(source, name, kinds[name]) for name in counted}
    whole = [*config.keys, *further]
    parts: dict[str, list[pa.Array]] = {name: [] for name in whole}
    size, most = 0, half_of_memory()
    for first, columns in plain_batches(source, [*whole, *counted]):
        for name in whole:
            parts[name] += columns[name].chunks
            size += columns[name].nbytes
        if size > most:
            raise DataError(f"{source}: ids and label take up more than half of this machine's memory")
        for name in counted:
            cells[name].add(first, columns[name])
    if not all(parts.values()):  # a damaged file may have rows in other columns
        raise DataError(f"{source}: has no rows")
    return {name: pa.chunked_array(chunks) for name, chunks in parts.items()}, cells


def features_of(
    source: Source,
    stamp: object,
    records: int,
    rules: Rules,
    kinds: Mapping[str, pa.DataType],
    cells: Mapping[str, DistinctCells],
    known: Mapping[str, Category] | None,
) -> tuple[Streamed, dict[str, Category], list[str]]:
    """The features, how columns of categories and of dates became features, and what was taken for the first time.

    `stamp`: the source's before the first pass; features of a source that has another one are refused. See `encoded`
    and `Settled.says`.

    Raises:
        DataError: as `settle` and `encoded` do.
    """
    categories, settled = dict[str, Category](), Settled(None, {})
    if known is None:
        none = {name: Cells(source, pa.chunked_array([], kind), records) for name, kind in kinds.items()}
        counted = {name: Cells(here.origin(), here.column(), records) for name, here in cells.items()}
        settled = settle(source, none | counted, rules)
        encode, forms = settled.encode, settled.date_formats
        for name, (origin, column, _) in (none | counted).items():
            form = forms.get(name, ISO)
            made = categories_of(origin, name, column, encode, rules.missing, records, date_format=form)
            categories |= {} if made is None else {name: made}
    else:
        categories = {name: known[name] for name in kinds if name in known}
    features = {name: categories[name].features if name in categories else [name] for name in kinds}
    distinct = {name: here.column() for name, here in cells.items()}
    plain = {name: column for name, column in distinct.items() if known is None and name not in categories}
    says = [*settled.says, *merges(source, distinct, categories), *codes(source, plain)]
    return Streamed(source, stamp, records, features, categories, rules.missing).surveyed(), categories, says


def _decided_by_cells(
    config: TableConfig, name: str, kinds: Mapping[str, pa.DataType], declared: Collection[str]
) -> bool:
    """True if the cells of a column, and not its type alone, decide how it is encoded."""
    chosen, kind = encoding_of(config.encode, name), kinds[name]
    if is_date(kind):
        return False
    if is_text(kind):
        return True
    by_name = chosen != DAYS and is_encoded_by_name(config.encode, name)
    return may_be_numbers(kind) and (by_name or (chosen == AUTO and name in declared))


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

    def origin(self) -> RowsOf:
        """The source, in which a cell of `column` has the name of the first row that has it."""
        self._settle()
        return RowsOf(self._source, self._rows)

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

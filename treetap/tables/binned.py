"""A table's columns in bins, as every protocol that grows trees takes them.

The records of a training with those of an eval table behind them, of one party.

Both go through the trees; those of the eval table are drawn for none. They are aligned in one run: the ids of each
table have a mark before them, so that a record is common only to parties that have it in the same table, and every
party knows from its own ids which of the common records are of which.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from mmap import mmap
from tempfile import TemporaryFile
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from treetap.arrays import Rows
from treetap.errors import DataError
from treetap.tables.cells import Shape, shape_text
from treetap.tables.config import CATEGORICAL, CONSTRAINTS, CUTS
from treetap.tables.features import Extent, in_words, joined
from treetap.tables.reading import Table
from treetap.tables.record_ids import Ids
from treetap.tables.source import Origin
from treetap.trees.binning import (
    BLOCK,
    BinnedTable,
    Codes,
    FeatureBins,
    QuantileSketch,
    category_bins,
    code_type,
    fit,
    kind_of,
    quantile_cuts,
)
from treetap.trees.candidates import Kind

log = logging.getLogger(__name__)
#: Records of a training up to which the bins of its columns follow from all of their values.
EXACT_RECORDS = 1_000_000
#: Bytes of codes above which these lie in a file, whose pages the system may take out of memory.
MAPPED = 1 << 28
_AT_ONCE = 1 << 27  # bytes of values, or of their sketches, of the columns of one pass
_WRITTEN = 1 << 20  # bytes of a new file at a time
#: The setting of a party's table by which it trains without constant columns.
CURE = "drop_constant = true in the table's settings"


def refuse_tensors(path: Origin, shapes: Mapping[str, Shape]) -> None:
    """Raise `DataError` for the first column of tensors of a table of trees."""
    for name, shape in shapes.items():
        raise DataError(
            f"{path}: column {name!r} holds tensors of shape {shape_text(shape)}, and trees split at numbers only: "
            "leave the column out"
        )


def refuse_constant(table: Table, records: int | None = None, extents: Sequence[Extent] | None = None) -> None:
    """Raise `DataError` if columns of a table of trees are constant: names the first, and this party's log all.

    `extents`: those of the first `records`, if these alone matter.
    """
    constant = table.constant(extents)
    if not constant:
        return
    log.info("%s: of its %d records, %s", table.path, records or len(table.ids), in_words(constant))
    name, fault = next(iter(constant.items()))
    more = f", and so are {len(constant) - 1} more, which this party's log lists" if len(constant) > 1 else ""
    them = "them" if more else "it"
    raise DataError(f"{table.path}: column {name!r} {fault}{more}: leave {them} out, or set {CURE}")


def directions_of(table: Table) -> npt.NDArray[np.int64] | None:
    """The monotone constraint of each of the table's features, (d,); None: they have none.

    A column that was dropped as constant has none.

    Raises:
        DataError: a column with a constraint is not one feature, but one for each category, or holds tensors.
    """
    free = set(table.dropped or []).union(table.columns) - set(table.category_counts)
    for name in table.directions:
        if name in free:
            continue
        raise DataError(
            f"{table.path}: {CONSTRAINTS} names column {name!r}, whose categories have no order: leave it out, "
            'or give the column encode = "ordinal" if its order is that of its texts'
        )
    directions = np.array([table.directions.get(name, 0) for name in table.columns], dtype=np.int64)
    return directions if directions.any() else None


def refuse_categories(table: Table, unless: str) -> None:
    """Raise `DataError` for the first column of categories of a training that does not split them."""
    for name in table.category_counts:
        raise DataError(
            f"{table.path}: column {name!r} is encoded as {CATEGORICAL!r}, which {unless} alone can split: use "
            'encode = "ordinal" or "one-hot" for it'
        )


def refuse_cuts(table: Table) -> None:
    """Raise `DataError` for the first column with listed cuts whose numbers are codes."""
    for name in table.cuts:
        category = table.categories.get(name)
        if category is not None and not category.of_dates:
            raise DataError(
                f"{table.path}: {CUTS} names column {name!r}, which is encoded as {category.encode!r}: its codes "
                "follow from the texts that occur; leave it out there, or have its texts as numbers in the table"
            )


def refuse_columns(table: Table, max_cat_to_onehot: int | None) -> None:
    """Raise `DataError` for columns at which no tree of a job can split; `max_cat_to_onehot`: see `bin_columns`."""
    _refuse_kinds(table, max_cat_to_onehot)
    refuse_constant(table)
    refuse_cuts(table)
    directions_of(table)


def _refuse_kinds(table: Table, max_cat_to_onehot: int | None) -> None:
    refuse_tensors(table.path, table.shapes)
    if max_cat_to_onehot is None:
        refuse_categories(table, "boosting with multi_strategy = 'one_output_per_tree'")


def partitioned(table: Table, max_cat_to_onehot: int | None) -> list[str]:
    """The columns whose categories the trees of a job partition; `max_cat_to_onehot`: see `bin_columns`."""
    if max_cat_to_onehot is None:
        return []
    counts = table.category_counts.items()
    return [name for name, count in counts if kind_of(count, max_cat_to_onehot) is Kind.PARTITIONS]


def bin_columns(
    table: Table,
    max_bin: int,
    max_cat_to_onehot: int | None,
    training: int | None = None,
    *,
    missing_bins: bool = False,
    lacks: bool = False,
    exact: int = EXACT_RECORDS,
    scratch: Callable[[], IO[bytes]] = TemporaryFile,
) -> BinnedTable:
    """Fit bins to the table's features and encode them; `training`: to those of the first records alone.

    1. The bins of each column, in passes over a few columns each: by all its values in a training of at most `exact`
       records, by a `QuantileSketch` in a larger one, in the order of the table's rows.
    2. The codes, in one pass.

    In a column in which the training lacks no value, a further record that lacks one counts to the last bin: it goes
    right at every split, as at a prediction. Categories have a place of their own for it.

    The bins of a column with listed cuts follow from these alone if it has a bin for missing values in any case
    (`missing_bins`); else it has one where the training lacks a value.

    `lacks`: the training has records that this table lacks, so that every column has a bin for missing values.

    `max_cat_to_onehot`: see `treetap.trees.binning.category_bins`; None: the training splits no categories.
    `scratch`: opens a file for codes of more than `MAPPED` bytes, which the system deletes with its last user.

    Raises:
        OSError: the disk has no room for that file.
        DataError: a column holds tensors, which no tree splits at, is constant, or has a constraint or cuts that it
            cannot have, or the table cannot be read.
    """
    records = len(table.ids) if training is None else training
    _refuse_kinds(table, max_cat_to_onehot)
    refuse_cuts(table)
    directions = directions_of(table)
    bins, extents = _fitted(table, max_bin, max_cat_to_onehot or 1, records, sketched=records > exact)
    if lacks:
        bins = [replace(fitted, has_missing=True) for fitted in bins]
    if missing_bins:
        listed = zip(table.columns, bins, strict=True)
        bins = [replace(fitted, has_missing=True) if name in table.cuts else fitted for name, fitted in listed]
    refuse_constant(table, records, extents)
    # The code of each record and feature, (N, d), column by column.
    shape, kind = (len(table.ids), len(bins)), code_type(bins)
    size = shape[0] * shape[1] * kind.itemsize
    flat: Codes = _mapped(scratch, size, kind) if size > MAPPED else np.empty(shape[0] * shape[1], dtype=kind)
    codes = flat.reshape(shape, order="F")  # histograms read it column by column
    last = [feature.n_bins + 1 if feature.categories else feature.n_bins - 1 + feature.has_missing for feature in bins]
    for rows, values in table.values.batches(table.rows):
        for place, feature in enumerate(bins):
            coded = feature.codes(values[:, place])
            if records < len(table.ids):
                coded[rows >= records] = np.minimum(coded[rows >= records], last[place])
            codes[rows, place] = coded
    return BinnedTable(codes, bins, directions)


def _fitted(
    table: Table, max_bin: int, max_cat_to_onehot: int, records: int, *, sketched: bool
) -> tuple[list[FeatureBins], list[Extent]]:
    """The bins of each column by the first `records`, and the extents of these."""
    bins: list[FeatureBins] = []
    extents: list[Extent] = []
    blocks = max(records // BLOCK, 1).bit_length() + 3  # of a sketch: one for each level, two where they collapse
    held = (blocks * BLOCK if sketched else records) * np.dtype(np.float64).itemsize
    at_once, categories = max(1, _AT_ONCE // max(held, 1)), table.category_counts
    for first in range(0, len(table.columns), at_once):
        places = range(first, min(first + at_once, len(table.columns)))
        columns = [
            ColumnBins(
                name, max_bin, categories.get(name, 0), max_cat_to_onehot, sketched=sketched, cuts=table.cuts.get(name)
            )
            for name in (table.columns[place] for place in places)
        ]
        # a pass takes as many columns as fit into memory, since each pass may read the source anew
        for rows, values in table.values.batches(table.rows, places):
            trained = values if records == len(table.ids) else values[rows < records]
            for column, cells in zip(columns, trained.T, strict=True):
                column.add(cells)
        try:
            bins += [column.bins() for column in columns]
        except DataError as failure:
            raise DataError(f"{table.path}: {failure}") from None
        extents += [column.extent for column in columns]
    return bins, extents


def _mapped(scratch: Callable[[], IO[bytes]], size: int, kind: np.dtype[np.integer[Any]]) -> Codes:
    """An array (n,) of this size in bytes in a new file, which lives as long as the array.

    The file is written first: a page of a mapped file for which the disk has no room would end the process.
    """
    with scratch() as file:
        while (written := file.tell()) < size:
            file.write(bytes(min(_WRITTEN, size - written)))
        file.flush()
        return np.frombuffer(mmap(file.fileno(), size), dtype=kind)


class ColumnBins:
    """Takes values, NaN where missing; then `extent` is theirs, and `bins` follow from them.

    `categories`: their number in a column of categories, which needs no values; `max_cat_to_onehot`: see
    `treetap.trees.binning.category_bins`. `sketched`: the values are many. `cuts`: those that are listed, which need
    no values either.
    """

    def __init__(
        self,
        name: str,
        max_bin: int,
        categories: int,
        max_cat_to_onehot: int,
        *,
        sketched: bool,
        cuts: Sequence[float] | None = None,
    ) -> None:
        self.extent, self._cuts = Extent(), cuts
        self._name, self._max_bin = name, max_bin
        self._categories, self._max_cat_to_onehot = categories, max_cat_to_onehot
        self._sketch = QuantileSketch(max_bin, BLOCK) if sketched and not categories and cuts is None else None
        self._parts: list[npt.NDArray[np.float64]] = []

    def add(self, values: npt.NDArray[np.float64]) -> None:
        """Further values (n,)."""
        self.extent.see(values)
        if self._sketch is not None:
            self._sketch.add(values[~np.isnan(values)])
        elif not self._categories and self._cuts is None:
            self._parts.append(values.copy())  # not a view, which would keep the whole batch

    def bins(self) -> FeatureBins:
        """The bins, a constant column's too. `DataError` if a value is infinite."""
        if self._cuts is not None:
            return FeatureBins(np.array(self._cuts, dtype=np.float64), self.extent.missing)
        if self._categories:
            return category_bins(self._categories, self._max_cat_to_onehot, has_missing=self.extent.missing)
        if self._sketch is None:
            values = np.concatenate([np.empty(0), *self._parts])
            return fit(values, self._max_bin, self._name, may_be_constant=True)
        if np.isinf([self.extent.least, self.extent.largest]).any():
            raise DataError(f"column {self._name!r} holds an infinite value: mark it missing or clip it")
        distinct = self._sketch.distinct()
        known = self._sketch.weighted() if distinct is None else (distinct, np.ones(len(distinct), dtype=np.int64))
        return FeatureBins(quantile_cuts(*known, self._max_bin), self.extent.missing)


#: Marks before ids of a job with an eval table. In their order the marked ids of both tables are sorted.
_TRAINING, _EVALUATED = "t:", "v:"


#: Characters of a mark.
MARK = 2


def unmarked(marked: str) -> str:
    """An id without the mark before it."""
    return marked[MARK:]


@dataclass(frozen=True)
class JobRecords:
    """`table`: the records of the training, then those of the eval table. `training`: the number of the first ones.

    `marked`: the job has an eval table.
    """

    table: Table
    training: int
    marked: bool = False

    @classmethod
    def of(cls, table: Table, evaluated: Table | None) -> JobRecords:
        """The tables of a job; both have the same features. `evaluated`: the eval table, where the job has one."""
        if evaluated is None:
            return cls(table, len(table.ids))
        both = replace(
            table,
            ids=table.ids + evaluated.ids,
            values=joined(table.values, len(table.ids), evaluated.values),
            label=None,
            weights=None,
            offsets=None,
            rows=np.concatenate([table.rows, evaluated.rows]),
            tensors={name: np.concatenate([cells, evaluated.tensors[name]]) for name, cells in table.tensors.items()},
        )
        return cls(both, len(table.ids), marked=True)

    @property
    def ids(self) -> Ids:
        """The ids as they are aligned: with a mark of their table where the job has an eval table."""
        if not self.marked:
            return self.table.ids
        own = self.table.ids
        return own[: self.training].marked(_TRAINING) + own[self.training :].marked(_EVALUATED)

    def take(self, records: Rows) -> JobRecords:
        """The records at these places, in this order; those of the eval table are the last ones."""
        return replace(self, table=self.table.take(records), training=int((records < self.training).sum()))

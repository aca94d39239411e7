"""A table's columns in bins, as every protocol that grows trees takes them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from treetap.errors import DataError
from treetap.tables.config import CATEGORICAL
from treetap.tables.constant import in_words
from treetap.tables.reading import Table
from treetap.tables.source import Origin
from treetap.tables.tensors import Shape, shape_text
from treetap.trees.binning import BinnedTable, bin_table, kind_of
from treetap.trees.shapes import Kind

log = logging.getLogger(__name__)
#: The setting of a party's table by which it trains without constant columns.
CURE = "drop_constant = true in the table's settings"


def refuse_tensors(path: Origin, shapes: Mapping[str, Shape]) -> None:
    """Raise `DataError` for the first column of tensors of a table of trees."""
    for name, shape in shapes.items():
        raise DataError(
            f"{path}: column {name!r} holds tensors of shape {shape_text(shape)}, and trees split at numbers only: "
            "leave the column out"
        )


def refuse_constant(table: Table) -> None:
    """Raise `DataError` if columns of a table of trees are constant: names the first, and this party's log all."""
    constant = table.constant()
    if not constant:
        return
    log.info("%s: of its %d records, %s", table.path, len(table.ids), in_words(constant))
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
    for name in table.monotone:
        if name in (table.dropped or []) or (name in table.columns and name not in table.category_counts):
            continue
        raise without_order(table.path, name)
    found = np.array([table.monotone.get(name, 0) for name in table.columns], dtype=np.int64)
    return found if found.any() else None


def without_order(path: Origin, name: str) -> DataError:
    """The refusal of a constraint of a column that is split as categories, or one feature for each."""
    return DataError(
        f"{path}: monotone_constraints names column {name!r}, whose categories have no order: leave it out, "
        'or give the column encode = "ordinal" if its order is that of its texts'
    )


def refuse_categories(table: Table, unless: str) -> None:
    """Raise `DataError` for the first column of categories of a training that does not split them."""
    for name in table.category_counts:
        raise DataError(
            f"{table.path}: column {name!r} is encoded as {CATEGORICAL!r}, which {unless} alone can split: use "
            'encode = "ordinal" or "one-hot" for it'
        )


def refuse_columns(table: Table, max_cat_to_onehot: int | None) -> None:
    """Raise `DataError` for columns at which no tree of a job can split; `max_cat_to_onehot`: see `bin_columns`."""
    refuse_tensors(table.path, table.shapes)
    refuse_constant(table)
    if max_cat_to_onehot is None:
        refuse_categories(table, "boosting with multi_strategy = 'one_output_per_tree'")
    directions_of(table)


def partitioned(table: Table, max_cat_to_onehot: int | None) -> list[str]:
    """The columns whose categories the trees of a job partition; `max_cat_to_onehot`: see `bin_columns`."""
    if max_cat_to_onehot is None:
        return []
    counts = table.category_counts.items()
    return [name for name, count in counts if kind_of(count, max_cat_to_onehot) is Kind.PARTITIONS]


def bin_columns(table: Table, max_bin: int, max_cat_to_onehot: int | None, training: int | None = None) -> BinnedTable:
    """Fit bins to the table's features and encode them; `training`: to those of the first records alone.

    In a column in which the training lacks no value, a further record that lacks one counts to the last bin: it goes
    right at every split, as at a prediction. Categories have a place of their own for it.

    `max_cat_to_onehot`: see `treetap.trees.binning.fit_categories`; None: the training splits no categories.

    Raises:
        DataError: a column holds tensors, which no tree splits at, is constant, or has a constraint that it cannot
            have, or a feature cannot be binned.
    """
    first = len(table.ids) if training is None else training
    refuse_columns(table.take(np.arange(first)) if first < len(table.ids) else table, max_cat_to_onehot)
    directions = directions_of(table)
    try:
        found = bin_table(
            table.features[:first],
            table.columns,
            max_bin,
            may_be_constant=table.may_be_constant,
            categories=table.category_counts,
            max_cat_to_onehot=max_cat_to_onehot or 1,
        )
        if first == len(table.ids):
            return replace(found, directions=directions)
        further = found.encode(table.features[first:]).codes
        last = [f.n_bins + 1 if f.categories else f.n_bins - 1 + f.has_missing for f in found.features]
        codes = np.asfortranarray(np.concatenate([found.codes, np.minimum(further, np.array(last, dtype=np.int32))]))
        return BinnedTable(codes, found.features, directions)
    except DataError as failure:
        raise DataError(f"{table.path}: {failure}") from None

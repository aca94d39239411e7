"""A table's columns in bins, as every protocol that grows trees takes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from treetap.errors import DataError
from treetap.tables.reading import Table
from treetap.tables.tensors import Shape, shape_text
from treetap.trees.binning import BinnedTable, bin_table


def refuse_tensors(path: Path, shapes: Mapping[str, Shape]) -> None:
    """Raise `DataError` for the first column of tensors of a table of trees."""
    for name, shape in shapes.items():
        raise DataError(
            f"{path}: column {name!r} holds tensors of shape {shape_text(shape)}, and trees split at numbers only: "
            "leave the column out"
        )


def bin_columns(table: Table, max_bin: int) -> BinnedTable:
    """Fit bins to the table's features and encode them.

    Raises:
        DataError: a column holds tensors, which no tree splits at, or a feature cannot be binned.
    """
    refuse_tensors(table.path, table.shapes)
    try:
        return bin_table(table.features, table.columns, max_bin, may_be_constant=table.made)
    except DataError as failure:
        raise DataError(f"{table.path}: {failure}") from None

"""Columns of text as numbers, at the party that owns them: the n-th category, or a column of 0 and 1 for each.

Categories are the different texts of the whole column in the training's table, without blanks around them, in the order
of their code points. They stay in the party's own shard, so that a prediction encodes as the training did.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from treetap.errors import DataError
from treetap.tables.numbers import as_stored, kind_name, number, numbers_of

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
#: A column may have as many categories, and a label as many classes, whatever the number of records.
FEW = 100


@dataclass(frozen=True)
class Category:
    """The encoding of a column of text: `ordinal` or `one-hot`, its categories in order, the features made of it."""

    encode: str
    values: list[str]
    features: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {"encode": self.encode, "values": self.values, "features": self.features}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Category:
        """Back from JSON types."""
        return cls(str(content["encode"]), list(content["values"]), list(content["features"]))

    def numbers(self, cells: list[str | None]) -> Floats:
        """Cells (N,) as features (N, len(features)): NaN for a missing cell and for a category that is not known."""
        place = {value: float(k) for k, value in enumerate(self.values)}
        codes = np.array([np.nan if cell is None else place.get(cell.strip(), np.nan) for cell in cells])
        if self.encode == "ordinal":
            return codes.reshape(-1, 1)
        hot: Floats = np.where(np.isnan(codes)[:, None], np.nan, codes[:, None] == np.arange(len(self.values)))
        return hot


def encoded(
    path: Path,
    columns: Mapping[str, pa.ChunkedArray],
    rows: int,
    encode: str | None,
    known: Mapping[str, Category] | None,
    missing: float | None,
) -> tuple[list[str], Floats, dict[str, Category]]:
    """Names of the features, the features (rows, d), and how columns of text became features.

    `known`: the categories of a training; without it they are determined here, if `encode` allows.

    Raises:
        DataError: a cell is no number and no encoding is configured, a column has too many categories, or two
            features would have one name.
    """
    names: list[str] = []
    blocks: list[Floats] = []
    found: dict[str, Category] = {}
    for name, column in columns.items():
        category = known.get(name) if known is not None else categories_of(path, name, column, encode)
        if category is None:
            values = numbers_of(path, name, column)
            if missing is not None and not np.isnan(missing):
                values = np.where(values == as_stored(missing, column.type), np.nan, values)
            names.append(name)
            blocks.append(values.reshape(-1, 1))
            continue
        if not (is_text(column) or pa.types.is_null(column.type)):
            raise DataError(f"{path}: column {name!r} holds {kind_name(column.type)}, and text when it was trained on")
        names += category.features
        blocks.append(category.numbers(column.to_pylist()))
        found[name] = category
    for name, category in found.items():
        # The feature itself is not named: a category is the text of a cell.
        if any(names.count(feature) > 1 for feature in category.features):
            raise DataError(
                f"{path}: column {name!r}: a feature made of it would have the name of another feature: "
                "rename the column"
            )
    return names, np.concatenate([np.empty((rows, 0)), *blocks], axis=1), found


def categories_of(path: Path, name: str, column: pa.ChunkedArray, encode: str | None) -> Category | None:
    """The encoding of a column; None where it holds numbers, as such or as text, or no encoding is given."""
    if encode is None or not is_text(column):
        return None
    cells = [cell.strip() for cell in column.to_pylist() if cell is not None and cell.strip()]
    if _all_numbers(cells):
        return None
    values = sorted(set(cells))
    if len(values) > most_categories(len(column)):
        raise DataError(
            f"{path}: column {name!r} holds {len(values)} different texts; a category has few: leave it out"
        )
    return Category(encode, values, [name] if encode == "ordinal" else one_hot_names(name, values))


def one_hot_names(column: str, values: list[str]) -> list[str]:
    """The names of the features of a one-hot column of text."""
    return [f"{column}={value}" for value in values]


def most_categories(records: int) -> int:
    """The most different values of a column of categories or classes: one with more is taken for names or numbers."""
    return max(FEW, records // 2)


def is_text(column: pa.ChunkedArray) -> bool:
    """True if a column's cells are text."""
    return bool(pa.types.is_string(column.type) or pa.types.is_large_string(column.type))


def _all_numbers(cells: list[str]) -> bool:
    try:
        for cell in cells:
            number(cell)
    except ValueError:
        return False
    return True

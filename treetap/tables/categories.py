"""Columns of text as numbers, at the party that owns them: the n-th category, or a column of 0 and 1 for each; or days.

Categories are the different texts of the whole column in the training's table, without blanks around them, in the order
of their code points. They stay in the party's own shard, so that a prediction encodes as the training did.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from treetap.errors import DataError
from treetap.tables.config import DAYS, encoded_by_name, encoding_of
from treetap.tables.dates import days_of, is_date, undated
from treetap.tables.numbers import as_stored, kind_name, numbers_of
from treetap.tables.source import Origin, Source, number

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
#: A column may have as many categories, and a label as many classes, whatever the number of records.
FEW = 100


@dataclass(frozen=True)
class Category:
    """The encoding of a column of text: `ordinal` or `one-hot`, its categories in order, the features made of it.

    A column of dates, `days`, has no categories; `utc`: its times have a zone, hence are counted in UTC.
    """

    encode: str
    values: list[str]
    features: list[str]
    utc: bool = False

    @property
    def of_dates(self) -> bool:
        """True if the feature is a number of days."""
        return self.encode == DAYS

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        zone = {"utc": self.utc} if self.of_dates else {}
        return {"encode": self.encode, "values": self.values, "features": self.features, **zone}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Category:
        """Back from JSON types."""
        values, features = list(content["values"]), list(content["features"])
        return cls(str(content["encode"]), values, features, bool(content.get("utc", False)))

    def numbers(self, cells: list[str | None]) -> Floats:
        """Cells (N,) as features (N, len(features)): NaN for a missing cell and for a category that is not known."""
        place = {value: float(k) for k, value in enumerate(self.values)}
        codes = np.array([np.nan if cell is None else place.get(cell.strip(), np.nan) for cell in cells])
        if self.encode == "ordinal":
            return codes.reshape(-1, 1)
        hot: Floats = np.where(np.isnan(codes)[:, None], np.nan, codes[:, None] == np.arange(len(self.values)))
        return hot


def encoded(
    path: Origin,
    columns: Mapping[str, pa.ChunkedArray],
    rows: int,
    encode: str | Mapping[str, str] | None,
    known: Mapping[str, Category] | None,
    missing: float | None,
) -> tuple[list[str], Floats, dict[str, Category]]:
    """Names of the features, the features (rows, d), and how columns of text and of dates became features.

    `encode`: one encoding for all, or by column (`treetap.tables.config`). `known`: the categories of a training;
    without it they are determined here, if `encode` allows.

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
        found[name] = category
        if category.of_dates:
            names.append(name)
            blocks.append(days_of(path, name, column, category.utc)[0].reshape(-1, 1))
            continue
        if not (is_text(column) or pa.types.is_null(column.type)):
            raise DataError(f"{path}: column {name!r} holds {kind_name(column.type)}, and text when it was trained on")
        names += category.features
        blocks.append(category.numbers(column.to_pylist()))
    for name, category in found.items():
        # The feature itself is not named: a category is the text of a cell.
        if any(names.count(feature) > 1 for feature in category.features):
            raise DataError(
                f"{path}: column {name!r}: a feature made of it would have the name of another feature: "
                "rename the column"
            )
    return names, np.concatenate([np.empty((rows, 0)), *blocks], axis=1), found


def categories_of(
    path: Origin, name: str, column: pa.ChunkedArray, encode: str | Mapping[str, str] | None
) -> Category | None:
    """The encoding of a column; None where it holds numbers, as such or as text, or no encoding is given.

    A column that is encoded by its own name is so also where its texts are numbers.

    Raises:
        DataError: it holds dates, text or numbers, and the encoding is not for these; or has too many categories.
    """
    chosen, by_name = encoding_of(encode, name), name in encoded_by_name(encode)
    if is_date(column.type) and chosen != DAYS:
        raise undated(path, name, column.type)
    if by_name and not (is_text(column) or is_date(column.type) or pa.types.is_null(column.type)):
        raise DataError(
            f"{path}: column {name!r} holds {kind_name(column.type)}, and encode is for text and dates: leave it out "
            "of encode, or write the column as text"
        )
    if chosen is None or not (is_text(column) or is_date(column.type)):
        return None
    cells = [] if is_date(column.type) else [cell.strip() for cell in column.to_pylist() if cell and cell.strip()]
    if is_text(column) and (not cells or (_all_numbers(path, cells) and not by_name)):
        return None
    if chosen == DAYS:
        return Category(DAYS, [], [name], days_of(path, name, column)[1])
    if not by_name and isinstance(path, Source) and (doubt := path.doubt(cells)):
        raise DataError(f"{path}: column {name!r} holds text: {doubt}; or name the column in encode, if it is text")
    values = sorted(set(cells))
    if len(values) > most_categories(len(column)):
        raise DataError(
            f"{path}: column {name!r} holds {len(values)} different texts; a category has few: leave it out"
        )
    return Category(chosen, values, [name] if chosen == "ordinal" else one_hot_names(name, values))


def one_hot_names(column: str, values: list[str]) -> list[str]:
    """The names of the features of a one-hot column of text."""
    return [f"{column}={value}" for value in values]


def most_categories(records: int) -> int:
    """The most different values of a column of categories or classes: one with more is taken for names or numbers."""
    return max(FEW, records // 2)


def is_text(column: pa.ChunkedArray) -> bool:
    """True if a column's cells are text."""
    return bool(pa.types.is_string(column.type) or pa.types.is_large_string(column.type))


def _all_numbers(path: Origin, cells: list[str]) -> bool:
    parse = path.number if isinstance(path, Source) else number
    try:
        for cell in cells:
            parse(cell)
    except ValueError:
        return False
    return True

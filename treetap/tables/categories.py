"""Columns of text as numbers, at the party that owns them: the n-th category, or a column of 0 and 1 for each; or days.

Categories are the different texts of the whole column in the training's table, without blanks around them, in the order
of their code points. They stay in the party's own shard, so that a prediction encodes as the training did. Trees split
the places of an `ordinal` column as numbers and those of a `categorical` one as categories, for which a column of
numbers can be named too: its categories are its different numbers, ascending.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from treetap.errors import DataError
from treetap.tables.config import CATEGORICAL, DAYS, encoded_by_name, encoding_of
from treetap.tables.dates import days_of, is_date, undated
from treetap.tables.numbers import as_stored, kind_name, numbers_of
from treetap.tables.source import Origin, Source, number

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
#: A column may have as many categories, and a label as many classes, whatever the number of records.
FEW = 100


@dataclass(frozen=True)
class Category:
    """The encoding of a column of text: `ordinal`, `one-hot` or `categorical`, its categories, the features made of it.

    A column of dates, `days`, has no categories; `utc`: its times have a zone, hence are counted in UTC. `of_numbers`:
    the categories are numbers.
    """

    encode: str
    values: list[str]
    features: list[str]
    utc: bool = False
    of_numbers: bool = False

    @property
    def of_dates(self) -> bool:
        """True if the feature is a number of days."""
        return self.encode == DAYS

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        further = {"utc": self.utc} if self.of_dates else {"of_numbers": True} if self.of_numbers else {}
        return {"encode": self.encode, "values": self.values, "features": self.features, **further}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Category:
        """Back from JSON types."""
        values, features = list(content["values"]), list(content["features"])
        utc, of_numbers = bool(content.get("utc", False)), bool(content.get("of_numbers", False))
        return cls(str(content["encode"]), values, features, utc, of_numbers)

    def numbers(self, cells: list[str | None]) -> Floats:
        """Cells (N,) as features (N, len(features)): NaN for a missing cell and for a category that is not known.

        A `categorical` column has len(values) for a category that is not known, which no split names, as in XGBoost.
        """
        place = {value: float(k) for k, value in enumerate(self.values)}
        unknown = float(len(self.values)) if self.encode == CATEGORICAL else np.nan
        texts = [None if cell is None else cell.strip() for cell in cells]
        codes = np.array([place.get(text, unknown) if text else np.nan for text in texts])
        if self.encode in ("ordinal", CATEGORICAL):
            return codes.reshape(-1, 1)
        hot: Floats = np.where(np.isnan(codes)[:, None], np.nan, codes[:, None] == np.arange(len(self.values)))
        return hot

    def codes(self, values: Floats) -> Floats:
        """Numbers (N,), NaN where missing, as the places of the categories, which are numbers: (N, 1)."""
        known = np.array([float(value) for value in self.values])
        at = np.searchsorted(known, values)
        found = at < len(known)
        found[found] = known[at[found]] == values[found]
        codes: Floats = np.where(np.isnan(values), np.nan, np.where(found, at, float(len(known))))
        return codes.reshape(-1, 1)


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
        category = known.get(name) if known is not None else categories_of(path, name, column, encode, missing)
        if category is None or category.of_numbers:
            values = _present(path, name, column, missing)
            names.append(name)
            blocks.append(values.reshape(-1, 1) if category is None else category.codes(values))
            found |= {} if category is None else {name: category}
            continue
        found[name] = category
        if category.of_dates:
            names.append(name)
            blocks.append(days_of(path, name, column, category.utc)[0].reshape(-1, 1))
            continue
        if not (is_text(column) or pa.types.is_null(column.type)):
            raise DataError(f"{path}: column {name!r} holds {kind_name(column.type)}, and text when it was trained on")
        names += category.features
        blocks.append(_numbers_of_texts(category, column))
    for name, category in found.items():
        # The feature itself is not named: a category is the text of a cell.
        if any(names.count(feature) > 1 for feature in category.features):
            raise DataError(
                f"{path}: column {name!r}: a feature made of it would have the name of another feature: "
                "rename the column"
            )
    return names, np.concatenate([np.empty((rows, 0)), *blocks], axis=1), found


def _numbers_of_texts(category: Category, column: pa.ChunkedArray) -> Floats:
    """The features of a column of text, each different text being looked up once."""
    texts = pa.chunked_array([column.cast(pa.large_string()).combine_chunks()]).chunk(0).dictionary_encode()
    numbers = category.numbers([*texts.dictionary.to_pylist(), None])
    places = texts.indices.fill_null(len(numbers) - 1).to_numpy()
    found: Floats = numbers[places]
    return found


def categories_of(
    path: Origin,
    name: str,
    column: pa.ChunkedArray,
    encode: str | Mapping[str, str] | None,
    missing: float | None = None,
    records: int | None = None,
) -> Category | None:
    """The encoding of a column; None where it holds numbers, as such or as text, or no encoding is given.

    A column that is encoded by its own name is so also where its texts are numbers, or as categories its numbers.
    `records`: their number, where the column holds only one of each value.

    Raises:
        DataError: it holds dates, text or numbers, and the encoding is not for these; or has too many categories.
    """
    chosen, by_name = encoding_of(encode, name), name in encoded_by_name(encode)
    count = len(column) if records is None else records
    if is_date(column.type) and chosen != DAYS:
        raise undated(path, name, column.type)
    if by_name and chosen == CATEGORICAL and not (is_text(column) or is_date(column.type)):
        present = np.unique(_present(path, name, column, missing))
        numbers = [_written(value) for value in present[~np.isnan(present)].tolist()]
        _check_few(path, name, count, numbers, "numbers")
        return Category(CATEGORICAL, numbers, [name], of_numbers=True)
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
    _check_few(path, name, count, values, "texts")
    return Category(chosen, values, [name] if chosen != "one-hot" else one_hot_names(name, values))


def _present(path: Origin, name: str, column: pa.ChunkedArray, missing: float | None) -> Floats:
    """A column of numbers (N,), NaN where a cell is missing or holds the value that means it."""
    values = numbers_of(path, name, column)
    if missing is not None and not np.isnan(missing):
        values = np.where(values == as_stored(missing, column.type), np.nan, values)
    return values


def _written(value: float) -> str:
    """A number as the text of a category."""
    return str(int(value)) if value.is_integer() else repr(value)


def _check_few(path: Origin, name: str, records: int, values: list[str], kind: str) -> None:
    """`DataError` for a column of more categories than there may be."""
    if len(values) > most_categories(records):
        raise DataError(
            f"{path}: column {name!r} holds {len(values)} different {kind}; a category has few: leave it out"
        )


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

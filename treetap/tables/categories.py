"""Columns of categories as numbers, at the party that owns them: the n-th category, or a column of 0 and 1 for each.

Categories are the different texts of the whole column in the training's table: numbers ascending where all are some,
else in the order of their code points; those of an `ordinal` column in their source's own, if it has one. They stay in
the party's own shard, so that a prediction encodes as the training did. Trees split the places of an `ordinal` column
as numbers and those of a `categorical` one as categories. Numbers and booleans are encoded only where their column is
named. Dates become days.

What libraries and formats write in several ways is one category in a column of numbers or booleans (`is_numeric`): 1
whether it was written 1 or 1.0, the shortest text of the nearest double, true or false. In a column of text every text
is a category: 250.0 and 250.00, 007 and 7, True and TRUE may be codes. Of blank cells and the number that means a
missing one none is.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from treetap.errors import DataError
from treetap.tables.cells import plain_column
from treetap.tables.config import CATEGORICAL, DAYS, encoding_of, is_encoded_by_name
from treetap.tables.dates import ISO, days_of, is_date, undated, whole_width
from treetap.tables.number_styles import number
from treetap.tables.source import (
    FALSE,
    TRUE,
    Origin,
    are_booleans,
    is_number,
    is_text,
    kind_name,
    numbers_of,
    remedy_of,
    row_name,
    sentinels,
)

_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?(e[+-][0-9]+)?")
#: A text that is no number of a library: padded, or with an exponent of another form than 1e+20.
_CODE = re.compile(r"[+].*|-?0[0-9].*|.*[eE](?![+-][0-9]{2}).*")
_BOOLEANS = {text: spelt[0] for spelt in (TRUE, FALSE) for text in spelt}


class Texts(NamedTuple):
    """The different `cells` of a column, the last of them None, and the place of each row's among them (N,).

    `numeric`: see `is_numeric`.
    """

    cells: list[str | None]
    places: npt.NDArray[np.int64]
    numeric: bool

    def values(self) -> list[str]:
        """The different texts: numbers ascending where all are some, else in the order of their code points."""
        different = sorted({cell for cell in self.cells if cell is not None})
        return sorted(different, key=Decimal) if are_numbers(different) else different

    def dictionary(self, values: Sequence[str], *, ordered: bool) -> pa.ChunkedArray:
        """The column as a dictionary of all of these texts (N,); `ordered`: they have an order of their own."""
        place = {text: number for number, text in enumerate(values)}
        codes = pa.array([None if cell is None else place[cell] for cell in self.cells], pa.int32())
        texts, of_rows = pa.array(values, pa.string()), codes.take(pa.array(self.places))
        return pa.chunked_array([pa.DictionaryArray.from_arrays(of_rows, texts, ordered=ordered)])


def are_numbers(values: Iterable[str]) -> bool:
    """True for texts of categories that are numbers, one at least."""
    held = list(values)
    return bool(held) and all(map(_NUMBER.fullmatch, held))


def category_texts(
    path: Origin, name: str, column: pa.ChunkedArray, missing: float | None, numeric: bool | None = None
) -> Texts:
    """The texts of a plain column; None where a cell is missing, blank, or the number that means so.

    `numeric`: of a column of text, whether its categories are numbers or booleans; None: see `is_numeric`.

    Raises:
        DataError: the column holds something else than text, numbers and booleans, or an infinite number.
    """
    kind = column.type
    if pa.types.is_null(kind):
        return Texts([None], np.zeros(len(column), dtype=np.int64), numeric=False)
    if not (is_text(kind) or is_number(kind) or pa.types.is_boolean(kind)):
        raise DataError(f"{path}: column {name!r} holds {kind_name(kind)}, which is no category; {remedy_of(kind)}")
    wide = pa.large_string() if is_text(kind) else pa.float32() if pa.types.is_float16(kind) else kind
    coded = pa.concat_arrays([*column.cast(wide).chunks, pa.array([], wide)]).dictionary_encode()
    places = np.asarray(coded.indices.fill_null(len(coded.dictionary)).to_numpy(zero_copy_only=False), dtype=np.int64)
    absent = sentinels(missing, kind)
    if pa.types.is_floating(kind):
        numbers = coded.dictionary.to_numpy(zero_copy_only=False).astype(kind.to_pandas_dtype())
        if (infinite := np.flatnonzero(np.isinf(numbers))).size:
            index = int(np.flatnonzero(np.isin(places, infinite))[0])
            raise DataError(f"{path}: {row_name(path, index)}, column {name!r}: the cell is infinite")
        cells = [None if math.isnan(value) or float(value) in absent else _shortest(value) for value in numbers]
    elif pa.types.is_boolean(kind):
        cells = [_BOOLEANS[str(value)] for value in coded.dictionary.to_pylist()]
    elif pa.types.is_decimal(kind):
        exact = coded.dictionary.to_pylist()
        cells = [None if float(value) in absent else _shortest(value) for value in exact]
    else:
        raw = coded.dictionary.cast(pa.string()).to_pylist()
        ones = {text: _one_text(text, _parser(path)) for text in raw}
        # a text source writes one number in several ways, so that the number that means missing is compared as a text
        gone = {_shortest(np.float64(value)) for value in absent}
        held = [text for text in raw if text.strip() and ones[text] not in gone]
        numeric = is_numeric(path, kind, held) if numeric is None else numeric
        texts = {text: (numeric and ones[text]) or text for text in held}
        cells = [texts.get(text) for text in raw]
    return Texts([*cells, None], places, not is_text(kind) or bool(numeric))


def is_numeric(path: Origin, kind: pa.DataType, texts: Iterable[str]) -> bool:
    """True for a column whose different `texts` are numbers or booleans, of which one may be written in several ways.

    The type of the column says so. In a file of text, which has none, all texts are numbers or all are booleans, and no
    two but zeros of both signs are the same one: who writes 345.1 and 345.10 writes codes.
    """
    if not is_text(kind) or isinstance(path, Path) or path.typed:
        return not is_text(kind)
    trimmed = {text.strip() for text in texts}
    ones = {text: _one_text(text, path.number) for text in trimmed}
    writings = {text.removeprefix("-") if one == "0" else text for text, one in ones.items()}
    different = set(ones.values())
    return None not in different and len(different) == len(writings) and len({it in _BOOLEANS for it in different}) == 1


def merges(path: Origin, columns: Mapping[str, pa.ChunkedArray], categories: Mapping[str, Category]) -> list[str]:
    """Sentences about plain columns of text in which several texts are one number or boolean, and taken for one.

    Also about those of a file without types where this makes them codes, which stay apart; and about numbers with more
    digits than the nearest double has, which several of them share.
    """
    said, parse = [], _parser(path)
    for name, column in columns.items():
        category = categories.get(name)
        apart = category is not None and not category.numeric
        sure = isinstance(path, Path) or path.typed or (category is not None and category.of_dates)
        exact = category is None and (pa.types.is_integer(column.type) or pa.types.is_decimal(column.type))
        exact = exact and (pc.max(pc.abs(column)).as_py() or 0) > 2**53  # up to here they are doubles
        if not (is_text(column.type) or exact) or (apart and sure):
            continue
        texts = [text for text in column.unique().cast(pa.large_string()).to_pylist() if text and text.strip()]
        values = [None if category else _value(text, parse) for text in texts]
        ones = [_one_text(text, parse) if value is None else value for text, value in zip(texts, values, strict=True)]
        if apart and None in ones:
            continue
        writings: dict[object, list[str]] = {}
        for text, one in zip(texts, ones, strict=True):
            writings.setdefault(text if one is None else one, []).append(text)
        if pair := next((own for own in writings.values() if len(own) > 1), None):
            what = "categories" if category else "numbers"
            taken = f"of {len(writings)} numbers stay apart" if apart else f"are taken for {len(writings)} {what}"
            held = "numbers of more digits than a double has" if exact else "texts"
            said.append(f"column {name!r}: {len(texts)} {held} {taken}, such as {pair[0]!r} and {pair[1]!r}")
    return said


def is_code(text: str) -> bool:
    """True for a class that is another text than the number or boolean that it is: 345.10, 007, TRUE."""
    if text in _BOOLEANS:
        return text not in ("True", "False")
    value = _value(text, number)
    return value is not None and not _WHOLE.fullmatch(text) and _shortest(np.float64(value)) != text


def _parser(path: Origin) -> Callable[[str], float]:
    return number if isinstance(path, Path) else path.number


def _one_text(cell: str, parse: Callable[[str], float]) -> str | None:
    """The text that all writings of a number or a boolean have in common; None of other text, and of 007 and +1.

    `parse`: see `Source.number`.
    """
    text = cell.strip()
    if _WHOLE.fullmatch(text):
        return "0" if text == "-0" else text
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    value = None if _CODE.fullmatch(text) else _value(text, parse)
    return None if value is None else _shortest(np.float64(value))


def _value(text: str, parse: Callable[[str], float]) -> float | None:
    """The finite number that a text is; None if it is none."""
    try:
        value = parse(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _shortest(value: np.floating | Decimal) -> str:
    """The shortest text of a finite number that is its own in its width; a whole one as it is, without a point."""
    if value == int(value):
        return str(int(value))
    return _shortest(np.float64(value)) if isinstance(value, Decimal) else str(value)


Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
#: A column may have as many categories, and a label as many classes, whatever the number of records.
FEW = 100


@dataclass(frozen=True)
class Category:
    """The encoding of a column: `ordinal`, `one-hot` or `categorical`, its categories, the features made of it.

    A column of dates, `days`, has no categories; `utc`: its times have a zone, hence are counted in UTC; `date_format`:
    of its text. `numeric`: the categories are numbers or booleans (`is_numeric`), however a table writes them.
    """

    encode: str
    values: list[str]
    features: list[str]
    utc: bool = False
    date_format: str = ISO
    numeric: bool = False

    @property
    def of_dates(self) -> bool:
        """True if the feature is a number of days."""
        return self.encode == DAYS

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        further: dict[str, Any] = {"utc": self.utc} if self.of_dates else {"numeric": self.numeric}
        further |= {"date_format": self.date_format} if self.date_format != ISO else {}
        return {"encode": self.encode, "values": self.values, "features": self.features, **further}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Category:
        """Back from JSON types."""
        values, features = list(content["values"]), list(content["features"])
        form = str(content.get("date_format", ISO))
        # models of before hold no word about it
        numeric = bool(content.get("numeric", are_numbers(values)))
        return cls(str(content["encode"]), values, features, bool(content.get("utc", False)), form, numeric)

    def places(self, *, numeric: bool) -> dict[str, float]:
        """The place of each category by its text, of a number by the one that all of its writings have."""
        texts = [(numeric and _one_text(value, number)) or value for value in self.values]
        return {text: float(place) for place, text in enumerate(texts)}

    def numbers(self, cells: list[str | None], *, numeric: bool = False) -> Floats:
        """Texts of categories (N,) as features (N, len(features)): NaN where missing and for a text that is unknown.

        A `categorical` column has len(values) for a category that is not known, which no split names, as in XGBoost.
        """
        places = self.places(numeric=numeric)
        unknown = float(len(self.values)) if self.encode == CATEGORICAL else np.nan
        codes = np.array([np.nan if cell is None else places.get(cell, unknown) for cell in cells])
        if self.encode in ("ordinal", CATEGORICAL):
            return codes.reshape(-1, 1)
        return np.where(np.isnan(codes)[:, None], np.nan, codes[:, None] == np.arange(len(self.values)))


def texts_of(known: Mapping[str, Category]) -> set[str]:
    """The columns that a training had as text."""
    return {name for name, it in known.items() if not (it.numeric or it.of_dates)}


class Seen(NamedTuple):
    """The cells of a column: those with a value, and of these the ones of a category that the training had not."""

    present: int = 0
    unknown: int = 0

    def plus(self, other: Seen) -> Seen:
        """Those of further rows too."""
        return Seen(self.present + other.present, self.unknown + other.unknown)


class Encoded(NamedTuple):
    """`names`: of the features (d,). `values`: (rows, d). `categories`: of encoded columns. `seen`: by column."""

    names: list[str]
    values: Floats
    categories: dict[str, Category]
    seen: dict[str, Seen]


def encoded(
    path: Origin,
    columns: Mapping[str, pa.ChunkedArray],
    rows: int,
    encode: str | Mapping[str, str] | None,
    known: Mapping[str, Category] | None,
    missing: float | None,
    date_formats: Mapping[str, str] | None = None,
) -> Encoded:
    """Plain columns as features.

    `encode`: one encoding for all, or by column (`treetap.tables.config`); none is `AUTO`. `date_formats`: of columns
    of dates in text that are not in ISO 8601. `known`: the categories of a training;
    without it they are determined here, if `encode` allows.

    Raises:
        DataError: a cell is no number and no encoding is configured, a column has too many categories, or two
            features would have one name.
    """
    names: list[str] = []
    blocks: list[Floats] = []
    block: Floats
    categories: dict[str, Category] = {}
    seen: dict[str, Seen] = {}
    for name, given in columns.items():
        column = given if known is None else _untyped(given)
        if known is None:
            form = (date_formats or {}).get(name, ISO)
            category = categories_of(path, name, column, encode, missing, date_format=form)
        else:
            category = known.get(name)
        if category is None or category.of_dates:
            made = [name]
            if category is None:
                values = numbers_of(path, name, column)
                absent = sentinels(missing, column.type)
                block = (np.where(np.isin(values, absent), np.nan, values) if absent else values).reshape(-1, 1)
            else:
                dated = as_written(path, name, column, missing, category.date_format)
                days, _ = days_of(path, name, dated, category.utc, category.date_format)
                block = days.reshape(-1, 1)
            seen[name] = Seen(rows - int(np.isnan(block).sum()))
        else:
            made = category.features
            block, seen[name] = _of_categories(path, name, column, category, missing)
        names += made
        blocks.append(block)
        categories |= {} if category is None else {name: category}
    times = Counter(names)
    for name, category in categories.items():
        # The feature itself is not named: a category is the text of a cell.
        if any(times[feature] > 1 for feature in category.features):
            raise DataError(
                f"{path}: column {name!r}: a feature made of it would have the name of another feature: "
                "rename the column"
            )
    return Encoded(names, np.concatenate([np.empty((rows, 0)), *blocks], axis=1), categories, seen)


def _untyped(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of numbers without a value as nulls: libraries store text and dates so where all of them are missing."""
    empty = pa.types.is_floating(column.type) and pc.all(pc.is_null(column, nan_is_null=True)).as_py()
    return pa.chunked_array([pa.nulls(len(column))]) if empty else column


def _of_categories(
    path: Origin, name: str, column: pa.ChunkedArray, category: Category, missing: float | None
) -> tuple[Floats, Seen]:
    """The features of a column with known categories, each different text being looked up once."""
    kind = column.type
    written = is_text(kind) or pa.types.is_null(kind)
    ones = {_one_text(value, number) for value in category.values}
    # a number says which text is meant where each is another number
    if not written and not category.numeric and (None in ones or len(ones) < len(category.values)):
        raise DataError(
            f"{path}: column {name!r} holds {kind_name(kind)}, and text when it was trained on: write it as text"
        )
    texts = category_texts(path, name, column, missing, category.numeric)
    numeric = category.numeric or not written
    known = category.places(numeric=numeric)
    counts = np.bincount(texts.places, minlength=len(texts.cells))
    present = np.array([cell is not None for cell in texts.cells])
    strange = np.array([cell is not None and cell not in known for cell in texts.cells])
    block = category.numbers(texts.cells, numeric=numeric)[texts.places]
    return block, Seen(int(counts[present].sum()), int(counts[strange].sum()))


def categories_of(
    path: Origin,
    name: str,
    column: pa.ChunkedArray,
    encode: str | Mapping[str, str] | None,
    missing: float | None = None,
    records: int | None = None,
    date_format: str = ISO,
) -> Category | None:
    """The encoding of a plain column; None where it holds numbers or booleans, as such or as text, or has none.

    A column that is encoded by its own name is so whatever it holds, if it holds anything.
    `records`: their number, where the column holds only one of each value. `date_format`: of dates in text.

    Raises:
        DataError: it holds dates, text or numbers, and the encoding is not for these; or has too many categories.
    """
    chosen, by_name = encoding_of(encode, name), is_encoded_by_name(encode, name)
    count = len(column) if records is None else records
    if is_date(column.type) and chosen != DAYS:
        raise undated(path, name, column.type)
    if chosen is None or not (by_name or is_text(column.type) or is_date(column.type)):
        return None
    # text of numbers stays numbers unless its owner names the column: CSV has no types
    if is_text(column.type) and not by_name:
        cells = different_texts(column)
        if are_plain(path, cells):
            return None
        if chosen != DAYS and not isinstance(path, Path) and (doubt := path.remedy("maybe numbers", cells)):
            raise DataError(f"{path}: column {name!r} holds text: {doubt}; or name the column in encode, if it is text")
    if chosen == DAYS:
        dated = as_written(path, name, column, missing, date_format)
        if not (is_text(dated.type) or is_date(dated.type) or pa.types.is_null(dated.type)):
            raise DataError(
                f"{path}: column {name!r} holds {kind_name(dated.type)}, and encode is for text and dates: leave it "
                "out of encode, or write the column as text"
            )
        empty = dated.null_count == len(dated) and (is_text(column.type) or pa.types.is_null(column.type))
        if empty:
            return None
        return Category(DAYS, [], [name], days_of(path, name, dated, form=date_format)[1], date_format)
    texts = category_texts(path, name, column, missing)
    values = texts.values()
    if not values:
        return None
    if chosen == "ordinal" and not isinstance(path, Path) and (order := order_of(path, name, path.orders(name))):
        if not order.keys() >= set(values):
            raise DataError(
                f"{path}: column {name!r}: some files order its categories, and others have categories that are not "
                "among these: write one order in each"
            )
        values.sort(key=order.__getitem__)
    if len(values) > most_categories(count):
        held = f"{len(values)} different {'numbers' if are_numbers(values) else 'texts'}"
        raise DataError(f"{path}: column {name!r} holds {held}; a category has few: leave it out")
    features = [name] if chosen != "one-hot" else one_hot_names(name, values)
    return Category(chosen, values, features, numeric=texts.numeric)


def order_of(path: Origin, name: str, orders: Sequence[pa.Array]) -> dict[str, int]:
    """The places of a column's categories in the one order that all parts of it have; `orders`: of the parts.

    Raises:
        DataError: no part orders all categories as the others do.
    """
    plain = [plain_column(path, f"column {name!r}", pa.chunked_array([own])) for own in orders]
    texts = [[cell for cell in category_texts(path, name, own, None).cells if cell is not None] for own in plain]
    longest = max(texts, key=len, default=[])
    place = {text: number for number, text in enumerate(longest)}
    for own in texts:
        if not set(own) <= set(place) or sorted(own, key=place.__getitem__) != own:
            raise DataError(
                f"{path}: column {name!r}: parts of the table order its categories differently: write all categories "
                "in one order in each"
            )
    return place


def without_missing(path: Origin, name: str, column: pa.ChunkedArray, missing: float | None) -> pa.ChunkedArray:
    """A column of dates; null where its text is blank or the number that means a missing cell."""
    if not is_text(column.type):
        return column
    texts = category_texts(path, name, column, missing)
    absent = np.array([cell is None for cell in texts.cells])[texts.places]
    return pa.chunked_array([pc.if_else(pa.array(absent), None, column.combine_chunks())])


def as_written(
    path: Origin, name: str, column: pa.ChunkedArray, missing: float | None, date_format: str
) -> pa.ChunkedArray:
    """A column of dates without the number that means a missing cell; of a format whole numbers as text.

    These have lost zeros at their beginning: by `%d%m%Y` 1122024 is 01122024. In a file without types whole numbers are
    a column of which no cell begins with one; beside a missing cell pandas holds them as floating-point numbers.
    """
    if date_format != ISO and pa.types.is_floating(column.type):
        with contextlib.suppress(pa.ArrowInvalid):  # of other numbers
            column = column.cast(pa.int64())
    whole, width = date_format != ISO and pa.types.is_integer(column.type), whole_width(date_format)
    dated = without_missing(path, name, column.cast(pa.string()) if whole else column, missing)
    if width and is_text(column.type) and not (isinstance(path, Path) or path.typed):
        whole = not pc.any(pc.match_substring_regex(dated, r"^\s*0")).as_py()
    if not (whole and width):
        return dated
    cells = pc.utf8_trim_whitespace(dated)
    return pc.if_else(pc.match_substring_regex(cells, "^[0-9]+$"), pc.utf8_lpad(cells, width, "0"), cells)


def one_hot_names(column: str, values: list[str]) -> list[str]:
    """The names of the features of a one-hot column of categories."""
    return [f"{column}={value}" for value in values]


def most_categories(records: int) -> int:
    """The most different values of a column of categories or classes: one with more is taken for names or numbers."""
    return max(FEW, records // 2)


def different_texts(column: pa.ChunkedArray) -> list[str]:
    """The different texts of a plain column of text, without blanks around them; blank ones are missing."""
    return list(dict.fromkeys(cell.strip() for cell in column.unique().to_pylist() if cell and cell.strip()))


def are_plain(path: Origin, cells: Sequence[str]) -> bool:
    """True for texts that are numbers, or booleans, or none at all."""
    return not no_numbers(path, cells, at_once=True) or are_booleans(cells)


def no_numbers(path: Origin, cells: Sequence[str], *, at_once: bool = False) -> list[int]:
    """The places of the texts that are no numbers; `at_once`: the first alone."""
    parse, places = number if isinstance(path, Path) else path.number, list[int]()
    for place, cell in enumerate(cells):
        try:
            parse(cell)
        except ValueError:
            places.append(place)
            if at_once:
                break
    return places

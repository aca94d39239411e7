"""The encoding of columns that no setting names: taken where their cells leave no doubt, asked for where they do.

`encode = "auto"` takes

1. numbers and booleans as they are, dates and text in a single format of dates as days;
2. a dictionary, which libraries call a column of categories, as categories whatever it holds;
3. other text as categories, if it has few values: up to 256, and up to a tenth of the records, or up to ten that two
   records each have on average. Where trees may not partition categories they are one-hot.

Everything else needs a word (`asked_columns`). No cell becomes missing: one that is no date or no number among dates or
numbers is a doubt. What is taken is what the same lines would say, and is kept with the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from treetap.errors import DataError
from treetap.tables.asked_columns import OF_PARTY, Ask, Encodings, Meant, Writing, message
from treetap.tables.categories import (
    are_plain,
    category_texts,
    different_texts,
    most_categories,
    no_numbers,
    without_missing,
)
from treetap.tables.config import AUTO, CATEGORICAL, DAYS, ONE_HOT, encoding_of, is_encoded_by_name
from treetap.tables.date_formats import ISO, has_century, mostly, readings, strangers
from treetap.tables.dates import is_date
from treetap.tables.number_styles import styles_of
from treetap.tables.numbers import is_text
from treetap.tables.source import Origin, Source, row_name

#: Most values of a column of text that is taken for categories; records per value; values of a small table.
MOST, RECORDS_A_VALUE, FEW = 256, 10, 10


@dataclass(frozen=True)
class Rules:
    """The settings that hold for all columns of a table.

    `encode`, `date_format`: as the table has them. `records`: their number. `missing`: the number that means a missing
    cell. `partitions`: trees may split a column by sets of its categories. `declared`: columns that their source calls
    categories.
    """

    encode: Encodings
    date_format: str | Mapping[str, str] | None
    records: int
    missing: float | None
    partitions: bool
    declared: frozenset[str] = frozenset()
    writing: Writing = OF_PARTY

    @property
    def categories(self) -> Meant:
        """The encoding of categories."""
        return Meant(CATEGORICAL if self.partitions else ONE_HOT)

    @property
    def most_taken(self) -> int:
        """The most values of text that is taken for categories: see above."""
        return min(MOST, max(self.records // RECORDS_A_VALUE, min(FEW, self.records // 2)))


class Cells(NamedTuple):
    """A plain column, whole or one cell of each value, and the origin by which its rows are named."""

    origin: Origin
    column: pa.ChunkedArray


@dataclass(frozen=True)
class Settled:
    """`encode`: without `AUTO`. `date_formats`: of columns of text that hold dates, but those in ISO 8601.

    `taken`: the encodings that `AUTO` took, by column; numbers have none.
    """

    encode: Encodings
    date_formats: dict[str, str]
    taken: dict[str, str] = field(default_factory=dict)

    def lines(self, writing: Writing = OF_PARTY, columns: Sequence[str] | None = None) -> list[str]:
        """The settings that would say the same, of some columns alone if they are given; none if `AUTO` took none."""
        own = {name: it for name, it in self.taken.items() if columns is None or name in columns}
        dated = {name: it for name, it in self.date_formats.items() if name in own}
        return [writing.line(key, values) for key, values in (("encode", own), ("date_format", dated)) if values]

    @property
    def says(self) -> list[str]:
        """The same as a sentence for a party's log."""
        lines = self.lines()
        return [f'encode = "{AUTO}" stands for {" and ".join(lines)}'] if lines else []


def settle(title: object, columns: Mapping[str, Cells], rules: Rules) -> Settled:
    """The encodings of a table's columns, without images, before any of them is encoded.

    Raises:
        DataError: columns need a word: names all of them, and what to write.
    """
    encode, asked = rules.encode, dict[str, Ask]()
    formats, taken = dict[str, str](), dict[str, str]()
    for name, cells in columns.items():
        chosen = encoding_of(encode, name)
        if chosen == AUTO:
            meant = _shown_by(name, cells, rules)
        elif chosen is None:
            meant = _unsaid(cells, _shown_by(name, cells, rules))
        elif chosen == DAYS:
            meant = _days(name, cells, rules, by_name=is_encoded_by_name(encode, name))
        else:
            continue
        if isinstance(meant, Ask):
            asked[name] = meant
            continue
        if meant.date_format != ISO:
            formats[name] = meant.date_format
        if chosen == AUTO and meant.encode is not None:
            taken[name] = meant.encode
    if asked:
        own = rules.date_format if isinstance(rules.date_format, Mapping) else {}
        raise DataError(message(title, asked, encode, {**formats, **own}, rules.writing))
    if encode == AUTO:
        return Settled(taken, formats, taken)
    if isinstance(encode, Mapping):
        encode = {name: it for name, it in encode.items() if it != AUTO} | taken
    return Settled(encode, formats, taken)


def declared_in(source: Source) -> frozenset[str]:
    """The columns that a source calls categories. `DataError` if it cannot be read."""
    return frozenset(name for name, kind in source.fields() if pa.types.is_dictionary(kind))


def may_identify(column: pa.ChunkedArray) -> bool:
    """True for a plain column of whole numbers of which each record has another one."""
    if not pa.types.is_integer(column.type) or column.null_count or len(column) < RECORDS_A_VALUE * FEW:
        return False
    return bool(pc.count_distinct(column).as_py() == len(column))


def _shown_by(name: str, cells: Cells, rules: Rules) -> Meant | Ask:
    """The encoding of a column by its type and its cells."""
    origin, column = cells
    if is_date(column.type):
        return Meant(DAYS)
    if name in rules.declared:
        count = len(category_texts(origin, name, column, rules.missing).values())
        most = max(rules.most_taken, most_categories(rules.records))
        return Meant() if not count else rules.categories if count <= most else _many(count, rules)
    if not is_text(column.type) or are_plain(origin, different_texts(column)):
        return Meant()
    texts = different_texts(without_missing(origin, name, column, rules.missing))
    return _date_of(name, cells, texts, rules) or _number_of(cells, texts, rules) or _category_of(texts, rules)


def _unsaid(cells: Cells, meant: Meant | Ask) -> Meant | Ask:
    """The same where the settings say nothing of a column; among numbers a cell that is none is named by its row."""
    if is_text(cells.column.type):
        texts = different_texts(cells.column)
        if len(no_numbers(cells.origin, texts)) < len(texts):
            return Meant()
    if isinstance(meant, Ask):
        return Meant() if meant.of_rows else meant
    if meant.encode is None:
        return meant
    return Ask("holds dates" if meant.encode == DAYS else "holds text", meant, unsaid=True)


def _days(name: str, cells: Cells, rules: Rules, *, by_name: bool) -> Meant | Ask:
    """The format of a column that the settings take for dates; a cell that is none is named by its row."""
    origin, column = cells
    if not is_text(column.type) or (not by_name and are_plain(origin, different_texts(column))):
        return Meant()
    texts = different_texts(without_missing(origin, name, column, rules.missing))
    dated = _date_of(name, cells, texts, rules) or Meant(DAYS)
    return dated.meant if isinstance(dated, Ask) and dated.of_rows else dated


def _date_of(name: str, cells: Cells, texts: Sequence[str], rules: Rules) -> Meant | Ask | None:
    """The format of texts that are dates; None of others."""
    own, given = rules.date_format, list[str]()
    if isinstance(own, Mapping):
        if name in own:  # a cell of another format is an error by its row
            return Meant(DAYS, own[name])
    elif own is not None:
        given = [own]
    forms = readings(texts, given)
    if not forms:
        form = mostly(texts)
        if form is None:
            return None
        return Ask(_strange(cells, texts, strangers(texts, form), "dates"), Meant(DAYS, form), of_rows=True)
    sure = [form for form in (*given, ISO) if form in forms] or [form for form in forms[:1] if has_century(form)]
    if sure and (len(forms) == 1 or sure[0] in (*given, ISO)):
        return Meant(DAYS, sure[0])
    why = "whose day and month could change places" if has_century(forms[0]) else "whose years have two digits"
    return Ask(f"holds dates {why}", Meant(DAYS, forms[0]), tuple(forms))


def _number_of(cells: Cells, texts: Sequence[str], rules: Rules) -> Ask | None:
    """The doubt whether texts are numbers: in another style, or all but a few of them; None of others."""
    origin, words = cells.origin, no_numbers(cells.origin, texts)
    digits = all(any(map(str.isdigit, text)) for text in texts)
    if digits and not isinstance(origin, Path) and styles_of(texts, origin.style):
        remedy = origin.remedy("no numbers", texts) or "write them with a decimal point and no thousands"
        return Ask(f"holds numbers in another style: {remedy}", rules.categories, of_rows=True)
    if 2 * len(words) >= len(texts):
        return None
    return Ask(_strange(cells, texts, words, "numbers"), rules.categories, of_rows=True)


def _category_of(texts: Sequence[str], rules: Rules) -> Meant | Ask:
    return rules.categories if len(texts) <= rules.most_taken else _many(len(texts), rules)


def _many(count: int, rules: Rules) -> Ask:
    unique = count == rules.records
    held = "another text in each record" if unique else f"{count:,} different texts in {rules.records:,} records"
    return Ask(f"holds {held}", rules.categories, out=True, unique=unique)


def _strange(cells: Cells, texts: Sequence[str], places: Sequence[int], what: str) -> str:
    """The clause about texts at some places among others that are numbers or dates."""
    trimmed = pc.utf8_trim_whitespace(cells.column)
    first = pc.index(trimmed, pa.scalar(texts[places[0]], trimmed.type)).as_py()
    return (
        f"holds {what}, but not in {len(places)} of its {len(texts)} different texts, first in "
        f"{row_name(cells.origin, first)}: leave the cells empty where the value is missing"
    )

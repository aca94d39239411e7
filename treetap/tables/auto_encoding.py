"""The encoding of columns that no setting names: taken where their cells leave no doubt, asked for where they do.

`encode = "auto"` takes

1. numbers and booleans as they are, dates and text in a single format of dates as days;
2. a dictionary, which libraries call a column of categories, as categories whatever it holds;
3. other text as categories, if it has few values: up to 256, and up to a tenth of the records, or up to ten that two
   records each have on average. Where trees may not partition categories they are one-hot.

Everything else needs a word (`asked_columns`). No cell becomes missing by itself: one that is no date or no number
among dates or numbers is a doubt. What is taken is what the same lines would say, and is kept with the model.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from treetap.errors import DataError
from treetap.tables.asked_columns import OF_PARTY, Ask, Encodings, Meant, Writing, message
from treetap.tables.categories import (
    Category,
    are_plain,
    as_written,
    category_texts,
    different_texts,
    most_categories,
    no_numbers,
    without_missing,
)
from treetap.tables.cells import plain_column, plain_type
from treetap.tables.config import AUTO, CATEGORICAL, DAYS, ONE_HOT, encoding_of, is_encoded_by_name
from treetap.tables.dates import ISO, has_century, is_date, mostly, parser, readings, readings_apart, strangers
from treetap.tables.number_styles import PLAIN, styles_of
from treetap.tables.opening import read_columns, source_at
from treetap.tables.source import (
    Origin,
    Source,
    is_text,
    kind_name,
    may_be_numbers,
    remedy_of,
    row_name,
    sentinels,
)

#: Most different texts of a column of numbers or dates that may mean a missing value.
MOST_ODD = 5
#: Most values of a column of text that is taken for categories; records per value; values of a small table.
MOST, RECORDS_A_VALUE, FEW = 256, 10, 10

#: Texts of digits of one length, of which one begins with 0, are probably codes; shorter ones may be months.
_CODE = "^[0-9]{3,}$"


@dataclass(frozen=True)
class Rules:
    """The settings that hold for all columns of a table.

    `encode`, `date_format`: as the table has them. `missing`: the number that means a missing cell.
    `categorical`: trees may split a column by sets of its categories. `declared`: columns that their source calls
    categories. `listed`: the texts and numbers that the table's `missing` has, whose cells are missing already.
    """

    encode: Encodings
    date_format: str | Mapping[str, str] | None
    missing: float | None
    categorical: bool
    declared: frozenset[str] = frozenset()
    writing: Writing = OF_PARTY
    listed: Sequence[str | float] = ()

    def format_of(self, name: str) -> str | None:
        """The format that the settings name for a column itself: a cell of another one is an error by its row."""
        return self.date_format.get(name) if isinstance(self.date_format, Mapping) else None

    @property
    def categories(self) -> Meant:
        """The encoding of categories."""
        return Meant(CATEGORICAL if self.categorical else ONE_HOT)


class Cells(NamedTuple):
    """A plain column, whole or one cell of each value, the origin by which its rows are named, and their number."""

    origin: Origin
    column: pa.ChunkedArray
    records: int

    @property
    def most_taken(self) -> int:
        """The most values of text that is taken for categories: see above."""
        return min(MOST, max(self.records // RECORDS_A_VALUE, min(FEW, self.records // 2)))


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

    def of_feature_parties(self, but: Collection[str] = ()) -> Settled:
        """The same with all but some columns one-hot in the place of categories, as jobs of every privacy take them."""
        taken = {name: ONE_HOT if it == CATEGORICAL and name not in but else it for name, it in self.taken.items()}
        return replace(self, taken=taken)

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
    if any(ask.meant.encode for ask in asked.values()):  # a kind of no use by itself is refused as it is read
        own = rules.date_format if isinstance(rules.date_format, Mapping) else {}
        raise DataError(message(title, asked, encode, {**formats, **own}, rules.writing, rules.listed))
    if encode == AUTO:
        return Settled(taken, formats, taken)
    if isinstance(encode, Mapping):
        encode = {name: it for name, it in encode.items() if it != AUTO} | taken
    return Settled(encode, formats, taken)


def declared_in(source: Source) -> frozenset[str]:
    """The columns that a source calls categories. `DataError` if it cannot be read."""
    return frozenset(name for name, kind in source.fields() if pa.types.is_dictionary(kind))


def date_columns(place: Source | Path, names: Sequence[str]) -> list[str]:
    """Those of these columns that hold dates, or text of which one format alone makes dates of all cells.

    Names that a table has not, or twice, are passed over. `DataError` if it cannot be read.
    """
    source = source_at(place)
    kinds, times = dict(source.fields()), Counter(name for name, _ in source.fields())
    wanted = [name for name in names if times[name] == 1]
    dated = {name for name in wanted if is_date(kinds[name]) and source.typed}
    if read := [name for name in wanted if is_text(plain_type(kinds[name])) or not source.typed]:
        table = read_columns(source, read, ())
        for name in read:
            column = plain_column(source, f"column {name!r}", table.column(name))
            dated |= {name} if is_date(column.type) else set()
            cells = different_texts(column) if is_text(column.type) else []
            forms = readings(cells) if not are_plain(source, cells) else []
            dated |= {name} if len(forms) == 1 and has_century(forms[0]) else set()
    return [name for name in names if name in dated]


def redated(
    origin: Origin, column: pa.ChunkedArray, name: str, trained: Category, form: str, missing: float | None
) -> Category:
    """A column of dates of a training, as a further table writes it whose settings have a format for all columns.

    As in the training that holds for the columns whose cells are of it; the others keep the training's.

    Raises:
        DataError: the cells are dates by both formats, and other ones.
    """
    own = trained.date_format
    if form == own:
        return trained
    if is_text(column.type):
        texts = different_texts(as_written(origin, name, column, missing, own))
        others = different_texts(as_written(origin, name, column, missing, form))
        strange, unlike = strangers(texts, own), strangers(others, form)
        if not strange and not unlike and list(map(parser(own), texts)) != list(map(parser(form), others)):
            line = OF_PARTY.line("date_format", {name: form})
            raise DataError(
                f"{origin}: column {name!r}: all cells are dates as the training wrote them, {own or 'in ISO 8601'}, "
                f"and other ones by date_format = {json.dumps(form)}: name the column, as {line}"
            )
        if len(strange) <= len(unlike):
            return trained
    return replace(trained, date_format=form)


def codes(origin: Origin, columns: Mapping[str, pa.ChunkedArray], writing: Writing = OF_PARTY) -> list[str]:
    """Sentences about columns without an encoding, which are read as numbers, whose texts look like codes."""
    written = isinstance(origin, Source) and not origin.typed
    whole = [name for name, it in columns.items() if written and pa.types.is_integer(it.type)]
    again = origin.read(whole, whole) if isinstance(origin, Source) and whole else pa.table({})
    texts = {name: again.column(name).cast(pa.string()) if name in whole else it for name, it in columns.items()}
    return [
        f"column {name!r} is read as a number, and its texts have leading zeros and one length, as codes do. If it is "
        f"one:\n    {writing.line('encode', {name: CATEGORICAL})}  # {writing.place}"
        for name, it in texts.items()
        if is_text(it.type) and _are_codes(pc.utf8_trim_whitespace(it.drop_null()))
    ]


def _are_codes(cells: pa.ChunkedArray) -> bool:
    ends = pc.min_max(pc.utf8_length(cells))
    alike = ends["min"] == ends["max"] and pc.all(pc.match_substring_regex(cells, _CODE)).as_py()
    return bool(len(cells) and alike and pc.any(pc.starts_with(cells, "0")).as_py())


def may_identify(column: pa.ChunkedArray) -> bool:
    """True for a plain column of whole numbers of which each record has another one."""
    if not pa.types.is_integer(column.type) or column.null_count or len(column) < RECORDS_A_VALUE * FEW:
        return False
    return bool(pc.count_distinct(column).as_py() == len(column))


def _shown_by(name: str, cells: Cells, rules: Rules) -> Meant | Ask:
    """The encoding of a column by its type and its cells."""
    origin, column, records = cells
    if is_date(column.type):
        return Meant(DAYS)
    if (form := rules.format_of(name)) is not None:
        return Meant(DAYS, form)
    if name in rules.declared:
        count = len(category_texts(origin, name, column, rules.missing).values())
        most = max(cells.most_taken, most_categories(records))
        return Meant() if not count else rules.categories if count <= most else _many(count, cells, rules)
    if not (is_text(column.type) or may_be_numbers(column.type)):
        return Ask(f"holds {kind_name(column.type)}, not numbers; {remedy_of(column.type)}", Meant())
    if not is_text(column.type) or are_plain(origin, different_texts(column)):
        return Meant()
    texts = _present_texts(name, cells, rules)
    meant = _date_of(name, cells, texts, rules) or _number_of(cells, texts, rules)
    return meant or (rules.categories if len(texts) <= cells.most_taken else _many(len(texts), cells, rules))


def _present_texts(name: str, cells: Cells, rules: Rules) -> list[str]:
    """The different texts of a column, without the number that means a missing cell."""
    origin, column, _ = cells
    if not sentinels(rules.missing, column.type):
        return different_texts(column)
    return different_texts(without_missing(origin, name, column, rules.missing))


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
    origin, column, _ = cells
    of_all = rules.date_format if by_name and isinstance(rules.date_format, str) else None
    form = rules.format_of(name) or (of_all if pa.types.is_integer(column.type) else None)
    if form is not None and not is_date(column.type):
        return Meant(DAYS, form)
    if not is_text(column.type) or (not by_name and are_plain(origin, different_texts(column))):
        return Meant()
    texts = _present_texts(name, cells, rules)
    dated = _date_of(name, cells, texts, rules) or Meant(DAYS, of_all or ISO)
    return dated.meant if isinstance(dated, Ask) and dated.of_rows else dated


def _date_of(name: str, cells: Cells, texts: Sequence[str], rules: Rules) -> Meant | Ask | None:
    """The format of texts that are dates; None of others."""
    if texts and isinstance(given := rules.date_format, str):
        written = different_texts(as_written(cells.origin, name, cells.column, rules.missing, given))
        if not strangers(written, given):
            return Meant(DAYS, given)
    if doubt := _in_two_ways(name, cells, rules):
        return doubt
    forms = readings(texts)
    if not forms:
        form = mostly(texts)
        if form is None:
            return None
        return _strange(cells, texts, strangers(texts, form), "dates", Meant(DAYS, form))
    if len(forms) == 1 and has_century(forms[0]):
        return Meant(DAYS, forms[0])
    return _of_forms(forms)


def _of_forms(forms: Sequence[str], where: str = "") -> Ask:
    """The doubt about dates of several formats, or without a century."""
    why = "whose day and month could change places" if has_century(forms[0]) else "whose years have two digits"
    return Ask(f"holds dates {why}{where}", Meant(DAYS, forms[0]), tuple(forms))


def _in_two_ways(name: str, cells: Cells, rules: Rules) -> Ask | None:
    """The doubt whether dates of several files are of one format: each shows its own alone. None of a single file."""
    ends = [] if isinstance(cells.origin, Path) else cells.origin.file_ends
    if len(ends) < 2:
        return None
    column = without_missing(cells.origin, name, cells.column, rules.missing)
    spans = [(first, different_texts(column.slice(first, end - first))) for first, end in pairwise([0, *ends])]
    held = {first: texts for first, texts in spans if texts}
    shown = dict(zip(held, readings_apart(list(held.values())), strict=True))
    if not all(shown.values()):
        return None
    places = {forms[0]: row_name(cells.origin, first) for first, forms in reversed(shown.items())}
    for first, forms in shown.items():
        if len(forms) > 1 or not has_century(forms[0]):
            return _of_forms(forms, f" in one file alone, from {row_name(cells.origin, first)}")
    if len(places) < 2:
        return None
    rows = " and ".join(list(places.values())[:-3:-1])
    return Ask(f"holds dates of two formats, as in {rows}: write them in one", Meant(DAYS, next(iter(places))))


def _number_of(cells: Cells, texts: Sequence[str], rules: Rules) -> Ask | None:
    """The doubt whether texts are numbers: in another style, or all but a few of them; None of others."""
    origin, words = cells.origin, no_numbers(cells.origin, texts)
    digits = all(any(map(str.isdigit, text)) for text in texts)
    if digits and styles_of(texts, PLAIN if isinstance(origin, Path) else origin.style):
        remedy = "" if isinstance(origin, Path) else origin.remedy("no numbers", texts)
        remedy = remedy or "write them with a decimal point and no thousands"
        codes = len(texts) <= most_categories(cells.records)
        return Ask(f"holds numbers in another style: {remedy}", rules.categories, of_rows=True, codes=codes)
    if 2 * len(words) > len(texts):
        return None
    return _strange(cells, texts, words, "numbers", rules.categories)


def _many(count: int, cells: Cells, rules: Rules) -> Ask:
    unique = count == cells.records
    held = "another text in each record" if unique else f"{count:,} different texts in {cells.records:,} records"
    codes = not unique and count <= most_categories(cells.records)
    return Ask(f"holds {held}", rules.categories, out=True, unique=unique, codes=codes)


def _strange(cells: Cells, texts: Sequence[str], places: Sequence[int], what: str, meant: Meant) -> Ask:
    """The doubt about texts at some places among others that are numbers or dates."""
    trimmed, odd = pc.utf8_trim_whitespace(cells.column), tuple(sorted(texts[place] for place in places))
    first = row_name(cells.origin, pc.index(trimmed, pa.scalar(texts[places[0]], trimmed.type)).as_py())
    said = f"holds {what}, but not in {len(places)} of its {len(texts)} different texts, first in {first}"
    words = any(map(str.isalnum, "".join(odd)))  # a mark alone is no category
    codes = what == "numbers" and words and len(texts) <= cells.most_taken
    few = odd if len(odd) <= MOST_ODD and not any(map(str.isdigit, "".join(odd))) else ()
    said += f": {'' if few else 'correct the cells, or '}list in missing the texts that mean a missing value"
    return Ask(said, meant, of_rows=True, codes=codes, odd=few, first=first)

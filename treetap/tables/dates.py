"""Dates and times as numbers: days since 1970-01-01, with the time of day as a fraction.

A time with a zone or an offset is an instant, hence counted in UTC; one without is taken as it is written. A column
holds one kind of them: the same text would otherwise be two different numbers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import chain, product, zip_longest
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from treetap.errors import DataError, quoted, refuse
from treetap.tables.source import Origin, is_text, kind_name, row_name

#: The format of ISO 8601, which is tried first.
ISO = ""
_DIRECTIVES = re.compile("%(.)")
_KNOWN = frozenset("YymdbBjHMSfIpz%")
#: Digits of a directive beside another one, as a pattern counts them.
_DIGITS = {"Y": "4", "j": "3", "f": "1,6", **dict.fromkeys("ymdHMSI", "2")}
_FIELDS = re.compile(f"(?:%[{''.join(_DIGITS)}]){{2,}}|%.")
_DAYS = (
    *("%Y/%m/%d", "%Y.%m.%d", "%Y %m %d"),
    *(f"{first}{mark}{second}{mark}%Y" for mark in "./- " for first, second in (("%d", "%m"), ("%m", "%d"))),
    *("%d-%b-%Y", "%d %b %Y", "%d. %b %Y", "%d%b%Y", "%d/%b/%Y", "%b %d, %Y", "%b %d %Y"),
    *("%d %B %Y", "%d. %B %Y", "%B %d, %Y", "%B %d %Y"),
)
#: The same with years of two digits.
_SHORT = tuple(form.replace("%Y", "%y") for form in (*_DAYS[3:], *_DAYS[:3]))
_TIMES = ("", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", " %I:%M %p", " %I:%M:%S %p", "T%H:%M:%S", ", %H:%M")
_FORMATS = tuple(day + time for day, time in product((*_DAYS, *_SHORT), _TIMES))
#: Cells by which formats are proposed, before all cells are looked at.
_SAMPLE = 60
#: Letters and digits of the longest cell that may be a date.
_LONGEST = 40


def checked_format(form: Any) -> str:
    """The format; ValueError if it has no year and month, or another directive than a date and its time have."""
    if not isinstance(form, str):
        raise ValueError(f'a format of dates is text such as "%d.%m.%Y", not {form!r}')
    held = _DIRECTIVES.findall(form)
    unknown = [f"%{letter}" for letter in held if letter not in _KNOWN]
    known = ", ".join(f"%{letter}" for letter in "YymdbBjHMSfIpz")
    refuse(
        (unknown, f"{form!r} has {''.join(unknown[:1])}, which is none of {known}"),
        (any(held.count(letter) > 1 for letter in held if letter != "%"), f"{form!r} has a directive twice"),
        (
            not {"Y", "y"} & set(held) or not {"m", "b", "B", "j"} & set(held),
            f'{form!r} has no year and month: write one such as "%d.%m.%Y"',
        ),
        ("p" in held and "I" not in held, f"{form!r} has %p, which goes with %I"),  # which strptime passes over
    )
    return form


@lru_cache(maxsize=256)
def parser(form: str) -> Callable[[str], datetime]:
    """The function from a cell of this format to its time; it raises ValueError for another one."""
    if form == ISO:
        return datetime.fromisoformat
    marks = [r"\s+".join(map(re.escape, re.split(r"\s+", mark))) for mark in _FIELDS.split(form)]
    fields = ["".join(f"[0-9]{{{count}}}" for count in _counts(held)) or ".+" for held in _FIELDS.findall(form)]
    shaped = re.compile("".join(chain.from_iterable(zip_longest(marks, fields, fillvalue=""))), re.IGNORECASE)

    def parse(text: str) -> datetime:
        if not shaped.fullmatch(text):
            raise ValueError
        return datetime.strptime(text, form)

    return parse


def _counts(directives: str) -> list[str]:
    """The digits of each of some directives without a mark between them; none of a single one, which may have fewer."""
    return [_DIGITS[letter] for letter in directives[1::2]] if len(directives) > 2 else []


def whole_width(form: str) -> int:
    """The digits of a date that is a whole number; 0 where it has no fixed number, or cannot begin with a zero."""
    counts = _counts(form) if _FIELDS.fullmatch(form) else []
    return 0 if form.startswith("%Y") or _DIGITS["f"] in counts else sum(map(int, counts))


def has_century(form: str) -> bool:
    """False for a format whose years have two digits."""
    return "%y" not in form


def readings(cells: Collection[str]) -> list[str]:
    """The formats by which all cells are dates: `ISO`, or usual ones; those with a century come first.

    Two that mean the same days here may mean different ones of another table's. `cells`: different ones without blanks
    around them.
    """
    held = list(cells)
    if held and not strangers(held, ISO):  # which no other format can be taken for
        return [ISO]
    forms: dict[str, str] = {}
    for form in _likely(held, whole=True):
        if not strangers(held, form):
            forms.setdefault(form.replace("%B", "%b"), form)  # May is both
    return list(forms.values())


def readings_apart(groups: Sequence[Collection[str]]) -> list[list[str]]:
    """The `readings` of each of some groups of cells, abbreviated months for all; none where a cell is no date."""
    cells = list(dict.fromkeys(chain.from_iterable(groups)))
    held, known = "".join(cells), dict[str, set[str]]()
    for form in (ISO, *_FORMATS) if all(map(_shaped, cells)) else ():
        if _has_marks(held, form):
            odd = set(strangers(cells, form))
            fitting = {cell for place, cell in enumerate(cells) if place not in odd}
            known.setdefault(form.replace("%B", "%b"), set()).update(fitting)
    return [[form for form, fitting in known.items() if fitting.issuperset(group)] for group in groups]


def mostly(cells: Collection[str]) -> str | None:
    """The first format by which more than half of the cells are dates; None without one."""
    held = list(cells)
    return next((form for form in _likely(held, whole=False) if 2 * len(strangers(held, form)) < len(held)), None)


def strangers(cells: Sequence[str], form: str) -> list[int]:
    """The places of the cells that are no dates by a format."""
    parse = parser(form)
    return [place for place, cell in enumerate(cells) if _date(parse, cell) is None]


def _likely(cells: list[str], whole: bool) -> Iterator[str]:
    """The formats by which some of a sample of the cells are dates, or the `whole` sample."""
    sample = Random(0).sample(cells, min(_SAMPLE, len(cells)))  # noqa: S311 - every second cell may be of one kind
    if not any(_shaped(cell) for cell in sample):
        return
    least = len(sample) if whole else 1
    for form in (ISO, *_FORMATS):
        fits = any(_has_marks(cell, form) for cell in sample)
        if fits and len(sample) - len(strangers(sample, form)) >= least:
            yield form


def _shaped(cell: str) -> bool:
    return len(cell) <= _LONGEST and sum(map(str.isdigit, cell)) >= 3


def _has_marks(cell: str, form: str) -> bool:
    """True if a cell has the marks and the letters of a format, so that it may be of it."""
    named = "%b" in form.lower()
    return (not named or any(map(str.isalpha, cell))) and all(
        mark in cell for mark in _DIRECTIVES.sub("", form) if not mark.isspace()
    )


def _date(parse: Callable[[str], datetime], cell: str) -> datetime | None:
    try:
        return parse(cell)
    except ValueError:
        return None


_MICROSECOND = timedelta(microseconds=1)
_DAY = 86_400_000_000  # microseconds


def is_date(kind: pa.DataType) -> bool:
    """True for dates and for times with a date."""
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def undated(path: Origin, name: str, kind: pa.DataType) -> DataError:
    """The refusal of a column of dates that a setting takes for something else."""
    key = name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else quoted(name)
    return DataError(
        f"{path}: column {name!r} holds {kind_name(kind)}, not numbers; count dates in days, by "
        f'encode = {{ {key} = "days" }} in the table\'s settings, or leave the column out'
    )


def days_of(
    path: Origin, name: str, column: pa.ChunkedArray, utc: bool | None = None, form: str = ISO
) -> tuple[npt.NDArray[np.float64], bool]:
    """A column as days (n,) since 1970-01-01, NaN where missing, and whether they are counted in UTC.

    `utc`: what a training found; `form`: of text. `DataError` names column and row as `timestamps` does, or the column
    if it differs.
    """
    moments = timestamps(path, name, column, form)
    absent = np.asarray(moments.is_null().to_numpy(), dtype=bool)
    has_zone = moments.type.tz is not None
    if utc is not None and has_zone != utc and not absent.all():
        said = ["times without a zone", "times of a zone"]
        raise DataError(f"{path}: column {name!r} holds {said[has_zone]}, and {said[utc]} when it was trained on")
    ticks = moments.cast(pa.int64()).fill_null(0).to_numpy()
    days, rest = np.divmod(np.asarray(ticks, dtype=np.int64), _DAY)
    return np.where(absent, np.nan, days + rest / _DAY), has_zone


def date_text(days: float, *, utc: bool) -> str:
    """Days since 1970-01-01 as a date in ISO 8601, with the time where it is not midnight; far ones as a number."""
    try:
        moment = datetime(1970, 1, 1) + timedelta(microseconds=round(days * _DAY))
    except OverflowError:
        return f"{days:.6g}"
    if utc:
        return f"{moment.isoformat()}Z"
    return moment.date().isoformat() if moment.time() == moment.time().min else moment.isoformat()


def timestamps(path: Origin, name: str, column: pa.ChunkedArray, form: str = ISO) -> pa.ChunkedArray:
    """Dates, times, or texts of a format, as times in microseconds, with the zone UTC if they have any.

    Raises:
        DataError: the column holds something else, a text is no date, only some texts have an offset, or a date is
            too far away for microseconds in 64 bits.
    """
    kind = column.type
    if pa.types.is_null(kind):
        return column.cast(pa.timestamp("us"))
    if is_date(kind):
        zone = "UTC" if pa.types.is_timestamp(kind) and kind.tz is not None else None
        exact = not (pa.types.is_timestamp(kind) and kind.unit == "ns")
        try:
            return column.cast(pa.timestamp("us", zone), safe=exact)
        except pa.ArrowInvalid:
            raise DataError(f"{path}: column {name!r} holds a date that is more than 290,000 years away") from None
    if not is_text(kind):
        raise DataError(f"{path}: column {name!r} holds {kind_name(kind)}, not dates: leave it out of encode")
    return _parsed(path, name, column, form)


def _parsed(path: Origin, name: str, column: pa.ChunkedArray, form: str) -> pa.ChunkedArray:
    parse = parser(form)
    known: dict[str, datetime | None] = {}
    moments: list[datetime | None] = []
    for index, cell in enumerate(column.to_pylist()):
        text = "" if cell is None else cell.strip()
        if text not in known:
            try:
                known[text] = parse(text) if text else None
            except ValueError:
                written = (
                    f"the others are as date_format = {json.dumps(form)} says"
                    if form != ISO
                    else "dates are written as 2024-03-31, or with a time as 2024-03-31T08:30 or "
                    "2024-03-31T08:30:00+02:00; date_format says another way"
                )
                raise DataError(
                    f"{path}: {row_name(path, index)}, column {name!r}: the cell is not a date; {written}"
                ) from None
        moments.append(known[text])
    # a column with both would count some cells in UTC and others in local time
    zoned = {moment.tzinfo is not None for moment in moments if moment is not None}
    if len(zoned) == 2:
        first = next(moment for moment in moments if moment is not None).tzinfo is None
        index = next(i for i, moment in enumerate(moments) if moment and (moment.tzinfo is None) != first)
        raise DataError(
            f"{path}: {row_name(path, index)}, column {name!r}: the time has {'an' if first else 'no'} offset, and "
            f"the first one has {'none' if first else 'one'}: write all with an offset, or all without"
        )
    zone = UTC if zoned == {True} else None
    epoch = datetime(1970, 1, 1, tzinfo=zone)
    ticks = [None if moment is None else (moment - epoch) // _MICROSECOND for moment in moments]
    made = pa.array(ticks, pa.int64()).cast(pa.timestamp("us", None if zone is None else "UTC"))
    return pa.chunked_array([made])

"""Formats of dates in text, as `datetime.strptime` has them, and which of them a column's cells show.

A format is detected where it is the only one by which all cells are dates. Text in ISO 8601 needs none. Fields without
a mark between them have all their digits: `strptime` itself would take 202312 for 2 January 2023 by `%Y%m%d`. Names of
months are English. Years of two digits are never detected, since they leave the century open: `%y` takes 69 to 99 for
1969 to 1999, and 00 to 68 for 2000 to 2068.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import chain, product, zip_longest
from random import Random
from typing import Any

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
    if unknown := [f"%{letter}" for letter in held if letter not in _KNOWN]:
        known = ", ".join(f"%{letter}" for letter in "YymdbBjHMSfIpz")
        raise ValueError(f"{form!r} has {unknown[0]}, which is none of {known}")
    if len(set(held)) < len(held) and any(held.count(letter) > 1 for letter in held if letter != "%"):
        raise ValueError(f"{form!r} has a directive twice")
    if not {"Y", "y"} & set(held) or not {"m", "b", "B", "j"} & set(held):
        raise ValueError(f'{form!r} has no year and month: write one such as "%d.%m.%Y"')
    if "p" in held and "I" not in held:  # which strptime passes over
        raise ValueError(f"{form!r} has %p, which goes with %I")
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

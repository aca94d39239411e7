"""Formats of dates in text, as `datetime.strptime` has them, and which of them a column's cells show.

A format is detected where it is the only one by which all cells are dates. Text in ISO 8601 needs none. Names of
months are English. Years of two digits are never detected, since they leave the century open: `%y` takes 69 to 99 for
1969 to 1999, and 00 to 68 for 2000 to 2068.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime
from itertools import product
from typing import Any

#: The format of ISO 8601, which is tried first.
ISO = ""
_DIRECTIVES = re.compile("%(.)")
_KNOWN = frozenset("YymdbBjHMSfIpz%")
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


def parser(form: str) -> Callable[[str], datetime]:
    """The function from a cell of this format to its time; it raises ValueError for another one."""
    return datetime.fromisoformat if form == ISO else lambda text: datetime.strptime(text, form)


def has_century(form: str) -> bool:
    """False for a format whose years have two digits."""
    return "%y" not in form


def readings(cells: Collection[str], further: Sequence[str] = ()) -> list[str]:
    """The formats by which all cells are dates: `ISO`, `further` or usual ones; those with a century come first.

    Two that mean the same days here may mean different ones of another table's. `cells`: different ones without blanks
    around them.
    """
    held = list(cells)
    if held and not further and not strangers(held, ISO):  # which no other format can be taken for
        return [ISO]
    forms: dict[str, str] = {}
    for form in _likely(held, further, whole=True):
        if not strangers(held, form):
            forms.setdefault(form.replace("%B", "%b"), form)  # May is both
    return list(forms.values())


def mostly(cells: Collection[str]) -> str | None:
    """The first format by which more than half of the cells are dates; None without one."""
    held = list(cells)
    return next((form for form in _likely(held, (), whole=False) if 2 * len(strangers(held, form)) < len(held)), None)


def strangers(cells: Sequence[str], form: str) -> list[int]:
    """The places of the cells that are no dates by a format."""
    parse = parser(form)
    return [place for place, cell in enumerate(cells) if _date(parse, cell) is None]


def _likely(cells: list[str], further: Sequence[str], whole: bool) -> Iterator[str]:
    """The formats by which more than half of a sample of the cells are dates, or of the `whole` sample."""
    sample = cells[:: max(1, len(cells) // _SAMPLE)]
    if not any(_shaped(cell) for cell in sample):
        return
    least = len(sample) if whole else len(sample) // 2 + 1
    for form in (ISO, *further, *_FORMATS):
        fits = any(_has_marks(cell, form) for cell in sample[:3] + sample[-3:])
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

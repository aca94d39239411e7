"""Dates and times as numbers: days since 1970-01-01, with the time of day as a fraction.

A time with a zone or an offset is an instant, hence counted in UTC; one without is taken as it is written. A column
holds one kind of them: the same text would otherwise be two different numbers.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from treetap.errors import DataError
from treetap.names import quoted
from treetap.tables.date_formats import ISO, parser
from treetap.tables.numbers import is_text, kind_name
from treetap.tables.source import Origin, row_name

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

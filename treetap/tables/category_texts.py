"""Cells as the texts of categories: one text for what libraries and formats write in several ways.

A whole number is 1 whether it was written 1 or 1.0, another number is the shortest text of the nearest double, and a
boolean is true or false. 007 and +1 are texts of their own: who pads a number writes a code. 1 and true are different
categories.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from treetap.errors import DataError
from treetap.tables.numbers import is_number, is_text, kind_name, remedy_of, sentinels
from treetap.tables.source import Origin, Source, number, row_name

_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?(e[+-][0-9]+)?")
#: A text that is no number of a library: padded, or with an exponent of another form than 1e+20.
_CODE = re.compile(r"[+].*|-?0[0-9].*|.*[eE](?![+-][0-9]{2}).*")
_BOOLEANS = ("true", "false")


class Texts(NamedTuple):
    """The different `cells` of a column, the last of them None, and the place of each row's among them (N,)."""

    cells: list[str | None]
    places: npt.NDArray[np.int64]

    def values(self) -> list[str]:
        """The different texts: numbers ascending where all are some, else in the order of their code points."""
        different = {cell for cell in self.cells if cell is not None}
        return sorted(different, key=Decimal) if are_numbers(different) else sorted(different)


def are_numbers(values: Iterable[str]) -> bool:
    """True for texts of categories that are numbers, one at least."""
    held = list(values)
    return bool(held) and all(map(_NUMBER.fullmatch, held))


def category_texts(
    path: Origin, name: str, column: pa.ChunkedArray, missing: float | None, numeric: bool | None = None
) -> Texts:
    """The texts of a plain column; None where a cell is missing, blank, or the number that means so.

    `numeric`: its categories are numbers, however the source writes these; None: as all of its texts are some or not.

    Raises:
        DataError: the column holds something else than text, numbers and booleans, or an infinite number.
    """
    kind = column.type
    if pa.types.is_null(kind):
        return Texts([None], np.zeros(len(column), dtype=np.int64))
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
        cells = [_BOOLEANS[not value] for value in coded.dictionary.to_pylist()]
    elif pa.types.is_decimal(kind):
        exact = coded.dictionary.to_pylist()
        cells = [None if float(value) in absent else _shortest(value) for value in exact]
    else:
        parse = path.number if is_text(kind) and isinstance(path, Source) else number
        gone = {_shortest(np.float64(value)) for value in absent}
        raw = coded.dictionary.cast(pa.string()).to_pylist()
        own = all(not text.strip() or _value(text, parse) is not None for text in raw) if numeric is None else numeric
        texts = [_text(value, parse, own=own) for value in raw]
        cells = [text if text not in gone else None for text in texts]
    return Texts([*cells, None], places)


def category_text(value: str) -> str:
    """The text of a category that a manifest may have as a file wrote it."""
    return _text(value, number, own=True) or value


def _text(cell: str, parse: Callable[[str], float], *, own: bool) -> str | None:
    """The text of a category; None of a blank cell. `parse`: see `Source.number`; `own`: 1,5 may be a number there."""
    text = cell.strip()
    if not text or _WHOLE.fullmatch(text):
        return "0" if text == "-0" else text or None
    if (lower := text.lower()) in _BOOLEANS:
        return lower
    value = None if _CODE.fullmatch(text) else _value(text, parse)
    if value is None or not (own or value == _value(text, number)):
        return text
    return _shortest(np.float64(value))


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

"""Data frames drawn from a seed: columns of 12 kinds, each spelled in one of the ways in which libraries hold it.

The same columns are also there as plain numbers, the place of each cell among the different ones of its column, which
is what trees with a bin for each value see.
"""

from __future__ import annotations

import datetime
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import polars as pl
import pyarrow as pa

#: The cell that means a missing one, in frames that have such cells.
SENTINEL = -999
_WORDS = ("red", "blue", "Red", "ü", "a b", "zz", "10:30", "x'y", "Z", "b", "c;d", "grün", "q", "V45", "12-3", "m")
_SIZES = ("S", "M", "L", "XL", "XXL")
_FIRST_DAY = datetime.date(2001, 1, 1)
Cells = list[Any]
Spelled = tuple[pa.Array, str | None, str | None]


@dataclass(frozen=True)
class Column:
    """Cells of Python's types, None where missing, and whether trees split them as categories.

    `order`: of the different cells where it is not their own. `encode`, `date_format`: what the spelling needs.
    """

    kind: str
    spelling: str
    cells: Cells
    array: pa.Array
    encode: str | None
    date_format: str | None
    order: tuple[Any, ...] = ()

    @property
    def categorical(self) -> bool:
        """True of categories without an order."""
        return self.kind in ("few words", "words", "codes")

    @property
    def places(self) -> npt.NDArray[np.float64]:
        """The place (n,) of each cell among the different ones, NaN where missing."""
        order = self.order or sorted({cell for cell in self.cells if cell is not None})
        place = {cell: float(number) for number, cell in enumerate(each for each in order if each in self.cells)}
        return np.array([math.nan if cell is None else place[cell] for cell in self.cells])


@dataclass(frozen=True)
class Frame:
    """A frame of a library and its columns by name. `missing`: the estimator's parameter."""

    data: Any
    library: str
    columns: Mapping[str, Column]
    missing: float
    encode: dict[str, str] = field(default_factory=dict)
    date_format: dict[str, str] = field(default_factory=dict)


# ---- cells of each kind


def _reals(draw: random.Random, n: int) -> Cells:
    return [round(draw.gauss(0, 3), draw.choice((1, 3, 15))) for _ in range(n)]


def _words(draw: random.Random, n: int, least: int, most: int) -> Cells:
    words = draw.sample(_WORDS, draw.randint(least, most))
    return [*words, *draw.choices(words, k=n)][:n]


CELLS: dict[str, Callable[[random.Random, int], Cells]] = {
    "reals": _reals,
    "whole": lambda draw, n: [draw.randint(-5, 20) for _ in range(n)],
    "truth": lambda draw, n: [draw.random() < 0.4 for _ in range(n)],
    "spike": lambda draw, n: [0 if draw.random() < 0.8 else int(draw.lognormvariate(2, 1)) + 1 for _ in range(n)],
    "ratings": lambda draw, n: [draw.randint(2, 10) / 2 for _ in range(n)],
    "wide": lambda draw, n: [draw.choice((-1, 1)) * 10.0 ** draw.uniform(-12, 12) for _ in range(n)],
    "days": lambda draw, n: [_FIRST_DAY + datetime.timedelta(draw.randint(0, 9000)) for _ in range(n)],
    "times": lambda draw, n: [
        datetime.datetime(2020, 2, 28) + datetime.timedelta(hours=draw.randint(0, 500)) for _ in range(n)
    ],
    "few words": lambda draw, n: _words(draw, n, 2, 3),
    "words": lambda draw, n: _words(draw, n, 5, 14),
    "codes": lambda draw, n: [draw.choice((1, 2, 10, 11, 20, 101, 250)) for _ in range(n)],
    "sizes": lambda draw, n: draw.choices(_SIZES, k=n),
}


# ---- spellings


def _missing_as_nan(cells: Cells) -> pa.Array:
    return pa.array([math.nan if cell is None else float(cell) for cell in cells], pa.float64())


def _made(cells: Cells, kind: pa.DataType, form: Callable[[Any], Any] = str) -> pa.Array:
    return pa.array([None if cell is None else form(cell) for cell in cells], kind)


def _typed(kind: pa.DataType, encode: str | None = None) -> Callable[[Cells], Spelled]:
    return lambda cells: (pa.array(cells, kind), encode, None)


def _coded(cells: Cells, kind: pa.DataType, *, ordered: bool = False) -> pa.Array:
    different = [size for size in _SIZES if size in cells] if ordered else None
    if different is None:
        return pa.array(cells, kind).dictionary_encode()
    places = pa.array([None if cell is None else different.index(cell) for cell in cells], pa.int8())
    return pa.DictionaryArray.from_arrays(places, pa.array(different), ordered=True)


_NUMBERS: dict[str, Callable[[Cells], Spelled]] = {
    "float64": lambda cells: (_made(cells, pa.float64(), float), None, None),
    "NaN": lambda cells: (_missing_as_nan(cells), None, None),
    "text": lambda cells: (_made(cells, pa.string()), None, None),
    "large text": lambda cells: (_made(cells, pa.large_string(), lambda cell: f" {cell}"), None, None),
}
_WHOLE = _NUMBERS | {str(kind): _typed(kind) for kind in (pa.int16(), pa.int32(), pa.int64())}
_HALVES = _NUMBERS | {
    "float32": lambda cells: (_made(cells, pa.float32(), float), None, None),
    "decimal": lambda cells: (_made(cells, pa.decimal128(12, 1), lambda cell: Decimal(str(cell))), None, None),
}  # fmt: skip
_TEXT = {str(kind): _typed(kind, "categorical") for kind in (pa.string(), pa.large_string())}
SPELLINGS: dict[str, dict[str, Callable[[Cells], Spelled]]] = {
    "reals": _NUMBERS,
    "whole": _WHOLE | {"float32": _HALVES["float32"]},
    "truth": {
        "bool": _typed(pa.bool_()),
        "text": lambda cells: (_made(cells, pa.string(), lambda cell: str(cell).lower()), None, None),
        "int8": lambda cells: (_made(cells, pa.int8(), int), None, None),
    },
    "spike": _WHOLE | {"uint32": _typed(pa.uint32())},
    "ratings": _HALVES,
    "wide": _NUMBERS,
    "days": {
        "date32": _typed(pa.date32()), "date64": _typed(pa.date64()),
        "ns": lambda cells: (pa.array(cells, pa.date32()).cast(pa.timestamp("ns")), None, None),
        "ISO": lambda cells: (_made(cells, pa.string()), None, None),
        "German": lambda cells: (_made(cells, pa.string(), lambda day: f"{day:%d.%m.%Y}"), "days", "%d.%m.%Y"),
        "digits": lambda cells: (_made(cells, pa.string(), lambda day: f"{day:%d%m%Y}"), "days", "%d%m%Y"),
        "whole": lambda cells: (_made(cells, pa.int64(), lambda day: int(f"{day:%d%m%Y}")), "days", "%d%m%Y"),
    },
    "times": {
        **{unit: _typed(pa.timestamp(unit)) for unit in ("s", "ms", "us", "ns")},
        "UTC": _typed(pa.timestamp("ms", "UTC")),
        "ISO": lambda cells: (_made(cells, pa.string(), lambda time: time.isoformat()), None, None),
    },
    "few words": _TEXT | {"dictionary": lambda cells: (_coded(cells, pa.string()), None, None)},
    "words": _TEXT | {"dictionary": lambda cells: (_coded(cells, pa.string()), None, None)},
    "codes": {
        "int64": _typed(pa.int64(), "categorical"),
        "text": lambda cells: (_made(cells, pa.string()), "categorical", None),
        "NaN": lambda cells: (_missing_as_nan(cells), "categorical", None),
        "dictionary": lambda cells: (_coded(cells, pa.int32()), None, None),
    },
    "sizes": {"ordered": lambda cells: (_coded(cells, pa.string(), ordered=True), "ordinal", None)},
}  # fmt: skip
_PANDAS: dict[str, Callable[[pa.DataType], Any] | None] = {
    "pandas": None,
    "pandas, nullable": {
        pa.int16(): pd.Int16Dtype(), pa.int32(): pd.Int32Dtype(), pa.int64(): pd.Int64Dtype(),
        pa.bool_(): pd.BooleanDtype(), pa.string(): pd.StringDtype(),
    }.get,
    "pandas, Arrow": pd.ArrowDtype,
}  # fmt: skip
LIBRARIES = (*_PANDAS, "polars", "arrow")


def drawn_column(draw: random.Random, kind: str, n: int, library: str, missing: float) -> Column:
    """A column of a kind in a spelling that the library has; it has two different values at least."""
    cells = CELLS[kind](draw, n)
    share = draw.choice((0.0, 0.0, 0.1, 0.4))
    cells = [None if draw.random() < share else cell for cell in cells]
    if len(different := sorted({cell for cell in cells if cell is not None})) < 2:
        cells = CELLS[kind](draw, n) if len(different) == 1 else cells
    spellings = dict(SPELLINGS[kind])
    if library == "polars":  # whose categories are texts
        spellings = {name: it for name, it in spellings.items() if (kind, name) != ("codes", "dictionary")}
    if library == "pandas" and None in cells:  # where whole numbers become doubles
        spellings = {name: it for name, it in spellings.items() if (kind, name) != ("days", "whole")}
    spelling = draw.choice(sorted(spellings))
    written = cells
    if not math.isnan(missing) and kind in ("whole", "reals", "ratings", "wide") and spelling != "NaN":
        written = [SENTINEL if cell is None and draw.random() < 0.5 else cell for cell in cells]
    array, encode, form = spellings[spelling](written)
    return Column(kind, spelling, cells, array, encode, form, _SIZES if kind == "sizes" else ())


def drawn_frame(draw: random.Random, n: int, width: int) -> Frame:
    """A frame of `width` columns of any kinds, `n` records, in any library."""
    library, missing = draw.choice(LIBRARIES), draw.choice((math.nan, math.nan, float(SENTINEL)))
    columns: dict[str, Column] = {}
    while len(columns) < width:
        column = drawn_column(draw, draw.choice(sorted(CELLS)), n, library, missing)
        if len({cell for cell in column.cells if cell is not None}) > 1:
            columns[f"c{len(columns)}"] = column
    table = pa.table({name: column.array for name, column in columns.items()})
    data: Any = table
    if library == "polars":
        sizes = [name for name, column in columns.items() if column.kind == "sizes"]
        data = pl.DataFrame(table).with_columns(pl.col(sizes).cast(pl.Enum(_SIZES)))
    elif library in _PANDAS:
        data = table.to_pandas(types_mapper=_PANDAS[library])
    encode = {name: column.encode for name, column in columns.items() if column.encode}
    forms = {name: column.date_format for name, column in columns.items() if column.date_format}
    return Frame(data, library, columns, missing, encode, forms)

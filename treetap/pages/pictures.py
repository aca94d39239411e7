"""Parts of pages: pictures with linear and logarithmic axes, lines and dots in them, matrices and bars."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeGuard

from treetap.pages.section import DOTS, DOTS_MARGIN, Cell, Dots, Table, Where

#: Margins of a plot in pixels of its picture, wide enough for the larger letters of small screens.
LEFT, RIGHT, TOP, BOTTOM = 66, 12, 14, 42
#: Size of a picture of lines, and the place for labels at their ends.
LINES, LABELS = (440, 250), 132
#: Bounds of what an axis tells apart: figures beyond the larger are at its edge, ends nearer than the smaller are one.
_LARGEST, _SMALLEST = 1e300, 1e-300


class Tick(NamedTuple):
    """A position on an axis and its label."""

    at: str
    label: str


def short(value: float) -> str:
    """A coordinate, to a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0")


def known(value: float | None) -> TypeGuard[float]:
    """True of a figure that has a place."""
    return value is not None and math.isfinite(value)


class Linear:
    """Figures from `low` to `high` at pixels `start` to `end`; a single figure is in the middle.

    Any ends will do: the smaller is first, and what is no number, or infinite, is none. `whole`: ticks at whole numbers
    only, `most` of them.
    """

    def __init__(
        self, low: float, high: float, start: float, end: float, *, whole: bool = False, most: int = 6
    ) -> None:
        ends = [max(-_LARGEST, min(_LARGEST, end)) for end in (low, high) if known(end)] or [0.0]
        self.low = min(ends)
        self.high = max(ends) if max(ends) - self.low >= _SMALLEST else self.low
        self.start, self.end, self.whole, self.most = start, end, whole, most

    def __call__(self, value: float) -> float:
        if self.high == self.low:
            return (self.start + self.end) / 2
        part = min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))
        return self.start + part * (self.end - self.start)

    def ticks(self) -> list[Tick]:
        """Ticks at multiples of 1, 2 or 5 times a power of ten."""
        if self.high == self.low:
            return [Tick(short(self(self.low)), f"{self.low:g}")]
        raw = (self.high - self.low) / self.most
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * (1 - 1e-9))
        step = max(1.0, step) if self.whole else step
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [Tick(short(self(k * step)), f"{k * step:g}") for k in range(first, last + 1)]


class Log:
    """Positive figures, powers of ten at equal distances; figures below 1 are placed at 1. Any ends will do."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self._powers = Linear(_power(low), _power(high), start, end)

    def __call__(self, value: float) -> float:
        return self._powers(_power(value))

    def ticks(self) -> list[Tick]:
        """Ticks at powers of ten, and at 3 times these if there are few."""
        powers = self._powers
        decades = range(math.floor(powers.low), math.ceil(powers.high) + 1)
        values = [factor * 10**decade for decade in decades for factor in ((1,) if len(decades) > 4 else (1, 3))]
        inside = [value for value in values if powers.low <= _power(value) <= powers.high]
        return [Tick(short(self(value)), f"{value:,}") for value in inside]


#: A map from figures to pixels, with round figures within the axis.
Scale = Linear | Log


def _power(value: float) -> float:
    """The power of ten; 0 of what is below 1 or no number."""
    return math.log10(max(1.0, value))


@dataclass(frozen=True)
class Frame:
    """A picture's size and its two axes; pixels of the picture, which is scaled as a whole."""

    width: int
    height: int
    x: Scale
    y: Scale
    x_name: str
    y_name: str
    left: int = LEFT
    right: int = RIGHT
    top: int = TOP
    bottom: int = BOTTOM

    @classmethod
    def linear(
        cls,
        size: tuple[int, int],
        x: tuple[float, float],
        y: tuple[float, float],
        names: tuple[str, str],
        *,
        right: int = RIGHT,
        whole: bool = False,
    ) -> Frame:
        """A frame of a size in pixels with figures from x[0] to x[1] and y[0] to y[1]; `whole`: ticks of x."""
        width, height = size
        across = Linear(*x, LEFT, width - right, whole=whole)
        return cls(width, height, across, Linear(*y, height - BOTTOM, TOP), *names, right=right)

    @property
    def x_end(self) -> int:
        """The right edge of the plot."""
        return self.width - self.right

    @property
    def y_end(self) -> int:
        """The bottom edge of the plot."""
        return self.height - self.bottom


def polyline(points: Iterable[tuple[float, float] | None]) -> str:
    """A path through points; None is a gap."""
    path, pen = [], "M"
    for point in points:
        if point is None:
            pen = "M"
            continue
        path.append(f"{pen}{short(point[0])} {short(point[1])}")
        pen = "L"
    return "".join(path)


class Curve(NamedTuple):
    """A line: its class in the style sheet, its path, its end, and the place of its label."""

    label: str
    style: str
    path: str
    end: tuple[str, str]
    label_y: str


@dataclass(frozen=True)
class Lines:
    """Lines with labels at their ends in a frame, and a table of their figures. `label`: what a screen reader hears."""

    frame: Frame
    curves: list[Curve]
    table: Table
    title: str
    label: str


def lines(
    series: Mapping[tuple[str, str], Sequence[float | None]],
    table: Table,
    names: tuple[str, str],
    title: str,
    label: str,
    *,
    top: float = 1.0,
    first: int = 1,
    rows: int = 1,
) -> Lines:
    """Lines of figures from 0 to `top` at first, first + 1, …; `series`: label and class in the style sheet → figures.

    `rows`: of a label. A series without a figure has no line.
    """
    length = max(map(len, series.values()), default=1)
    frame = Frame.linear(LINES, (first, first + length - 1), (0, top), names, right=LABELS, whole=True)
    drawn = {look: values for look, values in series.items() if any(map(known, values))}
    ends = [max((k, value) for k, value in enumerate(values, first) if known(value)) for values in drawn.values()]
    inset = 8 * (rows - 1)
    places = spread([frame.y(value) for _, value in ends], 15 * rows, TOP + inset, frame.y_end - inset)
    curves = [
        Curve(
            *look,
            polyline((frame.x(k), frame.y(value)) if known(value) else None for k, value in enumerate(values, first)),
            (short(frame.x(end)), short(frame.y(height))),
            short(place),
        )
        for (look, values), (end, height), place in zip(drawn.items(), ends, places, strict=True)
    ]
    return Lines(frame, curves, table, title, label)


def dots(figures: Iterable[tuple[str, float | None]], limit: float | None = None, *, joined: bool = False) -> Dots:
    """Those figures that are known, the last ones on top."""
    x = Linear(0, 1, DOTS_MARGIN, DOTS - DOTS_MARGIN)
    placed = [(style, short(x(value))) for style, value in figures if known(value)]
    return Dots(placed, short(x(limit)) if known(limit) else "", joined)


@dataclass(frozen=True)
class Matrix:
    """Rows of cells below named columns: name of a row, more on it, its class in the style sheet, its cells.

    `head`: of the rows' names. `style`: a further class in the style sheet.
    """

    head: str
    columns: list[str]
    rows: list[tuple[str, str, str, list[Cell]]]
    label: str
    style: str = ""
    where: Where = "both"

    def __bool__(self) -> bool:
        return bool(self.rows)


class Bar(NamedTuple):
    """A row with a bar: `percent` of the largest one; `style`: its class in the style sheet."""

    name: str
    more: str
    figures: list[str]
    percent: str
    style: str


@dataclass(frozen=True)
class Bars:
    """Rows with bars below heads, the first of the rows' names. `scale`: the head of the bars."""

    heads: Sequence[str]
    rows: Sequence[Bar]
    label: str
    scale: str = "beside the largest"
    where: Where = "both"

    def __bool__(self) -> bool:
        return bool(self.rows)


def heat(size: float, most: float) -> str:
    """The strength of a cell's colour: the logarithm of its size by that of the largest."""
    return f"{Linear(0, _power(1 + most), 0, 1)(_power(1 + size)):.2f}" if 0 < most < math.inf else "0.00"


def percent(value: float, most: float) -> str:
    """The length of a bar."""
    return f"{Linear(0, most, 0, 100)(value):.2f}" if 0 < most < math.inf else "0"


def thinned(length: int, most: int = 25) -> list[int]:
    """Indices 0 to length - 1, or about `most` of them with both ends."""
    step = -(-length // most) if length else 1
    return sorted({*range(0, length, step), length - 1}) if length else []


def spread(wanted: list[float], gap: float, low: float, high: float) -> list[float]:
    """Label positions near the wanted ones, in the same order, at least `gap` apart and within bounds if they fit."""
    order = sorted(range(len(wanted)), key=lambda k: wanted[k])
    placed = [0.0] * len(wanted)
    floor = low
    for k in order:
        placed[k] = max(wanted[k], floor)
        floor = placed[k] + gap
    ceiling = high
    for k in reversed(order):
        placed[k] = min(placed[k], ceiling)
        ceiling = placed[k] - gap
    return placed

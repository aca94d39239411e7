"""Linear and logarithmic axes of pictures, with round ticks."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

#: Margins of a plot in pixels of its picture, wide enough for the larger letters of small screens.
LEFT, RIGHT, TOP, BOTTOM = 54, 12, 14, 42


class Tick(NamedTuple):
    """A position on an axis and its label."""

    at: str
    label: str


class Scale(Protocol):
    """A map from figures to pixels."""

    def __call__(self, value: float) -> float: ...

    def ticks(self) -> list[Tick]:
        """Round figures within the axis."""
        ...


def short(value: float) -> str:
    """A coordinate, to a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0")


@dataclass(frozen=True)
class Linear:
    """Figures from `low` to `high` at pixels `start` to `end`; a single figure is in the middle."""

    low: float
    high: float
    start: float
    end: float
    whole: bool = False  # ticks at whole numbers only
    most: int = 6

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


@dataclass(frozen=True)
class Log:
    """Positive figures, powers of ten at equal distances; figures below 1 are placed at 1."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        bottom, top = math.log10(max(1.0, self.low)), math.log10(max(1.0, self.high))
        return Linear(bottom, top, self.start, self.end)(math.log10(max(1.0, value)))

    def ticks(self) -> list[Tick]:
        """Ticks at powers of ten, and at 3 times these if there are few."""
        decades = range(math.floor(math.log10(max(1.0, self.low))), math.ceil(math.log10(max(1.0, self.high))) + 1)
        factors = (1,) if len(decades) > 4 else (1, 3)
        values = [factor * 10**decade for decade in decades for factor in factors]
        inside = [value for value in values if max(1.0, self.low) <= value <= self.high]
        return [Tick(short(self(value)), f"{value:,}") for value in inside]


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

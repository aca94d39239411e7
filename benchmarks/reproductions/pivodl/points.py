"""Means, best and worst over the seeds of what the cells of a sweep measured."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cells import Cell, changed
from resumable import Results

SEEDS = range(5)
Measure = Callable[[Mapping[str, Any]], float]
#: Classes whose messages are ciphertexts.
ENCRYPTED = ("CIPHERTEXT", "CANDIDATE_SUM")
#: Bytes of a number without encryption: a double.
PLAIN_BYTES = 8


@dataclass(frozen=True)
class Point:
    """A value of the swept parameter, and the mean, least and largest measure over so many seeds."""

    x: float
    mean: float
    low: float
    high: float
    seeds: int

    def shown(self, digits: int = 4) -> str:
        """Mean, and in brackets the least and the largest of several seeds."""
        if self.seeds == 1:
            return f"{self.mean:,.{digits}f}"
        return f"{self.mean:,.{digits}f} ({self.low:,.{digits}f} to {self.high:,.{digits}f})"


def common(results: Results, cells: Sequence[Cell]) -> Sequence[int]:
    """The seeds that have a result for every cell, since points over different seeds make no line; without any, all."""
    whole = [seed for seed in SEEDS if all(results.get(replace(cell, seed=seed).key()) for cell in cells)]
    return whole or SEEDS


def point(results: Results, cell: Cell, measure: Measure, x: float = 0.0, seeds: Sequence[int] = SEEDS) -> Point | None:
    """The measure of a cell over those of the seeds that are there; None without any."""
    found = [results.get(replace(cell, seed=seed).key()) for seed in seeds]
    values = [measure(each) for each in found if each is not None]
    if not values:
        return None
    return Point(x, statistics.mean(values), min(values), max(values), len(values))


def line(results: Results, cell: Cell, field: str, values: Sequence[float], measure: Measure) -> list[Point]:
    """The points of a sweep of one field."""
    cells = [changed(cell, field, value) for value in values]
    seeds = common(results, cells)
    found = [point(results, each, measure, value, seeds) for each, value in zip(cells, values, strict=True)]
    return [each for each in found if each is not None]


def test(name: str) -> Measure:
    """A measure of the test rows."""
    return lambda result: float(result["metrics"]["test"][name])


def trained(name: str) -> Measure:
    """A measure of the training rows."""
    return lambda result: float(result["metrics"]["train"][name])


def cpu(result: Mapping[str, Any]) -> float:
    """Processor seconds of all parties together, keys included."""
    return float(result["cpu_seconds"])


def seconds(phase: str) -> Measure:
    """Wall seconds of a phase, or of the job ("wall")."""
    return lambda result: float(result["seconds"][phase])


def encryptions(result: Mapping[str, Any]) -> float:
    """Numbers that were encrypted, which no load of the machine changes."""
    return float(result["operations"]["encryptions"])


def megabytes(result: Mapping[str, Any]) -> float:
    """All bytes that left a process, in MB."""
    return float(sum(result["traffic"].values())) / 1e6


def plain_megabytes(result: Mapping[str, Any]) -> float:
    """The same, computed, if every sum travelled as a double: what a source receives of each other party, and forwards.

    A candidate has two sums, of g and of h. Each source forwards one for those that it receives of all others, fewer
    where candidates are dropped.
    """
    others = sum(size for name, size in result["traffic"].items() if name not in ENCRYPTED)
    received = 2 * result["ciphertexts"]["candidate_shares"]
    forwarded = received / (result["trial"].get("parties", Cell.parties) - 1)
    return float(others + PLAIN_BYTES * (received + forwarded)) / 1e6


def linear(points: Sequence[Point]) -> tuple[float, float, float]:
    """Least squares a + b·x of the means, and R²."""
    x, y = [each.x for each in points], [each.mean for each in points]
    slope, base = statistics.linear_regression(x, y)
    mean = statistics.mean(y)
    rest = sum((value - base - slope * at) ** 2 for at, value in zip(x, y, strict=True))
    total = sum((value - mean) ** 2 for value in y)
    return base, slope, 1 - rest / total if total else 1.0


def growth(points: Sequence[Point], less: float = 0.0) -> float:
    """The exponent b of y = a·(x − less)^b through the means: 1 is linear."""
    x, y = [math.log(each.x - less) for each in points], [math.log(each.mean) for each in points]
    return statistics.linear_regression(x, y).slope

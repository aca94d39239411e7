"""Points of a frontier: means over the seeds of one set, one model and one kind of label holder."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from defended_cells import MODELS, NO_LIMIT, SEEDS, SETS, Cell, cells
from resumable import Results

#: The attacks of a point, CL first, which knows no tree.
ATTACKS = ("cl", "id2graph", "uni", "uni+cl")
#: In each seed the better of CL and ID2Graph: noise may mislead the second below what the columns alone tell.
WORST = "cl or id2graph"


NAMES = {
    "none": "no defence",
    "reduced_leakage": "Reduced-Leakage",
    "id_lmid": "ID-LMID",
    "label_dp": "label DP",
    "label_dp + refit": "label DP + refit",
    "grafting": "Grafting-LDP",
    "grafting + refit": "Grafting-LDP + refit",
}


@dataclass(frozen=True)
class Figure:
    """A mean over seeds, and the standard deviation of a sample, None of one seed."""

    mean: float
    sd: float | None

    def __str__(self) -> str:
        shown = f"{self.mean:.3f}"
        return shown if self.sd is None else f"{shown} ± {self.sd:.3f}"


@dataclass(frozen=True)
class Point:
    """A defence at one setting. `v`: V-measure by attack."""

    defence: str
    value: float | None
    counts: str | None
    auc: Figure
    accuracy: Figure
    v: dict[str, Figure]


@dataclass(frozen=True)
class Frontier:
    """All points of a set and a model, over the seeds of which every training is there."""

    set: str
    model: str
    own: bool
    seeds: tuple[int, ...]
    points: tuple[Point, ...]
    results: dict[Cell, dict[str, Any]]

    def of(self, defence: str, counts: str | None = None) -> list[Point]:
        """The points of a defence by ascending value; of ID-LMID those with such counts."""
        found = [point for point in self.points if point.defence == defence and point.counts == counts]
        return sorted(found, key=lambda point: point.value or 0.0)

    def at(self, defence: str, value: float | None = None, counts: str | None = None) -> Point:
        """One point."""
        return next(point for point in self.of(defence, counts) if point.value == value)

    def ratio(self, defence: str, value: float, count: Callable[[dict[str, Any]], float], counts: str | None) -> float:
        """A count with a defence ÷ without, the mean over the seeds."""
        plain = Cell(self.set, self.model, 0, self.own)
        other = Cell(self.set, self.model, 0, self.own, defence, value, counts)
        found = []
        for seed in self.seeds:
            with_it, without = (count(self.results[_seeded(cell, seed)]) for cell in (other, plain))
            found.append(with_it / without)
        return statistics.fmean(found)


def frontiers(results: Results, *, own: bool, sets: Sequence[str] = SETS) -> list[Frontier]:
    """All frontiers that have a whole seed, model by model."""
    return [found for model in MODELS for name in sets if (found := _frontier(results, name, model, own=own))]


def _frontier(results: Results, name: str, model: str, *, own: bool) -> Frontier | None:
    asked = {seed: list(cells([name], [model], [seed], own=own)) for seed in SEEDS}
    whole = {seed: {cell: results.get(cell.key()) for cell in each} for seed, each in asked.items()}
    held = {seed: each for seed, each in whole.items() if None not in each.values()}
    if not held:
        return None
    found: dict[Cell, dict[str, Any]] = {cell: it for each in held.values() for cell, it in each.items() if it}
    seeds = tuple(held)
    points = [point for cell in asked[seeds[0]] if cell.value != NO_LIMIT for point in _points(cell, seeds, found)]
    return Frontier(name, model, own, seeds, tuple(points), found)


def _points(cell: Cell, seeds: tuple[int, ...], found: dict[Cell, dict[str, Any]]) -> Iterator[Point]:
    each = [found[_seeded(cell, seed)] for seed in seeds]
    v = {attack: _figure([one["v_measure"][attack] for one in each]) for attack in ATTACKS}
    v[WORST] = _figure([max(one["v_measure"]["cl"], one["v_measure"]["id2graph"]) for one in each])
    for name in cell.points:
        auc, accuracy = (_figure([one["test"][name][measure] for one in each]) for measure in ("auc", "accuracy"))
        yield Point(name, cell.value, cell.counts, auc, accuracy, v)


def _seeded(cell: Cell, seed: int) -> Cell:
    return Cell(cell.set, cell.model, seed, cell.own, cell.defence, cell.value, cell.counts)


def _figure(values: list[float]) -> Figure:
    return Figure(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)

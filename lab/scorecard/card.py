"""Scorecards: what a model of trees of depth 1 gives each bin of each column, as points whose sum is the score.

With odds of good to bad records o, a score is base_points + pdo · log2(o / odds): `pdo` points double the odds
(Siddiqi, Credit Risk Scorecards, 2006). The worst bin of a column has 0 points; the rest is in the card's base.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from treetap.arrays import Array, Bools, Floats, Ints
from treetap.errors import BadInput

#: Kinds of cells: an interval of numbers, a category or a place of another party's, missing ones, all other categories.
NUMBERS, VALUE, MISSING, OTHER = "numbers", "value", "missing", "any other"


class Cell(NamedTuple):
    """A part of a column's values that no split divides: numbers in [low, high), or one of another kind.

    `value`: a category, or what another party's cell is called, whose numbers are places in its order.
    """

    kind: str
    low: float = -math.inf
    high: float = math.inf
    value: str = ""


_NONE = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class Column:
    """A column's cells, and its bins: `groups` of cells, by their places, that have the same `points` (bins,).

    `lefts`: (cells, handles), which cells go left at the splits with these `handles`. `records`, `bad`: how many of a
    table each bin has (bins,); empty where they are not known. `weights`: (2, bins) of all records and of the bad ones,
    where records have weights. `told`: (bins,) bad rates that the label holder has told; NaN: none. `shown`: a bound as
    text.
    """

    party: str
    name: str
    cells: tuple[Cell, ...]
    handles: tuple[int, ...]
    lefts: Bools
    groups: tuple[tuple[int, ...], ...] = ()
    points: Floats = field(default_factory=lambda: np.zeros(0))
    records: Ints = field(default_factory=lambda: _NONE)
    bad: Ints = field(default_factory=lambda: _NONE)
    weights: Floats | None = None
    told: Floats | None = None
    shown: Callable[[float], str] = "{:.6g}".format

    def with_points(self, sides: Mapping[int, tuple[float, float]]) -> Column:
        """The bins by points; `sides`: handle → points on the left and on the right, of the splits that are used."""
        used = [place for place, handle in enumerate(self.handles) if handle in sides]
        handles, lefts = tuple(self.handles[place] for place in used), self.lefts[:, used]
        gained = np.array([sides[handle] for handle in handles]).reshape(-1, 2)
        _, firsts, alike = np.unique(lefts, axis=0, return_index=True, return_inverse=True)
        groups = tuple(tuple(np.flatnonzero(alike.reshape(-1) == way).tolist()) for way in np.argsort(firsts))
        points = np.where(lefts, gained[:, 0], gained[:, 1]).sum(axis=1)[np.sort(firsts)]
        return replace(self, handles=handles, lefts=lefts, groups=groups, points=points)

    def places(self, values: Floats) -> Ints:
        """The cell of each value (n,) of this party's own column."""
        kinds = [cell.kind for cell in self.cells]
        if OTHER in kinds:
            placed = np.minimum(np.nan_to_num(values), kinds.index(OTHER))
        else:
            cuts = [cell.high for cell in self.cells[:-2]]  # the last ones are the highest numbers, and missing
            placed = np.searchsorted(cuts, values, side="right")
        return np.where(np.isnan(values), kinds.index(MISSING), placed).astype(np.int64)

    def placed_by_sides(self, lefts: Bools) -> Ints:
        """The cell of each record by the ways (n, handles) that it goes; the first of those that go the same ways.

        Raises:
            BadInput: no cell goes so.
        """
        known = {row.tobytes(): cell for cell, row in reversed([*enumerate(self.lefts)])}
        ways, which = np.unique(lefts, axis=0, return_inverse=True)
        if not all(row.tobytes() in known for row in ways):
            raise BadInput(f"{self.party}, {self.name}: records go other ways than its bins: have it write them again")
        return np.array([known[row.tobytes()] for row in ways], dtype=np.int64)[which.reshape(-1)]

    def bin_of(self, cells: Ints) -> Ints:
        """The bin of each cell (n,)."""
        bins = {cell: place for place, group in enumerate(self.groups) for cell in group}
        return np.array([bins[cell] for cell in range(len(self.cells))], dtype=np.int64)[cells]

    def counted(self, cells: Ints, bad: Bools, weights: Floats | None = None) -> Column:
        """With the records of each bin, by their cells (n,), and the `bad` (n,) of these; none are known if empty.

        `weights`: (n,) of the records, if they have any.
        """
        bins, count = self.bin_of(cells), len(self.groups)
        among = np.bincount(bins[bad], minlength=count) if len(bad) else _NONE
        if weights is not None:
            weights = np.stack([np.bincount(bins, it, minlength=count) for it in (weights, weights * bad)])
        return replace(self, records=np.bincount(bins, minlength=count), bad=among, weights=weights)

    def filled(self) -> Column:
        """The same; `BadInput` if a bin has no record that is not of missing values or unknown categories alone."""
        for group, text, records in zip(self.groups, self.texts(), self.records.tolist(), strict=True):
            if not records and {self.cells[place].kind for place in group} & {NUMBERS, VALUE}:
                raise BadInput(
                    f"{self.party}, {self.name}: no record of the table is in bin {text!r}: name the table of the "
                    "training, or merge small bins by --min-share"
                )
        return self

    @property
    def lost(self) -> Floats:
        """The reasons of scores: the points (bins,) that a record of a bin lacks of the best one's."""
        return np.asarray(self.points.max() - self.points)

    def rates(self) -> list[float | None]:
        """The bad rate of each bin, of weights if records have any; None of a bin without records, and if not told."""
        every, bad = (self.records, self.bad) if self.weights is None else self.weights
        with np.errstate(invalid="ignore"):
            rates = bad / every if len(self.bad) else self.told
        return [] if rates is None else [None if math.isnan(it) else it for it in rates.tolist()]

    def rates_of(self, least: int) -> list[float | None]:
        """The same in thousandths, of bins with at least as many records of each class."""
        fewest = np.minimum(self.bad, self.records - self.bad).tolist()
        return [
            None if rate is None or few < least else round(rate, 3)
            for rate, few in zip(self.rates(), fewest, strict=True)
        ]

    def rows(self) -> list[dict[str, Any]]:
        """What is known of each bin, as JSON types; points are whole. `woe`: ln(good / bad) beside that of all bins."""
        rows: list[dict[str, Any]] = [{"party": self.party, "column": self.name, "bin": it} for it in self.texts()]
        for name, values in (("points", self.points), ("lost", self.lost), ("records", self.records)):
            if len(values) and not np.isnan(values).any():
                rows = [{**row, name: int(value)} for row, value in zip(rows, values, strict=True)]
        every, bad = (self.records, self.bad) if self.weights is None else self.weights
        for place, rate in enumerate(self.rates()):
            row = rows[place]
            if self.weights is not None:
                row["weight"] = float(every[place])
            row["bad_rate"] = rate
            if len(self.bad):
                known, odds = rate is not None and 0 < rate < 1, (every.sum() - bad.sum()) / bad.sum()
                row["woe"] = math.log((every[place] - bad[place]) / bad[place] / odds) if known else None
        return rows

    def ranges(self, group: Sequence[int]) -> list[tuple[float, float]]:
        """The intervals of numbers of some cells, those that touch as one."""
        made: list[tuple[float, float]] = []
        for kind, low, high, value in (self.cells[place] for place in group):
            if kind == NUMBERS and not value:
                made.append((made.pop()[0] if made and made[-1][1] == low else low, high))
        return made

    def texts(self) -> list[str]:
        """The bins for a reader."""
        made = []
        for group in self.groups:
            cells = [self.cells[place] for place in group]
            ends = [(self.shown(low), self.shown(high)) for low, high in self.ranges(group)]
            said = [f"{low} ≤ x < {high}".removeprefix("-inf ≤ ").removesuffix(" < inf") for low, high in ends]
            said += [", ".join(cell.value for cell in cells if cell.value)]
            said += [cell.kind for cell in cells if cell.kind in (OTHER, MISSING)]
            made.append(" or ".join(filter(None, said)))
        return made

    def merged(self, least: float, of_class: int, *, monotonic: bool) -> Column:
        """Fewer bins, of counted records: `least` of them, `of_class` of each class; where one is left, of fewer.

        A small bin joins that neighbour whose points are nearer, or any where there is no order, as of categories.
        `monotonic`: points rise or fall with numbers, by pool adjacent violators in the direction that changes less.
        """
        column = self
        while len(column.groups) > 1:
            records, points, order = column.records, column.points, column.ordered
            small = np.flatnonzero((records < least) | (np.minimum(column.bad, records - column.bad) < of_class))
            if not len(small):
                break
            at = int(small[np.argmin(records[small])])
            beside = [place for place in (at - 1, at + 1) if at < order and 0 <= place < order]
            near = beside or [place for place in range(len(points)) if place != at]
            column = column._joined(at, near[int(np.argmin(np.abs(points[near] - points[at])))])
        return min((column._pooled(1), column._pooled(-1)), key=column._changed) if monotonic else column

    @property
    def ordered(self) -> int:
        """How many of the first bins have numbers, hence an order."""
        return sum(any(self.cells[place].kind == NUMBERS for place in group) for group in self.groups)

    def _joined(self, one: int, other: int) -> Column:
        """Two bins as one, with the mean of their points by records."""
        first, last = sorted((one, other))
        groups, both = list(self.groups), [first, last]
        groups[first] = tuple(sorted((*groups[first], *groups.pop(last))))
        shares = self.records[both] + (not self.records[both].any())
        points = np.delete(self.points, last)
        points[first] = np.average(self.points[both], weights=shares)
        records, bad = _joined(self.records, first, last), _joined(self.bad, first, last)
        weights = self.weights if self.weights is None else _joined(self.weights, first, last)
        return replace(self, groups=tuple(groups), points=points, records=records, bad=bad, weights=weights)

    def _pooled(self, sign: int) -> Column:
        """With points that rise (1) or fall (−1) over the bins that have an order."""
        wrong = np.flatnonzero(sign * np.diff(self.points[: self.ordered]) < 0)
        return self._joined(int(wrong[0]), int(wrong[0]) + 1)._pooled(sign) if len(wrong) else self

    def _changed(self, pooled: Column) -> float:
        """How far other bins are from these in points, squared, over all records."""
        firsts = np.array([group[0] for group in self.groups], dtype=np.int64)
        return float(self.records @ (pooled.points[pooled.bin_of(firsts)] - self.points) ** 2)


def _joined(values: Array, first: int, last: int) -> Any:
    """Values (…, bins) in which the bin `last` was added to `first`."""
    made = np.delete(values, last, axis=-1)
    made[..., first] += values[..., last]
    return made


@dataclass(frozen=True)
class Card:
    """Points of the frame, and columns with their bins; a record's score is the sum."""

    base: float
    columns: tuple[Column, ...]

    def of(self, party: str) -> Card:
        """The base, and the columns of one party."""
        return Card(self.base, tuple(column for column in self.columns if column.party == party))

    def whole(self) -> Card:
        """With whole points, each rounded for itself, and 0 of them in the worst bin of every column."""
        least = [float(column.points.min()) for column in self.columns]
        both = zip(self.columns, least, strict=True)
        columns = tuple(replace(column, points=np.round(column.points - less)) for column, less in both)
        return Card(float(np.round(self.base + sum(least))), columns)

    def scores(self, cells: Sequence[Ints]) -> Floats:
        """The score of each record by its cells (n,) in each column."""
        gained = [column.points[column.bin_of(at)] for column, at in zip(self.columns, cells, strict=True)]
        return np.asarray(self.base + np.sum(gained, axis=0))

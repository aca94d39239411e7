"""Links of noised sums, which the audit gives: the candidates that are the cuts of each column, by the true table.

A column's left sums end in its cells one after another, and so does their noise: the difference of two neighbours is a
cell of the column and one draw of noise, that of two others more. So a path from no record to all of the node's,
through candidates whose differences are nearest to the cells of a column, is the column's cuts in their order.

1. From each likely first candidate go on to the nearest next one, by the cells of each column.
2. Column by column, the cheapest first, keep several paths at a time through candidates that are not taken.
3. Give the paths to the columns anew, so that all together are nearest: the same noise is in whatever a path is given
   to, so that only cells count.

That noise fits a path to wrong cells by chance is possible where cells are far below the noise; then little is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from treetap.attacks.sums.least_squares import Singles
from treetap.attacks.sums.sketches import Bools, Floats, Ints

#: First candidates that are tried of each column beyond as many as there are columns, and of these in step 2.
MORE, TRIED = 6, 3
#: Paths that are kept at a time in step 2.
PATHS = 8
#: Mean square, in units of the noise, above which a path is of no column.
FARTHEST = 2.0


class Path(NamedTuple):
    """Candidates from the smallest left set, and the mean square of their differences less the cells."""

    places: Ints
    square: float


def cuts_of_columns(lefts: Floats, cells: Sequence[Floats], total: Floats) -> list[Ints | None]:
    """Of each column the places of its cuts in their order; None where the tree does not offer it.

    Args:
        lefts: (candidates, E) noised left sums, in units of a cell's noise.
        cells: of each column (cells, E) the true ones.
        total: (E,) exact.
    """
    search = _Search.of(lefts, cells, total)
    costs = search.first_costs()
    paths: list[Path | None] = [None] * len(cells)
    taken = np.zeros(len(lefts), dtype=bool)
    for column in np.argsort(costs.min(axis=1) / search.widths):
        starts = [int(start) for start in np.argsort(costs[column]) if not taken[start]][:TRIED]
        if len(starts) and int((~taken).sum()) >= len(cells[column]) - 1:
            path = min((search.path(int(column), start, taken) for start in starts), key=lambda it: it.square)
            paths[column] = path
            taken[path.places] = True
    return [None if it is None or it.square > FARTHEST else it.places for it in search.given(paths)]


@dataclass(frozen=True, eq=False)
class _Search:
    """Distances of one tree. Behind its n candidates are no record (n) and all of them (n + 1).

    Attributes:
        points: (n + 2, E).
        squares: (n + 2, n + 2) their squared distances.
        cells: (columns, W, E); zeros behind the `widths` of each column.
        along: (columns, W, n + 2) products of cells and points.
        lengths: (columns, W) squares of cells.
    """

    points: Singles = field(repr=False)
    squares: Singles = field(repr=False)
    cells: Singles = field(repr=False)
    widths: Ints
    along: Singles = field(repr=False)
    lengths: Singles = field(repr=False)

    @classmethod
    def of(cls, lefts: Floats, cells: Sequence[Floats], total: Floats) -> _Search:
        points = np.vstack([lefts, np.zeros((1, len(total))), total[None]]).astype(np.float32)
        norms = (points**2).sum(axis=1)
        widths = np.array([len(of) for of in cells], dtype=np.int64)
        padded = np.zeros((len(cells), int(widths.max()), len(total)), dtype=np.float32)
        for column, of in enumerate(cells):
            padded[column, : len(of)] = of
        along = (padded.reshape(-1, len(total)) @ points.T).reshape(*padded.shape[:2], -1)
        squares = np.maximum(norms[:, None] + norms - 2 * points @ points.T, 0)
        return cls(points, squares, padded, widths, along, (padded**2).sum(axis=2))

    @property
    def count(self) -> int:
        """n."""
        return len(self.points) - 2

    def begun(self) -> Singles:
        """(columns, n) the squared distance of each candidate, as a column's first cut, from its first cell."""
        n, along = self.count, self.along[:, 0]
        squares: Singles = self.squares[n, :n] - 2 * (along[:, :n] - along[:, [n]]) + self.lengths[:, [0]]
        return squares

    def first_costs(self) -> Floats:
        """(columns, n) the whole square of a path from each first candidate by nearest next ones; ∞ where none is."""
        n, every = self.count, np.arange(len(self.widths))[:, None]
        begun = self.begun()
        starts = np.argsort(begun, axis=1)[:, : len(every) + MORE]
        cost, ends = np.take_along_axis(begun, starts, axis=1), starts.copy()
        used = np.zeros((*starts.shape, n), dtype=bool)
        np.put_along_axis(used, ends[..., None], values=True, axis=2)
        for cell in range(1, int(self.widths.max()) - 1):
            far = self.squares[ends][..., :n] - 2 * self.along[:, cell, None, :n]
            far[used] = np.inf
            following = far.argmin(axis=2)
            step = np.take_along_axis(far, following[..., None], axis=2)[..., 0] + self.lengths[:, [cell]]
            goes_on = (self.widths - 1 > cell)[:, None]
            cost = np.where(goes_on, cost + step + 2 * self.along[every, cell, ends], cost)
            ends = np.where(goes_on, following, ends)
            np.put_along_axis(used, ends[..., None], values=True, axis=2)
        last = (self.widths - 1)[:, None]
        cost = cost + self.squares[ends, n + 1] + self.lengths[every, last]
        cost -= 2 * (self.along[every, last, n + 1] - self.along[every, last, ends])
        whole = np.full(begun.shape, np.inf)
        np.put_along_axis(whole, starts, cost, axis=1)
        return whole

    def path(self, column: int, start: int, taken: Bools) -> Path:
        """The best path of a column from a first candidate through those that are not `taken`."""
        n, width, along = self.count, int(self.widths[column]), self.along[column]
        ends, cost, used = np.array([start]), self.begun()[column, [start]], taken[None].copy()
        used[0, start] = True
        steps: list[tuple[Ints, Ints]] = []
        for cell in range(1, width - 1):
            far = cost[:, None] + self.squares[ends, :n] - 2 * (along[cell, :n] - along[cell, ends][:, None])
            far[used] = np.inf
            before = far.argmin(axis=0)
            nearest = far[before, np.arange(n)]
            ends = np.argsort(nearest)[:PATHS]
            ends = ends[np.isfinite(nearest[ends])]
            steps.append((before[ends], ends))
            cost, used = nearest[ends] + self.lengths[column, cell], used[before[ends]]
            used[np.arange(len(ends)), ends] = True
        last = width - 1
        cost = cost + self.squares[ends, n + 1] + self.lengths[column, last]
        cost -= 2 * (along[last, n + 1] - along[last, ends])
        at, places = int(cost.argmin()), []
        for before, reached in reversed(steps):
            places.append(int(reached[at]))
            at = int(before[at])
        return Path(np.array([start, *reversed(places)]), float(cost.min()) / self.points.shape[1] / width)

    def given(self, paths: Sequence[Path | None]) -> list[Path | None]:
        """The paths by column, given anew to those columns with as many cuts that are nearest in all."""
        linked = [path for path in paths if path is not None]
        far = np.full((len(linked), len(self.widths)), np.float64(FARTHEST) * 1e3)
        for number, path in enumerate(linked):
            between = np.diff(self.points[[self.count, *path.places, self.count + 1]], axis=0)
            for column in np.flatnonzero(self.widths == len(between)):
                far[number, column] = ((between - self.cells[column, : len(between)]) ** 2).mean()
        by_column: list[Path | None] = [None] * len(self.widths)
        for number, column in zip(*linear_sum_assignment(far), strict=True):
            by_column[column] = Path(linked[number].places, float(far[number, column]))
        return by_column

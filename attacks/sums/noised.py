"""Cells that noised sums tell (`column_privacy`): Gibbs sampling over the bins of each record, links given.

The label holder knows each record's numbers x, the deviation z · B(s) of the noise on a cell, and the exact total of
each node; docs/column-privacy.md has the mechanism. In units of the noise, R(u) = opened − Σ x over the records that
are in cell u leaves of a column, in all equations (nodes times slots),

    log p(opened | cells) = −½ Σ_u |R(u)|² + constant,

since noise that was centred over a column's cells weighs the centred rest as independent noise would. So record i lies
in cell u with log-odds x_i · R₋ᵢ(u), beside how frequent the cell is and what left sets exclude. A sweep draws every
record's cells of all columns anew. A cell's posterior is the mean of these chances over the later half of the sweeps
(Rao-Blackwell). The first sweeps are tempered, which spreads what one of them would take as settled.

Records are drawn in groups at a time, whose records do not see one another's moves: groups are so small that a record
gains less by all of these than by a unit of log-odds (on credit default larger ones cost two points of cells).
Time: a sweep takes 2 · (numbers of all records in all equations) · (cells) products, some 3 s for 10^10. Memory: 16
bytes for each such number, 20 for each record and cell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import numpy as np

from treetap.arrays import Bools, Floats, Ints, Singles
from treetap.attacks.scores import assigned
from treetap.attacks.sums.propagation import Linked
from treetap.attacks.sums.schema import SumsSettings
from treetap.attacks.sums.sketches import PartySums
from treetap.trees.noised_sums import SumNoise

#: First candidates that are tried of each column beyond as many as there are columns, and of these in step 2.
MORE, TRIED = 6, 3
#: Paths that are kept at a time in step 2.
PATHS = 8
#: Mean square, in units of the noise, above which a path is of no column.
FARTHEST = 2.0


#: Candidates from the smallest left set, and the mean square of their differences less the cells.
Path = tuple[Ints, float]


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
            paths[column] = path = min((search.path(int(column), start, taken) for start in starts), key=itemgetter(1))
            taken[path[0]] = True
    return [None if it is None or it[1] > FARTHEST else it[0] for it in search.given(paths)]


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
        return np.asarray(self.squares[n, :n] - 2 * (along[:, :n] - along[:, [n]]) + self.lengths[:, [0]])

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
        return np.array([start, *reversed(places)]), float(cost.min()) / self.points.shape[1] / width

    def given(self, paths: Sequence[Path | None]) -> list[Path | None]:
        """The paths by column, given anew to those columns with as many cuts that are nearest in all."""
        linked = [path[0] for path in paths if path is not None]
        far = np.full((len(linked), len(self.widths)), np.float64(FARTHEST) * 1e3)
        for number, places in enumerate(linked):
            between = np.diff(self.points[[self.count, *places, self.count + 1]], axis=0)
            for column in np.flatnonzero(self.widths == len(between)):
                far[number, column] = ((between - self.cells[column, : len(between)]) ** 2).mean()
        by_column: list[Path | None] = [None] * len(self.widths)
        for number, column in enumerate(assigned(far)):
            by_column[column] = linked[number], float(far[number, column])
        return by_column


#: Sweeps, at most, and at least.
SWEEPS, FEWEST = 40, 8
#: Groups of records in a sweep, at least, and most log-odds that the moves of a group may have on one of its records.
GROUPS, MOVED = 200, 1.0
#: Temperature of the first sweep; it falls to 1 within the first part of them.
HOTTEST, COOLING = 6.0, 0.4
#: Records that a cell is taken to hold at least: its noised count may be negative.
LEAST = 0.5


def sweeps_within(settings: SumsSettings, cells: int, trees: list[PartySums]) -> tuple[list[PartySums], int]:
    """The first trees, and the sweeps through them, that are within the settings; the first one with `FEWEST` always.

    `cells`: of all columns.
    """
    numbers = np.cumsum([tree.values.shape[1] * sum(map(len, tree.drawn)) for tree in trees])
    for count in range(len(trees), 0, -1):
        size, held = len(trees[0].values) * cells * count, int(numbers[count - 1])
        sweeps = min(SWEEPS, settings.work // size, settings.products // (2 * held * cells))
        if count == 1 or (sweeps >= FEWEST and held <= settings.most_cells):
            return trees[:count], max(sweeps, FEWEST)
    return [], 0


@dataclass(frozen=True, eq=False)
class NoisedCells:
    """The equations of one party's noised sums, in units of the noise.

    Attributes:
        values: (N, E) of each record in each equation, one for a slot of a node.
        sums: (E, cells) over the cells of all chains; 0 where a tree does not offer a chain.
        offered: (E, cells) True where it does.
        first: (chains + 1,) the number of each chain's first cell.
        counts: (cells,) records by the roots, as far as their noise tells.
    """

    values: Any = field(repr=False)
    sums: Singles = field(repr=False)
    offered: Bools = field(repr=False)
    first: Ints
    counts: Floats

    @classmethod
    def of(cls, linked: Linked, noises: Sequence[SumNoise]) -> NoisedCells:
        """Those of linked trees; `noises`: of each tree."""
        from scipy.sparse import csr_array, hstack

        first = np.cumsum([0, *(len(chain) + 1 for chain in linked.chains)], dtype=np.int64)
        values, sums, offered = [], list[Floats](), list[Bools]()
        counts, noised, roots = (np.zeros(int(first[-1])) for _ in range(3))
        for number, (tree, noise) in enumerate(zip(linked.trees, noises, strict=True)):
            unit = np.sqrt(float(noise.variance)) * np.array(noise.bounds, dtype=np.float64)
            slots = len(unit)  # a further one is the sum of these
            there = np.zeros(int(first[-1]), dtype=bool)
            cells = np.zeros((len(tree.nodes), int(first[-1]), tree.values.shape[1]))
            for chain, candidates in enumerate(linked.chains):
                _, places = linked.borders(number, chain)
                if len(places) == len(candidates):
                    own = slice(int(first[chain]), int(first[chain + 1]))
                    there[own] = True
                    ends = np.concatenate([tree.lefts[:, places], tree.totals[:, None]], axis=1)
                    cells[:, own] = np.diff(ends, axis=1, prepend=0)
            counts += cells[0][:, tree.counting].sum(axis=1)
            noised += there * np.append(unit**2, unit @ unit)[: len(tree.counting)][tree.counting].sum()
            roots += there
            rows = np.concatenate(tree.drawn)
            nodes = np.repeat(np.arange(len(tree.nodes)), [len(drawn) for drawn in tree.drawn])
            entries = (tree.values[rows][:, :slots] / unit).astype(np.float32)
            at = np.repeat(rows, slots), (nodes[:, None] * slots + np.arange(slots)).ravel()
            shape = (linked.records, len(tree.nodes) * slots)
            values.append(csr_array((entries.ravel(), at), shape=shape))
            sums.append((cells[..., :slots] / unit).transpose(0, 2, 1).reshape(shape[1], -1))
            offered.append(np.broadcast_to(there, sums[-1].shape))
        return cls(
            hstack(values, format="csr"),
            np.concatenate(sums).astype(np.float32),
            np.concatenate(offered),
            first,
            _likely(counts / np.maximum(roots, 1), noised / np.maximum(roots, 1) ** 2, first, linked.records),
        )


def _likely(counts: Floats, noised: Floats, first: Ints, records: int) -> Floats:
    """Records in each cell (cells,), their noised counts drawn to even shares by as much as these may be noise.

    `noised`: their variances. Counts that differ by no more than their noise tell nothing of a crowd, and by more than
    records there are, no more.
    """
    cells = np.diff(first)
    even = np.repeat(records / cells, cells)
    spread = np.add.reduceat((counts - even) ** 2 - noised, first[:-1]) / cells
    real = np.repeat(np.clip(spread, 0, records**2 / 4), cells)
    return np.maximum(even + (counts - even) * real / np.maximum(real + noised, 1e-30), LEAST)


def posteriors(cells: NoisedCells, allowed: Bools, sweeps: int, say: Callable[[str], None]) -> Singles:
    """The chance (N, cells) of every cell of a chain for each record; `allowed`: those that left sets do not exclude.

    The draws follow from a seed: the same sums give the same chances.
    """
    rng = np.random.default_rng(0)
    prior = np.where(allowed, np.log(cells.counts), -np.inf).astype(np.float32)
    state = _chances(prior, cells.first)
    rest = cells.sums - _masked(cells.values.T @ state, cells.offered)
    order = rng.permutation(len(prior))
    groups = np.array_split(order, _groups(cells, len(order)))
    values = [cells.values[rows].tocsr() for rows in groups]
    own = [of.multiply(of) @ cells.offered.astype(np.float32) for of in values]
    kept, mean = 0, np.zeros_like(prior)
    for sweep in range(sweeps):
        heat = max(1.0, HOTTEST * (1 - sweep / (COOLING * sweeps)))
        late = sweep >= sweeps // 2
        for number in rng.permutation(len(groups)):
            rows, of = groups[number], values[number]
            odds = of @ rest + own[number] * state[rows]
            chances = _chances(odds / heat + prior[rows], cells.first)
            drawn = _drawn(chances, cells.first, rng)
            rest += _masked(of.T @ (state[rows] - drawn), cells.offered)
            state[rows] = drawn
            if late:
                mean[rows] += chances
        kept += late
        say(f"noised sums: sweep {sweep + 1} of {sweeps}")
    mean /= kept
    return mean


def _groups(cells: NoisedCells, records: int) -> int:
    """Groups of records in which each gains less than `MOVED` by the moves of the others that share a cell with it."""
    own = float(cells.values.multiply(cells.values).sum()) / max(1, records)
    share = cells.counts / np.repeat(np.add.reduceat(cells.counts, cells.first[:-1]), np.diff(cells.first))
    together = own * float((share * (1 - share)).max())
    return int(min(records, max(GROUPS, records * together / MOVED)))


def _masked(sums: Singles, offered: Bools) -> Singles:
    if not offered.all():
        sums[~offered] = 0
    return sums


def _chances(odds: Singles, first: Ints) -> Singles:
    """Chances that sum to 1 in each chain, of log-odds (n, cells)."""
    sizes = np.diff(first)
    odds = odds - np.repeat(np.maximum.reduceat(odds, first[:-1], axis=1), sizes, axis=1)
    chances: Singles = np.exp(odds, dtype=np.float32)
    chances /= np.repeat(np.add.reduceat(chances, first[:-1], axis=1), sizes, axis=1)
    return chances


def _drawn(chances: Singles, first: Ints, rng: np.random.Generator) -> Singles:
    """A 1 (n, cells) in one cell of each chain, drawn by its chance."""
    # of exponential waiting times with these rates the shortest one is each cell's with its chance
    times = rng.standard_exponential(chances.shape, dtype=np.float32) / np.maximum(chances, 1e-30)
    least = np.repeat(np.minimum.reduceat(times, first[:-1], axis=1), np.diff(first), axis=1)
    return np.asarray((times == least).astype(np.float32))

"""Cells that follow from all equations together, and those that left sets alone place.

Least squares over the possible cells of every record.

In each chain a record is in one cell: its indicators are at least 0 and sum to 1. Among such numbers those that fit the
equations of all trees best are found by accelerated projected gradients (Beck and Teboulle, "A fast iterative
shrinkage-thresholding algorithm for linear inverse problems", SIAM J. Imaging Sciences 2009, with restarts). Rounded
values lower nothing here: an equation with coarse coefficients is an equation. What it gives is an estimate.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from treetap.arrays import Bools, Floats, Ints, Singles
from treetap.attacks.sums.propagation import Knowledge, Linked, node_groups
from treetap.attacks.sums.schema import CellsRead, ColumnCuts
from treetap.attacks.sums.scoring import TrueColumns
from treetap.attacks.sums.sketches import PartySums
from treetap.attacks.view.opened_sums import LeftSet

#: A cell is claimed if its share is larger.
SURE = 0.9
#: Steps after which it ends if they changed no more than this share of the claims.
LOOK, SETTLED = 40, 1e-3
_POWER_STEPS = 40


class _Equations(NamedTuple):
    """A X = B where `used` (equations, chains) says so; cells of chains as in `Knowledge`.

    `groups`: (equations, cells) numbers of groups of cells of which the equation is one on their sum; None: all are
    single cells.
    """

    matrix: Any
    sums: Singles
    used: Bools
    groups: Ints | None

    def rests(self, shares: Singles) -> Singles:
        """A X − B, of cells of a group their mean; 0 where there is no equation."""
        rests: Singles = self.matrix @ shares - self.sums
        if self.groups is not None:
            totals = np.bincount(self.groups.ravel(), weights=rests.ravel())
            means = totals / np.maximum(np.bincount(self.groups.ravel()), 1)
            rests = means[self.groups].astype(np.float32)
        if not self.used.all():
            rests[~self.used] = 0
        return rests


def shares(linked: Linked, knowledge: Knowledge, seconds: float, most: int, say: Callable[[str], None]) -> Singles:
    """Of each record the share (N, cells) of every cell of a chain; those known are 1 or 0.

    `seconds`: of processor time, after which the last estimate counts; `most`: of steps, from 1.
    """
    begun, possible = time.process_time(), knowledge.possible
    open_records = np.flatnonzero((knowledge.known < 0).any(axis=1))
    result = even(possible, knowledge.first)
    if not len(open_records):
        return result
    equations = _equations(linked, knowledge.first)
    fixed = np.ones(len(possible), dtype=bool)
    fixed[open_records] = False
    sums = equations.sums - equations.matrix @ np.where(fixed[:, None], result, 0)
    matrix = equations.matrix[:, open_records].tocsr()
    used = np.repeat(equations.used, np.diff(knowledge.first), axis=1)
    rest = equations._replace(matrix=matrix, sums=sums, used=used)
    project = partial(_projected, possible=possible[open_records], first=knowledge.first)
    result[open_records] = _solve(rest, result[open_records], project, (most, begun + seconds), say)
    return result


def _projected(shares: Singles, possible: Bools, first: Ints) -> Singles:
    """The nearest shares of possible cells, at least 0, that sum to 1 in each chain (Duchi et al. 2008)."""
    for start, end in pairwise(first):
        part = np.where(possible[:, start:end], shares[:, start:end], np.float32(-1e6))
        ordered = -np.sort(-part, axis=1)
        above = np.cumsum(ordered, axis=1) - 1
        places = np.arange(1, end - start + 1, dtype=np.float32)
        last = (ordered * places > above).sum(axis=1) - 1
        level = above[np.arange(len(part)), last] / (last + 1)
        shares[:, start:end] = np.maximum(part - level[:, None].astype(np.float32), 0)
    return shares


def _solve(
    equations: _Equations,
    start: Singles,
    project: Callable[[Singles], Singles],
    until: tuple[int, float],
    say: Callable[[str], None],
) -> Singles:
    """The shares that fit best.

    `project`: to the nearest shares that there can be. `until`: the most steps, and the processor time after which the
    last ones count.
    """
    most, end = until
    transposed = equations.matrix.T.tocsr()
    step = np.float32(1 / max(_norm(equations.matrix, transposed), 1e-30))
    now, ahead, pace = start, start.copy(), 1.0
    claims = now > SURE
    for number in range(1, most + 1):
        following = project(ahead - step * (transposed @ equations.rests(ahead)))
        if float(np.vdot(ahead - following, following - now)) > 0:
            pace = 1.0  # it overshot: begin to gather speed anew
        faster = (1 + np.sqrt(1 + 4 * pace * pace)) / 2
        ahead = following + np.float32((pace - 1) / faster) * (following - now)
        now, pace = following, faster
        if number % LOOK == 0:
            before, claims = claims, now > SURE
            say(f"least squares: step {number}, {claims.sum() / max(len(now), 1):.2f} cells claimed of a record")
            if (before != claims).sum() <= SETTLED * max(int(claims.sum()), 1) and number > LOOK:
                break
        if time.process_time() > end:
            break
    return now


def _equations(linked: Linked, first: Ints) -> _Equations:
    """All equations of a job; of a chain those of trees that offer all its candidates."""
    from scipy.sparse import csr_array, vstack

    matrices, sums, used = [], [], []
    size = sum(len(tree.equations.nodes) for tree in linked.trees), int(first[-1])
    groups = np.arange(np.prod(size)).reshape(size) if any(tree.least for tree in linked.trees) else None
    before = 0
    for number, tree in enumerate(linked.trees):
        layers, lefts, _ = tree.equations
        here = [np.flatnonzero(row >= 0) for row, _ in layers]
        entries = np.concatenate([value[some] for (_, value), some in zip(layers, here, strict=True)])
        rows = np.concatenate([row[some] for (row, _), some in zip(layers, here, strict=True)])
        matrix = csr_array((entries, (rows, np.concatenate(here))), shape=(len(lefts), linked.records))
        whole = matrix @ np.ones(linked.records)
        of_tree = np.zeros((len(whole), int(first[-1])), dtype=np.float32)
        there = np.zeros(len(linked.chains), dtype=bool)
        for chain, candidates in enumerate(linked.chains):
            _, places = linked.borders(number, chain)
            there[chain] = len(places) == len(candidates)
            if there[chain]:
                ends = np.concatenate([lefts[:, places], whole[:, None]], axis=1)
                of_tree[:, first[chain] : first[chain + 1]] = np.diff(ends, axis=1, prepend=0)
            if there[chain] and groups is not None and tree.least:
                _merge(groups[before : before + len(lefts), first[chain] : first[chain + 1]], tree, places)
        before += len(lefts)
        matrices.append(matrix.astype(np.float32))
        sums.append(of_tree)
        used.append(np.broadcast_to(there, (len(whole), len(there))))
    return _Equations(vstack(matrices).tocsr(), np.concatenate(sums), np.concatenate(used), groups)


def _merge(groups: Ints, tree: PartySums, places: Ints) -> None:
    """Give the cells (equations, cells) of a chain that a node has merged the number of the first of them."""
    ends = np.concatenate([tree.counts[:, places], tree.totals[:, None, tree.counting].sum(axis=2)], axis=1)
    counts = np.diff(ends, axis=1, prepend=0)
    numbers = np.arange(groups.shape[1])
    for equation, node in enumerate(tree.equations.nodes):
        starts = node_groups(counts[node])
        groups[equation] = groups[equation][starts[np.searchsorted(starts, numbers, side="right") - 1]]


def even(possible: Bools, first: Ints) -> Singles:
    """Equal shares of the possible cells of each chain."""
    counts = np.add.reduceat(possible, first[:-1], axis=1, dtype=np.float32)
    return np.asarray(possible / np.repeat(counts, np.diff(first), axis=1))


def _norm(matrix: Any, transposed: Any) -> float:
    """The largest eigenvalue of AᵀA, a little more than power iteration finds."""
    vector: Floats = np.random.default_rng(0).normal(size=matrix.shape[1])
    length = 0.0
    for _ in range(_POWER_STEPS):
        vector = transposed @ (matrix @ vector)
        length = float(np.linalg.norm(vector))
        if not length:
            return 0.0
        vector /= length
    return 1.05 * length


# Cuts that a label holder learns by left sets alone, and the cells that these place; no sum is used.
#
# The owner of a winning split says which records of the node go left. With the link of each left set to its column
# given by the audit, every record of the answer lies on one side of one cut. No noise on sums lowers these figures.


@dataclass(frozen=True, eq=False)
class LearnedCuts:
    """Findings of left sets alone on one party's columns.

    Attributes:
        by_column: figures of each column.
        cells: those placed in one bin.
        possible: of each column (N, bins) the bins in which its cells can be, missing values in the last one.
        tied: left sets that more than one column has, so that which of them was cut stays open.
        foreign: left sets that no column has; those of partitions of categories are among these.
        unknown: left sets of nodes whose records the transcript does not tell.
    """

    by_column: list[ColumnCuts]
    cells: CellsRead
    possible: list[Bools] = field(repr=False)
    tied: int
    foreign: int
    unknown: int


def learned_cuts(answers: Sequence[LeftSet], columns: TrueColumns, *, mirrored: bool = False) -> LearnedCuts:
    """Place records by the left sets of one party. `mirrored`: a constraint may let its owner send the right side left.

    A left set is linked where exactly one column has sets that divide the answer's records so.
    """
    codes, cuts = np.ones((len(columns.codes), int(columns.first[-1])), dtype=bool), defaultdict[int, set[int]](set)
    flat = columns.codes + columns.first[:-1]
    tied = foreign = unknown = 0
    for answer in answers:
        if answer.space is None:
            unknown += 1
            continue
        right = np.setdiff1d(answer.space, answer.left, assume_unique=True)
        offered = list(_sides(columns, flat, answer.left, right, mirrored=mirrored))
        if len(offered) == 1:
            # its owner takes the lowest of tied sets
            column, sets, inside, outside = offered[0]
            own, lowest = slice(int(columns.first[column]), int(columns.first[column + 1])), int(sets.min())
            codes[inside, own] &= columns.lefts[lowest, own]
            codes[outside, own] &= ~columns.lefts[lowest, own]
            cuts[column].add(lowest)
        else:
            tied, foreign = tied + (len(offered) > 1), foreign + (not offered)
    return LearnedCuts(*_figures(columns, codes, cuts), tied, foreign, unknown)


def _sides(
    columns: TrueColumns, flat: Ints, left: Ints, right: Ints, *, mirrored: bool
) -> Iterable[tuple[int, Ints, Ints, Ints]]:
    """Column, its sets that divide the records so, and the records inside and outside of these."""
    for inside, outside in [(left, right), (right, left)][: 2 if mirrored else 1]:
        here, there = (_occurring(flat[rows], int(columns.first[-1])) for rows in (inside, outside))
        apart = ~np.logical_or.reduceat(here & there, columns.first[:-1])
        for column in np.flatnonzero(apart):
            own = slice(int(columns.first[column]), int(columns.first[column + 1]))
            of_column = np.flatnonzero(columns.feature == column)
            lefts = columns.lefts[of_column, own]
            sets = of_column[~(here[own] & ~lefts).any(axis=1) & ~(there[own] & lefts).any(axis=1)]
            if len(sets):
                yield int(column), sets, inside, outside


def _occurring(codes: Ints, count: int) -> Bools:
    """Of each of `count` codes whether it occurs."""
    occurs = np.zeros(count, dtype=bool)
    occurs[codes.ravel()] = True
    return occurs


def _figures(
    columns: TrueColumns, possible: Bools, learned: Mapping[int, set[int]]
) -> tuple[list[ColumnCuts], CellsRead, list[Bools]]:
    """The figures of each column, the cells that are placed in one bin, and the bins that are left of each column.

    `possible` (N, codes of all columns): where records may be. `learned`: column → numbers of its learned sets.
    """
    by_column, left, records = [], list[Bools](), len(columns.codes)
    claims = wrong = right = 0
    for column, name in enumerate(columns.names):
        own = slice(int(columns.first[column]), int(columns.first[column + 1]))
        codes = columns.codes[:, column]
        open_codes = possible[:, own] & _occurring(codes, own.stop - own.start)
        cuts = sorted(learned.get(column, ()))
        # codes between the same two neighbouring cuts are on the same side of every cut
        _, cell = np.unique(columns.lefts[cuts, own], axis=1, return_inverse=True) if cuts else (None, np.zeros(0, int))
        between = np.zeros(records, dtype=bool)
        if cuts:
            cell = cell.reshape(-1)
            in_cells = np.stack([open_codes[:, cell == one].any(axis=1) for one in range(int(cell.max()) + 1)], axis=1)
            between = in_cells.sum(axis=1) == 1
        single = open_codes.sum(axis=1) == 1
        left.append(open_codes)
        true = open_codes[np.arange(records), codes]
        claims += int(single.sum())
        wrong += int((single & ~true).sum())
        right += int((single & true).sum())
        by_column.append(
            ColumnCuts(
                column=name,
                cuts=len(cuts),
                between=float(between.mean()) if records else 0.0,
                placed=float((single & true).mean()) if records else 0.0,
            )
        )
    cells = records * len(columns.names)
    return by_column, CellsRead(placed=right / cells if cells else 0.0, claims=claims, wrong=wrong), left

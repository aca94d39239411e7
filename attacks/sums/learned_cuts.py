"""Cuts that a label holder learns by left sets alone, and the cells that these place; no sum is used.

The owner of a winning split says which records go left: of the node, or of all N records where instance spaces are
withheld. With the link of each left set to its column given by the audit, every record of the answer lies on one side
of one cut. No noise on sums lowers these figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from treetap.arrays import Bools, Ints
from treetap.attacks.sums.schema import CellsRead, ColumnCuts
from treetap.attacks.sums.scoring import TrueColumns
from treetap.attacks.view.opened_sums import LeftSet


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


@dataclass
class _Possible:
    """The codes in which records may be, and the cuts by which they were told apart.

    `codes` (N, codes of all columns). `cuts`: column → numbers of its learned sets.
    """

    columns: TrueColumns
    codes: Bools
    cuts: dict[int, set[int]] = field(default_factory=dict)

    def use(self, column: int, sets: Ints, left: Ints, right: Ints) -> None:
        """Use that a split by the lowest of tied `sets`, as its owner takes it, sends `left` and `right` so."""
        own = slice(int(self.columns.first[column]), int(self.columns.first[column + 1]))
        lowest = int(sets.min())
        self.codes[left, own] &= self.columns.lefts[lowest, own]
        self.codes[right, own] &= ~self.columns.lefts[lowest, own]
        self.cuts.setdefault(column, set()).add(lowest)


def learned_cuts(answers: Sequence[LeftSet], columns: TrueColumns, *, mirrored: bool = False) -> LearnedCuts:
    """Place records by the left sets of one party. `mirrored`: a constraint may let its owner send the right side left.

    A left set is linked where exactly one column has sets that divide the answer's records so.
    """
    possible = _Possible(columns, np.ones((len(columns.codes), int(columns.first[-1])), dtype=bool))
    flat = columns.codes + columns.first[:-1]
    tied = foreign = unknown = 0
    for answer in answers:
        if answer.space is None:
            unknown += 1
            continue
        right = np.setdiff1d(answer.space, answer.left, assume_unique=True)
        offered = list(_sides(columns, flat, answer.left, right, mirrored=mirrored))
        if len(offered) == 1:
            possible.use(*offered[0])
        else:
            tied, foreign = tied + (len(offered) > 1), foreign + (not offered)
    return LearnedCuts(*_figures(possible), tied, foreign, unknown)


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


def _figures(possible: _Possible) -> tuple[list[ColumnCuts], CellsRead, list[Bools]]:
    """The figures of each column, the cells that are placed in one bin, and the bins that are left of each column."""
    columns, by_column, left = possible.columns, [], list[Bools]()
    records = len(columns.codes)
    claims = wrong = right = 0
    for column, name in enumerate(columns.names):
        own = slice(int(columns.first[column]), int(columns.first[column + 1]))
        codes, occurs = columns.codes[:, column], np.zeros(own.stop - own.start, dtype=bool)
        occurs[codes] = True
        open_codes = possible.codes[:, own] & occurs
        cuts = sorted(possible.cuts.get(column, ()))
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

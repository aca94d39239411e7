"""The bins that each record can still have in each column of one source, as an attacker knows them.

They begin with the bins of the records that the attacker labels, which are exact, and all bins for the others, and only
ever become fewer. A cell is placed where one bin is left. What is learned of columns comes as cuts: a cut sends some
bins left, the others right.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from treetap.attacks.view.known_trees import Ints
from treetap.attacks.view.pivodl_messages import ReceivedBins
from treetap.trees.candidates import CandidateList, column_goes_left

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
#: No bin is known.
UNPLACED = -1


class BinDomains:
    """The possible bins of N records in the d columns of a source.

    Args:
        records: N.
        own: (m,) the records that the attacker labels.
        received: their bins.

    Attributes:
        possible: of each column (N, bins), the last bin that of missing values where it has some.
        sides: of each column (candidates, bins), True where a candidate sends the bin left.
        contradictions: cells of which a claim would have left no bin; the claim was dropped.
    """

    def __init__(self, records: int, own: Ints, received: ReceivedBins) -> None:
        self.candidates = CandidateList(received.shapes)
        self.possible: list[Bools] = []
        self.sides: list[Bools] = []
        self.contradictions = 0
        for column, shape in enumerate(received.shapes):
            bins = np.arange(shape.n_bins + shape.has_missing)
            possible = np.ones((records, len(bins)), dtype=bool)
            possible[own] = received.codes[:, column, np.newaxis] == bins
            self.possible.append(possible)
            first, behind = int(self.candidates.first[column]), int(self.candidates.first[column + 1])
            sides = [column_goes_left(bins, self.candidates.at(k), shape.n_bins) for k in range(first, behind)]
            self.sides.append(np.array(sides, dtype=bool).reshape(-1, len(bins)))

    def narrow(self, column: int, records: Ints, bins: Bools) -> int:
        """Leave records the bins of a mask (bins,) alone; returns the number of cells that have fewer than before.

        A record that could have none of them keeps those that it had, and counts as a contradiction.
        """
        before = self.possible[column][records]
        after = np.logical_and(before, bins)
        none = after.sum(axis=1) == 0
        self.contradictions += int(none.sum())
        after[none] = before[none]
        self.possible[column][records] = after
        return int((after.sum(axis=1) < before.sum(axis=1)).sum())

    def can_be(self, column: int, records: Ints, bins: Bools) -> Bools:
        """The mask (n,) of those records that can have a bin of a mask (bins,)."""
        return np.asarray(self.possible[column][records][:, bins].sum(axis=1) > 0, dtype=bool)

    def agreeing(self, left: Ints, right: Ints) -> Ints:
        """The candidates, by canonical number, that can send these records left and those right."""
        agree = []
        for possible, sides in zip(self.possible, self.sides, strict=True):
            # a matrix product counts the possible bins of each record on a side of each cut
            to_left = possible[left].astype(np.float32) @ sides.T.astype(np.float32) > 0
            to_right = possible[right].astype(np.float32) @ (~sides).T.astype(np.float32) > 0
            agree.append(to_left.all(axis=0) & to_right.all(axis=0))
        return np.flatnonzero(np.concatenate([np.zeros(0, dtype=bool), *agree]))

    def side(self, candidate: int) -> Bools:
        """The bins of its column (bins,) that a candidate sends left."""
        column = int(self.candidates.feature[candidate])
        side: Bools = self.sides[column][candidate - int(self.candidates.first[column])]
        return side

    def sides_of(self, candidates: Ints) -> tuple[Bools, Bools]:
        """The bins of their column (bins,) that one of some candidates, all of one column, sends left, and right."""
        sides = np.stack([self.side(candidate) for candidate in candidates.tolist()])
        to_left, to_right = np.logical_or.reduce(sides), np.logical_or.reduce(~sides)
        return np.asarray(to_left, dtype=bool), np.asarray(to_right, dtype=bool)

    def placed(self) -> Ints:
        """(N, d) the bin of each cell of which one is left; `UNPLACED` of others."""
        columns = [np.where(it.sum(axis=1) == 1, it.argmax(axis=1), UNPLACED) for it in self.possible]
        return np.stack(columns, axis=1).astype(np.int64)

    def expected(self, own: Ints) -> Floats:
        """(N, d) the mean of the bins that each cell can have, weighed as the attacker's own records have them."""
        columns = []
        for possible in self.possible:
            weights = possible[own].sum(axis=0) + 0.5
            columns.append(possible @ (weights * np.arange(possible.shape[1])) / (possible @ weights))
        return np.stack(columns, axis=1)

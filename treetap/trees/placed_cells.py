"""Cells of a party's columns that left sets at roots place in their bins, tree by tree.

A root holds all records. A left set at it says of every record on which side of one cut its value lies, so that the
cuts of a column that trees have used divide its records into intervals. A cell (record, column) is *placed* where its
interval holds one bin that occurs: whoever knows the left sets, and which of them are of one column, then has the
column's bin for the record. Missing values are a bin.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from treetap.arrays import Floats, Ints
from treetap.trees.binning import BinnedTable
from treetap.trees.candidates import Candidate, column_goes_left


def placed_by_tree(binned: BinnedTable, records: int, splits: Sequence[Sequence[Candidate]]) -> Floats:
    """The share (T,) of all cells of the first `records` records that are placed after each of T trees.

    `splits`: of each tree the party's own ones, all at roots. 0 of a table without cells.
    """
    counts = [
        np.bincount(column, minlength=feature.n_bins + 1)
        for column, feature in zip(binned.codes[:records].T, binned.features, strict=True)
    ]
    intervals = [np.zeros(len(of_column), dtype=np.int64) for of_column in counts]
    placed = [_placed(*of_column) for of_column in zip(counts, intervals, strict=True)]
    cells, shares = records * len(counts), np.zeros(len(splits))
    for tree, own in enumerate(splits):
        for split in own:
            column, bins = split.feature, len(counts[split.feature]) - 1
            left = column_goes_left(np.arange(bins + 1), split, bins)
            intervals[column] = np.unique(2 * intervals[column] + left, return_inverse=True)[1]
            placed[column] = _placed(counts[column], intervals[column])
        shares[tree] = sum(placed) / cells if cells else 0.0
    return shares


def _placed(counts: Ints, intervals: Ints) -> int:
    """The records whose interval holds one bin that occurs; `counts` of records, and `intervals`, by bin."""
    alone = np.bincount(intervals, weights=counts > 0)[intervals] == 1
    return int(counts[alone].sum())


def steps_to(last: int) -> list[int]:
    """The trees after which shares are shown: 1, 2, 5, 10, 20, 50 and so on below `last`, and `last`, at least 1."""
    steps = (digit * 10**power for power in range(len(str(last))) for digit in (1, 2, 5))
    return [*(step for step in steps if step < last), last]

"""The bins of one party's columns as one tree sees them, and the sums over them in exact integers.

The bins are those of the job, or fresh ones in every node. Either way every node of a tree has the same candidates in
number and order (`candidates`), so that the number of candidates does not reveal the number of values in a node. In a
node with fewer bins the candidates beyond its last cut separate the missing values from all others, or no records.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from treetap.arrays import Array, Bools, Floats, Ints
from treetap.trees.binning import BinnedTable, Codes, FeatureBins, quantile_cuts
from treetap.trees.candidates import MIRRORED, Candidate, CandidateList, Partition, Shape, column_goes_left


class GlobalBins:
    """Columns `kept` of a party in the bins of the job. A candidate's `feature` is a place in `kept`."""

    #: True if sums over a node are those over its children, candidate by candidate.
    additive = True
    #: The fewest drawn records in a cell that is summed; 0: any number.
    min_cell_records = 0

    def __init__(self, table: BinnedTable, kept: Ints) -> None:
        self.kept = kept
        self._features: list[FeatureBins] = [table.features[j] for j in kept]
        self.candidates = CandidateList([feature.shape for feature in self._features])
        every = len(kept) == table.codes.shape[1]
        self._codes: Codes = table.codes if every else table.codes[:, kept]  # a copy would be of all records
        #: Those with which records are summed: categories and gaps that no record of the training has are in none of
        #: its bins, and such a record is summed as zeros.
        self.all_codes = self._codes
        if any(feature.categories for feature in self._features):
            last = [feature.n_bins - 1 + feature.has_missing for feature in self._features]
            if any((self._codes[:, j] > last[j]).any() for j in range(len(last))):
                self.all_codes = np.asfortranarray(np.minimum(self._codes, np.array(last, dtype=self._codes.dtype)))
        self._directions = None if table.directions is None else table.directions[kept]

    @property
    def marks(self) -> Ints | None:
        """The mark of each candidate, (n,), one of `MARKS`; None: the party has no constraints."""
        if self._directions is None:
            return None
        shapes, features = self.candidates.shapes, self.candidates.feature
        last = np.array([shape.n_bins - 1 for shape in shapes], dtype=np.int64)[features]
        of_candidates: Ints = self._directions[features] * np.where(self.candidates.bin == last, MIRRORED, 1)
        return of_candidates

    def see(self, node: int, rows: Ints) -> None:
        """All nodes have the bins of the job."""

    def at_border(self, node: int, candidate: Candidate) -> Candidate:  # noqa: ARG002 - all bins have a border
        """The split that a candidate is in a node."""
        return candidate

    def candidate(self, place: int | Partition) -> Candidate:
        """The candidate of a place; that of n + k is the mirror image of k: only missing values go left."""
        count = len(self.candidates)
        if isinstance(place, Partition) or place < count:
            return self.candidates.of(place)
        return Candidate(self.candidates.at(place - count).feature, -1, True)

    def codes(self, node: int, rows: Ints) -> Codes:  # noqa: ARG002 - all nodes have the same bins
        """Bin numbers (len(rows), columns) of records of a node whose bins are known."""
        return self.all_codes[rows]

    def column(self, node: int, rows: Ints, feature: int) -> Codes:  # noqa: ARG002
        """Bin numbers (len(rows),) of one column alone."""
        codes: Codes = self._codes[rows, feature]
        return codes

    def cut(self, node: int, candidate: Candidate) -> float:  # noqa: ARG002
        """The threshold of a candidate in a node: left if the value is below.

        ∞ where only missing values go right, and in a split of categories; -∞ where only missing values go left.
        """
        return _cut(self._features[candidate.feature].cuts, candidate.bin)


class NodeBins:
    """Quantiles of each node's own drawn records (Takahashi, Liu and Liu 2023, Algorithm 1, line 4).

    Methods are those of `GlobalBins`; a node must have been seen before its codes and cuts are asked for.

    Args:
        values: (N, d) all columns of the party, NaN where missing.
        kept: the columns of this tree.
        drawn: (N,) the tree's number of draws of each record.
        max_bin: most bins of a column in a node.
        training: the number of records that may be drawn, the first ones, from which candidates follow; None: all.
    """

    additive = False
    min_cell_records = 0
    marks = None

    def __init__(self, values: Array, kept: Ints, drawn: Ints, max_bin: int, training: int | None = None) -> None:
        self.kept = kept
        self._values: Floats = np.asarray(values[:, kept], dtype=np.float64)
        self._drawn, self._max_bin = drawn, max_bin
        self._cuts: dict[int, list[Floats]] = {}
        self.candidates = CandidateList(widest(self._values[:training], max_bin))

    def see(self, node: int, rows: Ints) -> None:
        """Fix the bins of a node, whose records are `rows`."""
        rows = rows[self._drawn[rows] > 0]
        times = self._drawn[rows]
        self._cuts[node] = []
        for j in range(len(self.kept)):
            column = self._values[rows, j]
            here = ~np.isnan(column)
            present, place = np.unique(column[here], return_inverse=True)
            counts = np.bincount(place, weights=times[here]).astype(np.int64)
            self._cuts[node].append(quantile_cuts(present, counts, self._max_bin))

    def at_border(self, node: int, candidate: Candidate) -> Candidate:  # noqa: ARG002
        return candidate

    def codes(self, node: int, rows: Ints) -> Codes:
        codes = np.empty((len(rows), len(self.kept)), dtype=np.int32, order="F")
        for j in range(len(self.kept)):
            codes[:, j] = self.column(node, rows, j)
        return codes

    def column(self, node: int, rows: Ints, feature: int) -> Codes:
        values = self._values[rows, feature]
        codes: Codes = np.searchsorted(self._cuts[node][feature], values, side="right").astype(np.int32)
        bins, has_missing, _ = self.candidates.shapes[feature]
        # where the training lacks no value, one that a further record lacks goes right at every split
        codes[np.isnan(values)] = bins if has_missing else bins - 1
        return codes

    def cut(self, node: int, candidate: Candidate) -> float:
        return _cut(self._cuts[node][candidate.feature], candidate.bin)

    def candidate(self, place: int | Partition) -> Candidate:
        """The candidate of a place; trees with bins per node have no mirror images."""
        return self.candidates.of(place)


def widest(values: Array, max_bin: int) -> list[Shape]:
    """By column of the values (n, d): the most bins that a node can have, and True if it can have missing values."""
    columns = np.asarray(values, dtype=np.float64).T
    bins = (len(np.unique(column[~np.isnan(column)])) for column in columns)
    return [
        Shape(max(1, min(max_bin, count)), bool(np.isnan(column).any()))
        for count, column in zip(bins, columns, strict=True)
    ]


Bins = GlobalBins | NodeBins


def goes_left(bins: Bins, node: int, rows: Ints, candidate: Candidate) -> Bools:
    """The mask (n,) of a node's records that go left."""
    column = bins.column(node, rows, candidate.feature)
    return column_goes_left(column, candidate, bins.candidates.shapes[candidate.feature].n_bins)


def left_sums_of(bins: Bins, values: Ints, nodes: Sequence[int], rows: Sequence[Ints]) -> Ints:
    """Left sums (nodes, candidates, S) of values (N, S) over each node's records; fresh bins are made of them first."""
    if isinstance(bins, GlobalBins) and bins.additive:
        return left_sums(bins.all_codes, bins.candidates, values, rows)
    sums = np.empty((len(nodes), len(bins.candidates), values.shape[1]), dtype=np.int64)
    for i, (node, here) in enumerate(zip(nodes, rows, strict=True)):
        bins.see(node, here)
        everything = [np.arange(len(here))]
        sums[i] = left_sums(bins.codes(node, here), bins.candidates, values[here], everything)[0]
    return sums


def _cut(cuts: Floats, number: int) -> float:
    if number < 0:
        return -math.inf
    return float(cuts[number]) if number < len(cuts) else math.inf


def left_sums(
    codes: Array,
    candidates: CandidateList,
    values: Ints,
    nodes: Sequence[Array],
) -> Ints:
    """Σ of values over the records of a node that a candidate sends left, or that have a category of `groups`.

    codes (N, d) bin numbers, values (N, S) int64, nodes: row numbers of each node. Returns (nodes, candidates, S)
    int64, exact while every sum over a node stays within int64 (see `loss`).
    """
    width = int(candidates.cell[-1])
    slots = values.shape[1]
    rows = np.concatenate([np.zeros(0, dtype=np.int64), *nodes]).astype(np.int64, copy=False)
    base: Ints | int = 0 if len(nodes) == 1 else np.repeat(np.arange(len(nodes)) * width, [len(node) for node in nodes])
    picked = [np.ascontiguousarray(values[rows, s]) for s in range(slots)]
    cells = np.zeros((slots, len(nodes) * width), dtype=np.int64)
    for f in range(len(candidates.shapes)):
        index = base + candidates.cell[f] + codes[rows, f]
        for s in range(slots):
            np.add.at(cells[s], index, picked[s])
    return accumulate_cells(cells.reshape(slots, len(nodes), width), candidates)


def accumulate_cells(cells: Ints, candidates: CandidateList) -> Ints:
    """Histogram cells (S, nodes, width) → left sums (nodes, candidates, S).

    One cumulative sum runs over all features; its start per feature is taken off again. It may wrap around int64 when
    there are many features, which the subtraction undoes: both are arithmetic modulo 2^64.
    """
    slots, nodes, width = cells.shape
    running = np.zeros((slots, nodes, width + 1), dtype=np.int64)
    np.cumsum(cells, axis=2, out=running[:, :, 1:])
    start = candidates.cell[candidates.feature]
    missing = candidates.cell[candidates.feature + 1] - 1
    left = running[:, :, start + candidates.bin + 1] - running[:, :, start]
    if candidates.one_hot.any() or candidates.groups:
        category = cells[:, :, start + candidates.bin]
        present = running[:, :, missing] - running[:, :, start]
        left = np.where(candidates.one_hot, present - category, np.where(candidates.grouped, category, left))
    left += np.where(candidates.missing_left, cells[:, :, missing], 0)
    return np.ascontiguousarray(np.moveaxis(left, 0, 2))

"""Bins of a feature party that are merged until every cell holds no drawn record, or at least m (`min_cell_records`).

A *cell* of a column is a set of neighbouring bins; missing values are the last bin. Categories are neighbours in the
order of their codes. The cells of a node are made of whole cells of its parent, and siblings have the same ones. Cells
are closed from the left as soon as the rule holds for them; a rest that cannot be closed joins the cells before it.

**Rule.** At the root a cell holds no drawn record, or at least m. Let p be split into l and r, and let D be a cell of
l and r, made of the cells C ⊂ D of p. With |l ∩ c| the drawn records of l in a cell c of the root, D fulfils one of

    (i)   Σ over the root's cells c ⊂ D of min(|l ∩ c|, |r ∩ c|) ≥ m,
    (ii)  no cell C ⊂ D of p has drawn records on both sides.

Where no division fulfils this the column has one cell in l and r, and below. Its sums there are those of no record or
of the whole node, which the receiver knows from the node's records.

**Theorem.** Let V be spanned by the indicators of all cells of one column, over the drawn records, in all nodes of one
tree in which it has two or more. Every vector of V is zero, or not zero on at least m records.

*Proof*, by adding pairs of siblings one after the other. At the root V holds the functions that are constant on cells
of no or at least m records. Let it hold before l and r come, and let f be in V plus the new indicators. The indicator
of p ∩ D is in V, because D is made of cells of p, so f = v − Σ x_D · 1[l ∩ D] with v in V. Of a D with x_D ≠ 0:

1. D fulfils (ii): l ∩ D is a union of cells of p, its indicator is in V, and the term can be counted to v.
2. D fulfils (i): on p, v depends on the root's cell alone, since all cells are made of these. In a root's cell c ⊂ D, v
   is not both 0 and x_D. If it is not 0, f is not zero on r ∩ c; if it is not x_D, f is not zero on l ∩ c. So f is not
   zero on at least Σ min(|l ∩ c|, |r ∩ c|) ≥ m records.

If no D is left after 1, f is in V.  ∎

So no sum over fewer than m drawn records follows from any additions and subtractions of the sums of a column in a tree:
of a node, its parent, its sibling, a node without its last cell, or any further ones. A bin that is merged looks to the
receiver as one in which the node has no record: its candidate repeats the sums of the next border on its left, and that
is where its owner cuts.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from treetap.arrays import Bools, Ints
from treetap.errors import Malformed, OutOfOrder
from treetap.trees.binning import BinnedTable, Codes
from treetap.trees.candidates import Candidate, column_goes_left
from treetap.trees.ensemble import ROOT
from treetap.trees.tree_bins import GlobalBins


def closed_cells(left: Ints, right: Ints, within: Bools, last: Ints, least: int) -> Bools:
    """The bins at which the cells of two siblings end: (columns, bins).

    Args:
        left: drawn records of one sibling by column and root cell, which stands at its last bin: (columns, bins).
        right: the same of the other; of the root itself twice its own.
        within: the bins at which the cells of their parent end: (columns, bins).
        last: the last bin of each column.
        least: m.
    """
    shared = np.minimum(left, right)
    columns = len(last)
    ends = np.zeros_like(within)
    mixed_end = np.full(columns, -1)  # the last end of a cell by (i), which may take in the rest
    kept, mixed = np.zeros(columns, dtype=np.int64), np.zeros(columns, dtype=bool)
    of_left, of_right = np.zeros(columns, dtype=np.int64), np.zeros(columns, dtype=np.int64)
    for v in range(within.shape[1]):
        kept += shared[:, v]
        of_left += left[:, v]
        of_right += right[:, v]
        here = within[:, v]
        mixed |= here & (of_left > 0) & (of_right > 0)
        of_left[here] = of_right[here] = 0
        close = here & (~mixed | (kept >= least))
        ends[:, v] = close
        mixed_end[close & mixed] = v
        kept[close] = 0
        mixed[close] = False
    rest = np.flatnonzero(mixed)
    ends[rest] &= np.arange(within.shape[1]) < mixed_end[rest, None]
    ends[rest, last[rest]] = True
    return ends


class MergedBins(GlobalBins):
    """Columns in the bins of the job, merged in every node: see the head of this module.

    A node must have been seen, and before it its parent, before its codes and borders are asked for.

    Args:
        table: the party's columns.
        kept: those of the tree.
        min_cell_records: m.
    """

    additive = False

    def __init__(self, table: BinnedTable, kept: Ints, min_cell_records: int) -> None:
        super().__init__(table, kept)
        self.min_cell_records = min_cell_records
        shapes = self.candidates.shapes
        self._n_bins = np.array([shape.n_bins for shape in shapes], dtype=np.int64)
        self._last = self._n_bins - 1 + np.array([shape.has_missing for shape in shapes], dtype=np.int64)
        self._width = int(self._last.max(initial=0)) + 1
        self._drawn: Bools = np.zeros(0, dtype=bool)
        self._counts: dict[int, Ints] = {}  # drawn records of a node by column and root cell
        self._ends: dict[int, Bools] = {}

    def see(self, node: int, rows: Ints) -> None:
        """Fix the cells of a node, whose records are `rows`; those of the root are the records that the tree draws.

        Raises:
            OutOfOrder: the parent has no cells.
        """
        if node in self._counts:
            return
        if node == ROOT:
            self._drawn = np.zeros(len(self.all_codes), dtype=bool)
            self._drawn[rows] = True
            counts = self._counted(self.all_codes[rows])
            every = np.arange(self._width) <= self._last[:, None]
            self._ends[node] = closed_cells(counts, counts, every, self._last, self.min_cell_records)
            self._counts[node] = self._counted(self.codes(node, rows))
            return
        parent, sibling = node >> 1, node ^ 1
        if parent not in self._ends:
            raise OutOfOrder(f"node {node} cannot be summed before node {parent}")
        counts = self._counted(self.codes(ROOT, rows[self._drawn[rows]]))
        self._counts[node] = counts
        if sibling not in self._ends:
            rest = self._counts[parent] - counts
            self._ends[node] = closed_cells(counts, rest, self._ends[parent], self._last, self.min_cell_records)
        else:
            self._ends[node] = self._ends[sibling]

    def codes(self, node: int, rows: Ints) -> Codes:
        """Bin numbers (len(rows), columns): that of a merged bin is its cell's last one of present values."""
        return self.merged(node)[np.arange(len(self._last)), self.all_codes[rows]]

    def merged(self, node: int) -> Codes:
        """The bin whose number each bin of each column has in a node: (columns, bins)."""
        ends, numbers = self._ends[node], np.arange(self._width)
        behind = np.where(ends, numbers, self._width)
        cell = np.minimum.accumulate(behind[:, ::-1], axis=1)[:, ::-1]
        with_missing = self._missing_merged(node)[:, None] & (cell == self._n_bins[:, None])
        number = np.where(with_missing, self._n_bins[:, None] - 1, np.minimum(cell, self._last[:, None]))
        return number.astype(self.all_codes.dtype)

    def at_border(self, node: int, candidate: Candidate) -> Candidate:
        """A candidate with the border of its cell; missing values go with the bins that they are merged with.

        Raises:
            Malformed: no drawn record of the node would go to one of its sides, so that it cannot have won.
        """
        f, n_bins = candidate.feature, int(self._n_bins[candidate.feature])
        together, number = bool(self._missing_merged(node)[f]), self.merged(node)[f]
        counts = self._counts[node][f]
        here = counts[column_goes_left(number, candidate, n_bins)].sum()  # as the sums of the place are
        if not 0 < here < counts.sum():
            raise Malformed(f"node {node}: no record goes to one side of the split that won")
        if candidate.right is None:
            ends = np.flatnonzero(self._ends[node][f, : candidate.bin + 1])
            cut = int(ends[-1]) if len(ends) else -1
            return replace(candidate, bin=cut, missing_left=candidate.missing_left and not together)
        right = tuple(np.flatnonzero(np.isin(number[:n_bins], candidate.right)).tolist())
        left = n_bins - 1 not in right if together else candidate.missing_left
        return replace(candidate, bin=right[0], right=right, missing_left=left)

    def _missing_merged(self, node: int) -> Bools:
        """True for columns whose missing values are in a cell with the last bin: (columns,)."""
        has_missing = self._last == self._n_bins
        separate = self._ends[node][np.arange(len(self._last)), self._n_bins - 1]
        together: Bools = has_missing & ~separate
        return together

    def _counted(self, codes: Codes) -> Ints:
        """Records by column and bin: (columns, bins)."""
        columns = len(self._last)
        place = codes + np.arange(columns) * self._width
        return np.bincount(place.ravel(), minlength=columns * self._width).reshape(columns, self._width)


def bins_of(table: BinnedTable, kept: Ints, min_cell_records: int) -> GlobalBins:
    """Columns `kept` of a party in the bins of the job, merged unless `min_cell_records` is 0."""
    return MergedBins(table, kept, min_cell_records) if min_cell_records else GlobalBins(table, kept)

"""Products of ciphertexts, counted without a ciphertext: by layout, and by the code that computes them.

By layout they are the most that records, nodes and bins of these numbers can take. The number that is computed depends
on the data: on the bins that records share, on the entries that a mask keeps. A party's account goes to the
coordinator, so the account has the counts by layout.

`CountedProducts` plans and fills joint cells as in a training; only the arithmetic in them is left out. The bins are
those of a table's records, or drawn: independent columns with equally full bins, which share the fewest cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, cast

import numpy as np

from treetap.additive.residues.batches import Batch, Cells, Residues
from treetap.additive.sums.joint_cells import Codes, RootCells, bin_products, plan
from treetap.trees.candidates import Shape

#: Records whose cells are filled; further ones take a product for each group of columns, as cells are full by then.
MOST_ROWS = 1 << 16
_BLOCK = 2048


class CountedResidues:
    """The calls of `Residues` that sums over bins make; a number is a byte without a meaning."""

    def ones(self, count: int) -> Batch:
        return np.zeros(count, dtype=np.uint8)

    def cell_products(self, values: Batch, cells: Cells) -> Batch:
        del values
        return self.ones(cells.count)

    def multiply_into(self, products: Batch, values: Batch, cells: Cells) -> Batch:
        del products, values
        return self.ones(cells.count)


class CountedProducts:
    """Products for the bins of one party's columns.

    Args:
        shapes: those of the columns.
        codes: (n, d) bins of some records of the table, from the first on; None: drawn, for `rows` records.
        rows: the records that one worker has.
    """

    def __init__(self, shapes: Sequence[Shape], codes: Codes | None, rows: int) -> None:
        self._radices = [shape.n_bins + shape.has_missing for shape in shapes]
        self._ring, self._rows = cast(Residues, CountedResidues()), rows
        if codes is None:
            drawn: list[Any] = [
                np.random.default_rng(place).integers(0, radix, min(max(rows, 1), MOST_ROWS))
                for place, radix in enumerate(self._radices)
            ]
            codes = np.stack(drawn, axis=1) if drawn else np.empty((min(rows, MOST_ROWS), 0), dtype=np.int64)
        self._codes = codes[:MOST_ROWS]

    def at_root(self, rows: int) -> int:
        """Products of one worker that holds `rows` records, for all bins of the root."""
        if not self._radices or rows < 1:
            return 0
        cells = RootCells(self._ring, self.root_groups, self._radices)
        counted, computed = min(rows, len(self._codes)), 0
        for start in range(0, counted, _BLOCK):
            part = self._codes[start : min(start + _BLOCK, counted)]
            computed += cells.add(self._ring.ones(len(part)), part)
        return computed + cells.bins().computed + (rows - counted) * len(self.root_groups)

    def below(self, rows: int) -> int:
        """Products of one worker for all bins of a node of which it holds `rows` records."""
        if not self._radices or rows < 1:
            return 0
        counted = min(rows, len(self._codes))
        codes, places = self._codes[:counted], np.arange(counted, dtype=np.int64)
        counts = bin_products(self._ring, self._ring.ones(counted), [(places, codes)], self._radices)
        further = rows - counted
        return counts.computed + (further * len(plan(codes, self._radices)) if further else 0)

    @cached_property
    def root_groups(self) -> list[tuple[int, ...]]:
        """The groups of columns that share joint cells at the root."""
        return plan(self._codes, self._radices, self._rows)


def candidate_products(records: int, shapes: Sequence[Shape], nodes: int, workers: int) -> int:
    """Products for the candidates of the nodes of one level.

    Each of the tree's `records` enters one bin of each feature at most, whichever node it is in; the workers' bins are
    merged; each candidate takes one product, one of a category against the rest up to three. `shapes`: those of the
    features.
    """
    bins = sum(shape.n_bins + shape.has_missing for shape in shapes)
    candidates = sum(shape.products for shape in shapes)
    return records * len(shapes) + nodes * ((workers - 1) * bins + candidates)


def masked_products(records: int, outgoing: Sequence[int]) -> int:
    """Products for the sums of the entries that go on as one; `outgoing`: the outgoing entry of each incoming one."""
    return records * (len(outgoing) - len(set(outgoing)))

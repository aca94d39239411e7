"""Products of ciphertexts per feature and bin, through joint cells of several features.

The plain way multiplies every record's ciphertext into one product per feature: d·n products. Records that agree in
several features can be multiplied together once: the product of a *joint cell* of a group of features enters each of
those features' bins afterwards, so a group with J occupied cells costs n + O(J) products instead of n per feature. Two
32-bin features have at most 1,024 cells; ten one-hot columns of one field have ten.

`plan` decides the groups from the data; `bin_products` applies it again and again, since the marginals of a group with
J cells are the same problem with J ciphertexts. A batch multiplies the cells of several nodes and groups together:
many, since arithmetic likes long batches, and not all, since n records of d features would be d·n places in memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treetap.additive.residues.batches import Batch, Cells, Residues

PLANNED_ROWS = 8192  # counting cells on more records costs time and changes few decisions
#: Places after which a batch ends: 16 MB with their cells and the order of products, or those of one group of features.
BATCH = 1 << 18
_WORTHWHILE = 0.9  # a group must merge at least a tenth of the records, which also ends the recursion
_LARGEST_CELL = 2**62
#: Cells of a group of which the root keeps a table: 512 KB.
DENSE = 1 << 16

Codes = npt.NDArray[np.integer]


def plan(codes: Codes, radices: Sequence[int], rows: int | None = None) -> list[tuple[int, ...]]:
    """Group features so that the modelled number of products is small.

    Features are taken by rising number of occupied bins; each joins the open group if that lowers the model's cost, or
    opens a new one. A group of k features with J occupied cells costs n - J products into cells (the first of a cell is
    free) and about J·(1 + log2 k) for its marginals; a feature alone with J bins costs n - J.

    Args:
        codes: bin of each record and feature, shape (n, d).
        radices: number of bins of each feature, its missing bin included.
        rows: records that one worker sums; n by default. At most 8,192, evenly spaced, are looked at.

    Returns:
        Disjoint groups of feature positions that cover all d features.
    """
    considered = min(PLANNED_ROWS, len(codes) if rows is None else rows)
    if considered < 2:
        return [(feature,) for feature in range(len(radices))]
    sample = codes[np.linspace(0, len(codes) - 1, considered).astype(np.int64)] if considered < len(codes) else codes
    occupied = [int(np.count_nonzero(np.bincount(sample[:, feature]))) for feature in range(len(radices))]
    groups: list[tuple[int, ...]] = []
    group: tuple[int, ...] = ()
    cells, count, size = np.zeros(considered, dtype=np.int64), 1, 1
    for feature in sorted(range(len(radices)), key=lambda feature: (occupied[feature], feature)):
        radix = radices[feature]
        if group and size * radix < _LARGEST_CELL:
            # The group with the feature against both apart; never a group whose cells hardly merge records.
            wider, total = _number(cells * radix + sample[:, feature])
            saved = _cost(considered, count, len(group)) + _cost(considered, occupied[feature], 1)
            if total <= _WORTHWHILE * considered and _cost(considered, total, len(group) + 1) < saved:
                group, cells, count, size = (*group, feature), wider, total, size * radix
                continue
        if group:
            groups.append(group)
        cells, count = _number(sample[:, feature].astype(np.int64))
        group, size = (feature,), radix
    return [*groups, group] if group else groups


def _cost(rows: int, cells: int, features: int) -> float:
    """Modelled products of a group: into its cells, then its marginals."""
    marginals = 0.0 if features == 1 else cells * (1 + np.log2(features))
    return float(rows - cells + marginals)


def _number(cells: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], int]:
    """Renumber cells 0..J-1 and count them."""
    largest = int(cells.max()) + 1
    if largest <= 4 * len(cells) + 4096:  # counting beats sorting
        seen = np.bincount(cells, minlength=largest) > 0
        return (np.cumsum(seen) - 1)[cells], int(np.count_nonzero(seen))
    values, numbers = np.unique(cells, return_inverse=True)
    return numbers.astype(np.int64), len(values)


def joint(codes: Codes, group: Sequence[int], radices: Sequence[int]) -> npt.NDArray[np.int64]:
    """Mixed-radix number of each record's cell in a group of features, shape (n,)."""
    cells = np.zeros(len(codes), dtype=np.int64)
    for feature in group:
        cells = cells * radices[feature] + codes[:, feature]
    return cells


@dataclass(frozen=True)
class CellTask:
    """Records of one node, or joint cells of one group of features, whose values are to be multiplied per bin.

    Attributes:
        places: rows of a batch of ciphertexts, shape (n,); one may occur twice and then counts twice.
        codes: their bins, shape (n, k).
        features: the features of the k columns.
        first: place of the task's first bin among all results.
    """

    places: npt.NDArray[np.int64]
    codes: Codes
    features: tuple[int, ...]
    first: int


@dataclass
class BinProducts:
    """Products of ciphertexts per bin, node-major: all bins of all features of a node, those of the next one, ….

    Attributes:
        values: the products, 1 in empty bins.
        factors: values that each holds, shape (bins,).
        computed: products that it took.
    """

    values: Batch
    factors: npt.NDArray[np.int64]
    computed: int = 0


def bin_products(
    ring: Residues,
    values: Batch,
    nodes: Sequence[tuple[npt.NDArray[np.int64], Codes]],
    radices: Sequence[int],
    joint_cells: bool = True,
) -> BinProducts:
    """Product of the values in each bin of each feature, for each node.

    Args:
        ring: arithmetic of the key.
        values: ciphertexts.
        nodes: for each node the rows of its records' ciphertexts (n,) and their bins (n, d).
        radices: number of bins of each feature.
        joint_cells: True if features may share joint cells; otherwise each feature is summed by itself.
    """
    width = sum(radices)
    counts = [np.empty(0, dtype=np.int64), *(_counts(codes, radices) for _, codes in nodes)]
    products = BinProducts(ring.ones(len(nodes) * width), np.concatenate(counts))
    everything = tuple(range(len(radices)))
    tasks = [CellTask(places, codes, everything, node * width) for node, (places, codes) in enumerate(nodes)]
    _multiply(ring, values, tasks, radices, products, joint_cells)
    return products


def _counts(codes: Codes, radices: Sequence[int]) -> npt.NDArray[np.int64]:
    """Records in each bin of each feature."""
    counts = [np.bincount(codes[:, feature], minlength=radix) for feature, radix in enumerate(radices)]
    return np.concatenate([np.empty(0, dtype=np.int64), *counts])


def marginals(
    ring: Residues,
    values: Batch,
    tasks: Sequence[CellTask],
    radices: Sequence[int],
    factors: npt.NDArray[np.int64],
) -> BinProducts:
    """Products per bin of one node from those of joint cells, the tasks' places, which hold every feature once.

    `factors`: the values that each bin holds.
    """
    products = BinProducts(ring.ones(sum(radices)), factors)
    starts = _starts(radices)
    several = []
    for task in tasks:
        if len(task.features) == 1:
            at = task.first + starts[task.features[0]] + task.codes[:, 0]
            products.values[at] = values[task.places]
        else:
            several.append(task)
    _multiply(ring, values, several, radices, products, joint_cells=True)
    return products


def _multiply(
    ring: Residues,
    values: Batch,
    tasks: Sequence[CellTask],
    radices: Sequence[int],
    products: BinProducts,
    joint_cells: bool,
) -> None:
    """The tasks' products, in batches of bounded size; what a batch leaves of several features follows it at once."""
    batch = _Cells()
    for task in tasks:
        inner = [radices[feature] for feature in task.features]
        shared = joint_cells and len(inner) > 1
        for group in plan(task.codes, inner) if shared else [(column,) for column in range(len(inner))]:
            batch.add(task, group, inner)
            if batch.size >= BATCH:
                _multiply_batch(ring, values, batch, radices, products, joint_cells)
                batch = _Cells()
    _multiply_batch(ring, values, batch, radices, products, joint_cells)


def _multiply_batch(
    ring: Residues, values: Batch, batch: _Cells, radices: Sequence[int], bins: BinProducts, joint_cells: bool
) -> None:
    """The products of a batch, until every group of joint cells has come down to single features."""
    if not batch.size:
        return
    products = batch.products(ring, values)
    bins.computed += batch.computed
    if left := batch.settle(bins, products, radices):
        _multiply(ring, products, left, radices, bins, joint_cells)


class RootCells:
    """The root's joint cells, which grow block by block: one batch of products for all groups of features.

    A block touches the cells of its own records only, so that the time of many blocks grows with their records.

    Args:
        groups: disjoint groups that cover all features.
        radices: number of bins of each feature.
    """

    def __init__(self, ring: Residues, groups: Sequence[tuple[int, ...]], radices: Sequence[int]) -> None:
        self._ring, self._groups, self._radices = ring, groups, radices
        self._rows = [_Rows(math.prod(radices[feature] for feature in group)) for group in groups]
        self._values = ring.ones(0)  # products in the order in which their cells came, with room behind them
        self._count = 0
        self._factors = np.zeros(sum(radices), dtype=np.int64)

    def add(self, values: Batch, codes: Codes) -> int:
        """Multiply a block into its cells; the number of products computed."""
        if not self._groups or not len(values):
            return 0
        before, numbers = self._count, []
        for rows, group in zip(self._rows, self._groups, strict=True):
            of_cells, self._count = rows.of(joint(codes, group, self._radices), self._count)
            numbers.append(of_cells)
        places = np.tile(np.arange(len(values), dtype=np.int64), len(numbers))
        cells = Cells(places, np.concatenate(numbers), self._count, held=before)
        self._values = self._ring.multiply_into(self._values, values, cells)
        self._factors += _counts(codes, self._radices)
        return len(places) - (self._count - before)

    def bins(self) -> BinProducts:
        """All bins of all features."""
        tasks = []
        for group, held in zip(self._groups, self._rows, strict=True):
            cells, places = held.all
            codes, rest = np.empty((len(cells), len(group)), dtype=np.int64), cells
            for column in range(len(group) - 1, -1, -1):
                rest, codes[:, column] = np.divmod(rest, self._radices[group[column]])
            tasks.append(CellTask(places, codes, group, 0))
        return marginals(self._ring, self._values, tasks, self._radices, self._factors.copy())


class _Rows:
    """The rows of one group's joint cells among the root's products, in the order in which the cells came.

    `size`: the cells that there can be. Up to `DENSE` a table has the row of each, else those that came are sorted.
    """

    def __init__(self, size: int) -> None:
        dense = size <= DENSE
        self._table = np.full(size, -1, dtype=np.int64) if dense else None
        self._cells = self._places = np.empty(0, dtype=np.int64)  # without a table: cells that came, and their rows

    def of(self, cells: npt.NDArray[np.int64], count: int) -> tuple[npt.NDArray[np.int64], int]:
        """The row of each cell of a block; new cells take rows from `count` on. Also the number of rows then."""
        if self._table is None:
            distinct, number = np.unique(cells, return_inverse=True)
            fresh = np.setdiff1d(distinct, self._cells, assume_unique=True)
            at = np.searchsorted(self._cells, fresh)
            self._cells = np.insert(self._cells, at, fresh)
            self._places = np.insert(self._places, at, np.arange(count, count + len(fresh)))
            return self._places[np.searchsorted(self._cells, distinct)][number], count + len(fresh)
        rows = self._table[cells]
        if (rows < 0).any():
            new = np.unique(cells[rows < 0])
            self._table[new] = np.arange(count, count + len(new))
            rows, count = self._table[cells], count + len(new)
        return rows, count

    @property
    def all(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Cells that came, rising, and their rows."""
        if self._table is None:
            return self._cells, self._places
        cells = np.flatnonzero(self._table >= 0)
        return cells, self._table[cells]


class _Cells:
    """Joint cells of several tasks, multiplied together in one batch of `size` places."""

    def __init__(self) -> None:
        self.size = 0
        self._places: list[npt.NDArray[np.int64]] = []
        self._cells: list[npt.NDArray[np.int64]] = []
        self._groups: list[tuple[CellTask, tuple[int, ...], Codes]] = []
        self._count = 0
        self.computed = 0

    def add(self, task: CellTask, group: tuple[int, ...], radices: Sequence[int]) -> None:
        """A group of a task's columns."""
        numbers, count, first = renumbered(joint(task.codes, group, radices))
        self._places.append(task.places)
        self._cells.append(numbers + self._count)
        self._groups.append((task, group, task.codes[first][:, list(group)]))
        self._count += count
        self.size += len(task.places)
        self.computed += len(task.places) - count

    def products(self, ring: Residues, values: Batch) -> Batch:
        """The product of each cell."""
        cells = Cells(np.concatenate(self._places), np.concatenate(self._cells), self._count)
        return ring.cell_products(values, cells)

    def settle(self, products: BinProducts, values: Batch, radices: Sequence[int]) -> list[CellTask]:
        """Put the products of single features where they belong; the tasks that are left, of several."""
        starts, first, left = _starts(radices), 0, []
        for task, group, codes in self._groups:
            places = np.arange(first, first + len(codes), dtype=np.int64)
            first += len(codes)
            features = tuple(task.features[column] for column in group)
            if len(features) == 1:
                at = task.first + starts[features[0]] + codes[:, 0]
                products.values[at] = values[places]
            else:
                left.append(CellTask(places, codes, features, task.first))
        return left


def renumbered(cells: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], int, npt.NDArray[np.int64]]:
    """Occupied cells numbered 0..J-1 in rising order: the number of each record, J, and one record of each cell."""
    if not len(cells):
        return cells, 0, cells
    numbers, count = _number(cells)
    first = np.empty(count, dtype=np.int64)
    first[numbers] = np.arange(len(cells))
    return numbers, count, first


def _starts(radices: Sequence[int]) -> npt.NDArray[np.int64]:
    """First bin of each feature."""
    return np.concatenate([[0], np.cumsum(np.asarray(radices, dtype=np.int64))])

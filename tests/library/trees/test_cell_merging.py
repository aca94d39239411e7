"""Merged bins: no combination of a column's sums in a tree is over few records, shown by trying all; cuts and trees."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from treetap.errors import Malformed, OutOfOrder
from treetap.trees.binning import BinnedTable, FeatureBins, bin_table
from treetap.trees.candidates import Kind, Partition
from treetap.trees.cell_merging import MergedBins, closed_cells
from treetap.trees.centralised import train
from treetap.trees.params import BoostingParams
from treetap.trees.tree_bins import goes_left, left_sums_of

Rows = np.ndarray[tuple[int], np.dtype[np.int64]]


def sums_sent(bins: MergedBins, nodes: dict[int, Rows], total: int) -> list[np.ndarray[Any, Any]]:
    """By column, the sets that its sums in all nodes are over, as masks (sums, records): what a receiver can add up.

    Taken from the sums themselves: with one slot for each record, a sum is the set that it is over.
    """
    ones = np.eye(total, dtype=np.int64)
    rows = list(nodes.values())
    lefts = left_sums_of(bins, ones, list(nodes), rows)
    wholes = np.array([ones[here].sum(axis=0) for here in rows])
    columns = []
    for f in range(len(bins.candidates.shapes)):
        of_column = lefts[:, bins.candidates.feature == f]
        grouped = bins.candidates.shapes[f].kind is Kind.PARTITIONS
        told = [
            np.concatenate([cells, whole[None]])
            for cells, whole in zip(of_column, wholes, strict=True)
            # a column all of whose sums are over none or all records tells nothing of itself
            if (grouped and cells.any(axis=1).sum() > 1) or any(0 < cell.sum() < whole.sum() for cell in cells)
        ]
        columns.append(np.concatenate(told) if told else np.zeros((0, total), dtype=np.int64))
    return columns


def smallest(sets: np.ndarray[Any, Any], most: int) -> int:
    """The fewest records, up to `most`, on which some combination of these sets is not zero; `most + 1`: none so few.

    There is a combination on at most the records T if leaving T out lowers the rank.
    """
    everywhere = np.linalg.matrix_rank(sets) if sets.size else 0
    for count in range(1, most + 1):
        for few in combinations(range(sets.shape[1]), count):
            if everywhere and np.linalg.matrix_rank(np.delete(sets, few, axis=1)) < everywhere:
                return count
    return most + 1


def random_tree(rng: np.random.Generator, total: int, depth: int) -> dict[int, Rows]:
    """Nodes with their records, parents first; a node has none, one or both of its children, split in any way."""
    nodes, lean = {1: np.sort(rng.permutation(total)[: rng.integers(total // 2, total + 1)])}, rng.normal(size=total)
    for node in range(1, 1 << depth):
        if node in nodes and len(nodes[node]) > 1:
            rows = nodes[node]
            left = rng.random(len(rows)) < 0.5 if rng.random() < 0.5 else lean[rows] < np.median(lean[rows])
            children = {2 * node: rows[left], 2 * node + 1: rows[~left]}
            nodes |= {child: here for child, here in children.items() if rng.random() < 0.8}
    return nodes


@pytest.mark.parametrize("least", [2, 3])
def test_no_combination_of_a_columns_sums_is_over_few_records(least: int) -> None:
    """Random trees and columns, all kinds: sums of nodes, siblings, parents, differences of any of them, all tried."""
    rng, kept, unmerged = np.random.default_rng(least), 0, 0
    for _ in range(12):
        total = 16
        # A column of numbers, one with missing values, categories one against the rest, and categories to partition.
        codes = np.stack(
            [
                rng.integers(0, 5, total),
                np.where(rng.random(total) < 0.2, 4, rng.integers(0, 4, total)),
                np.where(rng.random(total) < 0.2, 3, rng.integers(0, 3, total)),
                rng.integers(0, 4, total),
            ],
            axis=1,
        ).astype(np.uint8)
        features = [
            FeatureBins(np.arange(4.0), False),
            FeatureBins(np.arange(3.0), True),
            FeatureBins(np.zeros(0), True, 3, Kind.ONE_HOT),
            FeatureBins(np.zeros(0), False, 4, Kind.PARTITIONS),
        ]
        table, nodes = BinnedTable(codes, features), random_tree(rng, total, 2)
        bins = MergedBins(table, np.arange(4), least)
        for sets in sums_sent(bins, nodes, total):
            kept += len(sets)
            assert smallest(sets, least - 1) == least
        free = MergedBins(table, np.arange(4), 1)
        unmerged += sum(smallest(sets, least - 1) < least for sets in sums_sent(free, nodes, total))
    assert kept > 200
    assert unmerged > 12


def _ends(left: list[int], right: list[int], within: list[int], least: int) -> list[int]:
    """The ends of the cells of one column of siblings, whose parent's cells end `within`."""
    bins = np.isin(np.arange(len(left)), within)
    counts = (np.array([side], dtype=np.int64) for side in (left, right))
    return np.flatnonzero(closed_cells(*counts, bins[None], np.array([len(left) - 1]), least)[0]).tolist()


def test_cells_are_closed_from_the_left() -> None:
    """Small bins join the next ones, a rest the cells before it; cells that one sibling has wholly stay as they are."""
    every = [0, 1, 2, 3, 4]
    assert _ends([3, 1, 2, 3, 0], [3, 1, 2, 3, 0], every, 3) == [0, 2, 3, 4]  # the root, and its empty bin
    assert _ends([3, 3, 1, 1, 0], [3, 3, 1, 1, 0], every, 3) == [0, 4]
    assert _ends([3, 3, 3, 0, 0], [3, 3, 3, 3, 4], every, 3) == every
    assert _ends([2, 3, 4, 0, 0], [3, 3, 3, 3, 4], every, 3) == [1, 2, 3, 4]
    # 3 and 1 of the one, 1 and 3 of the other: a cell of 4 in each, and differences with the parent of 2 records
    assert _ends([3, 1, 3, 3, 3], [1, 3, 3, 3, 3], every, 3) == [2, 3, 4]
    # nothing but records of one side in every bin, and mixed cells of the parent: too few records are shared
    assert _ends([3, 0, 3, 0, 3], [0, 3, 0, 3, 0], [1, 4], 3) == [4]
    assert _ends([3, 1, 0, 0, 0], [1, 0, 3, 0, 3], [1, 2, 3, 4], 3) == [4]  # no column in which both have 3


def test_cuts_are_at_the_borders_of_cells() -> None:
    """A merged bin's candidate is that of the border left of it; missing values and categories go with their cell."""
    codes = np.repeat([[0, 0, 0], [1, 1, 1], [2, 2, 2], [3, 3, 3]], [4, 1, 4, 2], axis=0)
    features = [
        FeatureBins(np.arange(3.0), False),
        FeatureBins(np.arange(2.0), True),
        FeatureBins(np.zeros(0), True, 3, Kind.PARTITIONS),
    ]
    bins = MergedBins(BinnedTable(codes.astype(np.uint8), features), np.arange(3), 3)
    rows = np.arange(11)
    with pytest.raises(OutOfOrder, match="node 2 cannot be summed before node 1"):
        bins.see(2, rows)
    bins.see(1, rows)  # cells: 0, and 1 to 3
    offered = [bins.candidates.at(k) for k in range(len(bins.candidates) - 3)]
    sums = left_sums_of(bins, np.ones((11, 1), dtype=np.int64), [1], [rows])[0, :, 0].tolist()
    # of numbers 0 | 1 to 3, in a column with missing values with these on the right or merged into the last cell
    assert sums[:3] == [4, 4, 4]
    assert sums[3:8] == [4, 4, 4, 4, 11]
    assert sums[8:] == [4, 0, 7]
    for candidate in offered[:7]:
        cut = bins.at_border(1, candidate)
        assert (cut.feature, cut.bin, cut.missing_left) == (candidate.feature, 0, False)
        assert goes_left(bins, 1, rows, cut).sum() == 4
    partition = bins.at_border(1, bins.candidate(Partition(0, (2,), missing_left=True)))
    assert (partition.right, partition.missing_left) == ((1, 2), False)
    for won in (7, Partition(0, (1,), missing_left=True)):  # all records go left, whatever a receiver may say
        with pytest.raises(Malformed, match="node 1: no record goes to one side of the split that won"):
            bins.at_border(1, bins.candidate(won))


def test_no_side_of_an_own_split_is_smaller() -> None:
    """The trainer splits no node so that a side has fewer records than m, and other parties' columns as before."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 2)), rng.integers(0, 2, 40)
    tables = [(name, bin_table(X[:, [j]], ["c"], 16)) for j, name in enumerate("ab")]
    params = BoostingParams(n_estimators=3, max_depth=4, min_child_weight=0.0)
    model = train(tables, y, params, min_cell_records={"b": 9})
    assert model.splits["b"]
    for tree in model.ensemble.trees:
        members, owners = {1: np.arange(40)}, {split.node: split.owner for split in tree.splits}
        for split in sorted(tree.splits, key=lambda each: each.node):
            candidate, _ = model.entry(split)
            codes = dict(tables)[split.owner].codes[members[split.node], candidate.feature]
            left = codes <= candidate.bin
            members |= {2 * split.node: members[split.node][left], 2 * split.node + 1: members[split.node][~left]}
        sizes = {owner: [len(members[2 * node + side]) for node in owners if owners[node] == owner for side in (0, 1)]
                 for owner in "ab"}  # fmt: skip
        assert min(sizes["b"], default=9) >= 9
    assert train(tables, y, params).splits != model.splits

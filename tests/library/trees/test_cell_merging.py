"""Merged bins: no combination of a column's sums in a tree is over few records, shown by trying all; cuts and trees."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from treetap.errors import Malformed
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
            if grouped and (cells.any(axis=1).sum() > 1) or any(0 < cell.sum() < whole.sum() for cell in cells)
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
    """Nodes with their records, parents first; a node has none, one or both of its children, as any columns split it."""
    nodes, lean = {1: np.sort(rng.permutation(total)[: rng.integers(total // 2, total + 1)])}, rng.normal(size=total)
    for node in range(1, 1 << depth):
        if node in nodes and len(nodes[node]) > 1:
            rows = nodes[node]
            left = rng.random(len(rows)) < 0.5 if rng.random() < 0.5 else lean[rows] < np.median(lean[rows])
            children = {2 * node: rows[left], 2 * node + 1: rows[~left]}
            nodes |= {child: here for child, here in children.items() if rng.random() < 0.8}
    return nodes


def random_table(rng: np.random.Generator, total: int) -> BinnedTable:
    """A column of numbers, one with missing values, categories one against the rest, and categories to partition."""
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
        FeatureBins((0.0, 1.0, 2.0, 3.0), False),
        FeatureBins((0.0, 1.0, 2.0), True),
        FeatureBins((), True, 3, Kind.ONE_HOT),
        FeatureBins((), False, 4, Kind.PARTITIONS),
    ]
    return BinnedTable(codes, tuple(features))


@pytest.mark.parametrize("least", [2, 3])
def test_no_combination_of_a_columns_sums_is_over_few_records(least: int) -> None:
    """Random trees and columns, all kinds: sums of nodes, siblings, parents, differences of any of them, all tried."""
    rng, kept, unmerged = np.random.default_rng(least), 0, 0
    for _ in range(6):
        total = 16
        table, nodes = random_table(rng, total), random_tree(rng, total, 2)
        bins = MergedBins(table, np.arange(4), least)
        for sets in sums_sent(bins, nodes, total):
            kept += len(sets)
            assert smallest(sets, least - 1) == least
        free = MergedBins(table, np.arange(4), 1)
        unmerged += sum(smallest(sets, least - 1) < least for sets in sums_sent(free, nodes, total))
    assert kept > 100
    assert unmerged > 6

"""Levels of a tree that was trained, and their records, for estimates of its costs (`treetap.commands.capacity`)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from treetap.commands.capacity.training import Level
from treetap.trees.binning import BinnedTable
from treetap.trees.ensemble import Tree
from treetap.trees.grower import CentralTrees
from treetap.trees.tree_bins import GlobalBins, goes_left

Rows = npt.NDArray[np.int64]


def records_of(model: CentralTrees, tree: Tree, bins: Mapping[str, BinnedTable], records: int) -> dict[int, Rows]:
    """The records of each node of a tree; `bins`: of each party."""
    drawn = {1: np.arange(records)}
    for made in sorted(tree.splits, key=lambda made: made.node):
        columns = GlobalBins(bins[made.owner], np.arange(len(bins[made.owner].features)))
        mask = goes_left(columns, made.node, drawn[made.node], model.entry(made)[0])
        drawn[2 * made.node], drawn[2 * made.node + 1] = drawn[made.node][mask], drawn[made.node][~mask]
    return drawn


def grown_nodes(
    model: CentralTrees, bins: Mapping[str, BinnedTable], records: int, depth: int
) -> list[list[list[Rows]]]:
    """For each tree and level the records of each node that is summed: of two siblings those of the smaller one."""
    trees = []
    for tree in model.ensemble.trees:
        drawn = records_of(model, tree, bins, records)
        pairs = sorted({node >> 1 for node in drawn if node > 1})
        smaller = [min((2 * parent, 2 * parent + 1), key=lambda child: len(drawn[child])) for parent in pairs]
        levels: list[list[Rows]] = [[drawn[1]]] + [[] for _ in range(1, depth)]
        for node in smaller:
            if (level := node.bit_length() - 1) < depth:
                levels[level].append(drawn[node])
        trees.append(levels)
    return trees


def grown_levels(owners: Mapping[int, int], drawn: Mapping[int, int], depth: int) -> tuple[Level, ...]:
    """Levels of a tree that is known: node → the party that won it, and node → its drawn records.

    Every child above `depth` counts as one that may be split.
    """
    levels: list[Level] = []
    nodes: list[int] = [1]
    parents: tuple[int, ...] = ()
    while nodes and len(levels) < depth:
        split = [node for node in nodes if node in owners]
        pairs = zip(nodes[::2], nodes[1::2], strict=False)
        built = [min(pair, key=lambda child: drawn[child]) for pair in pairs] if levels else nodes
        levels.append(Level(tuple(drawn[node] for node in built), parents, tuple(owners[node] for node in split)))
        nodes = [2 * node + side for node in split for side in range(2)]
        parents = tuple(owners[node >> 1] for node in nodes)
    return tuple(levels)

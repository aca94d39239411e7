"""Values of leaves that differ from record to record: those at or below the roots of a tree's local subtrees.

Other parties know a tree's shape without these subtrees. A record that reaches such a leaf in that shape gets the value
that the label holder's own columns give it in the subtree.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from treetap.arrays import Array, Bools, Floats, Ints
from treetap.trees.ensemble import Leaf, Split, Subtree, Tree, route, weights_at

#: The mask of some records (rows) that go left at a split: (split, rows) → (len(rows),).
RowsLeft = Callable[[Split, Ints], Bools]
#: For a party's own handle, the records that go left (n,).
GoesLeft = Callable[[int], Bools]


def covering(tree: Tree) -> dict[int, Subtree]:
    """Heap number of each leaf that a local subtree replaces → this subtree."""
    roots = {subtree.root: subtree for subtree in tree.local}
    covered = {}
    for leaf in tree.leaves:
        node = leaf.node
        while node and node not in roots:
            node >>= 1
        if node:
            covered[leaf.node] = roots[node]
    return covered


class ValueTable:
    """All values that a tree gives to records, each a row, and which row a record has at a leaf.

    Rows are the leaves in order, without those that a local subtree replaces; then the leaves of the local subtrees.

    Attributes:
        weights: (rows, outputs).
        leaves: the leaves to which the rows belong, of the tree or of a subtree.
    """

    def __init__(self, tree: Tree) -> None:
        covered = covering(tree)
        self.leaves: list[Leaf] = [leaf for leaf in tree.leaves if leaf.node not in covered]
        own = {leaf.node: row for row, leaf in enumerate(self.leaves)}
        self._local: list[tuple[Subtree, int]] = []
        for subtree in tree.local:
            self._local.append((subtree, len(self.leaves)))
            self.leaves += subtree.leaves
        number = {id(subtree): k for k, (subtree, _) in enumerate(self._local)}
        #: Of each leaf of the tree its row, or -1 less the number of the subtree in its place.
        self._places = [own[leaf.node] if leaf.node in own else ~number[id(covered[leaf.node])] for leaf in tree.leaves]
        self.weights: Floats = np.array([leaf.weights for leaf in self.leaves], dtype=np.float64)

    def rows(self, n: int, goes_left: GoesLeft) -> list[int | Ints]:
        """Of each leaf of the tree, in order, the row of all records that reach it, or those of n records (n,)."""
        of_local: list[Ints] = []
        for subtree, first in self._local:
            reached = route(subtree.splits, n, lambda split, rows: goes_left(split.handle)[rows], subtree.root)
            nodes = np.array([leaf.node for leaf in subtree.leaves])
            order = np.argsort(nodes)
            of_local.append(first + order[np.searchsorted(nodes[order], reached)])
        return [place if place >= 0 else of_local[~place] for place in self._places]


def subtree_values(subtree: Subtree, n: int, goes_left: RowsLeft) -> Floats:
    """The values (n, outputs) that n records have in a local subtree, whatever their way to its root."""
    reached = route(subtree.splits, n, goes_left, subtree.root)
    return weights_at(subtree.leaves, reached)


def reached_values(tree: Tree, reached: Ints, goes_left: RowsLeft) -> Floats:
    """The values (N, outputs) of records that reached these leaves (N,) of the shape that all parties know.

    `goes_left` answers for the label holder's own splits, with rows from 0 to N − 1.
    """
    values = tree.values(reached)
    by_leaf = covering(tree)
    for subtree in tree.local:
        rows = np.flatnonzero(np.isin(reached, [leaf for leaf, root in by_leaf.items() if root is subtree]))
        values[rows] = subtree_values(subtree, len(rows), among(goes_left, rows))
    return values


def among(goes_left: Callable[[Split, Any], Bools], rows: Array) -> RowsLeft:
    """The same answers for places in `rows` in the place of rows."""
    return lambda split, places: goes_left(split, rows[places])

"""A tree as its label holder knows it: local subtrees in their places, and the leaf that every record reached there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treetap.trees.ensemble import Leaf, Split, Tree, at_or_below, deciding_splits, route
from treetap.trees.local_values import RowsLeft, among, covering

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class WholeTree:
    """A tree with its N records.

    Attributes:
        tree: the tree in its own form.
        splits, leaves: all of its nodes, those of local subtrees in the place of what other parties know there.
        reached: (N,) the heap number of the leaf that each record reached, one of `leaves`.
    """

    tree: Tree
    splits: tuple[Split, ...]
    leaves: tuple[Leaf, ...]
    reached: Ints

    def sums(self, values: Ints) -> dict[int, Ints]:
        """Node → the sums (S,) of values (N, S) over its records, for inner nodes and leaves."""
        numbers = np.sort(np.array([leaf.node for leaf in self.leaves], dtype=np.int64))
        totals = np.zeros((len(numbers), values.shape[1]), dtype=np.int64)
        np.add.at(totals, np.searchsorted(numbers, self.reached), values)
        found: dict[int, Ints] = dict(zip(numbers.tolist(), totals, strict=True))
        for node in sorted((split.node for split in self.splits), reverse=True):
            found[node] = found[2 * node] + found[2 * node + 1]
        return found

    def rows(self, root: int) -> Ints:
        """The records of a node, ascending."""
        below = [leaf.node for leaf in self.leaves if at_or_below(leaf.node, (root,))]
        return np.flatnonzero(np.isin(self.reached, below))


def whole_tree(tree: Tree, reached: Ints, goes_left: RowsLeft) -> WholeTree:
    """A tree with its local subtrees in their places.

    `reached`: (N,) leaves of the shape that all parties know; `goes_left` answers for splits of the label holder.
    """
    covered, found = covering(tree), np.array(reached, dtype=np.int64)
    for subtree in tree.local:
        leaves = [leaf for leaf, each in covered.items() if each is subtree]
        rows = np.flatnonzero(np.isin(reached, leaves))
        found[rows] = route(subtree.splits, len(rows), among(goes_left, rows), subtree.root)
    leaves_kept = [leaf for leaf in tree.leaves if leaf.node not in covered]
    return WholeTree(
        tree,
        deciding_splits(tree),
        (*leaves_kept, *(leaf for each in tree.local for leaf in each.leaves)),
        found,
    )

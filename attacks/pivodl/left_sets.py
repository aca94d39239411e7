"""Cells that follow from the sets of records that other parties' splits send left and right.

All parties learn the records of the children that may be split, and the sets that follow by difference; of other
leaves each owner those that it labels. An owner knows the bins of its labelled records exactly. So the cuts that send
its own records to the sides where they went tell the split's column, and bounds for the bins of all records whose side
is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from treetap.attacks.pivodl.bin_domains import BinDomains
from treetap.attacks.view.known_trees import Ints
from treetap.attacks.view.pivodl_view import PivodlTree, PivodlView

#: Most passes over all splits: each narrows what the next one has to decide by.
_PASSES = 10


@dataclass(frozen=True, eq=False)
class LeftSet:
    """A split of another party: those records of its node that are known to have gone left, and right."""

    tree: int
    node: int
    source: str
    left: Ints
    right: Ints


def left_sets(view: PivodlView) -> list[LeftSet]:
    """All that a party knows of the sides of other parties' splits."""
    return [
        LeftSet(tree.view.index, node, split.source, _side(tree, 2 * node), _side(tree, 2 * node + 1))
        for tree in view.trees
        for node, split in tree.splits.items()
        if split.source != view.party
    ]


def _side(tree: PivodlTree, child: int) -> Ints:
    rows = tree.records(child)
    return tree.labelled.get(child, np.zeros(0, dtype=np.int64)) if rows is None else rows


class KnownCuts:
    """The candidates that each split of another party can be.

    Attributes:
        cuts: (tree, node) → candidates of its source, by canonical number. Their column is known where it is the same
            of all.
    """

    def __init__(self, sets: Iterable[LeftSet], domains: Mapping[str, BinDomains]) -> None:
        self._sets, self._domains = [it for it in sets if it.source in domains], domains
        self.cuts: dict[tuple[int, int], Ints] = {}

    def learn(self) -> int:
        """Narrow the columns by all splits until nothing follows; returns the number of cells that were narrowed."""
        whole = 0
        for _ in range(_PASSES):
            narrowed = sum(self._learn(it, self._domains[it.source]) for it in self._sets)
            whole += narrowed
            if not narrowed:
                break
        return whole

    def _learn(self, split: LeftSet, domains: BinDomains) -> int:
        agreeing = domains.agreeing(split.left, split.right)
        self.cuts[split.tree, split.node] = agreeing
        column = self.column(split.tree, split.node, domains)
        if column is None:
            return 0
        to_left, to_right = domains.sides_of(agreeing)
        return domains.narrow(column, split.left, to_left) + domains.narrow(column, split.right, to_right)

    def column(self, tree: int, node: int, domains: BinDomains) -> int | None:
        """The column of a split, where only one agrees."""
        columns = np.unique(domains.candidates.feature[self.cuts.get((tree, node), np.zeros(0, dtype=np.int64))])
        return int(columns[0]) if len(columns) == 1 else None

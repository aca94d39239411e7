"""Records that a label holder may show a feature party of a growing tree, by the seed and the rules of the job.

The party computes the draw itself. Of a node that it is shown it knows the parent's records, and the fewest drawn ones
that the job's rules leave on a side of a split and in a node that may be split (`TreeParams.fewest_drawn`). A label
holder that shows others could have sums over a record by itself. A draw by labels or gradients, as GOSS has it, could
not be compared: there is none.

Nothing is compared where sets of records are withheld. Below these sizes nothing is promised: labels choose which of
the possible sets is shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from treetap.arrays import Bools
from treetap.errors import Malformed
from treetap.party.runtime.messages import REMEDY, Rows
from treetap.trees.params import FewestDrawn


class ExpectedRecords:
    """The records of one tree, as far as they can be compared.

    Args:
        sender: the label holder.
        tree: the tree's number.
        drawn: (N,) how often the job's seed draws each record, or a mask; of an eval table never.
        fewest: by the job's rules.
        max_depth: of the job.
    """

    def __init__(self, sender: str, tree: int, drawn: Rows | Bools, fewest: FewestDrawn, max_depth: int) -> None:
        self._sender, self._tree, self._drawn = sender, tree, drawn
        self._fewest, self._max_depth = fewest, max_depth

    def check_draw(self, received: Rows, *, training: int | None = None) -> None:
        """Raise `Malformed` unless the received draw (N,), as times, is that of the job's seed.

        `training`: the number of its records, where also all of them may come, each once: ID-LMID counts undrawn ones.
        """
        differs = int((received != self._drawn).sum())
        every = training is not None and bool((received == (np.arange(len(received)) < training)).all())
        if differs and not every:
            raise self._lie("build_histograms", f"a draw that differs from that of the job's seed in {differs} records")

    def check_shown(self, shown: Mapping[int, Rows], known: Mapping[int, Rows], compared: set[int]) -> None:
        """Raise `Malformed` unless nodes can have the records that are shown of them.

        `known`: node → its records, of those that the party knows already; `compared`: nodes whose sums it sent, or
        could derive as those of siblings.
        """
        within = np.zeros(len(self._drawn), dtype=bool)
        for node, rows in shown.items():
            parent, what = known.get(node >> 1), f"records of node {node}"
            if node in known:
                raise self._lie("build_histograms", f"{what}, which were known")
            if parent is None or node >> 1 not in compared:
                raise self._lie("build_histograms", f"{what}, whose parent was not to be split")
            if node.bit_length() > self._max_depth:
                raise self._lie("build_histograms", f"{what}, which is as deep as max_depth = {self._max_depth}")
            within[rows] = True
            inside = within[parent]
            within[rows] = False
            if int(inside.sum()) != len(rows):
                raise self._lie("build_histograms", f"{what} that are not among its parent's")
            sibling = shown.get(node ^ 1, known.get(node ^ 1))
            if sibling is not None and not np.array_equal(parent[~inside], sibling):
                raise self._lie("build_histograms", f"{what} that are not its parent's without its sibling's")
            count, whole = self._count(rows), self._count(parent)
            if count < self._fewest.to_split:
                raise self._lie("build_histograms", f"{what}, {self._few(count, self._fewest.to_split)}")
            if whole - count < self._fewest.of_side:
                raise self._lie(
                    "build_histograms",
                    f"{what} that leave node {node ^ 1} {self._few(whole - count, self._fewest.of_side)}",
                )

    def check_sides(self, node: int, sides: Sequence[Rows]) -> None:
        """Raise `Malformed` unless the job's rules let a won split of a node divide its records so."""
        count = min(map(self._count, sides))
        if count < self._fewest.of_side:
            raise self._lie(
                "apply_splits",
                f"a winning candidate of node {node} with a side of {self._few(count, self._fewest.of_side)}",
            )

    def not_to_be_split(self, node: int) -> Malformed:
        """The error for a winner at a node that was not compared, or is split already."""
        return self._lie("apply_splits", f"a winning candidate of node {node}, which is not to be split")

    def _count(self, rows: Rows) -> int:
        return int(self._drawn[rows].sum())

    def _few(self, count: int, least: int) -> str:
        return f"{count} drawn records, where the job's rules leave {least}"

    def _lie(self, step: str, what: str) -> Malformed:
        return Malformed(f"{self._sender} sent, in {step} of tree {self._tree}, {what}; {REMEDY.format(self._sender)}")

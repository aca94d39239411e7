"""One tree on a joined table, level by level: the growth that the federation must equal."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from treetap.trees.candidates import Candidate
from treetap.trees.criterion import Criterion
from treetap.trees.ensemble import ROOT, Leaf, Split, Tree
from treetap.trees.tree_bins import GlobalBins, NodeBins, goes_left, left_sums_of

Ints = npt.NDArray[np.int64]
#: A split in its owner's table: the candidate by the owner's own column, and its threshold.
Entry = tuple[Candidate, float]


class Grower:
    """Grows one tree.

    State per node of the frontier: `members` all its records, `sums` over its drawn records, `lefts` the left sums of
    every candidate, party by party. With bins of the job a sibling's sums come by subtraction, which integers make
    exact.

    Args:
        bins: the parties' columns by name, in tie order; all `GlobalBins` or all `NodeBins`.
        values: (N, S) the criterion's summands, multiplied by the number of draws; the last slot is that number.
        splits: the parties' split tables, to which this adds.
    """

    def __init__(
        self,
        bins: Sequence[tuple[str, GlobalBins | NodeBins]],
        values: Ints,
        criterion: Criterion,
        max_depth: int,
        splits: dict[str, list[Entry]],
    ) -> None:
        self._bins, self._values, self._criterion, self._max_depth, self._splits = (
            bins,
            values,
            criterion,
            max_depth,
            splits,
        )
        self._drawn = values[:, -1] > 0
        self._members: dict[int, Ints] = {ROOT: np.arange(len(values))}
        self._sums: dict[int, Ints] = {ROOT: values.sum(axis=0)}
        self._lefts: dict[int, list[Ints]] = {}

    def grow(self, index: int, outputs: tuple[int, ...]) -> tuple[Tree, Ints]:
        """The tree and the leaf that every record reached (N,)."""
        reached = np.ones(len(self._values), dtype=np.int64)
        splits: list[Split] = []
        leaves: list[Leaf] = []
        frontier = [ROOT]
        self._count([ROOT])
        for depth in range(self._max_depth + 1):
            chosen = self._choose(frontier) if depth < self._max_depth else {}
            for node in frontier:
                cover = self._criterion.cover(self._sums[node])
                if node in chosen:
                    party, k, gain = chosen[node]
                    handle = self._file(node, party, k)
                    splits.append(Split(node, self._bins[party][0], handle, self._criterion.shown(gain), cover))
                    self._divide(node, party, k)
                    for child in (2 * node, 2 * node + 1):
                        reached[self._members[child]] = child
                else:
                    leaves.append(Leaf(node, tuple(float(w) for w in self._criterion.leaf(self._sums[node])), cover))
            if depth + 1 < self._max_depth:
                self._count_children(sorted(chosen))
            frontier = [child for node in sorted(chosen) for child in (2 * node, 2 * node + 1)]
        return Tree(index, outputs, tuple(splits), tuple(leaves)), reached

    def divisible(self) -> frozenset[int]:
        """Nodes that the stopping rules would let split, also if no split was found."""
        return frozenset(
            node
            for node, sums in self._sums.items()
            if node.bit_length() - 1 < self._max_depth and self._criterion.may_split(sums)
        )

    def _count(self, nodes: Sequence[int]) -> None:
        """Left sums over the drawn records of these nodes, of every candidate of every party."""
        rows = [self._members[node][self._drawn[self._members[node]]] for node in nodes]
        by_party = [left_sums_of(bins, self._values, nodes, rows) for _, bins in self._bins]
        for i, node in enumerate(nodes):
            self._lefts[node] = [part[i] for part in by_party]

    def _choose(self, frontier: Sequence[int]) -> dict[int, tuple[int, int, float]]:
        """node → (party, candidate, gain) for the nodes that split."""
        if not frontier:
            return {}
        parents = np.stack([self._sums[node] for node in frontier])
        gains = [
            self._criterion.gains(np.stack([self._lefts[node][party] for node in frontier]), parents)
            for party in range(len(self._bins))
        ]
        chosen: dict[int, tuple[int, int, float]] = {}
        for i, node in enumerate(frontier):
            decision = self._criterion.choose([part[i] for part in gains])
            if decision is not None:
                party, tied = decision
                chosen[node] = (party, int(tied[0]), float(gains[party][i, tied[0]]))
        return chosen

    def _file(self, node: int, party: int, k: int) -> int:
        """Enter candidate k of a node in its owner's split table, by the owner's own column; returns the handle."""
        name, bins = self._bins[party]
        local = bins.candidates.at(k)
        table = self._splits[name]
        own = Candidate(int(bins.kept[local.feature]), local.bin, local.missing_left)
        table.append((own, bins.cut(node, local)))
        return len(table) - 1

    def _divide(self, node: int, party: int, k: int) -> None:
        """Members and sums of the children."""
        rows = self._members.pop(node)
        bins = self._bins[party][1]
        left = goes_left(bins, node, rows, bins.candidates.at(k))
        self._members[2 * node], self._members[2 * node + 1] = rows[left], rows[~left]
        self._sums[2 * node] = self._lefts[node][party][k]
        self._sums[2 * node + 1] = self._sums[node] - self._sums[2 * node]

    def _count_children(self, parents: Sequence[int]) -> None:
        """Left sums of the children; with bins of the job of the smaller ones, the larger ones' by subtraction."""
        if not parents:
            return
        if not isinstance(self._bins[0][1], GlobalBins):
            self._count([child for node in parents for child in (2 * node, 2 * node + 1)])
            return
        small = [2 * node + int(self._sums[2 * node][-1] > self._sums[2 * node + 1][-1]) for node in parents]
        self._count(small)
        for node, child in zip(parents, small, strict=True):
            whole = self._lefts.pop(node)
            self._lefts[child ^ 1] = [total - part for total, part in zip(whole, self._lefts[child], strict=True)]

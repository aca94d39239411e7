"""One tree on a joined table: the growth that the federation must equal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from treetap.trees.candidates import Candidate
from treetap.trees.criterion import Criterion
from treetap.trees.ensemble import ROOT, Leaf, Split, Subtree, Tree, weights_at
from treetap.trees.expansion import ExpansionRules, Expansions
from treetap.trees.monotone import MarkedCandidates, Monotone
from treetap.trees.partitions import NodeCandidates
from treetap.trees.tree_bins import GlobalBins, NodeBins, goes_left, left_sums_of
from treetap.trees.withholding import InformationLimit

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bins = Sequence[tuple[str, GlobalBins | NodeBins]]
#: A split in its owner's table: the candidate by the owner's own column, and its threshold.
Entry = tuple[Candidate, float]


@dataclass(frozen=True)
class GrownTree:
    """A tree, and the value (N, outputs) that it gives to every record."""

    tree: Tree
    values: Floats


@dataclass(frozen=True)
class _Best:
    """A node's split: party, candidate by its place among the tree's columns, its left sums, gain and direction."""

    party: int
    candidate: Candidate
    left: Ints
    gain: float
    direction: int


class Grower:
    """Grows one tree.

    State per node of the frontier: `members` all its records, `sums` over its drawn records, `lefts` the left sums of
    every candidate and the sums over categories to be partitioned, party by party. With bins of the job a
    sibling's sums come by subtraction, which integers make exact.

    With a limit, candidates of the parties after the first that the limit forbids are left out, and a node whose best
    split is a forbidden one of the first party is withdrawn: the first party grows it alone (Takahashi, Liu, Liu 2023,
    Algorithm 5).

    Args:
        bins: the parties' columns by name, in tie order, the label holder first; all `GlobalBins` or all `NodeBins`.
        values: (N, S) the criterion's summands, multiplied by the number of draws; the last slot is that number. Behind
            them may be slots of the limit.
        rules: the order of splits, and their limits.
        splits: the parties' split tables, to which this adds.
        limit: see `treetap.trees.withholding`.
        monotone: see `treetap.trees.monotone`; None: no party has constraints.
        root: the node to begin with, and `rows` its records; without them the root of the tree, and all records.
    """

    def __init__(
        self,
        bins: Bins,
        values: Ints,
        criterion: Criterion,
        rules: ExpansionRules,
        splits: dict[str, list[Entry]],
        limit: InformationLimit | None = None,
        monotone: Monotone | None = None,
        root: int = ROOT,
        rows: Ints | None = None,
    ) -> None:
        self._bins, self._values, self._criterion, self._rules, self._splits = bins, values, criterion, rules, splits
        self._limit, self._monotone, self._root = limit, monotone, root
        self._width = values.shape[1] if limit is None else limit.width
        self._drawn = values[:, self._width - 1] > 0
        here = np.arange(len(values)) if rows is None else rows
        self._members: dict[int, Ints] = {root: here}
        self._sums: dict[int, Ints] = {root: values[here].sum(axis=0)}
        self._lefts: dict[int, list[Ints]] = {}
        self._withdrawn: set[int] = set()
        self._compared: set[int] = set()

    def grow(self, index: int, outputs: tuple[int, ...], *, alone: bool = False) -> GrownTree:
        """The tree, with withdrawn nodes as local subtrees; `alone`: the first party grows all of it."""
        if alone:
            self._withdrawn = {ROOT}
        splits, leaves = ([], [self._leaf(ROOT)]) if alone else self._grow()
        values = np.empty((len(self._values), len(outputs)))
        for leaf in leaves:
            values[self._members[leaf.node]] = leaf.weights
        local = []
        for node in sorted(self._withdrawn):
            subtree, values[self._members[node]] = grow_alone(
                self._bins[0], self._values[:, : self._width], self._criterion, self._rules, self._splits, node,
                self._members[node], self._monotone,
            )  # fmt: skip
            local.append(subtree)
        return GrownTree(Tree(index, outputs, tuple(splits), tuple(leaves), tuple(local)), values)

    def below(self) -> tuple[Subtree, Floats]:
        """The subtree below and including the root, and the values (n, outputs) of the root's records."""
        here = self._members[self._root]
        splits, leaves = self._grow()
        reached = np.zeros(len(self._values), dtype=np.int64)
        for leaf in leaves:
            reached[self._members[leaf.node]] = leaf.node
        return Subtree(self._root, tuple(splits), tuple(leaves)), weights_at(leaves, reached[here])

    def _grow(self) -> tuple[list[Split], list[Leaf]]:
        expansions = Expansions(self._rules)
        best: dict[int, _Best] = {}
        splits: dict[int, Split] = {}
        frontier = [] if self._rules.at_bottom(self._root) else [self._root]
        self._count(frontier)
        while True:
            found = self._choose(frontier)
            best |= found
            for node, each in found.items():
                expansions.offer(node, each.gain)
            made = self._split_next(expansions, best, splits)
            parents = [] if expansions.complete else [node for node in made if not self._rules.at_bottom(2 * node)]
            if not made or not (parents or self._rules.one_by_one):
                break
            self._count_children(parents)
            frontier = [child for node in parents for child in (2 * node, 2 * node + 1)]
        leaves = sorted(node for node in self._members if node not in splits)
        return [splits[node] for node in sorted(splits)], [self._leaf(node) for node in leaves]

    def _split_next(self, expansions: Expansions, best: Mapping[int, _Best], splits: dict[int, Split]) -> list[int]:
        """Split the nodes of a level, or one node; returns them in order."""
        made: list[int] = []
        while not (made and self._rules.one_by_one) and (node := expansions.take()) is not None:
            found = best[node]
            cover, gain = self._criterion.cover(self._own_sums(node)), self._criterion.shown(found.gain)
            splits[node] = Split(node, self._bins[found.party][0], self._file(node, found), gain, cover)
            self._divide(node, found)
            made.append(node)
        return made

    def _leaf(self, node: int) -> Leaf:
        sums = self._own_sums(node)
        weights = self._criterion.leaf(sums) if self._monotone is None else self._monotone.leaf(node, sums)
        return Leaf(node, tuple(float(w) for w in weights), self._criterion.cover(sums))

    def _own_sums(self, node: int) -> Ints:
        """The criterion's slots of a node's sums."""
        return self._sums[node][: self._width]

    def divisible(self) -> frozenset[int]:
        """Nodes that were compared and that the stopping rules would let split, also if no split was found."""
        return frozenset(
            node
            for node, sums in self._sums.items()
            if node in self._compared and self._criterion.may_split(sums[: self._width])
        )

    def _count(self, nodes: Sequence[int]) -> None:
        """Sums over the drawn records of these nodes, for every candidate of every party."""
        # a limit may count records that are not drawn
        rows = [
            self._members[node] if self._limit else self._members[node][self._drawn[self._members[node]]]
            for node in nodes
        ]
        by_party = [left_sums_of(bins, self._values, nodes, rows) for _, bins in self._bins]
        for i, node in enumerate(nodes):
            self._lefts[node] = [part[i] for part in by_party]

    def _candidates(self, node: int) -> list[MarkedCandidates]:
        """Each party's candidates of a node."""
        rule, total, found = self._criterion.partitions, self._sums[node], []
        for party, (sums, (_, bins)) in enumerate(zip(self._lefts[node], self._bins, strict=True)):
            made = NodeCandidates(sums, total, bins.candidates.groups, rule, self._width)
            found.append(MarkedCandidates(made, None if self._monotone is None else self._monotone.marks[party], total))
        return found

    def _choose(self, frontier: Sequence[int]) -> dict[int, _Best]:
        """The best splits of the nodes that split."""
        if not frontier:
            return {}
        self._compared |= set(frontier)
        candidates = [self._candidates(node) for node in frontier]
        gains = [self._gains(frontier, [of[party] for of in candidates]) for party in range(len(self._bins))]
        chosen: dict[int, _Best] = {}
        for i, node in enumerate(frontier):
            offered, lefts = [part[i] for part in gains], [each.lefts for each in candidates[i]]
            if self._limit is not None:
                offered = self._limit.forbid(offered, lefts, self._sums[node])
            decision = self._criterion.choose(offered)
            if decision is None:
                continue
            party, k = decision[0], int(candidates[i][decision[0]].first_of(decision[1])[0])
            if self._limit is not None and not self._limit.allows(lefts[party][[k]], self._sums[node])[0]:
                self._withdrawn.add(node)
            else:
                each = candidates[i][party]
                candidate, gain = self._bins[party][1].candidate(each.place(k)), float(gains[party][i, k])
                chosen[node] = _Best(party, candidate, lefts[party][k], gain, each.direction(k))
        return chosen

    def _gains(self, frontier: Sequence[int], candidates: Sequence[MarkedCandidates]) -> Floats:
        """Gains (nodes, candidates) of one party, by its candidates of each node."""
        parents = np.stack([self._own_sums(node) for node in frontier])
        if self._monotone is None:
            return self._criterion.gains(np.stack([each.lefts[:, : self._width] for each in candidates]), parents)
        gains = self._monotone.gains
        return np.stack([gains(node, candidates[i], parents[i]) for i, node in enumerate(frontier)])

    def _file(self, node: int, best: _Best) -> int:
        """Enter a node's split in its owner's split table, by the owner's own column; returns the handle."""
        name, bins = self._bins[best.party]
        table = self._splits[name]
        own = replace(best.candidate, feature=int(bins.kept[best.candidate.feature]))
        table.append((own, bins.cut(node, best.candidate)))
        return len(table) - 1

    def _divide(self, node: int, best: _Best) -> None:
        """Members and sums of the children."""
        rows = self._members[node]
        left = goes_left(self._bins[best.party][1], node, rows, best.candidate)
        self._members[2 * node], self._members[2 * node + 1] = rows[left], rows[~left]
        self._sums[2 * node] = best.left
        self._sums[2 * node + 1] = self._sums[node] - self._sums[2 * node]
        if self._monotone is not None:
            self._monotone.divide(node, best.direction, self._own_sums(2 * node), self._own_sums(node))

    def _count_children(self, parents: Sequence[int]) -> None:
        """Left sums of the children; with bins of the job of the smaller ones, the larger ones' by subtraction."""
        if not parents:
            return
        if not isinstance(self._bins[0][1], GlobalBins):
            self._count([child for node in parents for child in (2 * node, 2 * node + 1)])
            return
        count = self._width - 1
        small = [2 * node + int(self._sums[2 * node][count] > self._sums[2 * node + 1][count]) for node in parents]
        self._count(small)
        for node, child in zip(parents, small, strict=True):
            whole = self._lefts.pop(node)
            self._lefts[child ^ 1] = [total - part for total, part in zip(whole, self._lefts[child], strict=True)]


def grow_alone(
    bins: tuple[str, GlobalBins | NodeBins],
    values: Ints,
    criterion: Criterion,
    rules: ExpansionRules,
    splits: dict[str, list[Entry]],
    root: int,
    rows: Ints,
    monotone: Monotone | None = None,
) -> tuple[Subtree, Floats]:
    """A subtree by one party's columns alone, and the values (n, outputs) of its records `rows`.

    The arguments are those of `Grower`, which has further parties; `monotone` is that of the whole tree.
    """
    own = None if monotone is None else monotone.of_first()
    return Grower([bins], values, criterion, rules, splits, monotone=own, root=root, rows=rows).below()

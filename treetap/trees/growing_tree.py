"""One tree as the label holder grows it: mathematics only, no messages.

Nodes have heap numbers: root 1, children of u are 2u (left) and 2u+1 (right). Sums are exact integers. With the bins
of the job only the smaller child of a pair is summed by the feature parties, its sibling's candidates are the parent's
less its own; with bins of their own both children are summed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from treetap.errors import Malformed
from treetap.trees.boosting_criterion import BoostingCriterion
from treetap.trees.criterion import Criterion
from treetap.trees.ensemble import ROOT, Leaf, Split, Subtree, Tree
from treetap.trees.expansion import ExpansionRules, Expansions
from treetap.trees.monotone import MarkedCandidates, Monotone
from treetap.trees.partitions import Group, NodeCandidates, Partition
from treetap.trees.withholding import InformationLimit

Ints = np.ndarray[tuple[int, ...], np.dtype[np.int64]]
Rows = np.ndarray[tuple[int], np.dtype[np.int64]]
Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


@dataclass(frozen=True)
class Choice:
    """The winner of a node: the party, all its tied candidates and partitions of categories, and their gain.

    Of a column's tied partitions only the first is there, the one that XGBoost takes. `lefts`: their left sums.
    `direction`: that of a monotone constraint of their columns, the same for all; 0: none.
    """

    node: int
    party: int
    candidates: list[int]
    partitions: list[Partition]
    gain: float
    lefts: Ints
    direction: int


@dataclass(frozen=True)
class Made:
    """A split that was carried out."""

    node: int
    party: int
    handle: int
    gain: float
    cover: float


class GrowingTree:
    """Instance spaces, sums and candidates of the tree under construction.

    Args:
        values: (N, S) int64: the criterion's summands, multiplied by the number of draws; the last slot is that number.
        criterion: gains, stopping and leaves.
        rules: the order of splits, and their limits.
        subtract: True if a sibling's candidates follow from the parent's.
        limit: the sets of records that other parties may see (ID-LMID); its slots lie behind the criterion's.

    Attributes:
        monotone: the constraints of weights, once a party has any.
        withdrawn: nodes whose best split is the label holder's own and breaks the limit: leaves for all others, which
            the label holder grows further alone.
    """

    def __init__(
        self,
        values: Ints,
        criterion: Criterion,
        rules: ExpansionRules,
        *,
        subtract: bool,
        limit: InformationLimit | None = None,
    ) -> None:
        self._values, self._criterion, self._rules, self._subtract = values, criterion, rules, subtract
        self._limit, self._width = limit, values.shape[1] if limit is None else limit.width
        self.withdrawn: list[int] = []
        self.rows: dict[int, Rows] = {ROOT: np.arange(len(values), dtype=np.int64)}
        self.sums: dict[int, Ints] = {ROOT: values.sum(axis=0)}
        self.frontier: list[int] = [ROOT]
        self.build: list[int] = [ROOT]
        self.made: dict[int, Made] = {}
        self.choices: dict[int, Choice] = {}
        self._groups: Sequence[Sequence[Group]] = ()
        self._expansions = Expansions(rules)
        self._best: dict[int, Choice] = {}  # of nodes that wait to be split
        self._candidates: dict[int, list[Ints]] = {}  # of these, and of those being built
        self._parents: dict[int, list[Ints]] = {}
        self.monotone: Monotone | None = None

    def constrain(self, marks: Sequence[Ints | None]) -> None:
        """Set the marks of each party's candidates before the first are compared: see `treetap.trees.monotone`.

        Raises:
            Malformed: the tree can have no constraints.
        """
        if not isinstance(self._criterion, BoostingCriterion) or self._width != 3:
            raise Malformed("monotone constraints are of boosted trees whose leaves have one weight")
        self.monotone = Monotone(self._criterion, marks)

    def check_offered(self, sums: Ints) -> None:
        """Check another party's left sums, one (len(build), candidates, S) array, before anything depends on them.

        The bounds follow from numbers of records, which that party knows, and from the range of a record's value: an
        error depends on no label.

        Raises:
            Malformed: no records of a node can have such sums.
        """
        inner, last = sums[..., : self._width - 1], sums[..., self._width - 1]
        least, most = self._criterion.ranges(self._width)
        drawn = np.array([self.sums[node][self._width - 1] for node in self.build])[:, np.newaxis]
        records = np.array([len(self.rows[node]) for node in self.build])[:, np.newaxis]
        impossible = (last < 0) | (last > drawn)
        counts = np.clip(last, 0, drawn)[..., np.newaxis]
        impossible |= ((inner < least * counts) | (inner > most * counts)).any(axis=-1)
        classes = sums[..., self._width :]
        impossible |= (classes < 0).any(axis=-1) | (classes.sum(axis=-1) > records)
        if impossible.any():
            node = self.build[int(np.flatnonzero(impossible.any(axis=1))[0])]
            raise Malformed(f"sums of node {node} are such that no records of it can have them")

    def take_candidates(self, by_party: Sequence[Ints], groups: Sequence[Sequence[Group]]) -> None:
        """Left sums of the nodes in `build`, one (len(build), candidates, S) array per party; siblings follow.

        `groups`: each party's places of sums over the categories of a column, which are to be partitioned.
        """
        self._groups = groups
        built = {node: [sums[place] for sums in by_party] for place, node in enumerate(self.build)}
        for node in self.frontier:
            if node not in built:
                parent, sibling = self._parents[node >> 1], built[node ^ 1]
                built[node] = [whole - part for whole, part in zip(parent, sibling, strict=True)]
        self._candidates |= built
        self._parents = {}

    def choose(self) -> list[Choice]:
        """Find the best split of every node of the frontier; returns the splits to carry out, in their order.

        Where a node's children must be compared with all others, no split follows it, unless the children are leaves
        whichever of the tied candidates their owner takes.
        """
        for node in self.frontier:
            if (choice := self._choice(node)) is not None:
                self._best[node] = choice
                self._expansions.offer(node, choice.gain)
        self.choices = {}
        while (first := self._expansions.take()) is not None:
            self.choices[first] = self._best.pop(first)
            if self._rules.one_by_one and self._may_open(self.choices[first]):
                break
        self._candidates = {node: self._candidates[node] for node in (*self._best, *self.choices)}
        return list(self.choices.values())

    def _choice(self, node: int) -> Choice | None:
        """The best split of a node; None for a leaf, and for a node that is withdrawn."""
        candidates = self._candidates_of(node)
        lefts = [each.lefts for each in candidates]
        gains = [self._gains(node, each) for each in candidates]
        if self._limit is not None:
            try:
                gains = self._limit.forbid(gains, lefts, self.sums[node])
            except ValueError as fault:
                raise Malformed(f"a party offered sums of node {node} that no records have") from fault
        best = self._criterion.choose(gains)
        if best is None:
            return None
        party, tied = best
        tied = candidates[party].first_of(tied)
        # ID-LMID, lines 6 and 7; the label holder carries out the first of its tied candidates
        if self._limit is not None and not self._limit.allows(lefts[party][tied[:1]], self.sums[node])[0]:
            self.withdrawn.append(node)
            return None
        places = [candidates[party].place(int(k)) for k in tied]
        ordinary = [each for each in places if isinstance(each, int)]
        partitions = {each.group: each for each in reversed(places) if isinstance(each, Partition)}
        gain = self._criterion.shown(float(gains[party][tied[0]]))
        direction = candidates[party].direction(int(tied[0]))
        return Choice(node, party, ordinary, list(partitions.values()), gain, lefts[party][tied], direction)

    def _candidates_of(self, node: int) -> list[MarkedCandidates]:
        """Each party's candidates of a node of the frontier."""
        rule, total, found = self._criterion.partitions, self.sums[node], []
        for party, (sums, groups) in enumerate(zip(self._candidates[node], self._groups, strict=True)):
            made = NodeCandidates(sums, total, groups, rule, self._width)
            found.append(MarkedCandidates(made, None if self.monotone is None else self.monotone.marks[party], total))
        return found

    def _gains(self, node: int, candidates: MarkedCandidates) -> Floats:
        """Gains (candidates,) of a party's candidates at a node."""
        total = self.sums[node][: self._width]
        if self.monotone is not None:
            return self.monotone.gains(node, candidates, total)
        gains: Floats = self._criterion.gains(candidates.lefts[np.newaxis, :, : self._width], total[np.newaxis])[0]
        return gains

    def _may_open(self, choice: Choice) -> bool:
        """True if a child of a split could be split further."""
        whole = self.sums[choice.node]
        children = [*choice.lefts, *(whole - choice.lefts)]
        return not self._rules.at_bottom(2 * choice.node) and any(self._may_be_split(sums) for sums in children)

    def split(self, node: int, handle: int, left: Rows) -> None:
        """Carry out the choice of a node; `Malformed` where the owner's children do not fit."""
        choice = self.choices[node]
        rows = self.rows[node]
        goes_left = np.zeros(len(self._values), dtype=bool)
        goes_left[left] = True
        within = goes_left[rows]
        if int(within.sum()) != len(left):
            raise Malformed(f"the children of node {node} hold records that never reached it")
        for child, child_rows in ((2 * node, rows[within]), (2 * node + 1, rows[~within])):
            self.rows[child] = child_rows
            self.sums[child] = self._values[child_rows].sum(axis=0)
        promised = [tuple(left) for left in choice.lefts]
        if tuple(self.sums[2 * node]) not in promised:
            raise Malformed(f"the children of node {node} do not have the sums that its owner offered")
        self.made[node] = Made(node, choice.party, handle, choice.gain, self.cover(node))
        if self.monotone is not None:
            sums, width = self.sums, self._width
            self.monotone.divide(node, choice.direction, sums[2 * node][:width], sums[node][:width])

    def cover(self, node: int) -> float:
        """The weight of a node's sampled records."""
        return self._criterion.cover(self.sums[node][: self._width])

    def next_stage(self) -> None:
        """Move to the children of the splits just made: those that may be split, and those to be summed."""
        self.frontier, self.build = [], []
        for node in self.choices:
            pair = [2 * node, 2 * node + 1]
            open_children = (
                []
                if self._expansions.complete or self._rules.at_bottom(2 * node)
                else [child for child in pair if self._may_be_split(self.sums[child])]
            )
            whole = self._candidates.pop(node)
            if open_children:
                self.frontier += open_children
                smaller = min(pair, key=lambda child: int(self.sums[child][self._width - 1]))
                self.build += [smaller] if self._subtract else open_children
                self._parents[node] = whole
        waiting = self._expansions.first
        if not self.build and waiting is not None:
            # Children that could have been split cannot, by the candidate that its owner took among tied ones. Other
            # nodes wait, and every stage has sums: those of one of them come again.
            self.build = [waiting]

    def known_to(self, party: int) -> list[int]:
        """The nodes of the stage just begun whose records a party comes to know, if it takes part in the tree.

        Those of its own splits, those that the label holder relays, and the siblings of these, as the difference from
        the parent.
        """
        relayed = {node >> 1 for node in self.frontier}
        known = [node for node, choice in self.choices.items() if choice.party == party or node in relayed]
        return [child for node in sorted(known) for child in (2 * node, 2 * node + 1)]

    def _may_be_split(self, sums: Ints) -> bool:
        """True if a split of a node with these sums could pass the stopping rules."""
        return self._criterion.may_split(sums[: self._width])

    def leaves(self) -> list[int]:
        """Leaves in order, left to right."""
        order: list[int] = []
        stack = [ROOT]
        while stack:
            node = stack.pop()
            if node in self.made:
                stack += [2 * node + 1, 2 * node]
            else:
                order.append(node)
        return order

    def finished(
        self, index: int, outputs: tuple[int, ...], names: Sequence[str], local: Sequence[Subtree] = ()
    ) -> Tree:
        """The tree as the model has it, its owners by name; `local`: subtrees of the nodes that are withdrawn."""
        splits = (
            Split(made.node, names[made.party], made.handle, made.gain, made.cover)
            for _, made in sorted(self.made.items())
        )
        leaves = (
            Leaf(leaf, tuple(float(w) for w in self._weights(leaf, self.sums[leaf][: self._width])), self.cover(leaf))
            for leaf in self.leaves()
        )
        return Tree(index, outputs, tuple(splits), tuple(leaves), tuple(local))

    def _weights(self, leaf: int, sums: Ints) -> Floats:
        """The value (outputs,) of a leaf with these sums (S,)."""
        return self._criterion.leaf(sums) if self.monotone is None else self.monotone.leaf(leaf, sums)

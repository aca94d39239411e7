"""One tree while it grows, wherever its columns are: mathematics only, no messages.

Nodes have heap numbers: root 1, children of u are 2u (left) and 2u+1 (right). Sums are exact integers. With the bins
of the job only the smaller child of a pair is summed, its sibling's candidates are the parent's less its own; with bins
of their own, merged ones of any party (`treetap.trees.cell_merging`) or noise (`noised_sums`) both children are summed.

The label holder of a job gets the other parties' sums and the rows of their splits in messages.
`treetap.trees.centralised` grows a tree all of whose columns are at hand, and the parts of a tree that the label holder
grows alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from treetap.arrays import Bools, Floats, Ints, Rows
from treetap.errors import Malformed
from treetap.trees.boosting_criterion import BoostingCriterion, Monotone
from treetap.trees.candidates import NodeCandidates, Partition
from treetap.trees.ensemble import ROOT, Leaf, Split, Subtree, Tree
from treetap.trees.exact_rule import ExactRule
from treetap.trees.expansion import ExpansionRules, Expansions
from treetap.trees.noised_sums import Criterion, Drawn, SumNoise, fair_gains
from treetap.trees.withholding import InformationLimit

Values = TypeVar("Values", bound=np.ndarray[tuple[int, ...], np.dtype[np.int64]])


def with_zeros(values: Values, records: int) -> Values:
    """Values (n, ...) of the records of a training, and zeros for those of an eval table behind them: (N, ...)."""
    if len(values) == records:
        return values
    padding = [(0, records - len(values)), *[(0, 0)] * (values.ndim - 1)]
    return np.pad(values, padding)  # type: ignore[return-value] # of the same shape but for its length


@dataclass(frozen=True)
class Choice:
    """The winner of a node: the party, all its tied candidates in their order, and their gain.

    `tied`: none of a party that alone knows its winner. `lefts`: their left sums. `direction`: that of a monotone
    constraint of their columns, the same for all; 0: none.
    """

    node: int
    party: int
    tied: list[int | Partition]
    gain: float
    lefts: Ints
    direction: int

    @property
    def candidates(self) -> list[int]:
        """The places of the tied candidates that are no partitions."""
        return [place for place in self.tied if isinstance(place, int)]

    @property
    def partitions(self) -> list[Partition]:
        """The first of the tied partitions of each column, the one that XGBoost takes."""
        first = {place.group: place for place in reversed(self.tied) if isinstance(place, Partition)}
        return list(first.values())


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
        alone: the first party, the label holder, grows the whole tree alone, see `below`.
        left_first: of siblings the left one is summed, not the one of fewer records.
        width: the slots of the criterion, where further ones that it does not look at lie behind them.
        padded: others are asked for the sums of all nodes of a full tree that are no right children.
        part: the node to begin with, and its records; without it the root of the tree, and all records.

    Attributes:
        values, padded: the arguments.
        lacking: by number of party, of those that lack records, the mask (N,) of these; its sums are without them.
        limited: True if other parties may not see all sets of records.
        monotone: the constraints of weights, once a party has any.
        frontier: the nodes to be compared, and `build` those of them to be summed.
        least_sides: of numbers of parties, the fewest drawn records on a side of their splits.
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
        alone: bool = False,
        left_first: bool = False,
        padded: bool = False,
        width: int | None = None,
        part: tuple[int, Rows] | None = None,
    ) -> None:
        self.values, self._criterion, self._rules, self._subtract = values, criterion, rules, subtract
        self._left_first, self.padded, self._stage = left_first, padded, 0
        self.lacking: Mapping[int, Bools] = {}
        root, rows = part or (ROOT, np.arange(len(values), dtype=np.int64))
        self._limit, self._root = limit, root
        self._width = width or (values.shape[1] if limit is None else limit.width)
        self.limited = limit is not None
        drawn = values[:, self._width - 1] > 0
        # a limit may count records that are not drawn
        self._drawn = None if limit is not None or drawn.all() else drawn
        self.withdrawn: list[int] = [root] if alone else []
        self.rows: dict[int, Rows] = {root: rows}
        self.sums: dict[int, Ints] = {root: (values if part is None else values[rows]).sum(axis=0)}
        self.frontier: list[int] = [] if alone or rules.at_bottom(root) else [root]
        self.build: list[int] = [*self.frontier]
        self._compared = set(self.frontier)
        self.made: dict[int, Made] = {}
        self.choices: dict[int, Choice] = {}
        self._groups: Sequence[Sequence[range]] = ()
        self._expansions = Expansions(rules)
        self._best: dict[int, Choice] = {}  # of nodes that wait to be split
        self._candidates: dict[int, list[Ints]] = {}  # of these, and of those being built
        self._parents: dict[int, list[Ints]] = {}
        self.monotone: Monotone | None = None
        self._noised: dict[int, tuple[SumNoise, Drawn | None]] = {}
        self.least_sides: dict[int, int] = {}

    def constrain(self, marks: Sequence[Ints | None]) -> None:
        """Set the marks of each party's candidates, before the first are compared.

        Raises:
            Malformed: a party has constraints, and the tree can have none.
        """
        if all(of_party is None for of_party in marks):
            return
        if not isinstance(self._criterion, BoostingCriterion) or self._width != 3:
            raise Malformed("monotone constraints are of boosted trees whose leaves have one weight")
        self.monotone = Monotone(self._criterion, marks)

    def sum_both(self) -> None:
        """Have the sums of both children made from now on: a party's do not follow from the parent's."""
        self._subtract = False

    def expect_noise(self, party: int, noise: SumNoise, drawn: Drawn | None = None) -> None:
        """Take a party's sums as noised from now on; `drawn`: noise to add to exact ones.

        Children of its splits have their own exact sums. A split that leaves a side without a drawn record is not
        carried out, and its node is a leaf.
        """
        self._noised[party] = noise, drawn
        self.sum_both()

    @property
    def exact_rule(self) -> ExactRule | None:
        """The integers by which candidates are compared; None where floats do it, by bounded weights or with noise."""
        return None if self.monotone or self._noised else self._criterion.exact_rule(self._width)

    @property
    def asked(self) -> list[int]:
        """The nodes whose sums other parties make at this stage: those of `build`, in their order.

        Padded, all nodes of the level that are no right children: those that are not in the tree have no records.
        """
        if not self.padded or not self._stage:
            return self.build
        return [*range(1 << self._stage, 2 << self._stage, 2)] if self._stage < self._rules.max_depth else []

    def rows_asked(self, node: int) -> Rows:
        """The records of a node of `asked`."""
        return self.rows[node] if node in self.build else np.empty(0, dtype=np.int64)

    def take_asked(self, sums: Ints) -> Ints:
        """Of the sums of all nodes in `asked`, (nodes, ...), those of `build`.

        The others are of nodes that the tree does not have. To look at them would tell a liar which they are.
        """
        return sums[np.isin(self.asked, self.build)] if self.padded else sums

    def summed(self) -> list[Rows]:
        """The records of each node in `build` that sums are to be made of."""
        rows = (self.rows[node] for node in self.build)
        return [here if self._drawn is None else here[self._drawn[here]] for here in rows]

    def check_offered(self, sums: Ints, party: int = 1) -> None:
        """Check the left sums of party number `party`, one (len(asked), candidates, S) array, before all else.

        The bounds follow from numbers of records, which that party knows, and from the range of a record's value: an
        error depends on no label. A party from which instance spaces are withheld does not know a node's: there they
        are those of the root for all nodes. Noised sums have their room for noise besides.

        Raises:
            Malformed: no records of a node can have such sums.
        """
        inner, last = sums[..., : self._width - 1], sums[..., self._width - 1]
        least, most = self._criterion.ranges(self._width)
        nodes = [self._root for _ in self.asked] if self._left_first else self.build
        drawn = np.array([self.drawn(party, node) for node in nodes])[:, np.newaxis]
        records = np.array([len(self.rows[node]) - len(self._lacked(party, node)) for node in nodes])[:, np.newaxis]
        rooms = np.zeros(self._width, dtype=np.int64)
        counts = np.clip(last, 0, drawn)[..., np.newaxis]
        if party in self._noised:
            rooms, counts = np.array(self._noised[party][0].rooms), drawn[..., np.newaxis]
        impossible = (last < -rooms[-1]) | (last > drawn + rooms[-1])
        impossible |= ((inner < least * counts - rooms[:-1]) | (inner > most * counts + rooms[:-1])).any(axis=-1)
        classes = sums[..., self._width :]
        impossible |= (classes < 0).any(axis=-1) | (classes.sum(axis=-1) > records)
        if impossible.any():
            node = self.asked[int(np.flatnonzero(impossible.any(axis=1))[0])]
            raise Malformed(f"sums of node {node} are such that no records of it can have them")

    def with_lacked(self, sums: Ints, party: int, missing_left: slice) -> Ints:
        """Left sums of a party at the nodes in `build`, with the records that it lacks on the side of missing values.

        `missing_left`: the candidates by which these go left.
        """
        if party not in self.lacking:
            return sums
        whole = sums.copy()
        for place, node in enumerate(self.build):
            whole[place, missing_left] += self.values[self._lacked(party, node)].sum(axis=0)
        return whole

    def drawn(self, party: int, node: int) -> int:
        """The number of a node's drawn records that a party has; 0 of a node that is not in the tree."""
        if node not in self.sums:
            return 0
        last = self._width - 1
        return int(self.sums[node][last] - self.values[self._lacked(party, node), last].sum())

    def lacked_sums(self, party: int) -> Ints:
        """Sums (len(asked), S) of the records of each node in `asked` that a party lacks."""
        nodes = [node if node in self.build else None for node in self.asked]
        return np.stack([self.values[self._lacked(party, node)].sum(axis=0) for node in nodes])

    def _lacked(self, party: int, node: int | None) -> Rows:
        """The records of a node that a party lacks; none where there is no node."""
        rows = self.rows[self._root][:0] if node is None else self.rows[node]
        return rows[self.lacking[party][rows]] if party in self.lacking else rows[:0]

    def take_candidates(self, by_party: Sequence[Ints], groups: Sequence[Sequence[range]]) -> None:
        """Left sums of the nodes in `build`, one (len(build), candidates, S) array per party; siblings follow.

        `groups`: each party's places of sums over the categories of a column, which are to be partitioned.
        """
        self._groups = groups
        built = {
            node: [self._with_noise(party, node, sums[place]) for party, sums in enumerate(by_party)]
            for place, node in enumerate(self.build)
        }
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
        candidates = [self._candidates_of(node) for node in self.frontier]
        # All nodes of a stage at once, party by party: one call of the criterion costs little more than for one node.
        gains = [self._gains([of_node[party] for of_node in candidates], party) for party in range(len(self._groups))]
        rule = self.exact_rule
        for i, node in enumerate(self.frontier):
            if (choice := self._choice(node, rule, candidates[i], [of_party[i] for of_party in gains])) is not None:
                self._best[node] = choice
                self._expansions.offer(node, choice.gain)
        self.choices = {}
        while (first := self._expansions.take()) is not None:
            self.choices[first] = self._best.pop(first)
            # A child's best split may gain more than those that wait, so its candidates have to be compared first.
            if self._rules.one_by_one and self._may_open(self.choices[first]):
                break
        return list(self.choices.values())

    def take_owners(self, owners: Mapping[int, int]) -> list[Choice]:
        """Have parties split nodes by candidates whose sums nobody opened; returns all splits, in their order.

        `owners`: node of the frontier → number of a party other than the first, whose own candidates the others beat.
        """
        nothing = np.empty((0, self.values.shape[1]), dtype=np.int64)
        won = {node: Choice(node, party, [], math.nan, nothing, 0) for node, party in owners.items()}
        choices = self.choices | won
        self.choices = {node: choices[node] for node in self.frontier if node in choices}
        return list(self.choices.values())

    def _choice(
        self, node: int, rule: ExactRule | None, candidates: Sequence[NodeCandidates], gains: Sequence[Floats]
    ) -> Choice | None:
        """The best split of a node by each party's candidates and their gains, and by the tree's rule.

        None for a leaf, and for a node that is withdrawn.
        """
        lefts = [of_party.lefts for of_party in candidates]
        if self._limit is not None:
            try:
                gains = self._limit.forbid(gains, lefts, self.sums[node])
            except ValueError as fault:
                raise Malformed(f"a party offered sums of node {node} that no records have") from fault
        best = self._criterion.choose(gains) if rule is None else rule.best(gains, lefts, self.sums[node])
        if best is None:
            return None
        party, tied = best
        tied = candidates[party].first_of(tied)
        # ID-LMID, lines 6 and 7; the label holder carries out the first of its tied candidates
        if self._limit is not None and not self._limit.allows(lefts[party][tied[:1]], self.sums[node])[0]:
            self.withdrawn.append(node)
            return None
        places = [candidates[party].place(int(k)) for k in tied]
        gain = self._criterion.shown(float(gains[party][tied[0]]))
        return Choice(node, party, places, gain, lefts[party][tied], candidates[party].direction(int(tied[0])))

    def _candidates_of(self, node: int) -> list[NodeCandidates]:
        """Each party's candidates of a node of the frontier."""
        rule, total = self._criterion.partitions, self.sums[node]
        marks = [None for _ in self._groups] if self.monotone is None else self.monotone.marks
        parties = zip(self._candidates[node], self._groups, marks, strict=True)
        return [NodeCandidates(sums, total, groups, rule, self._width, own) for sums, groups, own in parties]

    def _with_noise(self, party: int, node: int, sums: Ints) -> Ints:
        """A party's left sums (candidates, S) of a node, with the noise that is to be added here, if there is any."""
        if party not in self._noised:
            return sums
        noise, drawn = self._noised[party]
        return sums if drawn is None else sums + noise.in_tree(drawn(node))

    def _gains(self, candidates: Sequence[NodeCandidates], party: int) -> Sequence[Floats]:
        """Gains (candidates,) of the candidates of party number `party` at each node of the frontier."""
        totals = [self.sums[node][: self._width] for node in self.frontier]
        if self.monotone is not None:
            return [self.monotone.gains(*at_node) for at_node in zip(self.frontier, candidates, totals, strict=True)]
        if not totals:
            return []
        lefts = np.stack([at_node.lefts[:, : self._width] for at_node in candidates])
        gains = self._criterion.gains(lefts, np.stack(totals))
        if party in self._noised:
            gains = fair_gains(gains, lefts, np.stack(totals), self._criterion, self._noised[party][0])
        if least := self.least_sides.get(party):
            counts, whole = lefts[..., -1], np.stack(totals)[:, -1:]
            gains = np.where(np.minimum(counts, whole - counts) < least, -np.inf, gains)
        return list(gains)

    def _may_open(self, choice: Choice) -> bool:
        """True if a child of a split could be split further."""
        whole = self.sums[choice.node]
        children = [*choice.lefts, *(whole - choice.lefts)]
        return not self._rules.at_bottom(2 * choice.node) and any(self._may_be_split(sums) for sums in children)

    def split(self, node: int, handle: int, left: Rows) -> None:
        """Carry out the choice of a node as its owner says; `Malformed` where the owner's children do not fit."""
        rows = self.rows[node]
        goes_left = np.zeros(len(self.values), dtype=bool)
        goes_left[left] = True
        within = goes_left[rows]
        if int(within.sum()) != len(left):
            raise Malformed(f"the children of node {node} hold records that never reached it")
        sums, choice = self.values[rows[within]].sum(axis=0), self.choices[node]
        if not choice.tied:  # see `take_owners`; its sums are those of the left records
            change = self._criterion.gains(sums[np.newaxis, np.newaxis], self.sums[node][np.newaxis])
            shown = self._criterion.shown(float(change[0, 0]))
            choice = self.choices[node] = replace(choice, lefts=sums[np.newaxis], gain=shown)
        noise, _ = self._noised.get(choice.party, (None, None))
        rooms = 0 if noise is None else np.array(noise.rooms)
        if not (np.abs(choice.lefts - sums) <= rooms).all(axis=-1).any():
            raise Malformed(f"the children of node {node} do not have the sums that its owner offered")
        self.divide(node, handle, within, sums)

    def divide(self, node: int, handle: int, goes_left: Bools, left: Ints | None = None) -> None:
        """Carry out the choice of a node: the mask (n,) of its records, and the sums (S,) of the left child.

        `left`: None: those of the choice, unless they are noised.
        """
        choice, rows, whole, width = self.choices[node], self.rows[node], self.sums[node], self._width
        noised = choice.party in self._noised
        if left is None:
            left = self.values[rows[goes_left]].sum(axis=0) if noised else choice.lefts[0]
        if noised and left[width - 1] in (0, whole[width - 1]):
            del self.choices[node]
            return
        self.rows[2 * node], self.rows[2 * node + 1] = rows[goes_left], rows[~goes_left]
        self.sums[2 * node], self.sums[2 * node + 1] = left, whole - left
        self.made[node] = Made(node, choice.party, handle, choice.gain, self.cover(node))
        if self.monotone is not None:
            self.monotone.divide(node, choice.direction, left[:width], whole[:width])

    def cover(self, node: int) -> float:
        """The weight of a node's sampled records."""
        return self._criterion.cover(self.sums[node][: self._width])

    def next_stage(self) -> None:
        """Move to the children of the splits just made: those that may be split, and those to be summed."""
        self._candidates = {node: self._candidates[node] for node in (*self._best, *self.choices)}
        self.frontier, self.build = [], []
        self._stage += 1
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
                if not self._subtract:
                    self.build += open_children
                elif self._left_first:  # which tells nothing of the siblings' numbers of records
                    self.build.append(pair[0])
                else:  # the sibling of fewer drawn records
                    self.build.append(min(pair, key=lambda child: int(self.sums[child][self._width - 1])))
                self._parents[node] = whole
        self._compared |= set(self.frontier)
        waiting = self._expansions.first
        if not self.build and waiting is not None:
            # Children that could have been split cannot, by the candidate that its owner took among tied ones. Other
            # nodes wait, and every stage has sums: those of one of them come again.
            self.build = [waiting]

    def known_without_relay(self, party: int) -> list[int]:
        """The nodes of the stage just begun all of whose ancestors a party splits: it knows their records by itself."""
        children = [child for node in sorted(self.choices) for child in (2 * node, 2 * node + 1)]
        return [
            child
            for child in children
            if all(self.made[child >> up].party == party for up in range(1, child.bit_length()))
        ]

    def known_to(self, party: int) -> list[int]:
        """The nodes of the stage just begun whose records a party comes to know, if it takes part in the tree.

        Those of its own splits, those that the label holder relays, and the siblings of these, as the difference from
        the parent.
        """
        relayed = {node >> 1 for node in self.frontier}
        known = [node for node, choice in self.choices.items() if choice.party == party or node in relayed]
        return [child for node in sorted(known) for child in (2 * node, 2 * node + 1)]

    @property
    def divisible(self) -> frozenset[int]:
        """The nodes that were compared and that the stopping rules let split, also if no split was found."""
        return frozenset(node for node in self._compared if self._may_be_split(self.sums[node]))

    def _may_be_split(self, sums: Ints) -> bool:
        """True if a split of a node with these sums could pass the stopping rules."""
        return self._criterion.may_split(sums[: self._width])

    def leaves(self) -> list[int]:
        """Leaves in order, left to right."""
        order: list[int] = []
        stack = [self._root]
        while stack:
            node = stack.pop()
            if node in self.made:
                stack += [2 * node + 1, 2 * node]
            else:
                order.append(node)
        return order

    def below(self, node: int) -> GrowingTree:
        """The part of the tree at and below a withdrawn node, which the label holder grows by its own columns alone."""
        values, rows = self.values[:, : self._width], self.rows[node]
        part = GrowingTree(values, self._criterion, self._rules, subtract=self._subtract, part=(node, rows))
        part.monotone = self.monotone and self.monotone.of_first()
        return part

    def finished(
        self, index: int, outputs: tuple[int, ...], names: Sequence[str], local: Sequence[Subtree] = ()
    ) -> Tree:
        """The tree as the model has it, its owners by name; `local`: subtrees of the nodes that are withdrawn."""
        padded = self._rules.max_depth if self.padded else 0
        return Tree(index, outputs, self._splits(names), self._leaves(), tuple(local), padded)

    def subtree(self, names: Sequence[str]) -> Subtree:
        """The same of a part of a tree."""
        return Subtree(self._root, self._splits(names), self._leaves())

    def _splits(self, names: Sequence[str]) -> tuple[Split, ...]:
        return tuple(
            Split(made.node, names[made.party], made.handle, made.gain, made.cover)
            for _, made in sorted(self.made.items())
        )

    def _leaves(self) -> tuple[Leaf, ...]:
        def value(leaf: int, sums: Ints) -> Floats:  # (outputs,)
            own = self.monotone
            return self._criterion.leaf(sums, self.rows[leaf]) if own is None else own.leaf(leaf, sums)

        return tuple(
            Leaf(leaf, tuple(map(float, value(leaf, self.sums[leaf][: self._width]))), self.cover(leaf))
            for leaf in self.leaves()
        )

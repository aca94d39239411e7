"""The bins that records of other parties can still have, by what left sets say, and their scores before each tree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from treetap.arrays import Bools, Floats, Ints
from treetap.attacks.pivodl.solved_gains import closed
from treetap.attacks.view.pivodl_view import PivodlTree, PivodlView, ReceivedBins
from treetap.trees.candidates import CandidateList, column_goes_left
from treetap.trees.ensemble import ROOT
from treetap.trees.pivodl_rules import SharedLabelLoss, weights_of

#: No bin is known.
UNPLACED = -1


class BinDomains:
    """The possible bins of N records in the d columns of a source.

    Args:
        records: N.
        own: (m,) the records that the attacker labels.
        received: their bins.

    Attributes:
        possible: of each column (N, bins), the last bin that of missing values where it has some.
        sides: of each column (candidates, bins), True where a candidate sends the bin left.
        contradictions: cells of which a claim would have left no bin; the claim was dropped.
    """

    def __init__(self, records: int, own: Ints, received: ReceivedBins) -> None:
        self.candidates = CandidateList(received.shapes)
        self.possible: list[Bools] = []
        self.sides: list[Bools] = []
        self.contradictions = 0
        for column, shape in enumerate(received.shapes):
            bins = np.arange(shape.n_bins + shape.has_missing)
            possible = np.ones((records, len(bins)), dtype=bool)
            possible[own] = received.codes[:, column, np.newaxis] == bins
            self.possible.append(possible)
            first, behind = int(self.candidates.first[column]), int(self.candidates.first[column + 1])
            sides = [column_goes_left(bins, self.candidates.at(k), shape.n_bins) for k in range(first, behind)]
            self.sides.append(np.array(sides, dtype=bool).reshape(-1, len(bins)))

    def narrow(self, column: int, records: Ints, bins: Bools) -> int:
        """Leave records the bins of a mask (bins,) alone; returns the number of cells that have fewer than before.

        A record that could have none of them keeps those that it had, and counts as a contradiction.
        """
        before = self.possible[column][records]
        after = np.logical_and(before, bins)
        none = after.sum(axis=1) == 0
        self.contradictions += int(none.sum())
        after[none] = before[none]
        self.possible[column][records] = after
        return int((after.sum(axis=1) < before.sum(axis=1)).sum())

    def can_be(self, column: int, records: Ints, bins: Bools) -> Bools:
        """The mask (n,) of those records that can have a bin of a mask (bins,)."""
        return np.asarray(self.possible[column][records][:, bins].sum(axis=1) > 0, dtype=bool)

    def agreeing(self, left: Ints, right: Ints) -> Ints:
        """The candidates, by canonical number, that can send these records left and those right."""
        agree = []
        for possible, sides in zip(self.possible, self.sides, strict=True):
            # a matrix product counts the possible bins of each record on a side of each cut
            to_left = possible[left].astype(np.float32) @ sides.T.astype(np.float32) > 0
            to_right = possible[right].astype(np.float32) @ (~sides).T.astype(np.float32) > 0
            agree.append(to_left.all(axis=0) & to_right.all(axis=0))
        return np.flatnonzero(np.concatenate([np.zeros(0, dtype=bool), *agree]))

    def side(self, candidate: int) -> Bools:
        """The bins of its column (bins,) that a candidate sends left."""
        column = int(self.candidates.feature[candidate])
        return np.asarray(self.sides[column][candidate - int(self.candidates.first[column])])

    def sides_of(self, candidates: Ints) -> tuple[Bools, Bools]:
        """The bins of their column (bins,) that one of some candidates, all of one column, sends left, and right."""
        sides = np.stack([self.side(candidate) for candidate in candidates.tolist()])
        to_left, to_right = np.logical_or.reduce(sides), np.logical_or.reduce(~sides)
        return np.asarray(to_left, dtype=bool), np.asarray(to_right, dtype=bool)

    def placed(self) -> Ints:
        """(N, d) the bin of each cell of which one is left; `UNPLACED` of others."""
        columns = [np.where(it.sum(axis=1) == 1, it.argmax(axis=1), UNPLACED) for it in self.possible]
        return np.stack(columns, axis=1).astype(np.int64)

    def expected(self, own: Ints) -> Floats:
        """(N, d) the mean of the bins that each cell can have, weighed as the attacker's own records have them."""
        columns = []
        for possible in self.possible:
            weights = possible[own].sum(axis=0) + 0.5
            columns.append(possible @ (weights * np.arange(possible.shape[1])) / (possible @ weights))
        return np.stack(columns, axis=1)


# Cells that follow from the sets of records that other parties' splits send left and right.
#
# All parties learn the records of the children that may be split, and the sets that follow by difference; of other
# leaves each owner those that it labels. An owner knows the bins of its labelled records exactly. So the cuts that send
# its own records to the sides where they went tell the split's column, and bounds for the bins of all records whose
# side
# is known.


#: Most passes over all splits: each narrows what the next one has to decide by.
_PASSES = 10


def _side(tree: PivodlTree, child: int) -> Ints:
    rows = tree.records(child)
    return tree.labelled.get(child, np.zeros(0, dtype=np.int64)) if rows is None else rows


class KnownCuts:
    """The candidates that each split of another party can be.

    Attributes:
        cuts: (tree, node) → candidates of its source, by canonical number. Their column is known where it is the same
            of all.
    """

    def __init__(self, view: PivodlView, domains: Mapping[str, BinDomains]) -> None:
        # of splits of parties that sent bins, the records that are known to have gone left, and right
        self._sides = [
            ((tree.view.index, node), domains[split.source], _side(tree, 2 * node), _side(tree, 2 * node + 1))
            for tree in view.trees
            for node, split in tree.splits.items()
            if split.source in domains
        ]
        self.cuts: dict[tuple[int, int], Ints] = {}

    def learn(self) -> int:
        """Narrow the columns by all splits until nothing follows; returns the number of cells that were narrowed."""
        whole = 0
        for _ in range(_PASSES):
            narrowed = sum(self._learn(*known) for known in self._sides)
            whole += narrowed
            if not narrowed:
                break
        return whole

    def _learn(self, place: tuple[int, int], domains: BinDomains, left: Ints, right: Ints) -> int:
        self.cuts[place] = agreeing = domains.agreeing(left, right)
        column = self.column(*place, domains)
        if column is None:
            return 0
        to_left, to_right = domains.sides_of(agreeing)
        return domains.narrow(column, left, to_left) + domains.narrow(column, right, to_right)

    def column(self, tree: int, node: int, domains: BinDomains) -> int | None:
        """The column of a split, where only one agrees."""
        columns = np.unique(domains.candidates.feature[self.cuts.get((tree, node), np.zeros(0, dtype=np.int64))])
        return int(columns[0]) if len(columns) == 1 else None


# The scores that other parties' records can have before each tree, as one owner of labels can tell.
#
# h of a record depends on its score alone, and g on its label besides. A score is the base score and the weights of the
# record's leaves, which owners get exactly; a split party has those that it keeps from the sums that it opened. Where a
# record can be in several leaves, it has several possible scores; with too many it has none.


#: Most scores that a record can have before they count as unknown.
MOST_SCORES = 16


@dataclass(frozen=True, eq=False)
class PossibleScores:
    """Scores before one tree: pairs of a record and a score that it can have, by record.

    Records without a pair have unknown scores.
    """

    records: Ints = field(repr=False)
    scores: Floats = field(repr=False)

    def of(self, rows: Ints, total: int) -> PossibleScores:
        """Those of some records."""
        inside = np.zeros(total, dtype=bool)
        inside[rows] = True
        kept = inside[self.records]
        return PossibleScores(self.records[kept], self.scores[kept])


def possible_scores(
    view: PivodlView, records: int, loss: SharedLabelLoss, cuts: KnownCuts, domains: Mapping[str, BinDomains]
) -> list[PossibleScores]:
    """Those before each tree of a job of one output; of trees after a missing one none."""
    known = PossibleScores(np.arange(records), np.full(records, float(loss.base[0])))
    none = PossibleScores(np.zeros(0, dtype=np.int64), np.zeros(0))
    owner, before = view.owner(records), []
    for number, tree in enumerate(view.trees):
        if tree.view.index != number:
            known = none
        before.append(known)
        # Leaf → its exact weight: received without noise, or of sums that the party has, opened ones included.
        sums = dict(tree.sums)
        for node, place in tree.taken.items():
            left = tree.opened.get((node, tree.splits[node].source))
            if left is not None and place < len(left):
                sums[2 * node] = left[place]
        sums = closed(sums, tree.splits)
        exact = {leaf: float(weight.value[0]) for leaf, weight in tree.weights.items() if weight.exact}
        computed = {
            leaf: float(weights_of(sums[leaf], loss.scale, view.params)[0])
            for leaf in tree.leaves
            if leaf in sums and leaf not in exact
        }
        known = _after(view, tree, known, owner, exact | computed, cuts, domains)
    return before


def _after(
    view: PivodlView,
    tree: PivodlTree,
    before: PossibleScores,
    owner: Ints,
    weights: Mapping[int, float],
    cuts: KnownCuts,
    domains: Mapping[str, BinDomains],
) -> PossibleScores:
    total = len(owner)
    rows, scores = [], []
    unknown = np.zeros(total, dtype=bool)
    for leaf, inside in _possible_leaves(tree, total, cuts, domains).items():
        source, weight = tree.source_above(leaf), weights.get(leaf)
        # the source of a leaf adds its weight with noise to the scores of the records that it labels
        noised = np.zeros(total, dtype=bool)
        if view.params.epsilon is not None and source is not None:
            noised[inside] = owner[inside] == view.parties.index(source)
        here = before.of(inside, total)
        if weight is None:
            unknown[inside] = True
        else:
            unknown |= noised
            exact = ~noised[here.records]
            rows.append(here.records[exact])
            scores.append(here.scores[exact] + weight)
        if source == view.party and leaf in tree.weights:  # it is the source itself, and has the one with noise
            own = noised & (owner == view.parties.index(view.party))
            unknown &= ~own
            kept = own[here.records]
            rows.append(here.records[kept])
            scores.append(here.scores[kept] + float(tree.weights[leaf].value[0]))
    return _distinct(rows, scores, unknown)


def _distinct(rows: list[Ints], scores: list[Floats], unknown: Bools) -> PossibleScores:
    """All pairs, each once, by record; none of records that are unknown or have too many."""
    every, value = np.concatenate([np.zeros(0, np.int64), *rows]), np.concatenate([np.zeros(0), *scores])
    order = np.lexsort((value, every))
    every, value = every[order], value[order]
    new = np.ones(len(every), dtype=bool)
    new[1:] = (np.diff(every) != 0) | (np.diff(value) != 0)
    every, value = every[new], value[new]
    few = np.bincount(every, minlength=len(unknown)) <= MOST_SCORES
    kept = few[every] & ~unknown[every]
    return PossibleScores(every[kept], value[kept])


def _possible_leaves(
    tree: PivodlTree, total: int, cuts: KnownCuts, domains: Mapping[str, BinDomains]
) -> dict[int, Ints]:
    """Leaf → the records that can be in it."""
    inside = {ROOT: np.arange(total, dtype=np.int64)}
    for node, split in sorted(tree.splits.items()):
        rows = inside.pop(node)
        for child in (2 * node, 2 * node + 1):
            known = tree.records(child)
            inside[child] = rows if known is None else np.intersect1d(rows, known, assume_unique=True)
        if tree.records(2 * node) is not None and tree.records(2 * node + 1) is not None:
            continue
        own = tree.labelled.get(2 * node), tree.labelled.get(2 * node + 1)
        for child, other in ((2 * node, own[1]), (2 * node + 1, own[0])):
            if other is not None:
                inside[child] = np.setdiff1d(inside[child], other, assume_unique=True)
        source = domains.get(split.source)
        column = None if source is None else cuts.column(tree.view.index, node, source)
        if source is not None and column is not None:
            to_left, to_right = source.sides_of(cuts.cuts[tree.view.index, node])
            for child, bins in ((2 * node, to_left), (2 * node + 1, to_right)):
                inside[child] = inside[child][source.can_be(column, inside[child], bins)]
    return inside

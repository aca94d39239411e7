"""Gain inversion: the announced gain of a split gives away the sums of its children, and with them exact leaf weights.

Of a logistic job with known sums G, H of a node, with

    gain = G_L²/(H_L+λ) + (G−G_L)²/(H−H_L+λ) − G²/(H+λ)

and a child whose records and scores the party knows:

1. h depends on the score alone, so that H of the child is a sum of known numbers; in the first tree all scores are the
   public base score, and the number of records is enough.
2. The equation is quadratic in G_L. g = p − y, so that G_L = Σp − k for a whole number k of records of the second
   class: the solutions are rounded to this lattice, and those kept that give the announced gain to its last bit.
3. Two are left where both sides have the same number of records: G of left and right can change places. The party's own
   labels among the child's records tell which is likelier, if it has enough of them.
4. If one is left, the sums of both children are known, and those of nodes further down follow in the same way; of a
   leaf its exact weight.
5. Exact weights give the scores of the records that are known to be in the leaves, for the next tree.

Without announced gains (`gain_comparison = "secure"`) there is no equation. Jobs of several outputs have more unknowns
than equations, and the gradients of a regression lie on no lattice: these are not attacked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from treetap.arrays import Floats, Ints
from treetap.attacks.view.pivodl_view import PivodlTree, PivodlView
from treetap.trees.boosting_criterion import open_sums
from treetap.trees.job_params import BINARY
from treetap.trees.loss import UNIT
from treetap.trees.pivodl_rules import GAIN_BITS, SharedLabelLoss, gains_of, weights_of

#: Fewest own labels by which one of two solutions is chosen.
_ENOUGH = 10


@dataclass(eq=False)
class InvertedTree:
    """The sums and weights that the announced gains of one tree give away.

    Attributes:
        splits: number of the tree's splits.
        announced: splits whose gain the party has.
        tried: splits with a gain, known sums, and a child whose records and scores are known.
        solved: of those with one solution the records of one side, and how many of them are of the second class.
        sums: (2K,) of every node where they are known, by messages and by solving.
        weights: leaf → its exact weight (K,), of leaves with known sums.
    """

    index: int
    splits: int
    announced: int = 0
    tried: int = 0
    solved: list[tuple[Ints, int]] = field(default_factory=list)
    sums: dict[int, Ints] = field(default_factory=dict)
    weights: dict[int, Floats] = field(default_factory=dict)


class SolvedGains:
    """The attack on the transcript of one party of a logistic job.

    Attributes:
        trees: one result per tree; where the job is of another kind, with nothing solved.
    """

    def __init__(self, view: PivodlView, records: int, labels: Ints | None = None) -> None:
        """`labels`: (N,) classes; only those of the party's own records are read."""
        self._view, self._params = view, view.params
        self._own = np.full(records, -1, dtype=np.int64)
        if labels is not None:
            self._own[view.own] = labels[view.own]
        self.trees: list[InvertedTree] = []
        self.scores: list[Floats] = []  # (N,) of each tree: as the records' owners have them before it; NaN: unknown
        if self.possible:
            self._loss = SharedLabelLoss(view.params)
            self._owner = view.owner(records)
            scores = np.full(records, float(self._loss.base[0]))
            for tree in view.trees:
                if tree.view.index != len(self.scores):  # the scores of a tree need all trees before it
                    scores = np.full(records, np.nan)
                self.scores.append(scores)
                self.trees.append(self._invert(tree, scores))
                scores = scores + self._added(tree, self.trees[-1], records)
        else:
            self.trees = [InvertedTree(tree.view.index, len(tree.splits)) for tree in view.trees]
            self.scores = [np.full(records, np.nan) for _ in view.trees]

    @property
    def possible(self) -> bool:
        """True for jobs of one logistic output."""
        return self._params.objective in BINARY

    def _invert(self, tree: PivodlTree, scores: Floats) -> InvertedTree:
        inverted = InvertedTree(tree.view.index, len(tree.splits), sums=closed(tree.sums, tree.splits))
        for node, split in tree.splits.items():  # a node comes before its children
            gain = tree.gains.get((node, split.source))
            side = self._side(tree, node, scores)
            inverted.announced += gain is not None
            if gain is None or node not in inverted.sums or side is None:
                continue
            inverted.tried += 1
            child, rows = side
            negative = self.negative(rows, scores)
            solutions = self._likely(rows, list(self._solutions(inverted.sums[node], gain, negative)))
            if len(solutions) == 1:
                positives, sums = solutions[0]
                inverted.solved.append((rows, positives))
                inverted.sums |= {child: sums, child ^ 1: inverted.sums[node] - sums}
        inverted.sums = closed(inverted.sums, tree.splits)
        for leaf in tree.leaves:
            if leaf in inverted.sums:
                inverted.weights[leaf] = weights_of(inverted.sums[leaf], self._loss.scale, self._params)
        return inverted

    @staticmethod
    def _side(tree: PivodlTree, node: int, scores: Floats) -> tuple[int, Ints] | None:
        """A child of a node with its records, all of whose scores are known."""
        for child in (2 * node, 2 * node + 1):
            rows = tree.records(child)
            if rows is not None and not np.isnan(scores[rows]).any():
                return child, rows
        return None

    def _likely(self, rows: Ints, solutions: list[tuple[int, Ints]]) -> list[tuple[int, Ints]]:
        """The solution that is nearest to the own labels among these records; all where they are few or undecided."""
        own = self._own[rows]
        own = own[own >= 0]
        if len(solutions) < 2 or len(own) < _ENOUGH:
            return solutions
        expected = float((own == 1).mean()) * len(rows)
        distances = sorted((abs(solution[0] - expected), place) for place, solution in enumerate(solutions))
        return [solutions[distances[0][1]]] if distances[0][0] < distances[1][0] else solutions

    def negative(self, rows: Ints, scores: Floats) -> Ints:
        """(n, 2) g and h of the records `rows`, all of class 0, in a tree before which all have these scores (N,)."""
        return self._loss.gradients(scores[rows, np.newaxis], np.zeros(len(rows), dtype=np.int64))

    def _solutions(self, total: Ints, gain: int, negative: Ints) -> Iterator[tuple[int, Ints]]:
        """Numbers of records of the second class in a child, and its sums (2,), that give the announced gain."""
        constant, near = negative.sum(axis=0), set()
        (G,), (H,), _ = open_sums(np.append(total, 0), self._loss.scale)
        (constant_G,), (constant_H,), _ = open_sums(np.append(constant, 0), self._loss.scale)
        for root in _roots(float(G), float(H), float(constant_H), gain * 2.0**-GAIN_BITS, self._params.reg_lambda):
            middle = round(float(constant_G) - root)
            near |= {middle - 1, middle, middle + 1}
        for positives in sorted(near & set(range(len(negative) + 1))):
            sums = np.array([int(constant[0]) - positives * UNIT, int(constant[1])], dtype=np.int64)
            if int(gains_of(sums[np.newaxis], total, self._loss.scale, self._params)[0]) == gain:
                yield positives, sums

    def _added(self, tree: PivodlTree, inverted: InvertedTree, records: int) -> Floats:
        """(N,) what the tree adds to the score that each record's owner has; NaN where the party cannot tell.

        The source of a leaf has its weight with noise alone, and adds it to the scores of the records that it labels.
        """
        added = np.full(records, np.nan)
        for leaf in tree.leaves:
            source, weight = tree.source_above(leaf), tree.weights.get(leaf)
            rows = tree.records(leaf)
            rows = tree.labelled.get(leaf) if rows is None else rows
            if rows is None:
                continue
            exact = inverted.weights.get(leaf)
            if exact is None and weight is not None and weight.exact:
                exact = weight.value
            noised = self._params.epsilon is not None and source is not None
            # owners add the exact weight to their records' scores, the source of the leaf the one with noise
            at_source = np.zeros(len(rows), dtype=bool)
            if noised:
                at_source = self._owner[rows] == self._view.parties.index(str(source))
            if exact is not None:
                added[rows[~at_source]] = exact[0]
            if source == self._view.party and weight is not None:
                added[rows[at_source]] = weight.value[0]
        return added


def _roots(G: float, whole: float, H: float, gain: float, reg_lambda: float) -> list[float]:
    """The sums G_L that give a gain: G and `whole` are those of the node, H that of the child."""
    left, right = H + reg_lambda, whole - H + reg_lambda
    if left <= 0 or right <= 0:
        return []
    a, b = 1 / left + 1 / right, -2 * G / right
    c = G * G / right - G * G / (whole + reg_lambda) - gain
    under = max(b * b - 4 * a * c, 0.0)
    return [(-b - math.sqrt(under)) / (2 * a), (-b + math.sqrt(under)) / (2 * a)]


def closed(sums: Mapping[int, Ints], split: Iterable[int]) -> dict[int, Ints]:
    """All sums (2K,) by node that follow; `split`: the nodes that have children."""
    known, parents = dict(sums), sorted(split)
    grown = True
    while grown:
        grown = False
        for node in parents:
            family = (node, 2 * node, 2 * node + 1)
            missing = [member for member in family if member not in known]
            if len(missing) != 1:
                continue
            grown = True
            if missing[0] == node:
                known[node] = known[2 * node] + known[2 * node + 1]
            else:
                known[missing[0]] = known[node] - known[missing[0] ^ 1]
    return known

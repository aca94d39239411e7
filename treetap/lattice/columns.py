"""The columns of a job: their nodes, their layout in ciphertexts, their values as integers modulo t.

A column is a node that the label holder does not own (`treetap.lattice.columns`). It has one number per record
and output of its tree. A *page* is the slots of one ciphertext: a column of up to N records, or where a block has few
records as many columns side by side as fit. Leaf weights are centred per tree and rounded to one step, so that no sum
wraps.

A tree's value as a sum over the nodes that the label holder does not own, for inference under encryption.

Candidate leaves (Fed-EINI, Proposition 1) cost one encrypted column per leaf. One per remote node is enough.
Let D(u) be the value reached from node u if every remote node sends the record right. Then

    f(x) = D(root) + Σ_v reach(v) · left(v) · (D(2v) - D(2v + 1)),   v over remote nodes,

where reach(v) is 1 if no decision above v turns away from it, else 0. This holds because a remote node's value is that
of its right child plus left(v) times the difference of its children. The label holder knows D and its own factors of
reach(v); every other party knows its own factors of reach(v) · left(v). The sum is the score up to the label holder's
own D(root), so decrypting it reveals no more than the score does. A party's factors of reach(v) · left(v) are its own
branches on the way to 2v: `treetap.trees.paths.reachable`.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from treetap.arrays import Bools, Floats, Ints
from treetap.errors import BadInput, DataError, Malformed, PlaintextOverflow
from treetap.lattice.parameters import Parameters
from treetap.trees.ensemble import Ensemble, Split, Tree
from treetap.trees.paths import Decide, GoesLeft, ValueTable, candidate_bits, candidate_leaves, least_spare


def label_columns(
    leaves: Mapping[int, int | Ints], remote: Iterable[int], left: Mapping[int, Bools], n: int
) -> tuple[Ints, dict[int, Ints]]:
    """The label holder's side of one tree for n records.

    Args:
        leaves: rounded value of each leaf, by heap number: one number, or one for each record (n,).
        remote: heap numbers of the nodes that others own.
        left: for each node of its own, the records that go left there (n,).

    Returns:
        D(root) (n,), and for each remote node its column (n,): 0 where the label holder's own nodes lead elsewhere.
    """
    columns: dict[int, Ints] = {}
    others = set(remote)

    def value(node: int, reached: Bools) -> Ints:
        if node in leaves:
            return np.full(n, leaves[node], dtype=np.int64)
        if node in others:
            towards_left, towards_right = value(2 * node, reached), value(2 * node + 1, reached)
            columns[node] = reached * (towards_left - towards_right)
            return towards_right
        goes_left = left[node]
        return np.where(goes_left, value(2 * node, reached & goes_left), value(2 * node + 1, reached & ~goes_left))

    return value(1, np.ones(n, dtype=np.bool_)), columns


#: The branches of one party on the way to a node, from the root: (handle of its split, True for left).
Branches = tuple[tuple[int, bool], ...]


class FixedPoint:
    """The scale of one output of an ensemble.

    Every tree contributes exactly one leaf. Its weights are taken relative to the middle of the tree's range, which the
    label holder adds again after opening; the step is the smallest with which all possible sums fit below t/2.

    Args:
        weights: per tree the weights (leaves,) of one output.
        modulus: t.
        tolerance: largest error of a score as a part of the range Σ_k (max - min).

    Attributes:
        step: value of one unit.
        integers: per tree its rounded weights (leaves,).
        limit: largest absolute sum that can occur.
        span: distance from the least to the greatest sum of one weight per tree.

    Raises:
        DataError: a weight that is not finite, a tree without leaves.
        BadInput: the modulus is too small for the tolerance.
    """

    def __init__(self, weights: Sequence[Floats], modulus: int, tolerance: float = 1e-4) -> None:
        if any(len(tree) == 0 for tree in weights) or not all(np.isfinite(tree).all() for tree in weights):
            raise DataError("every tree needs leaves with finite weights")
        trees = len(weights)
        half = (modulus - 1) // 2
        middles = [(tree.max() + tree.min()) / 2 for tree in weights]
        reach = float(sum((tree.max() - tree.min()) / 2 for tree in weights))
        if trees / 2 > tolerance * (modulus - 1 - trees):
            raise BadInput(
                f"{trees} trees need a larger plaintext modulus than {modulus} for a tolerance of {tolerance}"
            )
        self.modulus = modulus
        # The smallest step at which every possible sum stays below half of the modulus, rounding included.
        self.step = reach / (half - trees / 2) if reach > 0 else 1.0
        self._offset = float(sum(middles))
        self.integers: list[Ints] = [
            np.rint((tree - middle) / self.step).astype(np.int64) for tree, middle in zip(weights, middles, strict=True)
        ]
        self.limit = int(sum(np.abs(tree).max() for tree in self.integers))
        self.span = int(sum(tree.max() - tree.min() for tree in self.integers))
        if self.limit > half:
            raise PlaintextOverflow(f"sums of {trees} trees exceed {half}, the most that a plaintext holds")

    def decode(self, sums: Ints) -> Floats:
        """Scores from opened sums, same shape.

        Raises:
            Malformed: a sum that no choice of one leaf per tree has.
        """
        if sums.size and int(np.abs(sums).max()) > self.limit:
            raise Malformed("an opened score exceeds the largest that the model's weights can make")
        return np.asarray(self._offset + sums * self.step, dtype=np.float64)

    def wrap(self, values: Ints) -> Ints:
        """The representatives modulo t between -t/2 and t/2: exact again once a whole score has been summed."""
        half = (self.modulus - 1) // 2
        return (values + half) % self.modulus - half


@dataclass(frozen=True)
class TreeShape:
    """One tree as every party knows it: the outputs that it adds to and its number of columns."""

    outputs: tuple[int, ...]
    columns: int


@dataclass(frozen=True)
class Page:
    """Columns `first` to `last` (exclusive) side by side, in one ciphertext for each output."""

    first: int
    last: int
    outputs: tuple[int, ...]


class ColumnShape:
    """All trees of a job, in the order of the columns: known to all its parties, no party's secret.

    Args:
        trees: in order.
        outputs: columns of the score.
        members: feature parties in the chain.

    Attributes:
        columns: of all trees.
    """

    def __init__(self, trees: Sequence[TreeShape], outputs: int, members: int) -> None:
        self._trees, self.outputs, self._members = list(trees), outputs, members
        self.columns = sum(tree.columns for tree in trees)

    def parameters(self) -> Parameters:
        """The parameters of the scheme, which follow from the shape. Raises BadInput if none fit."""
        terms: Counter[int] = Counter()
        columns: Counter[int] = Counter()
        for tree in self._trees:
            for output in tree.outputs:
                terms[output] += 1
                columns[output] += tree.columns
        return Parameters.choose(max(terms.values(), default=1), max(1, *columns.values()), self._members)

    def pages(self, n: int, degree: int) -> list[Page]:
        """The pages of the columns of n records in ciphertexts of N = `degree` slots."""
        side_by_side = max(1, degree // n)
        pages, first = [], 0
        for outputs, run in groupby(self._trees, key=lambda tree: tree.outputs):
            end = first + sum(tree.columns for tree in run)
            pages += [Page(start, min(start + side_by_side, end), outputs) for start in range(first, end, side_by_side)]
            first = end
        return pages

    def records(self, degree: int, ciphertexts: int) -> int:
        """The number of records of a block that fit `ciphertexts` ciphertexts of N = `degree` slots; one at least.

        Slots are filled all the same: fewer records have more columns side by side.
        """
        side_by_side = 1
        while side_by_side < min(self.columns, degree):
            n = degree // side_by_side
            if sum(len(page.outputs) for page in self.pages(n, degree)) <= ciphertexts:
                break
            side_by_side += 1
        return degree // side_by_side


def widest(pages: Sequence[Page]) -> int:
    """The most columns that lie side by side."""
    return max((page.last - page.first for page in pages), default=1)


def shape_of(ensemble: Ensemble, party: str, members: int) -> ColumnShape:
    """The shape of a model's columns; `party` is the label holder."""
    trees = [TreeShape(tree.outputs, sum(split.owner != party for split in tree.splits)) for tree in in_order(ensemble)]
    return ColumnShape(trees, len(ensemble.base_margin), members)


def in_order(ensemble: Ensemble) -> list[Tree]:
    """The trees of a prediction, those of the same outputs together."""
    return sorted(ensemble.used_trees, key=lambda tree: tree.outputs)


class NodeColumns:
    """The label holder's side: the values of the columns, and the meaning of their sums.

    A tree's columns come in a fresh random order, so that the order does not reveal their places in the tree.

    Args:
        ensemble: the model.
        party: the label holder.
        modulus: t.
        public: the model as all parties know it, by which the margin counts, if `ensemble` has other values.

    Raises:
        BadInput: the modulus is too small for the number of trees.
    """

    def __init__(self, ensemble: Ensemble, party: str, modulus: int, public: Ensemble | None = None) -> None:
        self._public, self._party = ensemble if public is None else public, party
        self.trees = in_order(ensemble)
        self._remote = [[split for split in tree.splits if split.owner != party] for tree in self.trees]
        for splits in self._remote:
            random.SystemRandom().shuffle(splits)
        self._tables = [ValueTable(tree) for tree in self.trees]
        #: Of each tree its values (rows, outputs) in whole numbers, as `ValueTable` has them.
        self._weights: list[Ints] = [np.zeros(table.weights.shape, dtype=np.int64) for table in self._tables]
        self._fixed = _fixed_points(ensemble, self.trees, self._tables, modulus)
        for output, fixed in enumerate(self._fixed):
            for (k, place), integers in zip(_adding(self.trees, output), fixed.integers, strict=True):
                self._weights[k][:, place] = integers
        # What all parties can compute must not depend on values that the label holder alone knows.
        known = self._fixed
        if self._public is not ensemble:
            trees = in_order(self._public)
            known = _fixed_points(self._public, trees, [ValueTable(tree) for tree in trees], modulus)
        self._spans = [fixed.span for fixed in known]

    def ways(self, member: str) -> list[list[Branches]]:
        """For each tree, for each of its columns, a member's own branches, which determine its mask.

        A column counts the records that go left at its node, hence the path of the node's owner ends with a branch to
        the left there.
        """
        halves = []
        for tree, remote in zip(self.trees, self._remote, strict=True):
            splits = {split.node: split for split in tree.splits}
            halves.append([_branches(splits, 2 * split.node, member) for split in remote])
        return halves

    def pages(self, goes_left: GoesLeft, n: int, pages: Sequence[Page], base: Ints) -> Iterator[Ints]:
        """The numbers of each page, (outputs, slots), computed on demand.

        Args:
            goes_left: decisions of the label holder's own splits for the n records.
            n: records.
            pages: see `ColumnShape.pages`.
            base: zeros (outputs of the score, n). After the last page it holds D(root), summed over trees.
        """
        columns = self._columns(goes_left, n, base)
        for page in pages:
            yield np.concatenate([next(columns) for _ in range(page.first, page.last)], axis=1)
        for _ in columns:
            raise AssertionError("columns that lie on no page")

    def weights(self, opened: Ints, base: Ints) -> Floats:
        """Sums of leaf weights (n, outputs) from opened sums (outputs, any number of columns · n) and D(root).

        Raises:
            Malformed: a sum that no choice of one leaf per tree has.
        """
        outputs, n = base.shape
        sums = opened.reshape(outputs, -1, n).sum(axis=1) + base
        return np.stack(
            [fixed.decode(fixed.wrap(column)) for fixed, column in zip(self._fixed, sums, strict=True)], axis=1
        )

    def spare(self, decide: Decide, n: int) -> Floats:
        """Bits by which the candidate leaves of n records exceed the possible sums, (n,)."""

        def bits(trees: list[Tree]) -> float:
            return math.fsum(math.log2(self._spans[output] + 1) for output in trees[0].outputs)

        open_bits = [candidate_bits([candidate_leaves(tree, n, decide)]) for tree in self._public.used_trees]
        return least_spare(self._public, open_bits, bits)

    def _columns(self, goes_left: GoesLeft, n: int, base: Ints) -> Iterator[Ints]:
        """Column after column, (outputs of its tree, n)."""
        parts = zip(self.trees, self._remote, self._tables, self._weights, strict=True)
        for tree, remote, table, weights in parts:
            left = {split.node: goes_left(split.handle) for split in tree.splits if split.owner == self._party}
            nodes = [split.node for split in remote]
            rows = table.rows(n, goes_left)
            made = []
            for place, output in enumerate(tree.outputs):
                leaves = {leaf.node: weights[row, place] for leaf, row in zip(tree.leaves, rows, strict=True)}
                start, columns = label_columns(leaves, nodes, left, n)
                base[output] += start
                made.append(columns)
            for node in nodes:
                yield np.stack(
                    [
                        self._fixed[output].wrap(columns[node])
                        for output, columns in zip(tree.outputs, made, strict=True)
                    ]
                )


def _adding(trees: Sequence[Tree], output: int) -> list[tuple[int, int]]:
    """The trees that add to an output, by number, and the place of the output among theirs."""
    return [(k, tree.outputs.index(output)) for k, tree in enumerate(trees) if output in tree.outputs]


def _fixed_points(
    ensemble: Ensemble, trees: Sequence[Tree], tables: Sequence[ValueTable], modulus: int
) -> list[FixedPoint]:
    """The scale of each output; `trees` and `tables` in the order of the columns."""
    return [
        FixedPoint([tables[k].weights[:, place] for k, place in _adding(trees, output)], modulus)
        for output in range(len(ensemble.base_margin))
    ]


def _branches(splits: dict[int, Split], node: int, party: str) -> Branches:
    ups = range(node.bit_length() - 1, 0, -1)
    ways = ((splits[node >> up], (node >> (up - 1)) % 2 == 0) for up in ups)
    return tuple((split.handle, left) for split, left in ways if split.owner == party)

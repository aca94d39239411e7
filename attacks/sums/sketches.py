"""A label holder's equations on one feature party's columns: the sums of each tree over its finest groups of records.

A candidate of the party is a set of records, the left one, that the label holder does not know. Every opened sum is an
equation on it: Σ of known values over the records of a node that are in the set. Sums of a parent are those of its
children together, so that the deepest nodes that were summed say all, and are apart.

Every tree has a secret order of its own. Two trees are linked by what their equations have in common: a sum of one tree
is, but for a rest that is known, a combination of sums of trees before it (scores change by leaf weights of groups of
records that were summed). So the sums of a candidate in earlier trees foretell those in the next one. Left sets of one
column are nested: of two of its candidates the lower one has no more than the other in any group of records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from treetap.arrays import Bools, Floats, Ints
from treetap.attacks.scores import assigned
from treetap.attacks.view.opened_sums import OpenedTree, WonSplit
from treetap.errors import BadInput


class TreeEquations(NamedTuple):
    """Equations A · x = `sums` (M, candidates); each is of the node with its number in `nodes` (M,).

    `layers`: A as rows (N,) below M, or −1, of which each record is in one of a layer at most, and its values (N,).
    """

    layers: list[tuple[Ints, Floats]]
    sums: Floats
    nodes: Ints

    def times(self, other: TreeEquations) -> Floats:
        """A · A'ᵀ (M, M') with those of another tree."""
        wide = len(other.sums)
        products = np.zeros(len(self.sums) * wide)
        for row, value in self.layers:
            for column, factor in other.layers:
                both = np.flatnonzero((row >= 0) & (column >= 0))
                products += np.bincount(
                    row[both] * wide + column[both], value[both] * factor[both], minlength=len(products)
                )
        return products.reshape(-1, wide)


@dataclass(frozen=True, eq=False)
class PartySums:
    """The sums of one party in one tree, in the secret order of that tree.

    Attributes:
        index: of the tree.
        values: (N, S) what was summed; zeros of a record that was not.
        counting: (S,) 0 or 1: the slots that together count records.
        nodes: heap numbers of the nodes with known sums, ascending.
        lefts: (nodes, candidates, S) opened sums, and those of siblings by subtraction.
        least: the fewest records in a cell, of a party that merges bins in every node; 0: it does not.
        by_category: the party has columns of which it sends sums over single categories.
        won: the party's splits.
        spaces: heap number → records, of all nodes.
    """

    index: int
    values: Ints = field(repr=False)
    counting: Bools
    nodes: tuple[int, ...]
    lefts: Ints = field(repr=False)
    least: int
    by_category: bool
    won: tuple[WonSplit, ...] = field(repr=False)
    spaces: Mapping[int, Ints] = field(repr=False)

    @property
    def candidates(self) -> int:
        """Their number."""
        return int(self.lefts.shape[1])

    @cached_property
    def draws(self) -> Ints:
        """(N,) how often each record was counted."""
        return np.asarray(self.values[:, self.counting].sum(axis=1))

    @cached_property
    def drawn(self) -> list[Ints]:
        """Of each of `nodes` the records that were counted."""
        return [rows[self.draws[rows] > 0] for rows in map(self.spaces.__getitem__, self.nodes)]

    @cached_property
    def counts(self) -> Ints:
        """(nodes, candidates) the counted records on the left."""
        return np.asarray(self.lefts[..., self.counting].sum(axis=-1))

    @cached_property
    def totals(self) -> Ints:
        """(nodes, S) the sums over all records of each node."""
        return np.array([self.values[rows].sum(axis=0) for rows in self.drawn], dtype=np.int64)

    @cached_property
    def equal_places(self) -> Ints:
        """(candidates,) of each place the first one that has the same sums in all nodes."""
        flat = self.lefts.transpose(1, 0, 2).reshape(self.candidates, -1)
        _, first, same = np.unique(flat, axis=0, return_index=True, return_inverse=True)
        return np.asarray(first[same.reshape(-1)], dtype=np.int64)

    @cached_property
    def scale(self) -> Floats:
        """(S,) the largest value of each slot; 1 where all are 0."""
        largest = np.abs(self.values).max(axis=0, initial=0).astype(np.float64)
        return np.where(largest > 0, largest, 1.0)

    @cached_property
    def equations(self) -> TreeEquations:
        """A (M, N) and B (M, candidates): A x = B of each left set x, an equation for each slot of a finest group.

        Each row has length 1, so that a slot of large numbers weighs no more than one of small ones. With merged bins
        the sets are those of a node, and the groups all nodes.
        """
        groups, rest = (self.drawn, self.lefts.astype(np.float64)) if self.least else self._finest()
        layers, sums, nodes = dict[tuple[int, int], tuple[Ints, Floats]](), list[Floats](), list[int]()
        for number, records in enumerate(groups):
            if not len(records):
                continue
            values = self.values[records] / self.scale
            lengths = np.linalg.norm(values, axis=0)
            level = self.nodes[number].bit_length() if self.least else 0  # nodes of a level have no record in common
            for slot in np.flatnonzero(lengths).tolist():
                empty = np.full(len(self.draws), -1), np.zeros(len(self.draws))
                row, value = layers.setdefault((level, slot), empty)
                row[records], value[records] = len(sums), values[:, slot] / lengths[slot]
                nodes.append(number)
                sums.append(rest[number, :, slot] / (self.scale[slot] * lengths[slot]))
        every = np.array(sums).reshape(-1, self.candidates)
        return TreeEquations(list(layers.values()), every, np.array(nodes, dtype=np.int64))

    @cached_property
    def strongest(self) -> TreeEquations:
        """Those of the largest groups."""
        every = self.equations
        if len(every.sums) <= MOST_EQUATIONS:
            return every
        sizes = sum(np.bincount(row + 1, minlength=len(every.sums) + 1)[1:] for row, _ in every.layers)
        largest = np.sort(np.argsort(-np.asarray(sizes), kind="stable")[:MOST_EQUATIONS])
        place = np.full(len(every.sums) + 1, -1)  # the last one is of no row
        place[largest] = np.arange(len(largest))
        layers = [(place[row], value) for row, value in every.layers]
        return TreeEquations(layers, every.sums[largest], every.nodes[largest])

    def _finest(self) -> tuple[list[Ints], Floats]:
        """Of each node the records that are in no deeper one with sums, and the sums over these."""
        place = {node: number for number, node in enumerate(self.nodes)}
        finest = np.full(len(self.draws), -1, dtype=np.int64)
        for node in sorted(place):  # a child comes after its parent
            finest[self.drawn[place[node]]] = place[node]
        rest = self.lefts.astype(np.float64)
        for node, number in place.items():
            for child in (2 * node, 2 * node + 1):
                if child in place:
                    rest[number] -= self.lefts[place[child]]
        return [np.flatnonzero(finest == number) for number in range(len(self.nodes))], rest


def sums_of(party: str, trees: Sequence[OpenedTree], draws: Callable[[int], Ints]) -> list[PartySums]:
    """The sums of one party, of the trees in which it offered candidates.

    `draws`: number of a tree → (N,) how often it drew each record, which the job's seed tells every party.
    """
    observed = []
    for tree in trees:
        opened = tree.sums.get(party, {})
        lefts: dict[int, Ints] = {}
        least = tree.least.get(party, 0)
        for node in sorted(opened):  # a parent comes before its children
            lefts[node] = opened[node]
            if not least and node ^ 1 in tree.nodes and node ^ 1 not in opened and node >> 1 in lefts:
                lefts[node ^ 1] = lefts[node >> 1] - opened[node]
        if not lefts or not next(iter(lefts.values())).size:
            continue
        nodes = tuple(sorted(lefts))
        won = tuple(split for split in tree.won if split.party == party)
        stacked = np.stack([lefts[node] for node in nodes])
        # The slots (S,) that together count each record that was summed: one that holds the draws; or those behind it,
        # of classes, which count records that were not drawn too; or all, of a forest's classes.
        slots = tree.values.shape[1]
        holds = np.flatnonzero((tree.values == draws(tree.index)[:, None]).all(axis=0))
        first = 0 if not len(holds) else int(holds[0]) + (int(holds[0]) < slots - 1)
        counting = np.asarray(np.arange(slots) >= first)
        by_category = bool(tree.categories.get(party))
        of_party = PartySums(tree.index, tree.values, counting, nodes, stacked, least, by_category, won, tree.nodes)
        if len(of_party.drawn[0]):
            observed.append(of_party)
    return observed


# Candidates of different trees that are one and the same, and those of one column in their order, by sums alone.

#: Trees before one that foretell its sums.
BEFORE = 5
#: Two candidates are not taken for one if their sums are farther apart than this many standard deviations, in the mean.
FARTHEST = 4.0
#: Trees by whose groups sets are compared.
COMPARED = 30
#: Equations of a tree by which it is linked, at most: those of the largest groups.
MOST_EQUATIONS = 600
#: Products of equations of two trees that are kept: all that are in use where trees have all candidates.
_PAIRS = (BEFORE + 1) ** 2
#: A · A'ᵀ of the strongest equations of two trees, by their numbers.
Product = Callable[[int, int], Floats]
#: A combination leaves a rest of at least this share of the largest one, below which numbers are rounding errors.
_RIDGE = 1e-9


def turns_of_columns(trees: Sequence[PartySums], turns: Sequence[int]) -> list[list[int]]:
    """The trees of each column, by number, of a party that offers its columns one by one: its t-th turn is `turns`' t.

    The left set that won a tree is known, and so are its sums over what a later tree sums, which a candidate there has
    if it is of the same column. Columns go round by the shortest distance at which most trees show this; where none
    does, each tree has a column of its own.
    """
    shown: dict[int, list[bool]] = {}
    for one, (earlier, begun) in enumerate(zip(trees, turns, strict=True)):
        for split in () if earlier.by_category else earlier.won:
            for later, turn in zip(trees[one + 1 :], turns[one + 1 :], strict=True):
                left = later.values[split.left].sum(axis=0)
                both = np.stack([left, later.totals[0] - left])  # of a mirrored candidate the others go left
                again = (later.lefts[0][:, None] == both).all(axis=2).any()
                shown.setdefault(turn - begun, []).append(bool(again))
    period = min((gap for gap, same in shown.items() if 2 * sum(same) > len(same)), default=max(turns, default=0) + 1)
    columns: dict[int, list[int]] = {}
    for number, turn in enumerate(turns):
        columns.setdefault(turn % period, []).append(number)
    return list(columns.values())


def linked_in_turns(trees: Sequence[PartySums], turns: Sequence[int], most: int) -> Ints:
    """`linked_places` of trees of one column each, whose candidates are linked to those of the same column alone."""
    groups, every = turns_of_columns(trees, turns), list[Ints]()
    for numbers in groups:
        places = linked_places([trees[number] for number in numbers], sampled=False, most=most)
        every.append(np.full((len(trees), places.shape[1]), -1, dtype=np.int64))
        every[-1][numbers] = places
    _check_few(sum(part.shape[1] for part in every), most)
    return np.concatenate(every, axis=1)


def _check_few(candidates: int, most: int) -> None:
    if candidates > most:
        raise BadInput(f"more than {most} candidates are to be linked (most_candidates)")


def linked_places(trees: Sequence[PartySums], *, sampled: bool, most: int) -> Ints:
    """Candidates of all trees under common numbers.

    A row per tree: (candidates of the job,) the place of each in the tree's order, −1: not offered.

    Args:
        most: candidates, above which it ends with BadInput.
        sampled: trees use some of the columns only, so that a candidate may be one that no tree before had.
    """
    rows = [np.arange(tree.candidates) for tree in trees[:1]]
    count = len(rows[0]) if rows else 0

    @lru_cache(maxsize=_PAIRS)
    def product(one: int, other: int) -> Floats:
        return trees[one].strongest.times(trees[other].strongest) if one <= other else product(other, one).T

    for number in range(1, len(trees)):
        taken = _taken(trees, rows, number, count, FARTHEST if sampled else np.inf, product)
        fresh = np.setdiff1d(np.arange(trees[number].candidates), taken[taken >= 0])
        rows.append(np.concatenate([taken, fresh]))
        count += len(fresh)
        _check_few(count, most)
    return _padded(rows, count)


def _taken(
    trees: Sequence[PartySums], rows: list[Ints], number: int, count: int, farthest: float, product: Product
) -> Ints:
    """The places (count,) in tree `number` of the candidates so far, −1 of those that it does not offer."""
    known = _padded(rows, count)
    cost = np.full((count, trees[number].candidates), np.inf)
    patterns: dict[tuple[int, ...], list[int]] = {}
    for candidate in range(count):
        last = np.flatnonzero(known[:, candidate] >= 0)[-BEFORE:]
        patterns.setdefault(tuple(last.tolist()), []).append(candidate)
    for there, candidates in patterns.items():
        sums = [trees[before].strongest.sums[:, known[before, candidates]] for before in there]
        cost[candidates] = _distance(there, number, sums, trees[number], product)
    finite = np.minimum(cost, 1e12)
    taken = assigned(finite)
    far = finite[np.arange(count), taken] > farthest**2
    return np.where(far, -1, taken)


def _padded(rows: Sequence[Ints], count: int) -> Ints:
    """Places of the candidates so far by tree: (trees, count), −1 of those that a tree came before."""
    places = np.full((len(rows), count), -1, dtype=np.int64)
    for number, row in enumerate(rows):
        places[number, : len(row)] = row
    return places


def _distance(before: Sequence[int], number: int, sums: Sequence[Floats], tree: PartySums, product: Product) -> Floats:
    """Squared distances (candidates, candidates of `tree`), in variances of a sum over a random set of records.

    `sums`: those of each tree before, (equations, candidates). `number`: of `tree`.
    """
    gram = np.block([[product(one, other) for other in before] for one in before])
    gram[np.diag_indices_from(gram)] += _RIDGE * max(np.trace(gram), 1.0) / max(len(gram), 1)
    cross = np.hstack([product(number, other) for other in before])
    weights = np.linalg.solve(gram, cross.T).T
    rest = product(number, number) - weights @ cross.T
    sizes, axes = np.linalg.eigh((rest + rest.T) / 2)
    axes /= np.sqrt(np.maximum(sizes, sizes.max(initial=0.0) * _RIDGE + 1e-30))
    foretold, offered = (weights @ np.concatenate(sums)).T @ axes, tree.strongest.sums.T @ axes
    square = (foretold**2).sum(axis=1)[:, None] + (offered**2).sum(axis=1)[None] - 2 * foretold @ offered.T
    # of the records counted at the root each candidate sends this share left
    share = tree.counts[0] / max(int(tree.totals[0, tree.counting].sum()), 1)
    spread = np.maximum(share * (1 - share), 1 / max(int((tree.draws > 0).sum()), 1))
    return np.asarray(np.maximum(square, 0.0) / (max(len(rest), 1) * spread[None]))


def chains(trees: Sequence[PartySums], places: Ints, compared_trees: int = COMPARED) -> list[Ints]:
    """Candidates in chains of nested left sets, each from the smallest set, by the least total difference.

    Sets are compared in every group of records of the first `compared_trees`: a nested one has there no more records,
    and sums that the records in between can have.
    """
    count = places.shape[1]
    nested, more = np.ones((count, count), dtype=bool), np.full((count, count), -np.inf)
    compared = np.zeros((count, count), dtype=bool)
    for tree, row in list(zip(trees, places, strict=True))[:compared_trees]:
        there = np.flatnonzero(row >= 0)
        block = np.ix_(there, there)
        sums = tree.lefts[:, row[there]].astype(np.float64)
        counts = tree.counts[:, row[there]]
        # the least and the largest value (S,) of a counted record, by its draws, with room for rounding
        drawn = tree.draws > 0
        each_draw, room = tree.values[drawn] / tree.draws[drawn, None], 1e-9 * tree.scale
        low, high = each_draw.min(axis=0) - room, each_draw.max(axis=0) + room
        fits = np.ones((len(there), len(there)), dtype=bool)
        for node in range(len(tree.nodes)):
            between = counts[node][:, None] - counts[node][None]
            fits &= between >= 0
            for slot in range(sums.shape[2]):
                difference = sums[node, :, None, slot] - sums[node, None, :, slot]
                fits &= (difference >= low[slot] * between) & (difference <= high[slot] * between)
        nested[block] &= fits
        compared[block] = True
        more[block] = np.maximum(more[block], counts[0][:, None] - counts[0][None])
    nested &= compared & (more > 0)
    np.fill_diagonal(nested, val=False)
    return _covered(nested, more)


def _covered(nested: Bools, more: Floats) -> list[Ints]:
    """Chains by the assignment of a next lower one: `nested` [upper, lower], `more` records of the upper one."""
    count = len(nested)
    none = max(float(more[nested].max(initial=0.0)), 1.0) * 2
    cost = np.hstack([np.where(nested, more, none * count), np.full((count, count), none)])
    lower = assigned(cost)
    above = {int(low): upper for upper, low in enumerate(lower) if low < count and nested[upper, low]}
    first = [k for k in range(count) if lower[k] >= count or not nested[k, lower[k]]]
    result = []
    for start in first:
        chain = [start]
        while chain[-1] in above:
            chain.append(above[chain[-1]])
        result.append(np.array(chain, dtype=np.int64))
    return result

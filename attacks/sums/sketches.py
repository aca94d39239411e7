"""A label holder's equations on one feature party's columns: the sums of each tree over its finest groups of records.

A candidate of the party is a set of records, the left one, that the label holder does not know. Every opened sum is an
equation on it: Σ of known values over the records of a node that are in the set. Sums of a parent are those of its
children together, so that the deepest nodes that were summed say all, and are apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from treetap.attacks.view.opened_sums import OpenedTree, WonSplit

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


class TreeEquations(NamedTuple):
    """Equations `matrix` (M, N) · x = `sums` (M, candidates); each is of the node with its number in `nodes` (M,)."""

    matrix: csr_array
    sums: Floats
    nodes: Ints


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
        draws: Ints = self.values[:, self.counting].sum(axis=1)
        return draws

    @cached_property
    def drawn(self) -> list[Ints]:
        """Of each of `nodes` the records that were counted."""
        return [rows[self.draws[rows] > 0] for rows in map(self.spaces.__getitem__, self.nodes)]

    @cached_property
    def counts(self) -> Ints:
        """(nodes, candidates) the counted records on the left."""
        counts: Ints = self.lefts[..., self.counting].sum(axis=-1)
        return counts

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
        rows, columns, entries = list[Ints](), list[Ints](), list[Floats]()
        sums, nodes = list[Floats](), list[int]()
        for number, records in enumerate(groups):
            if not len(records):
                continue
            values = self.values[records] / self.scale
            lengths = np.linalg.norm(values, axis=0)
            for slot in np.flatnonzero(lengths):
                rows.append(np.full(len(records), len(sums)))
                columns.append(records)
                nodes.append(number)
                entries.append(values[:, slot] / lengths[slot])
                sums.append(rest[number, :, slot] / (self.scale[slot] * lengths[slot]))
        if not sums:
            return TreeEquations(
                csr_array((0, len(self.draws))), np.zeros((0, self.candidates)), np.zeros(0, dtype=int)
            )
        at = (np.concatenate(rows), np.concatenate(columns))
        shape = (len(sums), len(self.draws))
        matrix = csr_array((np.concatenate(entries), at), shape=shape)
        return TreeEquations(matrix, np.array(sums), np.array(nodes))

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
        counting = _counting(tree.values, draws(tree.index))
        by_category = bool(tree.categories.get(party))
        of_party = PartySums(tree.index, tree.values, counting, nodes, stacked, least, by_category, won, tree.nodes)
        if len(of_party.drawn[0]):
            observed.append(of_party)
    return observed


def _counting(values: Ints, draws: Ints) -> Bools:
    """The slots (S,) that together count each record that was summed.

    One that holds the draws; or those behind it, of classes, which count records that were not drawn too; or all, of a
    forest's classes.
    """
    slots = values.shape[1]
    holds = np.flatnonzero((values == draws[:, None]).all(axis=0))
    first = 0 if not len(holds) else int(holds[0]) + (int(holds[0]) < slots - 1)
    counting: Bools = np.arange(slots) >= first
    return counting

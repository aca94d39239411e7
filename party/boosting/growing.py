"""One tree as the label holder grows it: pure numbers, no wire.

Nodes have heap numbers: root 1, children of u are 2u (left) and 2u+1 (right). Sums are exact
integers in fixed point; only the smaller child of a pair is summed by the feature parties, its
sibling's candidates are the parent's less its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from treetap.errors import Malformed
from treetap.trees.gain import choose, cover, leaf_weights, loss_changes, may_split
from treetap.trees.params import BoostingParams

Ints = np.ndarray[tuple[int, ...], np.dtype[np.int64]]
Rows = np.ndarray[tuple[int], np.dtype[np.int64]]
ROOT = 1


@dataclass(frozen=True)
class Choice:
    """The winner of a node: whose candidates, all that tie, and the loss change they promise."""

    node: int
    party: int
    candidates: list[int]
    gain: float


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
        values: (N, 2K+1) int64: g_0.., h_0.., 1 in fixed point; rows that are not sampled are zero.
        scale: what the g were divided by.
        parties: how many parties offer candidates; the label holder is number 0.
    """

    def __init__(self, values: Ints, scale: float, params: BoostingParams, parties: int) -> None:
        self._values, self._scale, self._params, self._parties = values, scale, params, parties
        self.rows: dict[int, Rows] = {ROOT: np.arange(len(values), dtype=np.int64)}
        self.sums: dict[int, Ints] = {ROOT: values.sum(axis=0)}
        self.frontier: list[int] = [ROOT]
        self.build: list[int] = [ROOT]
        self.made: dict[int, Made] = {}
        self.choices: dict[int, Choice] = {}
        self._candidates: dict[int, list[Ints]] = {}
        self._parents: dict[int, list[Ints]] = {}

    def take_candidates(self, by_party: Sequence[Ints]) -> None:
        """Left sums of the nodes in `build`, one (len(build), candidates, 2K+1) array per party; siblings follow."""
        self._candidates = {node: [sums[place] for sums in by_party] for place, node in enumerate(self.build)}
        for node in self.frontier:
            if node not in self._candidates:
                parent, sibling = self._parents[node >> 1], self._candidates[node ^ 1]
                self._candidates[node] = [whole - part for whole, part in zip(parent, sibling, strict=True)]

    def choose(self) -> list[Choice]:
        """The best split of every node of the frontier that has one."""
        self.choices = {}
        for node in self.frontier:
            total = self.sums[node][np.newaxis]
            changes = [
                loss_changes(left[np.newaxis], total, self._scale, self._params)[0] for left in self._candidates[node]
            ]
            best = choose(changes, self._params)
            if best is not None:
                party, tied = best
                self.choices[node] = Choice(node, party, [int(k) for k in tied], float(changes[party][tied[0]]))
        return list(self.choices.values())

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
        promised = [tuple(self._candidates[node][choice.party][k]) for k in choice.candidates]
        if tuple(self.sums[2 * node]) not in promised:
            raise Malformed(f"the children of node {node} do not have the sums that its owner offered")
        self.made[node] = Made(node, choice.party, handle, choice.gain, self.cover(node))

    def cover(self, node: int) -> float:
        """Σ h of a node over its sampled records, summed over outputs."""
        return float(cover(self.sums[node]))

    def next_level(self, depth: int) -> None:
        """Move to the children: which may be split, and which of each pair is to be summed."""
        self._parents = self._candidates
        self.frontier, self.build = [], []
        for node in sorted(self.choices):
            pair = [2 * node, 2 * node + 1]
            open_children = [child for child in pair if self._may_be_split(child, depth)]
            if open_children:
                self.frontier += open_children
                self.build.append(min(pair, key=lambda child: int(self.sums[child][-1])))

    def _may_be_split(self, node: int, depth: int) -> bool:
        """Whether any split of the node could pass the stopping rules."""
        return depth < self._params.max_depth and bool(may_split(self.sums[node], self._params))

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

    def weights(self, leaf: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Leaf weights (K,), the learning rate applied."""
        return leaf_weights(self.sums[leaf], self._scale, self._params)

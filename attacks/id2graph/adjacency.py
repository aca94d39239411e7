"""The graph of records, stored as its leaves, so that it needs N·T numbers and not N².

In equation 1 of the ID2Graph paper every leaf is a clique. With n_vl the records of vertex v in leaf l and w_l the
leaf's weight, and E further edges,

    A_uv = Σ_l w_l n_ul n_vl        (u ≠ v)
    A_vv = Σ_l w_l n_vl (n_vl − 1)  (0 for a single record; twice the weight of the self-loop)    both + E_uv

A vertex may stand for many records (a super-vertex). Merging vertices adds their rows and keeps the modularity of
every partition that does not separate them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from treetap.arrays import Floats, Ints
from treetap.attacks.id2graph.clustering import Leaves, checked


@dataclass(frozen=True, eq=False)
class RecordGraph:
    """Vertices, their leaves and further edges.

    Attributes:
        vertices: their number, V.
        at, leaf, count: (E,) each, by vertex and leaf in ascending order: the vertex has `count` records in the leaf.
        weights: (L,) of leaves.
        ends, extra: (2, F) vertices and (F,) weights of further edges, each in both directions, a self-loop of weight w
            being 2w once, so that sums by vertex are degrees.
    """

    vertices: int
    at: Ints
    leaf: Ints
    count: Floats
    weights: Floats
    ends: Ints
    extra: Floats

    @cached_property
    def degrees(self) -> Floats:
        """Row sums of A: (V,)."""
        totals = np.bincount(self.leaf, self.count, len(self.weights))
        others = self.weights[self.leaf] * self.count * (totals[self.leaf] - 1)
        degrees: Floats = np.bincount(self.at, others, self.vertices).astype(np.float64)
        return degrees + np.bincount(self.ends[0], self.extra, self.vertices)

    @cached_property
    def pairs(self) -> int:
        """An upper bound on the entries of A, diagonal included."""
        return int(min(self.vertices**2, (np.bincount(self.leaf) ** 2).sum() + len(self.extra)))

    def modularity(self, communities: Ints) -> float:
        """Q of equation 2 (the standard 2m, A symmetric) for a partition (V,), without forming A; 0 without edges."""
        total = float(self.degrees.sum())
        if total <= 0:
            return 0.0
        together = self.merged(communities)
        inside = (together.count**2) @ self.weights[together.leaf] - self.count @ self.weights[self.leaf]
        inside += together.extra[together.ends[0] == together.ends[1]].sum()
        return float(inside / total - ((together.degrees / total) ** 2).sum())

    def merged(self, communities: Ints) -> RecordGraph:
        """The graph whose vertex k merges all v with communities[v] = k; communities (V,) from 0 without gaps."""
        many = int(communities.max(initial=-1)) + 1
        held, counts = _summed(communities[self.at] * len(self.weights) + self.leaf, self.count)
        edges, extra = _summed(communities[self.ends[0]] * many + communities[self.ends[1]], self.extra)
        ends = np.stack(np.divmod(edges, max(1, many)))
        return RecordGraph(many, *np.divmod(held, max(1, len(self.weights))), counts, self.weights, ends, extra)


def _summed(numbers: Ints, values: Floats) -> tuple[Ints, Floats]:
    """Different numbers, ascending, and the sums of their values."""
    different, place = np.unique(numbers, return_inverse=True)
    sums: Floats = np.bincount(place, values, len(different)).astype(np.float64)
    return different, sums


def _graph(trees: list[list[Ints]], records: int, discount: float, ends: Ints, extra: Floats) -> RecordGraph:
    """A vertex per record, and its leaves."""
    every = [leaf for tree in trees for leaf in tree]
    # equation 1: a tree counts discount^(t-1), for t from 1
    weights = np.repeat(discount ** np.arange(len(trees), dtype=np.float64), [len(tree) for tree in trees])
    at = np.concatenate([np.zeros(0, dtype=np.int64), *every])
    leaf = np.repeat(np.arange(len(every)), [len(some) for some in every])
    order = np.argsort(at, kind="stable")
    return RecordGraph(records, at[order], leaf[order], np.ones(len(at)), weights, ends, extra)


def exact(leaves: Leaves, records: int, discount: float) -> RecordGraph:
    """Equation 1: A_ij = Σ_t discount^(t−1) · #(leaves of tree t that hold both i and j), i ≠ j; a vertex per record.

    Raises:
        BadInput: a leaf is malformed; names tree and leaf.
    """
    trees = checked(leaves, records)
    return _graph(trees, records, discount, np.zeros((2, 0), dtype=np.int64), np.zeros(0))


def union(leaves: Leaves, records: int) -> Ints:
    """The component of every record (N,), from 0; the records in no leaf, of which nothing is known, are one component.

    Union–find over leaves, as the connected components of a graph that joins a leaf's first record to its others. A
    component for each unknown record would score as if the attacker could tell them apart.

    Raises:
        BadInput: a leaf is malformed; names tree and leaf.
    """
    every = [leaf for tree in checked(leaves, records) for leaf in tree]
    unknown = np.ones(records, dtype=bool)
    for leaf in every:
        unknown[leaf] = False
    if unknown.any():
        every.append(np.flatnonzero(unknown))
    parts, before = np.arange(records), np.full(records, -1)
    while (parts != before).any():  # each part has the least number that a leaf joins to it
        before = parts.copy()
        for leaf in every:
            parts[leaf] = parts[leaf].min()
        parts = parts[parts]
    return np.unique(parts, return_inverse=True)[1].astype(np.int64)


def signatures(graph: RecordGraph, first: int | None = None) -> Ints:
    """Signature numbers (V,), from 0 without gaps, equal exactly for vertices with the same leaves.

    Such vertices have the same neighbours and a joint edge. Merging s of them gives a super-vertex with a self-loop of
    weight s(s−1)/2·Σ_t discount^(t−1), and the edges between super-vertices are products of sizes. The modularity of a
    partition that keeps them together equals that in the full graph: the method is exact, and its size does not grow
    with N².

    A vertex with an extra edge, or in no leaf, has a number of its own. With `first` only the first `first` leaves of a
    vertex count, in order of trees, and extra edges do not: a coarser partition.
    """
    width = np.bincount(graph.at, minlength=graph.vertices)
    starts, deepest = np.cumsum(width) - width, int(width.max(initial=0))
    numbers = np.zeros(graph.vertices, dtype=np.int64)
    for j in range(deepest if first is None else min(first, deepest)):
        deep = width > j
        leaf = np.zeros(graph.vertices, dtype=np.int64)
        leaf[deep] = graph.leaf[starts[deep] + j] + 1
        numbers = np.unique(numbers * (len(graph.weights) + 1) + leaf, return_inverse=True)[1].astype(np.int64)
    if first is None:
        apart = np.union1d(graph.ends[0], np.flatnonzero(width == 0))
        numbers[apart] = numbers.max(initial=-1) + 1 + np.arange(len(apart))
        numbers = np.unique(numbers, return_inverse=True)[1].astype(np.int64)
    return numbers


def chunked(
    leaves: Leaves, records: int, discount: float, chunk_size: int, chunk_weight: float, chunk_edges: str
) -> RecordGraph:
    """The graph of algorithm 3, a vertex per record, whose edges number O(B·N); `chunk_size` is B, `chunk_weight` w'.

    A leaf of fewer than B records is a clique. A larger one is cut, in ascending order of records, into chunks of B,
    each a clique; an edge of weight w' is added between each chunk and the next.

    As printed, that edge joins a vertex to itself: lines 21–22 apply when s = t, so A_{i_s i_s} grows by 2w', a
    self-loop on the first record of the chunk (`paper`). The text says "between the end of one chunk and the beginning
    of the next", which is the edge from i_{s−1} to i_s (`linked`). The printed bounds count from 0 and from 1 in turn;
    here from 0.

    Raises:
        BadInput: a leaf is malformed; names tree and leaf.
    """
    trees = checked(leaves, records)
    pieces: list[list[Ints]] = []
    ends: list[Ints] = [np.zeros((0, 2), dtype=np.int64)]
    for tree in trees:
        cut: list[Ints] = []
        for leaf in tree:
            starts = np.arange(0, len(leaf), chunk_size)
            cut += [leaf[s : s + chunk_size] for s in starts]
            ends.append(np.stack([leaf[starts[1:] - 1], leaf[starts[1:]]], axis=1))
        pieces.append(cut)
    before, first = np.concatenate(ends).T
    one, other = (first, first) if chunk_edges == "paper" else (before, first)
    edges, extra = _summed(
        np.concatenate([one * records + other, other * records + one]), np.full(2 * len(one), chunk_weight)
    )
    return _graph(pieces, records, discount, np.stack(np.divmod(edges, records)), extra)

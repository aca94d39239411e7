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
from scipy import sparse
from scipy.sparse import csgraph

from treetap.arrays import Floats, Ints
from treetap.attacks.id2graph.clustering import Leaves, checked, incidence, tree_weights


@dataclass(frozen=True)
class RecordGraph:
    """`held` (V, L): records of vertex v in leaf l. `weights` (L,). `extra` (V, V): symmetric further edges, a
    self-loop of weight w being 2w on the diagonal, so that rows sum to degrees."""

    held: sparse.csr_array
    weights: Floats
    extra: sparse.csr_array

    @property
    def vertices(self) -> int:
        """The number of vertices, V."""
        return int(self.held.shape[0])

    @cached_property
    def degrees(self) -> Floats:
        """Row sums of A: (V,)."""
        totals = np.asarray(self.held.sum(axis=0)).ravel()
        return np.asarray(self.held @ (self.weights * (totals - 1)) + np.asarray(self.extra.sum(axis=1)).ravel())

    @cached_property
    def pairs(self) -> int:
        """An upper bound on the entries of A, diagonal included, that `adjacency` may store."""
        vertices_of = np.diff(self.held.tocsc().indptr).astype(np.int64)
        return int(min(self.vertices**2, (vertices_of**2).sum() + self.extra.nnz))

    def adjacency(self) -> sparse.csr_array:
        """A (V, V), symmetric; a self-loop is twice its weight. Its size is bounded by `pairs`."""
        weighted = self.held * self.weights
        whole = sparse.csr_array(weighted @ self.held.T) + self.extra
        own = sparse.diags_array(np.asarray(weighted.sum(axis=1)).ravel())
        matrix = sparse.csr_array(whole - own)
        matrix.eliminate_zeros()
        return matrix

    def modularity(self, communities: Ints) -> float:
        """Q of equation 2 (the standard 2m, A symmetric) for a partition (V,), without forming A; 0 without edges."""
        total = float(self.degrees.sum())
        if total <= 0:
            return 0.0
        together = self.merged(communities)
        ones = float(np.asarray(self.held.sum(axis=0)).ravel() @ self.weights)
        inside = float((together.held.power(2) @ self.weights).sum()) - ones + float(together.extra.diagonal().sum())
        return inside / total - float(((together.degrees / total) ** 2).sum())

    def merged(self, communities: Ints) -> RecordGraph:
        """The graph whose vertex k merges all v with communities[v] = k; communities (V,) from 0 without gaps."""
        n, width = len(communities), int(communities.max(initial=-1)) + 1
        into = sparse.csr_array((np.ones(n), communities, np.arange(n + 1)), shape=(n, width)).T
        return RecordGraph(
            sparse.csr_array(into @ self.held), self.weights, sparse.csr_array(into @ self.extra @ into.T)
        )

    def part(self, vertices: Ints) -> RecordGraph:
        """The induced subgraph on the vertices with these numbers (K,)."""
        return RecordGraph(self.held[vertices], self.weights, self.extra[vertices][:, vertices])


def exact(leaves: Leaves, records: int, discount: float) -> RecordGraph:
    """Equation 1: A_ij = Σ_t discount^(t−1) · #(leaves of tree t that hold both i and j), i ≠ j; a vertex per record.

    Raises:
        BadInput: a leaf is malformed; names tree and leaf.
    """
    trees = checked(leaves, records)
    weights = np.repeat(tree_weights(len(trees), discount), [len(tree) for tree in trees])
    return RecordGraph(incidence(trees, records), weights, sparse.csr_array((records, records)))


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
    none = np.zeros(0, dtype=np.int64)
    one = np.concatenate([none, *(np.full(len(leaf) - 1, leaf[0]) for leaf in every)])
    other = np.concatenate([none, *(leaf[1:] for leaf in every)])
    joined = sparse.coo_array((np.ones(len(one), dtype=np.int8), (one, other)), shape=(records, records))
    _, parts = csgraph.connected_components(joined, directed=False)
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
    held = graph.held
    held.sort_indices()
    width = np.diff(held.indptr)
    columns = int(width.max(initial=0)) if first is None else min(first, int(width.max(initial=0)))
    numbers = np.zeros(graph.vertices, dtype=np.int64)
    for j in range(columns):
        leaf = np.zeros(graph.vertices, dtype=np.int64)
        deep = width > j
        leaf[deep] = held.indices[held.indptr[:-1][deep] + j] + 1
        numbers = np.unique(numbers * (held.shape[1] + 1) + leaf, return_inverse=True)[1].astype(np.int64)
    if first is None:
        apart = np.flatnonzero((np.diff(graph.extra.indptr) > 0) | (width == 0))
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
    weights = np.repeat(tree_weights(len(pieces), discount), [len(cut) for cut in pieces])
    before, first = np.concatenate(ends).T
    one, other = (first, first) if chunk_edges == "paper" else (before, first)
    edges = sparse.coo_array((np.full(len(one), chunk_weight), (one, other)), shape=(records, records))
    return RecordGraph(incidence(pieces, records), weights, sparse.csr_array(edges + edges.T))

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

from attacks.id2graph.leaves import Floats, Ints, Leaves, checked, incidence, tree_weights


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
        sums: Floats = self.held @ (self.weights * (totals - 1)) + np.asarray(self.extra.sum(axis=1)).ravel()
        return sums

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
        into = _indicator(communities).T
        return RecordGraph(
            sparse.csr_array(into @ self.held), self.weights, sparse.csr_array(into @ self.extra @ into.T)
        )

    def part(self, vertices: Ints) -> RecordGraph:
        """The induced subgraph on the vertices with these numbers (K,)."""
        return RecordGraph(self.held[vertices], self.weights, self.extra[vertices][:, vertices])


def _indicator(communities: Ints) -> sparse.csr_array:
    n = len(communities)
    width = int(communities.max(initial=-1)) + 1
    return sparse.csr_array((np.ones(n), communities, np.arange(n + 1)), shape=(n, width))


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

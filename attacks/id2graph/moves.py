"""Single vertices moved between communities on a graph that is not written out."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from scipy import sparse

from attacks.id2graph.adjacency import RecordGraph
from attacks.id2graph.leaves import Ints
from treetap.trees import sampling


def settle(graph: RecordGraph, communities: Ints, seed: int, passes: int, tolerance: float) -> Ints:
    """Louvain's local moving from a given partition (V,): one of the same or a higher modularity, from 0.

    A pass visits every vertex with an edge, in a seeded order, and moves it to the community that gains most. Ends
    after `passes`, or after a pass that gains less than `tolerance`.
    """
    state = _Moving(graph, communities)
    visited = np.flatnonzero(graph.degrees > 0)
    for number in range(passes):
        order = sampling.generator(seed, "moves", number).permutation(visited).tolist()
        if sum(state.move(v) for v in order) < tolerance:
            break
    return np.unique(np.array(state.labels, dtype=np.int64), return_inverse=True)[1].astype(np.int64)


class _Moving:
    """A partition that changes. `inside[l][c]`: records of community c in leaf l; `mass[c]`: K_c, its degrees' sum."""

    def __init__(self, graph: RecordGraph, communities: Ints) -> None:
        self.labels: list[int] = communities.tolist()
        self.degrees: list[float] = graph.degrees.tolist()
        self.total = float(graph.degrees.sum())
        self.mass: list[float] = np.bincount(communities, weights=graph.degrees).tolist()
        self.weights: list[float] = graph.weights.tolist()
        self.held, self.extra = _rows(graph.held), _rows(graph.extra)
        self.inside: list[dict[int, float]] = [{} for _ in self.weights]
        for v in range(graph.vertices):
            self._enter(v, self.labels[v])

    def move(self, v: int) -> float:
        """Put v where k_vc − d_v·K_c/2m is largest, without v; stay among equals. Returns the gain of modularity."""
        here = self.labels[v]
        self._leave(v, here)
        self.mass[here] -= self.degrees[v]
        pull = self.degrees[v] / self.total
        toward = self._edges(v)
        stay = toward.get(here, 0.0) - pull * self.mass[here]
        best, there = max(((k - pull * self.mass[c], -c) for c, k in toward.items()), default=(stay, -here))
        to = -there if best > stay + 1e-12 * self.total else here
        self.labels[v] = to
        self.mass[to] += self.degrees[v]
        self._enter(v, to)
        return 2 * (best - stay) / self.total if to != here else 0.0

    def _edges(self, v: int) -> dict[int, float]:
        """k_vc: the weight of v's edges into each community."""
        toward: dict[int, float] = {}
        for leaf, count in self.held[v]:
            factor = self.weights[leaf] * count
            for c, records in self.inside[leaf].items():
                toward[c] = toward.get(c, 0.0) + factor * records
        for u, weight in self.extra[v]:
            if u != v:
                toward[self.labels[u]] = toward.get(self.labels[u], 0.0) + weight
        return toward

    def _leave(self, v: int, community: int) -> None:
        for leaf, count in self.held[v]:
            left = self.inside[leaf].pop(community) - count
            if left > 0:
                self.inside[leaf][community] = left

    def _enter(self, v: int, community: int) -> None:
        for leaf, count in self.held[v]:
            self.inside[leaf][community] = self.inside[leaf].get(community, 0.0) + count


def _rows(matrix: sparse.csr_array) -> list[list[tuple[int, float]]]:
    """(column, value) of every entry, row by row."""
    columns, values, starts = matrix.indices.tolist(), matrix.data.tolist(), matrix.indptr.tolist()
    return [list(zip(columns[a:b], values[a:b], strict=True)) for a, b in pairwise(starts)]

"""Records that the graph cannot tell apart, merged into super-vertices.

Records with the same signature, the set of the attacker's leaves they lie in, have the same neighbours and a joint
edge. Merging s of them gives a super-vertex with a self-loop of weight s(s−1)/2·Σ_t discount^(t−1), and the edges
between super-vertices are products of sizes. The modularity of a partition that keeps them together equals that in
the full graph, so the method is exact and its size does not grow with N².
"""

from __future__ import annotations

import numpy as np

from attacks.id2graph.adjacency import RecordGraph
from attacks.id2graph.leaves import Ints


def signatures(graph: RecordGraph, first: int | None = None) -> Ints:
    """Signature numbers (V,), from 0 without gaps, equal exactly for vertices with the same leaves.

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

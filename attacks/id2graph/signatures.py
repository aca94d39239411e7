"""Records that the graph cannot tell apart, merged into super-vertices.

Records with the same signature, the set of the attacker's leaves they lie in, have the same neighbours and a joint
edge. Merged, s of them become a super-vertex with a self-loop of weight s(s−1)/2·Σ_t discount^(t−1), and the edges
between super-vertices are products of sizes. The modularity of a partition that keeps them together is exactly that in
the full graph, so nothing is approximated and nothing grows with N².
"""

from __future__ import annotations

import numpy as np

from attacks.id2graph.adjacency import RecordGraph
from attacks.id2graph.leaves import Ints


def signatures(graph: RecordGraph, first: int | None = None) -> Ints:
    """A number per vertex, equal exactly for vertices with the same leaves: (V,), from 0 without a gap.

    A vertex with an extra edge, or in no leaf, has a number of its own. With `first` only so many of a vertex's leaves
    count, in order of trees, and extra edges do not: a coarser partition.
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

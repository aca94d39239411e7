"""Algorithm 3 of the ID2Graph paper: leaves cut into chunks of B records, so that edges number O(B·N) and not O(N²).

A leaf of fewer than B records is a clique. A larger one is cut, in ascending order of records, into chunks of B, each
a clique; an edge of weight w' is added between each chunk and the next.

As printed, that edge joins a vertex to itself: lines 21–22 apply when s = t, so A_{i_s i_s} grows by 2w', a self-loop
on the first record of the chunk (`paper`). The text says "between the end of one chunk and the beginning of the next",
which is the edge from i_{s−1} to i_s (`linked`). The printed bounds count from 0 and from 1 in turn; here from 0.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from attacks.id2graph.adjacency import RecordGraph
from attacks.id2graph.leaves import Ints, Leaves, checked, incidence, tree_weights

CHUNK_EDGES = ("paper", "linked")


def chunked(
    leaves: Leaves, records: int, discount: float, chunk_size: int, chunk_weight: float, chunk_edges: str
) -> RecordGraph:
    """The graph of algorithm 3, a vertex per record; `chunk_size` is B, `chunk_weight` w'.

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

"""The union attack: two records share a label if a chain of the attacker's leaves joins them (SecureBoost's remark)."""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from attacks.id2graph.leaves import Ints, Leaves, checked


def union(leaves: Leaves, records: int) -> Ints:
    """The component of every record (N,), from 0; a record in no leaf is a component of its own.

    Union–find over leaves, as the connected components of a graph that joins a leaf's first record to its others.

    Raises:
        BadInput: a leaf is none, by tree and leaf.
    """
    every = [leaf for tree in checked(leaves, records) for leaf in tree]
    none = np.zeros(0, dtype=np.int64)
    one = np.concatenate([none, *(np.full(len(leaf) - 1, leaf[0]) for leaf in every)])
    other = np.concatenate([none, *(leaf[1:] for leaf in every)])
    joined = sparse.coo_array((np.ones(len(one), dtype=np.int8), (one, other)), shape=(records, records))
    _, parts = csgraph.connected_components(joined, directed=False)
    return np.unique(parts, return_inverse=True)[1].astype(np.int64)

"""The union attack: two records share a label if a chain of the attacker's leaves joins them (SecureBoost's remark)."""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from attacks.leaves import Ints, Leaves, checked, incidence


def union(leaves: Leaves, records: int) -> Ints:
    """The component of every record (N,), from 0; a record in no leaf is a component of its own.

    Union–find over leaves, as the connected components of the graph of records and leaves.

    Raises:
        BadInput: a leaf is none, by tree and leaf.
    """
    held = incidence(checked(leaves, records), records)
    both = sparse.block_array([[None, held], [held.T, None]], format="csr") if held.shape[1] else None
    if both is None:
        return np.arange(records, dtype=np.int64)
    _, parts = csgraph.connected_components(both, directed=False)
    return np.unique(parts[:records], return_inverse=True)[1].astype(np.int64)

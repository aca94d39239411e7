"""The attacker's leaves: per tree, the known instance spaces without known children.

Every attack takes `leaves`, trees in training order, each a sequence of int64 arrays of record positions. A record may
be in no leaf of a tree: the attacker then does not know its path.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from treetap.errors import BadInput

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Leaves = Sequence[Sequence[Ints]]


def checked(leaves: Leaves, records: int) -> list[list[Ints]]:
    """Check the leaves; returns them in ascending order of records, without empty ones.

    Raises:
        BadInput: no record at all, or a leaf that is not a list of distinct positions 0..records−1 (names tree, leaf).
    """
    if isinstance(records, bool) or not isinstance(records, int | np.integer) or records < 1:
        raise BadInput(f"records: must be a whole number of at least 1, not {records!r}")
    return [
        [leaf for number, given in enumerate(tree) if len(leaf := _leaf(given, records, t, number))]
        for t, tree in enumerate(leaves)
    ]


def _leaf(given: npt.ArrayLike, records: int, tree: int, number: int) -> Ints:
    place = f"leaf {number} of tree {tree}"
    leaf: npt.NDArray[Any] = np.asarray(given)
    if leaf.size == 0:
        return np.zeros(0, dtype=np.int64)
    if leaf.ndim != 1 or leaf.dtype.kind not in "iu":
        raise BadInput(f"{place}: must be a one-dimensional array of whole numbers, not {leaf.dtype} {leaf.shape}")
    leaf = np.sort(leaf.astype(np.int64))
    if leaf[0] < 0 or leaf[-1] >= records:
        wrong = leaf[0] if leaf[0] < 0 else leaf[-1]
        raise BadInput(
            f"{place}: position {wrong} is outside 0..{records - 1}; positions count from 0 in aligned order"
        )
    if (leaf[1:] == leaf[:-1]).any():
        twice = leaf[1:][leaf[1:] == leaf[:-1]][0]
        raise BadInput(f"{place}: names record {twice} more than once")
    return leaf


def tree_weights(trees: int, discount: float) -> Floats:
    """discount^(t−1) for trees t = 1..trees, equation 1: (trees,)."""
    weights: Floats = discount ** np.arange(trees, dtype=np.float64)
    return weights


def incidence(leaves: Sequence[Sequence[Ints]], records: int) -> sparse.csr_array:
    """The incidence matrix (records, leaves of all trees) of 0 and 1, leaves in order of trees."""
    every = [leaf for tree in leaves for leaf in tree]
    starts = np.concatenate([[0], np.cumsum([len(leaf) for leaf in every], dtype=np.int64)])
    rows = np.concatenate([np.zeros(0, dtype=np.int64), *every])
    held = sparse.csc_array((np.ones(len(rows)), rows, starts), shape=(records, len(every)))
    return sparse.csr_array(held)

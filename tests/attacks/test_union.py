from __future__ import annotations

import numpy as np

from attacks.id2graph.adjacency import union
from tests.attacks.worlds import ids, random_trees


def test_chains_of_leaves_join_records() -> None:
    """0–1 and 1–2 share leaves of different trees; 4 and 5 share one; 3 and 6 share none."""
    parts = union([[ids(0, 1), ids(4, 5)], [ids(2, 1), ids(), ids(3)]], 7)
    assert parts.tolist() == [0, 0, 0, 1, 2, 2, 3]


def test_components_equal_a_plain_union_find() -> None:
    """On random small leaves, against sets merged one by one."""
    leaves = [tree[::2] for tree in random_trees(4, 60, 2, 25)]
    sets = [{i} for i in range(60)]
    for leaf in (leaf for tree in leaves for leaf in tree):
        joined = set().union(*(s for s in sets if s & set(leaf.tolist())), set())
        sets = [s for s in sets if not s & joined] + ([joined] if joined else [])
    parts = union(leaves, 60)
    assert len(np.unique(parts)) == len(sets) > 2
    assert all(len(set(parts[sorted(s)].tolist())) == 1 for s in sets)


def test_no_leaf_joins_nobody() -> None:
    """Without leaves every record is alone."""
    assert union([], 3).tolist() == [0, 1, 2]

from __future__ import annotations

import numpy as np

from tests.attacks.worlds import ids, random_trees
from treetap.attacks.id2graph.adjacency import union


def test_chains_of_leaves_join_records() -> None:
    """0–1 and 1–2 share leaves of different trees; 4 and 5 share one; 3 is alone in one; 6 and 7 are in none."""
    parts = union([[ids(0, 1), ids(4, 5)], [ids(2, 1), ids(), ids(3)]], 8)
    assert parts.tolist() == [0, 0, 0, 1, 2, 2, 3, 3]


def test_components_equal_a_plain_union_find() -> None:
    """On random small leaves, against sets merged one by one."""
    leaves = [tree[::2] for tree in random_trees(4, 60, 2, 25)]
    sets = [{i} for i in range(60)]
    for leaf in (leaf for tree in leaves for leaf in tree):
        joined = set().union(*(s for s in sets if s & set(leaf.tolist())), set())
        sets = [s for s in sets if not s & joined] + ([joined] if joined else [])
    known = {i for tree in leaves for leaf in tree for i in leaf.tolist()}
    sets = [s for s in sets if s & known] + [set(range(60)) - known]
    parts = union(leaves, 60)
    assert len(np.unique(parts)) == len(sets) > 2
    assert all(len(set(parts[sorted(s)].tolist())) == 1 for s in sets)


def test_without_leaves_nothing_is_told_apart() -> None:
    """All records are one group, whose V-measure is 0; a group for each would score though nothing is known."""
    assert union([], 3).tolist() == [0, 0, 0]

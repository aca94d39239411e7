"""An attack that reads the leaves of one tree, by its name in the registry."""

from __future__ import annotations

import numpy as np

from treetap.attacks.registry import attack


def test_groups_are_the_leaves_of_the_first_tree() -> None:
    """Later trees change nothing, and records in no leaf are together."""
    leaves = [[np.array([0, 3]), np.array([1])], [np.array([0, 1, 2, 3, 4])]]
    assert attack("earliest", leaves, 5, None, 2).clusters.tolist() == [1, 2, 0, 1, 0]

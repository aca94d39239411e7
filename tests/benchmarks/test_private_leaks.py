"""The benchmark of a private job's leaks: cells that left sets place, and what tells more, none of them wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from treetap.trees.boosting_criterion import BoostingCriterion
from treetap.trees.params import BoostingParams


def test_cells_are_placed_by_more_than_left_sets(benchmark: Any) -> None:
    """No cell is placed wrongly (`Cells.placed` looks), and what tells more places no fewer."""
    leaks, case = benchmark("private_leaks"), benchmark("columns_from_sums").case_of("breast_cancer", 100)
    params = BoostingParams(n_estimators=6, max_depth=6, max_bin=4, min_child_weight=0.0, learning_rate=1.0)
    first, last = leaks.columns(case, params, [1, 6], crafted=False)
    assert first["left_sets"] < last["left_sets"] < last["unbeaten"] < 1
    assert last["left_sets"] < last["all"]
    (crafted,) = leaks.columns(case, params, [6], crafted=True)
    assert last["all"] < crafted["crafted_all"]


@pytest.mark.parametrize("won", [False, True])
def test_two_records_that_no_split_parts_share_all_bins(won: bool, benchmark: Any) -> None:
    """One of them is known to be in the second of three bins; so is the other, unless a winner scores as much."""
    cells = benchmark("private_leaks").Cells(np.array([[1], [1]]), [3])
    cells.low[:, 0] = cells.high[:, 0] = 1
    rule = BoostingCriterion(1.0, BoostingParams(min_child_weight=0.0)).exact_rule(3)
    values = np.array([[1, 1], [-1, 1]])
    assert rule is not None
    bound = rule.bound(np.array([0, 1 << 31, 2]))
    best = np.divide(*rule.score(bound, [1 << 32, 1 << 30])) if won else bound.N0 / bound.D0
    cells.unbeaten(np.arange(2), values * [1 << 32, 1 << 30], rule, best)
    assert (cells.low[0, 1], cells.high[0, 1]) == ((0, 2) if won else (1, 1))

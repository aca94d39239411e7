"""ID-LMID of the joined table against a naive recursion, and Eq. 6 against sums written out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.library.trees.tables import differences
from tests.oracle import oracle_train
from tests.worlds import world
from treetap.trees.binning import bin_table
from treetap.trees.centralised import train
from treetap.trees.params import BoostingParams
from treetap.trees.withholding import InformationLimit, Withholding

JOBS: dict[str, tuple[dict[str, Any], BoostingParams]] = {
    "two classes": ({}, BoostingParams(n_estimators=2, max_depth=3, max_bin=5, subsample=0.8)),
    "vector leaves, missing cells": (
        {"objective": "multi:softprob", "classes": 3, "missing": 0.2},
        BoostingParams(
            objective="multi:softprob",
            multi_strategy="multi_output_tree",
            n_estimators=1,
            max_depth=3,
            max_bin=5,
            min_child_weight=0.0,
        ),
    ),
    "a tree per class": (
        {"objective": "multi:softprob", "classes": 3},
        BoostingParams(objective="multi:softprob", n_estimators=1, max_depth=2, max_bin=5),
    ),
}


@pytest.mark.parametrize(("setting", "params"), JOBS.values(), ids=JOBS)
def test_the_trees_are_those_of_a_naive_recursion(setting: dict[str, Any], params: BoostingParams) -> None:
    """Public splits, withdrawn nodes and the parts below them, over a range of ξ; some ξ withdraws, some does not."""
    here = world(48, seed=5, **setting)
    tables = [
        (name, bin_table(block, [str(j) for j in range(block.shape[1])], params.max_bin))
        for name, block in here.parties
    ]
    withdrawn = []
    for xi in (0.0, 0.1, 0.25, 0.4, 2.0):
        naive = oracle_train(here.parties, list(here.y), params, here.classes, xi)
        model = train(tables, here.y, params, here.classes, Withholding(xi=xi))
        assert differences(model, naive) == ""
        withdrawn.append(sum(len(tree.withdrawn) for tree in naive))
    assert max(withdrawn) > 0
    assert withdrawn[-1] == 0


def test_the_bound_is_that_of_equation_6() -> None:
    """Sums written out for the children of a split of 10 records, of which 4 are in class 1."""
    totals = np.array([6, 4])
    left, whole = np.array([[3, 1]]), np.array([5, 3])  # the right child has (2, 2)
    inside = 3 / 4 * math.log(3 * 10 / (4 * 6)) + 1 / 4 * math.log(1 * 10 / (4 * 4))
    outside = 3 / 6 * math.log(3 * 10 / (6 * 6)) + 3 / 6 * math.log(3 * 10 / (6 * 4))
    right = 2 / 4 * math.log(2 * 10 / (4 * 6)) + 2 / 4 * math.log(2 * 10 / (4 * 4))
    beside = 4 / 6 * math.log(4 * 10 / (6 * 6)) + 2 / 6 * math.log(2 * 10 / (6 * 4))
    bound = max(inside, outside, right, beside)
    for xi, allowed in ((bound * (1 + 1e-12), True), (bound * (1 - 1e-12), False)):
        assert InformationLimit(xi, totals, 0, 2).allows(left, whole).tolist() == [allowed]

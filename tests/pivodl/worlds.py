"""Random worlds whose labels are spread, and parameters for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.worlds import World, spread, world
from treetap.trees.binning import BinnedTable, bin_table
from treetap.trees.pivodl_params import PivodlParams

#: What differs between objectives.
OBJECTIVES: dict[str, dict[str, Any]] = {
    "logistic": {"objective": "binary:logistic"},
    "softmax": {"objective": "multi:softprob", "classes": ["0", "1", "2"]},
    "squared error": {"objective": "reg:squarederror"},
    "squared error, given units": {"objective": "reg:squarederror", "base_score": 1.5, "label_scale": 8.0},
}
#: What differs between the ways of growing.
RULES: dict[str, dict[str, Any]] = {
    "of this project": {},
    "as published": {"as_published": True},
}


def some_world(seed: int, objective: str, parties: int | None = None) -> World:
    """A world of 2 to 6 parties with one or two columns each, some with missing values, and 15 to 29 records for each.

    Labels are spread at random with random shares over some of the parties.
    """
    rng = np.random.default_rng(seed)
    parties = parties or 2 + seed % 5
    n = parties * int(rng.integers(15, 30))
    here = world(
        n,
        tuple(int(d) for d in rng.integers(1, 3, size=parties)),
        objective=objective,
        classes=3 if objective == "multi:softprob" else 2,
        missing=float(rng.choice([0.0, 0.2])),
        levels=int(rng.choice([0, 2])),
        fresh=6,
        seed=seed,
    )
    with_labels = rng.permutation(parties)[: int(rng.integers(1, parties + 1))]
    share = rng.dirichlet(np.full(len(with_labels), 4.0))
    return spread(here, rng.choice(with_labels, size=n, p=share))


def some_params(seed: int, **given: Any) -> PivodlParams:
    """Two small trees with random thresholds."""
    rng = np.random.default_rng(1000 + seed)
    return PivodlParams(
        **{
            "n_estimators": 2,
            "max_depth": int(rng.integers(2, 5)),
            "max_bin": int(rng.integers(3, 7)),
            "instance_threshold": int(rng.integers(1, 6)) if seed % 3 == 0 else 1,
            "min_samples": int(rng.integers(1, 11)),
            "gamma": float(rng.choice([0.0, 0.4])),
            "reg_lambda": float(rng.choice([0.0, 1.0, 3.5])),
            **given,
        }
    )


def binned(here: World, params: PivodlParams) -> list[tuple[str, BinnedTable]]:
    """The parties' tables in bins."""
    return [
        (name, bin_table(block, [f"x{j}" for j in range(block.shape[1])], params.max_bin))
        for name, block in here.parties
    ]

"""Small tables that the tests of this folder share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.oracle import AFT, COX, LOGARITHMIC, QUANTILE
from treetap.trees.binning import BinnedTable, bin_table
from treetap.trees.params import BoostingParams

Parties = list[tuple[str, npt.NDArray[Any]]]


@dataclass(frozen=True)
class Case:
    """One training problem."""

    name: str
    parties: Parties
    labels: npt.NDArray[Any]
    params: BoostingParams
    classes: int
    weights: npt.NDArray[np.float64] | None = None


def encoded(parties: Parties, max_bin: int) -> list[tuple[str, BinnedTable]]:
    """Every party's columns in bins."""
    return [(name, bin_table(X, [f"{name}{j}" for j in range(X.shape[1])], max_bin)) for name, X in parties]


def table(seed: int, n: int, widths: list[int], missing: float = 0.0, levels: int | None = None) -> Parties:
    """Random columns, the parties called p0 (label holder), p1, …; `levels` makes them few-valued."""
    rng = np.random.default_rng(seed)
    parties: Parties = []
    for m, width in enumerate(widths):
        X = rng.normal(size=(n, width))
        if levels is not None:
            X = np.floor(X * levels / 3.0)
        X[:, ::2][rng.random(X[:, ::2].shape) < missing] = np.nan  # every other column keeps all its values
        parties.append((f"p{m}", X))
    return parties


def signal(parties: Parties, seed: int) -> npt.NDArray[np.float64]:
    """A noisy function of all columns; a missing value counts as 1."""
    rng = np.random.default_rng(seed)
    X = np.nan_to_num(np.hstack([X for _, X in parties]), nan=1.0)
    value: npt.NDArray[np.float64] = X @ rng.normal(size=X.shape[1]) + 0.5 * rng.normal(size=len(X))
    return value


def labels_for(objective: str, value: npt.NDArray[np.float64], classes: int) -> npt.NDArray[Any]:
    """Labels of the objective made from a continuous signal."""
    if objective in ("reg:squarederror", QUANTILE):
        return 3.0 * value + 7.0
    if objective == COX:
        times = np.random.default_rng(len(value) + 1).exponential(np.exp(-value / 2.0))
        return np.where(np.arange(len(value)) % 3 == 0, -times, times)
    if objective == AFT:  # events, intervals and records that were censored, by turns
        times = np.random.default_rng(len(value) + 1).weibull(2.5, len(value)) * np.exp(value / 2.0)
        upper = np.choose(np.arange(len(value)) % 3, [times, 1.5 * times, np.full(len(value), np.inf)])
        return np.stack([times, upper], axis=1)
    if objective in LOGARITHMIC:
        means = np.exp(value / 2.0)
        if objective == "reg:gamma":
            return means
        draw = np.random.default_rng(len(value) + 1)  # no whole numbers, of which many records would have the same
        return draw.poisson(means) * draw.uniform(0.5, 1.5, len(value)) + draw.uniform(0.0, 0.1, len(value))
    edges = np.quantile(value, np.linspace(0, 1, classes + 1)[1:-1])
    return np.searchsorted(edges, value)


def drawn_weights(n: int, most: float, seed: int = 0) -> npt.NDArray[np.float64]:
    """Sample weights of n records up to `most`; every tenth is 0, the first the largest."""
    found = most * np.random.default_rng(seed).uniform(0.05, 1.0, n)
    found[3::10] = 0.0
    found[0] = most
    return found


def cases() -> list[Case]:
    """Problems of many shapes for each objective and strategy."""
    plain = {"n_estimators": 3, "max_depth": 3, "max_bin": 8}
    shapes: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("plain", {"n": 70, "widths": [2, 3]}, plain),
        ("missing", {"n": 70, "widths": [3, 2, 1], "missing": 0.25}, plain),
        ("ties", {"n": 60, "widths": [2, 2], "levels": 3}, {**plain, "max_bin": 32, "min_child_weight": 0.0}),
        (
            "sampled",
            {"n": 80, "widths": [3, 4], "missing": 0.1},
            {**plain, "subsample": 0.7, "colsample_bytree": 0.5, "gamma": 0.2, "reg_lambda": 0.5, "seed": 3},
        ),
        (
            "parties sit trees out",
            {"n": 60, "widths": [1, 2, 2], "missing": 0.1},
            {**plain, "n_estimators": 4, "party_dropout": {"p1": 0.5, "p2": 0.7}},
        ),
        (
            "stopped",
            {"n": 90, "widths": [2, 2], "missing": 0.1},
            {
                **plain,
                "n_estimators": 12,
                "max_depth": 2,
                "learning_rate": 0.9,
                "early_stopping_rounds": 2,
                "validation_share": 0.25,
                "seed": 5,
            },
        ),
        (
            "shrunk",
            {"n": 70, "widths": [2, 2], "missing": 0.1},
            {**plain, "n_estimators": 4, "reg_alpha": 0.4, "max_delta_step": 0.6, "min_child_weight": 0.5},
        ),
        ("shrunk without bound", {"n": 60, "widths": [2, 2], "missing": 0.1}, {**plain, "reg_alpha": 1.5}),
        ("weighted", {"n": 80, "widths": [2, 2], "missing": 0.1}, {**plain, "max_sample_weight": 3.5}),
        (
            "weighted and stopped",
            {"n": 90, "widths": [2, 2], "levels": 4},
            {
                **{**plain, "n_estimators": 12, "max_depth": 2, "learning_rate": 0.9, "early_stopping_rounds": 2},
                **{"validation_share": 0.25, "seed": 5, "subsample": 0.8, "max_sample_weight": 40.0},
            },
        ),
    ]
    kinds = [
        ("binary:logistic", "one_output_per_tree", 2),
        ("reg:squarederror", "one_output_per_tree", 2),
        *((objective, "one_output_per_tree", 2) for objective in (*LOGARITHMIC, QUANTILE, COX, AFT)),
        ("multi:softprob", "one_output_per_tree", 3),
        ("multi:softprob", "multi_output_tree", 4),
    ]
    found = []
    for objective, strategy, classes in kinds:
        for number, (name, shape, options) in enumerate(shapes):
            parties = table(seed=number, **shape)
            labels = labels_for(objective, signal(parties, 10 + number), classes)
            params = BoostingParams(objective=objective, multi_strategy=strategy, **options)
            weights = drawn_weights(shape["n"], params.max_sample_weight) if "weighted" in name else None
            if weights is not None and objective == "binary:logistic":
                params = replace(params, scale_pos_weight=2.5)
            tag = objective.split(":")[1] + ("-joint" if strategy == "multi_output_tree" else "")
            found.append(Case(f"{tag}-{name}", parties, labels, params, classes, weights))
    return found

"""The same boosted trees by xgboost."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.library.trees.tables import Parties
from tests.oracle import OracleModel, oracle_train
from treetap.trees.binning import BinnedTable
from treetap.trees.params import BoostingParams

pytest.importorskip("xgboost")
import xgboost as xgb

from tests.xgboost_releases import CHANGED, RELEASE, otherwise

#: For what holds up to the last release whose rules treetap has.
AS_BEFORE = pytest.mark.skipif(RELEASE >= CHANGED, reason="XGBoost 3.4 does otherwise: docs/xgboost.md")
#: A float32 program ranks two splits as we do if their loss changes differ by more than its rounding.
SAFE_LEAD = 2e-5
SAME = ("objective", "max_depth", "learning_rate", "reg_lambda", "reg_alpha", "max_delta_step", "gamma",
        "min_child_weight", "base_score", "max_leaves", "grow_policy", "multi_strategy", "max_cat_to_onehot",
        "max_cat_threshold")  # fmt: skip


#: Parameters of one objective alone.
OPTIONS = {
    "reg:tweedie": ("tweedie_variance_power",),
    "reg:quantileerror": ("quantile_alpha",),
    "survival:aft": ("aft_loss_distribution", "aft_loss_distribution_scale"),
}


def as_input(tables: list[tuple[str, BinnedTable]]) -> npt.NDArray[np.float64]:
    """All columns' bin numbers side by side, NaN for missing: what xgboost is trained on."""
    blocks = []
    for _, part in tables:
        codes = part.codes.astype(np.float64)
        codes[part.codes == np.array([feature.n_bins for feature in part.features])] = np.nan
        blocks.append(codes)
    return np.hstack(blocks)


def matrix(data: Any, labels: Any, **more: Any) -> Any:
    """What xgboost trains on; labels (N,), or bounds (N, 2)."""
    if np.ndim(labels) == 1:
        return xgb.DMatrix(data, label=labels, **more)
    lower, upper = np.transpose(labels)
    return xgb.DMatrix(data, label_lower_bound=lower, label_upper_bound=upper, **more)


def told_apart(
    parties: Parties, labels: Sequence[Any], params: BoostingParams, classes: int = 2, **more: Any
) -> OracleModel:
    """The oracle's model, in which no split ties, or nearly."""
    found = oracle_train(parties, labels, params, classes, **more)
    assert found.lead > SAFE_LEAD
    return found


def boosted(
    data: Any, params: BoostingParams, classes: int = 2, base: Any = None, directions: Sequence[Sequence[int]] = ()
) -> tuple[Any, Any]:
    """A booster of the same parameters, and its margins on the data that trained it (N, outputs).

    Ends the test where the installed release has another rule.
    """
    every = [direction for own in directions for direction in own]
    if rule := otherwise(params, every, categories="c" in (data.feature_types or ())):
        pytest.skip(f"XGBoost {xgb.__version__} does otherwise: {rule}")
    settings = {name: getattr(params, name) for name in SAME if getattr(params, name) is not None}
    settings |= {"tree_method": "hist", "max_bin": 4096, "nthread": 1}
    settings |= {"num_class": classes} if params.objective == "multi:softprob" else {}
    own = OPTIONS.get(params.objective, ())
    settings |= {name: getattr(params, name) for name in own}
    settings |= {"scale_pos_weight": params.scale_pos_weight} if params.objective == "binary:logistic" else {}
    settings["monotone_constraints"] = tuple(every)
    booster = xgb.train(settings, data, params.n_estimators, xgb_model=base)
    return booster, booster.predict(data, output_margin=True).reshape(data.num_row(), -1)


def refused_before(release: tuple[int, int], said: str) -> AbstractContextManager[Any]:
    """Expects XGBoost's refusal, of releases before this one."""
    return pytest.raises(xgb.core.XGBoostError, match=said) if release > RELEASE else nullcontext()


def stored_trees(booster: Any) -> list[dict[str, Any]]:
    """The trees as the booster stores them."""
    model = json.loads(bytes(booster.save_raw("json")))
    trees: list[dict[str, Any]] = model["learner"]["gradient_booster"]["model"]["trees"]
    return trees

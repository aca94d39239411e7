"""What XGBoost's releases do otherwise than treetap, which does what 3.2 and 3.3 do (docs/xgboost.md)."""

from __future__ import annotations

from collections.abc import Sequence

import xgboost

from treetap.trees.params import BoostingParams

#: The installed release, (major, minor).
RELEASE = tuple(int(part) for part in xgboost.__version__.split(".")[:2])
#: From this one on the rules below are others.
CHANGED = (3, 4)


def otherwise(params: BoostingParams, directions: Sequence[int] = (), *, categories: bool = False) -> str:
    """The rule of the installed release by which its trees may differ from treetap's, or "".

    `directions`: of the monotone constraints of all columns; `categories`: whether a column has some.
    """
    several = params.outputs_per_tree(3) > 1
    if RELEASE < CHANGED:
        return ""
    if params.min_child_weight and (several or categories):
        return "min_child_weight only refuses splits"
    if (params.largest_step or any(directions)) and (several or params.reg_alpha):
        return "gains of bounded weights have the penalty, and one form"
    return "quantiles are smoothed" if params.objective == "reg:quantileerror" else ""

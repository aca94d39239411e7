"""Repair of a model of noisy labels, by the kind of its trees."""

from __future__ import annotations

from treetap.trees.boosting_repair import repair_boosting
from treetap.trees.forest_repair import repair_forest
from treetap.trees.grafting import NoisyModel, RepairedTree
from treetap.trees.params import BoostingParams, ForestParams, TreeParams


def repair(model: NoisyModel, params: TreeParams) -> list[RepairedTree]:
    """Every tree in its variants; `params`: of the training, whose labels are classes."""
    if isinstance(params, ForestParams):
        return repair_forest(model, params)
    if isinstance(params, BoostingParams):
        return repair_boosting(model, params)
    raise TypeError(f"trees of {type(params).__name__} are not repaired")

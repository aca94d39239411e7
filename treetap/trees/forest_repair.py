"""Repair of a forest that was trained on noisy labels (Takahashi, Liu, Liu 2023, Algorithm 4)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from treetap.trees.forest_criterion import ForestCriterion, targets
from treetap.trees.grafting import NoisyModel, RepairedTree, grafts, repaired, to_regrow
from treetap.trees.params import ForestParams

Ints = npt.NDArray[np.int64]


def repair_forest(model: NoisyModel, params: ForestParams) -> list[RepairedTree]:
    """Every tree in its variants.

    The class of a node is the majority among its drawn records, each counted as often as it is drawn; of classes with
    equal counts the lowest. Kept leaves of `grafting` keep their noisy frequencies, as in the paper. Grafts are the
    same with and without refitting.
    """
    noisy, clean = (targets(labels, params.criterion, model.classes) for labels in (model.noisy, model.clean))
    criterion = ForestCriterion(clean, params)
    found = []
    for tree in model.trees:
        whole = model.whole(tree)
        drawn = params.drawn(tree.index, len(model.clean))[:, None]
        values = np.concatenate([clean.values, np.ones_like(drawn)], axis=1) * drawn
        sums = whole.sums(values)
        roots = to_regrow(
            [split.node for split in whole.splits],
            [leaf.node for leaf in whole.leaves],
            _majorities(whole.sums(noisy.values * drawn)),
            _majorities({node: each[:-1] for node, each in sums.items()}),
        )
        made = grafts(model, whole, roots, values, criterion, params.expansion)

        def weight(node: int, sums: Mapping[int, Ints] = sums) -> npt.NDArray[np.float64]:
            return criterion.leaf(sums[node])

        found.append(
            RepairedTree(
                repaired(whole, [], weight)[0], repaired(whole, made, None)[0], repaired(whole, made, weight)[0]
            )
        )
    return found


def _majorities(counts: Mapping[int, Ints]) -> dict[int, int]:
    """Node → the class with the largest count, the lowest of equal ones."""
    return {node: int(each.argmax()) for node, each in counts.items()}

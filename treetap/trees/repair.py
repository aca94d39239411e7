"""Repair of a model that was trained on noisy labels: of a forest, and of a boosted model.

The forest is that of Takahashi, Liu and Liu (2023, Algorithm 4), who leave boosting to future work. A leaf of a boosted
tree has no majority: its weight corrects the scores before it. So boosted trees are repaired in order, each at the
scores F′ of the repaired trees before it:

- The class of a node is the one that its tree would raise most there: arg max over classes of Σ(−g) at F′, over the
  tree's sampled training records. A tree of several outputs has a class per output, and the lowest wins ties. A tree of
  one output tells class 1 from class 0, or with softmax its own class from all others: its node has class 1 where
  Σ(−g) > 0, otherwise class 0. A change between two other classes is not its concern.
- A node is contaminated if this class under noisy labels differs from that under clean ones, both at F′.
- Once a tree is repaired, F′ is not what the noisy weights of later trees correct. They keep their shape, and from the
  next round on their leaves have the weights that clean labels give at F′. Other trees of the same round were computed
  at the round's start, which the repair does not change.

All sums are of g and h in fixed point. They leave no party.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from treetap.arrays import Floats, Ints
from treetap.trees.boosting_criterion import BoostingCriterion
from treetap.trees.ensemble import Tree
from treetap.trees.forest_criterion import ForestCriterion, targets
from treetap.trees.grafting import NoisyModel, RepairedTree, WholeTree, grafts, repaired, to_regrow
from treetap.trees.loss import Loss, Quantised, loss_for
from treetap.trees.params import BoostingParams, ForestParams, TreeParams


def repair(model: NoisyModel, params: TreeParams) -> list[RepairedTree]:
    """Every tree in its variants; `params`: of the training, whose labels are classes."""
    if isinstance(params, ForestParams):
        return repair_forest(model, params)
    if isinstance(params, BoostingParams):
        return repair_boosting(model, params)
    raise TypeError(f"trees of {type(params).__name__} are not repaired")


def repair_forest(model: NoisyModel, params: ForestParams) -> list[RepairedTree]:
    """Every tree in its variants.

    The class of a node is the majority among its drawn records, each counted as often as it is drawn; of classes with
    equal counts the lowest. Kept leaves of `grafting` keep their noisy frequencies, as in the paper. Grafts are the
    same with and without refitting.
    """
    noisy, clean = (targets(labels, params.criterion, model.classes) for labels in (model.noisy, model.clean))
    criterion = ForestCriterion(clean, params)
    variants = []
    for tree in model.trees:
        whole = model.whole(tree)
        drawn = params.drawn(tree.index, len(model.clean))[:, None]
        values = np.concatenate([clean.values, np.ones_like(drawn)], axis=1) * drawn
        sums = whole.sums(values)
        roots = to_regrow(
            [split.node for split in whole.splits],
            [leaf.node for leaf in whole.leaves],
            _majorities(whole.sums(noisy.values * drawn)),
            _majorities({node: of_node[:-1] for node, of_node in sums.items()}),
        )
        made = grafts(model, whole, roots, values, criterion, params.expansion)

        def weight(node: int, sums: Mapping[int, Ints] = sums) -> Floats:
            return criterion.leaf(sums[node])

        variants.append(
            RepairedTree(
                repaired(whole, [], weight)[0], repaired(whole, made, None)[0], repaired(whole, made, weight)[0]
            )
        )
    return variants


def _majorities(counts: Mapping[int, Ints]) -> dict[int, int]:
    """Node → the class with the largest count, the lowest of equal ones."""
    return {node: int(of_node.argmax()) for node, of_node in counts.items()}


def repair_boosting(model: NoisyModel, params: BoostingParams) -> list[RepairedTree]:
    """Every tree in its variants, each of which has its own scores F′; trees after the best round too."""
    loss = loss_for(params.objective, model.classes)
    variants = [
        _Variant(model, params, loss, grafting=grafting, refit=refit)
        for grafting, refit in ((False, True), (True, False), (True, True))
    ]
    trees_of_model = []
    per_round = params.trees_per_round(model.classes)
    for first in range(0, len(model.trees), per_round):
        wholes = [model.whole(tree) for tree in model.trees[first : first + per_round]]
        rounds = [variant.round(wholes) for variant in variants]
        trees_of_model += [RepairedTree(*trees) for trees in zip(*rounds, strict=True)]
    return trees_of_model


class _Variant:
    """A variant of the model up to some round, with its scores F′ (N, outputs)."""

    def __init__(self, model: NoisyModel, params: BoostingParams, loss: Loss, *, grafting: bool, refit: bool) -> None:
        self._model, self._params, self._loss = model, params, loss
        self._grafting, self._refit = grafting, refit
        n = len(model.clean)
        self._scores = np.tile(loss.base_margin(params.base_score, model.noisy[params.training_rows(n)]), (n, 1))

    def round(self, wholes: list[WholeTree]) -> list[Tree]:
        """The trees of the next round, repaired; they are added to the scores."""
        noisy, clean = self._derivatives(self._model.noisy), self._derivatives(self._model.clean)
        refit, changed = self._refit, []
        for whole in wholes:
            outputs = list(whole.tree.outputs)
            drawn = self._params.drawn(whole.tree.index, len(self._scores))
            values = _summands(clean, outputs, drawn)
            criterion, sums = BoostingCriterion(clean.scale, self._params), whole.sums(values)
            roots = []
            if self._grafting:
                roots = _contaminated(whole, whole.sums(_summands(noisy, outputs, drawn)), sums)
            made = grafts(self._model, whole, roots, values, criterion, self._params.expansion)

            def weight(node: int, sums: Mapping[int, Ints] = sums, criterion: BoostingCriterion = criterion) -> Floats:
                return criterion.leaf(sums[node])

            tree, added = repaired(whole, made, weight if refit else None)
            self._scores[:, outputs] += added
            self._refit |= bool(made)
            changed.append(tree)
        return changed

    def _derivatives(self, labels: Ints) -> Quantised:
        factors = self._params.factors(labels, None)  # noisy labels go without sample weights
        return self._loss.quantise(*self._loss.gradients(self._scores, labels), factors)


def _summands(derivatives: Quantised, outputs: list[int], drawn: Ints) -> Ints:
    """(N, 2K+1): g, h and 1 of every record, 0 where it is not drawn."""
    one = np.ones((len(drawn), 1), dtype=np.int64)
    return np.concatenate([derivatives.g[:, outputs], derivatives.h[:, outputs], one], axis=1) * drawn[:, None]


def _contaminated(whole: WholeTree, noisy: Mapping[int, Ints], clean: Mapping[int, Ints]) -> list[int]:
    """The nodes to regrow, of sums (2K+1,) by node under both labels."""
    width = len(whole.tree.outputs)
    of_noisy, of_clean = ({node: _raised(of_node[:width]) for node, of_node in sums.items()} for sums in (noisy, clean))
    inner, leaves = [split.node for split in whole.splits], [leaf.node for leaf in whole.leaves]
    return to_regrow(inner, leaves, of_noisy, of_clean)


def _raised(gradients: Ints) -> int:
    """The class that sums of g (K,) raise most: see the module's first lines."""
    return int(gradients[0] < 0) if len(gradients) == 1 else int(gradients.argmin())

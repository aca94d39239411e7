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

Grafting-LDP: repair of one tree whose labels were noisy, by its label holder alone (Takahashi, Liu, Liu 2023).

A node is contaminated if its class under noisy labels is not its class under clean ones. (CheckContam in the paper's
Algorithm 4 prints `==`; its prose says "does not match", and this follows the prose.) The lowest ancestors that are not
contaminated themselves are grown anew from the label holder's own columns on clean labels. Other parties keep the shape
that they know: a regrown node is the root of a local subtree.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from treetap.arrays import Floats, Ints
from treetap.trees.boosting_criterion import BoostingCriterion
from treetap.trees.centralised import Entry, entering, give, grow
from treetap.trees.ensemble import Leaf, Subtree, Tree, at_or_below, deciding_tree, weights_at
from treetap.trees.expansion import ExpansionRules
from treetap.trees.forest_criterion import ForestCriterion, targets
from treetap.trees.growing_tree import GrowingTree
from treetap.trees.loss import Loss, Quantised, loss_for
from treetap.trees.noised_sums import Criterion
from treetap.trees.params import BoostingParams, ForestParams, TreeParams
from treetap.trees.paths import RowsLeft, leaf_decided
from treetap.trees.tree_bins import Bins, GlobalBins

#: A regrown node: its subtree, and the records of each leaf of it.
Graft = tuple[Subtree, Mapping[int, Ints]]


@dataclass(frozen=True)
class NoisyModel:
    """A model that was trained on noisy labels of N records, and what its label holder has beside it.

    Attributes:
        trees: in order.
        reached: tree number → the leaf (N,) that each record reached in the shape that all parties know.
        noisy, clean: class numbers (N,).
        classes: their number C.
        party: the label holder's name.
        bins: tree number → its columns as they were in that tree's growth.
        entries: its split table, by handle; splits of regrown nodes are added.
        goes_left: its answers for its own splits.
    """

    trees: Sequence[Tree]
    reached: Callable[[int], Ints]
    noisy: Ints
    clean: Ints
    classes: int
    party: str
    bins: Callable[[int], Bins]
    entries: list[Entry]
    goes_left: RowsLeft

    def whole(self, tree: Tree) -> WholeTree:
        """A tree with its records."""
        reached = leaf_decided(tree, self.reached(tree.index), self.goes_left)
        return WholeTree(tree, deciding_tree(tree), reached)


@dataclass(frozen=True)
class RepairedTree:
    """The variants of one tree: the same splits and leaves, with other weights and local subtrees.

    `refit`: all leaves have their clean values. `grafting`: contaminated parts are grown anew. `grafting_refit`: both.
    """

    refit: Tree
    grafting: Tree
    grafting_refit: Tree


def to_regrow(
    inner: Iterable[int], leaves: Iterable[int], noisy: Mapping[int, int], clean: Mapping[int, int]
) -> list[int]:
    """Algorithm 4: the topmost nodes that are regrown, of a tree's nodes with their classes under both labels.

    In post-order an inner node with a contaminated child is contaminated too if its own classes differ, otherwise it is
    regrown, and with it what was to be regrown below. Nothing repairs a contaminated root.
    """
    contaminated = {leaf for leaf in leaves if noisy[leaf] != clean[leaf]}
    regrown: set[int] = set()
    for node in sorted(inner, reverse=True):  # children have larger numbers than their parent
        if not contaminated & {2 * node, 2 * node + 1}:
            continue
        if noisy[node] != clean[node]:
            contaminated.add(node)
        else:
            regrown = {below for below in regrown if not at_or_below(below, (node,))} | {node}
    return sorted(regrown)


def grafts(
    model: NoisyModel,
    whole: WholeTree,
    roots: Collection[int],
    values: Ints,
    criterion: Criterion,
    rules: ExpansionRules,
) -> list[Graft]:
    """Regrow nodes from the label holder's own columns; without any it is one leaf with its clean value.

    `values`: (N, S) the criterion's summands of clean labels. `rules`: the tree's; where these limit its leaves, a
    regrown part has at most as many as it had.
    """
    if not roots:
        return []
    own, enter = model.bins(whole.tree.index), entering([model.entries])
    subtract, regrown = isinstance(own, GlobalBins), list[Graft]()
    for root in roots:
        leaves = sum(at_or_below(leaf.node, (root,)) for leaf in whole.deciding.leaves)
        limits, rows = rules.within(leaves), whole.rows(root)
        tree = GrowingTree(values, criterion, limits, subtract=subtract, part=(root, rows))
        grow(tree, [own], enter)
        regrown.append((tree.subtree([model.party]), tree.rows))
    return regrown


def repaired(whole: WholeTree, made: Sequence[Graft], weights: Mapping[int, Floats] | None) -> tuple[Tree, Floats]:
    """The tree with its grafts, and the value (N, outputs) that it gives to every record.

    `weights`: node → its value by clean labels (outputs,); None: kept leaves keep their values.
    """
    tree, grown = whole.tree, [subtree for subtree, _ in made]
    values = weights_at(_weighed(whole.deciding.leaves, weights), whole.reached)
    for subtree, rows in made:
        give(values, rows, subtree.leaves)
    local = [_with_grafts(subtree, grown, weights) for subtree in tree.local]
    above = [subtree.root for subtree in local]
    local += [subtree for subtree in grown if not at_or_below(subtree.root, above)]
    roots = [subtree.root for subtree in local]
    topmost = [subtree for subtree in local if not at_or_below(subtree.root >> 1, roots)]
    in_order = tuple(sorted(topmost, key=lambda subtree: subtree.root))
    return replace(tree, leaves=_weighed(tree.leaves, weights), local=in_order), values


def _with_grafts(subtree: Subtree, grown: Sequence[Subtree], weights: Mapping[int, Floats] | None) -> Subtree:
    """A local subtree in which nodes at or below its root are regrown."""
    # All that lies at or below the root of a graft gives way to it.
    inside = [part for part in grown if at_or_below(part.root, (subtree.root,))]
    roots = [part.root for part in inside]
    splits = [split for split in subtree.splits if not at_or_below(split.node, roots)]
    leaves = [leaf for leaf in _weighed(subtree.leaves, weights) if not at_or_below(leaf.node, roots)]
    return Subtree(
        subtree.root,
        (*splits, *(split for part in inside for split in part.splits)),
        (*leaves, *(leaf for part in inside for leaf in part.leaves)),
    )


def _weighed(leaves: Sequence[Leaf], weights: Mapping[int, Floats] | None) -> tuple[Leaf, ...]:
    if weights is None:
        return tuple(leaves)
    return tuple(replace(leaf, weights=tuple(weights[leaf.node].tolist())) for leaf in leaves)


@dataclass(frozen=True)
class WholeTree:
    """A tree with its N records.

    Attributes:
        tree: the tree in its own form.
        deciding: the same with local subtrees in the place of what other parties know there.
        reached: (N,) the heap number of the leaf of `deciding` that each record reached.
    """

    tree: Tree
    deciding: Tree
    reached: Ints

    def sums(self, values: Ints) -> dict[int, Ints]:
        """Node → the sums (S,) of values (N, S) over its records, for inner nodes and leaves."""
        numbers = np.sort(np.array([leaf.node for leaf in self.deciding.leaves], dtype=np.int64))
        totals = np.zeros((len(numbers), values.shape[1]), dtype=np.int64)
        np.add.at(totals, np.searchsorted(numbers, self.reached), values)
        by_node: dict[int, Ints] = dict(zip(numbers.tolist(), totals, strict=True))
        for node in sorted((split.node for split in self.deciding.splits), reverse=True):
            by_node[node] = by_node[2 * node] + by_node[2 * node + 1]
        return by_node

    def rows(self, root: int) -> Ints:
        """The records of a node, ascending."""
        below = [leaf.node for leaf in self.deciding.leaves if at_or_below(leaf.node, (root,))]
        return np.flatnonzero(np.isin(self.reached, below))


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
        of_noisy = whole.sums(noisy.values * drawn)
        roots = _contaminated(whole, of_noisy, sums, model.classes, lambda counts: int(counts.argmax()))
        made = grafts(model, whole, roots, values, criterion, params.expansion)
        weights = {node: criterion.leaf(of_node) for node, of_node in sums.items()}
        ways = (((), weights), (made, None), (made, weights))
        variants.append(RepairedTree(*(repaired(whole, grown, refit)[0] for grown, refit in ways)))
    return variants


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
                of_noisy = whole.sums(_summands(noisy, outputs, drawn))
                roots = _contaminated(whole, of_noisy, sums, len(outputs), _raised)
            made = grafts(self._model, whole, roots, values, criterion, self._params.expansion)
            weights = {node: criterion.leaf(of_node) for node, of_node in sums.items()} if refit else None
            tree, added = repaired(whole, made, weights)
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


def _contaminated(
    whole: WholeTree,
    noisy: Mapping[int, Ints],
    clean: Mapping[int, Ints],
    width: int,
    class_of: Callable[[Ints], int],
) -> list[int]:
    """The nodes to regrow, of sums by node under both labels, whose first `width` slots give a node its class."""
    of_noisy, of_clean = ({node: class_of(it[:width]) for node, it in sums.items()} for sums in (noisy, clean))
    inner, leaves = [split.node for split in whole.deciding.splits], [leaf.node for leaf in whole.deciding.leaves]
    return to_regrow(inner, leaves, of_noisy, of_clean)


def _raised(gradients: Ints) -> int:
    """The class that sums of g (K,) raise most: see the module's first lines."""
    return int(gradients[0] < 0) if len(gradients) == 1 else int(gradients.argmin())

"""The label holder's part of a model: shape of the trees, owners of the splits, weights of the leaves.

Nodes are numbered as in a heap: the root is 1, the children of u are 2u (left) and 2u + 1 (right). The meaning of a
handle (feature, threshold, missing direction) is in its owner's split table, not here.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import numpy as np

from treetap.arrays import Bools, Floats, Ints
from treetap.errors import DataError
from treetap.trees.loss import outcome_of

#: The key by which importances are grouped.
K = TypeVar("K", bound=Hashable)
#: The number of a tree's root.
ROOT = 1


@dataclass(frozen=True)
class Split:
    """An inner node: the split's owner, its handle there, XGBoost's loss change and cover (Σ H, sampled records).

    In a forest the gain is the decrease of impurity, the cover the number of drawn records.
    """

    node: int
    owner: str
    handle: int
    gain: float
    cover: float


@dataclass(frozen=True)
class Leaf:
    """A leaf: one weight per output of its tree, learning rate included; in a forest frequencies, or the mean."""

    node: int
    weights: tuple[float, ...]
    cover: float


@dataclass(frozen=True)
class Subtree:
    """A part of a tree that the label holder grew alone and no other party knows, below and including node `root`.

    Nodes have the heap numbers of the whole tree, handles are the label holder's own. If `root` is a leaf itself there
    are no splits.
    """

    root: int
    splits: tuple[Split, ...]
    leaves: tuple[Leaf, ...]


@dataclass(frozen=True)
class Tree:
    """Tree number `index` of the ensemble adds leaf weights to the columns `outputs` of the score.

    `splits` and `leaves` are what all parties know. A leaf at or below the root of a subtree in `local` has not its own
    weight but the value that this subtree gives to the record: see `treetap.trees.paths`. Roots of `local` do
    not lie below each other. `padded`: the depth of the full tree whose leaves the feature parties know in the place of
    this tree's; 0: they know this tree's. `missing_left`: the nodes of other parties at which records go left
    that the owner lacks, where the records of the training were the label holder's.
    """

    index: int
    outputs: tuple[int, ...]
    splits: tuple[Split, ...]
    leaves: tuple[Leaf, ...]
    local: tuple[Subtree, ...] = ()
    padded: int = 0
    missing_left: tuple[int, ...] = ()

    @property
    def shown_leaves(self) -> list[int]:
        """Of each leaf that feature parties know, in their order, the place in `leaves`: it, or the one above it."""
        if not self.padded:
            return [*range(len(self.leaves))]
        below = ((place, self.padded + 1 - leaf.node.bit_length()) for place, leaf in enumerate(self.leaves))
        return [place for place, levels in below for _ in range(1 << levels)]

    def values(self, nodes: Ints) -> Floats:
        """Weights (N, outputs) of the leaves with these heap numbers (N,), whatever `local` says."""
        return weights_at(self.leaves, nodes)

    def to_dict(self) -> dict[str, Any]:
        """A structure of plain JSON types; json writes floats so that they read back exactly."""
        return {name: value for name, value in asdict(self).items() if value or name not in ("padded", "missing_left")}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Tree:
        """The inverse of `to_dict`, also after a round trip through JSON. Raises DataError for another structure."""
        try:
            return cls(
                index=int(stored["index"]),
                outputs=tuple(int(k) for k in stored["outputs"]),
                splits=_splits(stored),
                leaves=_leaves(stored),
                local=tuple(
                    Subtree(int(subtree["root"]), _splits(subtree), _leaves(subtree)) for subtree in stored["local"]
                ),
                padded=int(stored.get("padded", 0)),
                missing_left=tuple(int(node) for node in stored.get("missing_left", ())),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"not a stored tree: {error!r}") from error


@dataclass(frozen=True)
class Ensemble:
    """A trained model. `best_round` (from 0) is the last round that predictions use; None means all.

    Boosted trees add up; those of a forest are `averaged`.
    """

    objective: str
    classes: int
    base_margin: tuple[float, ...]
    trees: tuple[Tree, ...]
    trees_per_round: int
    best_round: int | None = None
    averaged: bool = False

    @property
    def used_trees(self) -> tuple[Tree, ...]:
        """The trees of the rounds up to the best one."""
        return used_of(self.trees, self.best_round, self.trees_per_round)

    def summed(self, values: Iterable[Floats], n: int) -> Floats:
        """Scores (n, outputs) from the records' values in each used tree, in order (n, outputs of the tree)."""
        scores = np.tile(np.array(self.base_margin, dtype=np.float64), (n, 1))
        for tree, part in zip(self.used_trees, values, strict=True):
            scores[:, list(tree.outputs)] += part
        return self._mean(scores)

    def outcome(self, scores: Floats) -> Floats:
        """Scores (n, outputs) as P(label = 1) (n,), class probabilities (n, C) or values (n,)."""
        return outcome_of(self.objective, self.classes, scores)

    def from_sums(self, sums: Floats) -> Floats:
        """Scores (n, outputs) from the sums of the leaf weights over the used trees (n, outputs)."""
        return self._mean(np.array(self.base_margin, dtype=np.float64) + sums)

    @property
    def divisor(self) -> int:
        """The divisor of a sum over the used trees: their number in a forest, else 1."""
        return len(self.used_trees) if self.averaged else 1

    def _mean(self, scores: Floats) -> Floats:
        return scores / self.divisor if self.averaged else scores

    def to_dict(self) -> dict[str, Any]:
        """A structure of plain JSON types; json writes floats so that they read back exactly."""
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Ensemble:
        """The inverse of `to_dict`, also after a round trip through JSON. Raises DataError for another structure."""
        try:
            trees = tuple(Tree.from_dict(tree) for tree in stored["trees"])
            return cls(
                objective=str(stored["objective"]),
                classes=int(stored["classes"]),
                base_margin=tuple(float(x) for x in stored["base_margin"]),
                trees=trees,
                trees_per_round=int(stored["trees_per_round"]),
                best_round=None if stored["best_round"] is None else int(stored["best_round"]),
                averaged=bool(stored["averaged"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"not a stored ensemble: {error!r}") from error


def weights_at(leaves: Sequence[Leaf], nodes: Ints) -> Floats:
    """Weights (N, outputs) of the leaves with these heap numbers (N,)."""
    numbers = np.array([leaf.node for leaf in leaves], dtype=np.int64)
    order = np.argsort(numbers)
    weights = np.array([leaf.weights for leaf in leaves], dtype=np.float64)
    return weights[order][np.searchsorted(numbers[order], nodes)]


def _splits(stored: Mapping[str, Any]) -> tuple[Split, ...]:
    return tuple(Split(**split) for split in stored["splits"])


def _leaves(stored: Mapping[str, Any]) -> tuple[Leaf, ...]:
    return tuple(
        Leaf(int(leaf["node"]), tuple(float(w) for w in leaf["weights"]), float(leaf["cover"]))
        for leaf in stored["leaves"]
    )


def used_of(trees: tuple[Tree, ...], best_round: int | None, trees_per_round: int) -> tuple[Tree, ...]:
    """The trees that predictions use: those of the rounds up to the best one, or all."""
    return trees if best_round is None else trees[: (best_round + 1) * trees_per_round]


def cover_shares(tree: Tree) -> dict[int, tuple[float, float]]:
    """Split (heap number) → the shares of its cover that went left and right. Raises DataError if there is no cover."""
    cover = {split.node: split.cover for split in tree.splits} | {leaf.node: leaf.cover for leaf in tree.leaves}
    shares = {}
    for split in tree.splits:
        left, right = cover[2 * split.node], cover[2 * split.node + 1]
        if not left + right > 0:
            raise DataError(f"tree {tree.index}: the children of node {split.node} have no cover to share by")
        shares[split.node] = (left / (left + right), right / (left + right))
    return shares


def route(splits: Iterable[Split], n: int, goes_left: Callable[[Split, Ints], Bools], root: int = ROOT) -> Ints:
    """The leaf (heap number) that each of n records reaches below `root`: (n,).

    `goes_left(split, rows)` answers for the records `rows` (row numbers, ascending) at that split: (len(rows),) bool.
    """
    reached = np.full(n, root, dtype=np.int64)
    rows_at: dict[int, Ints] = {root: np.arange(n)}
    for split in sorted(splits, key=lambda s: s.node):
        rows = rows_at.pop(split.node)
        left = goes_left(split, rows)
        for child, part in ((2 * split.node, rows[left]), (2 * split.node + 1, rows[~left])):
            rows_at[child] = part
            reached[part] = child
    return reached


def at_or_below(node: int, roots: Iterable[int]) -> bool:
    """True if a node is one of these roots or below one."""
    return any(node >> (node.bit_length() - root.bit_length()) == root for root in roots if node >= root)


def deciding_splits(tree: Tree) -> tuple[Split, ...]:
    """The splits that decide a record's value: those of local subtrees in the place of what all parties know there."""
    roots = [subtree.root for subtree in tree.local]
    kept = (split for split in tree.splits if not at_or_below(split.node, roots))
    return (*kept, *(split for subtree in tree.local for split in subtree.splits))


def deciding_tree(tree: Tree) -> Tree:
    """The tree that decides a record's value, which the label holder knows: local subtrees are a part of it."""
    if not tree.local:
        return tree
    roots = [subtree.root for subtree in tree.local]
    kept = [leaf for leaf in tree.leaves if not at_or_below(leaf.node, roots)]
    leaves = (*kept, *(leaf for subtree in tree.local for leaf in subtree.leaves))
    return Tree(tree.index, tree.outputs, deciding_splits(tree), leaves)


@dataclass(frozen=True)
class Importance:
    """XGBoost's importances: weight = number of splits, total_gain and total_cover their sums."""

    weight: int
    total_gain: float
    total_cover: float

    @property
    def gain(self) -> float:
        """Average loss change of a split (XGBoost's 'gain')."""
        return self.total_gain / self.weight

    @property
    def cover(self) -> float:
        """Average cover of a split (XGBoost's 'cover')."""
        return self.total_cover / self.weight


def importance(trees: Iterable[Tree | Subtree], key: Callable[[Split], K]) -> dict[K, Importance]:
    """Importances of the splits grouped by `key`.

    The label holder groups by owner; an owner that has received gain and cover of its handles groups by its own
    feature; the centralised trainer knows both.
    """
    totals: dict[K, Importance] = {}
    for tree in trees:
        for split in tree.splits:
            name = key(split)
            old = totals.get(name, Importance(0, 0.0, 0.0))
            totals[name] = Importance(old.weight + 1, old.total_gain + split.gain, old.total_cover + split.cover)
    return totals


def importance_by_owner(trees: Iterable[Tree]) -> dict[str, Importance]:
    """Importances per owner of splits."""
    return importance(trees, lambda split: split.owner)

"""Grafting-LDP: repair of one tree whose labels were noisy, by its label holder alone (Takahashi, Liu, Liu 2023).

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
from treetap.trees.criterion import Criterion
from treetap.trees.ensemble import Leaf, Split, Subtree, Tree, at_or_below, deciding_splits, route, weights_at
from treetap.trees.expansion import ExpansionRules
from treetap.trees.grower import Entry, entering, give, grow
from treetap.trees.growing_tree import GrowingTree
from treetap.trees.local_values import RowsLeft, among, covering
from treetap.trees.tree_bins import Bins, GlobalBins


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
        return whole_tree(tree, self.reached(tree.index), self.goes_left)


@dataclass(frozen=True)
class RepairedTree:
    """The variants of one tree: the same splits and leaves, with other weights and local subtrees.

    `refit`: all leaves have their clean values. `grafting`: contaminated parts are grown anew. `grafting_refit`: both.
    """

    refit: Tree
    grafting: Tree
    grafting_refit: Tree


@dataclass(frozen=True)
class Graft:
    """A regrown node: its subtree, and the records of each leaf of it."""

    subtree: Subtree
    rows: Mapping[int, Ints]


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
    subtract, regrown = isinstance(own, GlobalBins), []
    for root in roots:
        leaves = sum(at_or_below(leaf.node, (root,)) for leaf in whole.leaves)
        limits, rows = rules.within(leaves), whole.rows(root)
        tree = GrowingTree(values, criterion, limits, subtract=subtract, root=root, rows=rows)
        grow(tree, [own], enter)
        regrown.append(Graft(tree.subtree([model.party]), tree.rows))
    return regrown


def repaired(whole: WholeTree, made: Sequence[Graft], weight: Callable[[int], Floats] | None) -> tuple[Tree, Floats]:
    """The tree with its grafts, and the value (N, outputs) that it gives to every record.

    `weight`: node → its value by clean labels (outputs,); None: kept leaves keep their values.
    """
    tree = whole.tree
    values = weights_at(_weighed(whole.leaves, weight), whole.reached)
    for graft in made:
        give(values, graft.rows, graft.subtree.leaves)
    local = [_with_grafts(subtree, made, weight) for subtree in tree.local]
    above = [subtree.root for subtree in local]
    local += [graft.subtree for graft in made if not at_or_below(graft.subtree.root, above)]
    roots = [subtree.root for subtree in local]
    topmost = [subtree for subtree in local if not at_or_below(subtree.root >> 1, roots)]
    changed = replace(
        tree, leaves=_weighed(tree.leaves, weight), local=tuple(sorted(topmost, key=lambda subtree: subtree.root))
    )
    return changed, values


def _with_grafts(subtree: Subtree, made: Sequence[Graft], weight: Callable[[int], Floats] | None) -> Subtree:
    """A local subtree in which nodes at or below its root are regrown."""
    # All that lies at or below the root of a graft gives way to it.
    inside = [graft.subtree for graft in made if at_or_below(graft.subtree.root, (subtree.root,))]
    roots = [part.root for part in inside]
    splits = [split for split in subtree.splits if not at_or_below(split.node, roots)]
    leaves = [leaf for leaf in _weighed(subtree.leaves, weight) if not at_or_below(leaf.node, roots)]
    return Subtree(
        subtree.root,
        (*splits, *(split for part in inside for split in part.splits)),
        (*leaves, *(leaf for part in inside for leaf in part.leaves)),
    )


def _weighed(leaves: Sequence[Leaf], weight: Callable[[int], Floats] | None) -> tuple[Leaf, ...]:
    if weight is None:
        return tuple(leaves)
    return tuple(replace(leaf, weights=tuple(float(w) for w in weight(leaf.node))) for leaf in leaves)


@dataclass(frozen=True)
class WholeTree:
    """A tree with its N records.

    Attributes:
        tree: the tree in its own form.
        splits, leaves: all of its nodes, those of local subtrees in the place of what other parties know there.
        reached: (N,) the heap number of the leaf that each record reached, one of `leaves`.
    """

    tree: Tree
    splits: tuple[Split, ...]
    leaves: tuple[Leaf, ...]
    reached: Ints

    def sums(self, values: Ints) -> dict[int, Ints]:
        """Node → the sums (S,) of values (N, S) over its records, for inner nodes and leaves."""
        numbers = np.sort(np.array([leaf.node for leaf in self.leaves], dtype=np.int64))
        totals = np.zeros((len(numbers), values.shape[1]), dtype=np.int64)
        np.add.at(totals, np.searchsorted(numbers, self.reached), values)
        by_node: dict[int, Ints] = dict(zip(numbers.tolist(), totals, strict=True))
        for node in sorted((split.node for split in self.splits), reverse=True):
            by_node[node] = by_node[2 * node] + by_node[2 * node + 1]
        return by_node

    def rows(self, root: int) -> Ints:
        """The records of a node, ascending."""
        below = [leaf.node for leaf in self.leaves if at_or_below(leaf.node, (root,))]
        return np.flatnonzero(np.isin(self.reached, below))


def whole_tree(tree: Tree, reached: Ints, goes_left: RowsLeft) -> WholeTree:
    """A tree with its local subtrees in their places.

    `reached`: (N,) leaves of the shape that all parties know; `goes_left` answers for splits of the label holder.
    """
    covered, at_leaf = covering(tree), np.array(reached, dtype=np.int64)
    for subtree in tree.local:
        leaves = [leaf for leaf, root in covered.items() if root is subtree]
        rows = np.flatnonzero(np.isin(reached, leaves))
        at_leaf[rows] = route(subtree.splits, len(rows), among(goes_left, rows), subtree.root)
    leaves_kept = [leaf for leaf in tree.leaves if leaf.node not in covered]
    return WholeTree(
        tree,
        deciding_splits(tree),
        (*leaves_kept, *(leaf for part in tree.local for leaf in part.leaves)),
        at_leaf,
    )

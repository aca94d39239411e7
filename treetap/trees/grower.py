"""The growth of trees, and of parts of trees, all of whose columns are at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from treetap.arrays import Floats, Ints
from treetap.trees.candidates import Candidate
from treetap.trees.ensemble import Ensemble, Leaf, Split, Tree, route
from treetap.trees.growing_tree import GrowingTree
from treetap.trees.params import TreeParams
from treetap.trees.paths import RowsLeft, reached_values
from treetap.trees.tree_bins import Bins, goes_left, left_sums_of

#: A split in its owner's table: the candidate by the owner's own column, and its threshold.
Entry = tuple[Candidate, float]
#: Enters a split into its owner's table: (place of the party, node, the entry) → handle.
Enter = Callable[[int, int, Entry], int]


def entering(tables: Sequence[list[Entry]]) -> Enter:
    """Enter splits into these tables, one for each party."""

    def enter(party: int, node: int, entry: Entry) -> int:  # noqa: ARG001 - a table has no nodes
        tables[party].append(entry)
        return len(tables[party]) - 1

    return enter


def grow(tree: GrowingTree, bins: Sequence[Bins], enter: Enter) -> None:
    """Grow a tree by all parties' columns, in tie order; of tied candidates the first one splits a node."""
    groups = [own.candidates.groups for own in bins]
    while tree.build:
        nodes, rows = tree.build, tree.summed()
        tree.take_candidates([left_sums_of(own, tree.values, nodes, rows) for own in bins], groups)
        for choice in tree.choose():
            own, node = bins[choice.party], choice.node
            candidate = own.at_border(node, own.candidate(choice.tied[0]))
            entry = replace(candidate, feature=int(own.kept[candidate.feature])), own.cut(node, candidate)
            mask = goes_left(own, node, tree.rows[node], candidate)
            tree.divide(node, enter(choice.party, node, entry), mask)
        tree.next_stage()


def grown(
    tree: GrowingTree,
    bins: Sequence[tuple[str, Bins]],
    splits: Mapping[str, list[Entry]],
    index: int,
    outputs: tuple[int, ...],
) -> tuple[Tree, Floats]:
    """Grow a tree to its end, by the columns of named parties, whose split tables get its splits: see `finish`."""
    names, columns = [name for name, _ in bins], [own for _, own in bins]
    enter = entering([splits[name] for name in names])
    tree.constrain([own.marks for own in columns])
    grow(tree, columns, enter)
    return finish(tree, index, outputs, names, columns[0], enter)


def finish(
    tree: GrowingTree, index: int, outputs: tuple[int, ...], names: Sequence[str], own: Bins, enter: Enter
) -> tuple[Tree, Floats]:
    """The finished tree, and the value (N, outputs) that it gives to every record.

    Nodes that are withdrawn are first grown further by the first party's `own` columns alone.
    """
    values = np.empty((len(tree.values), len(outputs)))
    parts = [tree.below(node) for node in sorted(tree.withdrawn)]
    for part in parts:
        grow(part, [own], enter)
    finished = tree.finished(index, outputs, names, [part.subtree(names) for part in parts])
    give(values, tree.rows, finished.leaves)
    for part, subtree in zip(parts, finished.local, strict=True):
        give(values, part.rows, subtree.leaves)
    return finished, values


def give(values: Floats, rows: Mapping[int, Ints], leaves: Iterable[Leaf]) -> None:
    """Set the values (N, outputs) of the records of each leaf, `rows` by node."""
    for leaf in leaves:
        values[rows[leaf.node]] = leaf.weights


@dataclass(frozen=True)
class CentralTrees:
    """A model trained on the joined table, with all parties' split tables.

    `splits[owner][handle]` is the candidate, by the owner's own column, and its threshold, below which a record goes
    left. `divisible` names, per tree, the nodes that the stopping rules would let split.
    """

    ensemble: Ensemble
    params: TreeParams
    splits: dict[str, list[Entry]]
    divisible: tuple[frozenset[int], ...]

    def entry(self, split: Split) -> Entry:
        """Candidate and threshold of a split."""
        return self.splits[split.owner][split.handle]

    def scores(self, n: int, goes_left: RowsLeft) -> Floats:
        """Scores (n, outputs) of n records."""
        trees = self.ensemble.used_trees
        values = (reached_values(tree, route(tree.splits, n, goes_left), goes_left) for tree in trees)
        return self.ensemble.summed(values, n)

"""The sections of the audit that need no attack, from a view, as plain JSON types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from treetap.arrays import Ints
from treetap.attacks.view.known_trees import TreeView
from treetap.attacks.view.view import View
from treetap.protocols.registry import training
from treetap.tables.labels import Labels
from treetap.trees.information import class_counts, class_entropy, mutual_information, node_bounds, numbered


def bound_rows(view: View, labels: Labels | None) -> list[dict[str, Any]]:
    """The ID-LMID bound of every known node but the roots, in nats; per node, not joint. Empty without labels.

    `nats` is the larger one of `node_nats` and `complement_nats`.
    """
    if labels is None:
        return []
    bounds_of_nodes, drawn = list[dict[str, Any]](), training(view.protocol).drawn
    # As in the paper's experiments: if a tree draws its records, a node holds only the drawn ones, once each.
    for tree in view.trees:
        nodes = [node for node in tree.nodes.values() if node.source != "root"]
        inside = [tree.drawn_of(node.records) if drawn else node.records for node in nodes]
        counts = np.array([_counts(labels, rows) for rows in inside], dtype=np.int64)
        bounds = node_bounds(counts.reshape(len(nodes), len(labels.classes)), _counts(labels))
        bounds_of_nodes += [
            {
                "tree": tree.index,
                "node": node.node,
                "depth": node.depth,
                "records": len(rows),
                "nats": float(larger),
                "node_nats": float(within),
                "complement_nats": float(outside),
                "source": node.source,
            }
            for node, rows, larger, within, outside in zip(nodes, inside, bounds.larger, *bounds, strict=True)
        ]
    return bounds_of_nodes


def signature(view: View, labels: Labels | None) -> dict[str, Any]:
    """The number of signatures by the known sets, and their information on the label (plug-in estimate, nats).

    `by_chance` is the mean of that information under random permutations of the labels. `by_tree` has the same after
    the first tree, the first two, and so on. Without labels the informations are None.
    """
    told = [
        {
            "signatures": int(groups.max()) + 1,
            "mutual_information": None if labels is None else mutual_information(labels.values, groups),
            "by_chance": None if labels is None else chance_information(labels.values, groups),
        }
        for groups in signatures(view)
    ]
    by_tree = [{"tree": tree.index, **step} for tree, step in zip(view.trees, told[1:], strict=True)]
    return {"label_entropy": None if labels is None else class_entropy(_counts(labels)), **told[-1], "by_tree": by_tree}


def tree_rows(view: View, labels: Labels | None) -> list[dict[str, Any]]:
    """The nodes of every complete tree, also the hidden ones, which must exist; classes only with labels."""
    return [
        {
            "tree": tree.index,
            "nodes": [_node_row(tree, node, labels) for node in sorted([*tree.nodes, *tree.hidden()])],
        }
        for tree in view.trees
    ]


def _node_row(tree: TreeView, number: int, labels: Labels | None) -> dict[str, Any]:
    node = tree.nodes.get(number)
    cut = next((cut for cut in tree.cuts if cut.node == number), None) if node is None else None
    split = node.split if node is not None else None if cut is None else cut.split
    # an infinite threshold parts missing cells from the others, and JSON has no such number
    threshold = None if split is None or np.isinf(split.threshold) else split.threshold
    return {
        "node": number,
        "depth": number.bit_length() - 1,
        "known": node is not None,
        "source": None if node is None else node.source,
        "records": None if node is None else len(node.records),
        "leaf": tree.is_leaf(number),
        "feature": None if split is None else split.feature_name,
        "threshold": threshold,
        **({"categories": list(split.categories)} if split is not None and split.categories else {}),
        "classes": None if node is None or labels is None else _counts(labels, node.records).tolist(),
    }


def _counts(labels: Labels, records: Ints | slice = slice(None)) -> Ints:
    """The number of records of each class (classes,), by default among all records."""
    return class_counts(labels.values[records], len(labels.classes))


def signatures(view: View) -> Iterator[Ints]:
    """Signatures (N,), from 0, by no tree, the first one, the first two, and so on.

    Equal for two records if each known set of these trees holds both or neither. Sides of own splits are sets, too,
    where the records of their nodes are not known.
    """
    yield (groups := np.zeros(view.records, dtype=np.int64))
    for tree in view.trees:
        for cell in (tree.cells(), *_sides(tree)):
            _, place = np.unique(cell, return_inverse=True)
            _, refined = np.unique(groups * np.int64(place.max() + 1) + place, return_inverse=True)
            groups = np.asarray(refined, dtype=np.int64)
        yield groups


def _sides(tree: TreeView) -> Iterator[Ints]:
    """Of each own split of a node with unknown records (N,): 1 on its left, 2 on its right, 0 not in the node."""
    for cut in tree.own_cuts() if tree.cuts else ():
        if cut.node not in tree.nodes:
            sides = np.zeros(tree.total, dtype=np.int64)
            sides[cut.left], sides[cut.right] = 1, 2
            yield sides


def chance_information(labels: Ints, groups: Ints) -> float:
    """The mean of `mutual_information`, in nats, if the labels (N,) were assigned to the records in random order.

    The mean over all permutations (Vinh, Epps, Bailey 2010, equation 24a).
    """
    if not labels.size:
        return 0.0
    records, mean = len(labels), 0.0
    # ln n!, in whose differences no digit that is printed is lost
    factorial = np.cumsum(np.log(np.maximum(1, np.arange(records + 1, dtype=np.longdouble))))
    sizes, groups_of = np.unique(numbered(groups)[1], return_counts=True)
    for a in numbered(labels)[1]:
        first, last = np.maximum(1, a + sizes - records), np.minimum(a, sizes)
        at = np.repeat(np.arange(len(sizes)), last - first + 1)
        n, b = np.arange(len(at)) - np.searchsorted(at, at) + first[at], sizes[at]
        chances = factorial[a] + factorial[b] + factorial[records - a] + factorial[records - b]
        chances -= factorial[records] + factorial[n] + factorial[a - n] + factorial[b - n]
        chances = np.exp((chances - factorial[records - a - b + n]).astype(np.float64))
        mean += float((groups_of[at] * chances * (n / records) * np.log(n * (records / (a * b)))).sum())
    return max(0.0, mean)

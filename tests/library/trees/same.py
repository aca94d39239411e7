"""A trained model beside that of an oracle."""

from __future__ import annotations

import math
from collections.abc import Iterable

from tests.oracle import OracleLeaf, OracleModel, OracleSplit
from treetap.trees.centralised import CentralTrees


def differences(model: CentralTrees, expected: OracleModel, near: float = 1e-7) -> str:
    """The first difference between the trees; empty if there is none. Gains and weights may differ in rounding."""
    if len(model.ensemble.trees) != len(expected) or model.ensemble.best_round != expected.best_round:
        return f"{len(model.ensemble.trees)} trees for {len(expected)}, or another best round"
    for tree, naive in zip(model.ensemble.trees, expected, strict=True):
        if {part.root for part in tree.local} != naive.withdrawn:
            return f"tree {tree.index}: the first party grows alone below other nodes"
        leaves = [leaf for leaf in tree.leaves if leaf.node not in naive.withdrawn]
        leaves += [leaf for part in tree.local for leaf in part.leaves]
        splits = [*tree.splits, *(split for part in tree.local for split in part.splits)]
        if tree.outputs != naive.outputs or sorted(at.node for at in (*splits, *leaves)) != sorted(naive.nodes):
            return f"tree {tree.index}: other nodes, or of other outputs"
        for split in splits:
            other, (candidate, cut) = naive.nodes[split.node], model.entry(split)
            own = (split.owner, candidate.feature, candidate.right or cut, candidate.missing_left)
            if not isinstance(other, OracleSplit):
                return f"tree {tree.index}: {own} splits the leaf {split.node}"
            if own != (other.owner, other.feature, other.cut, other.missing_left):
                return f"tree {tree.index}, node {split.node}: {own} is {other}"
            if not _near((split.gain, split.cover), (other.gain, other.cover), near):
                return f"tree {tree.index}, node {split.node}: gain or cover"
        for leaf in leaves:
            end = naive.nodes[leaf.node]
            same = isinstance(end, OracleLeaf) and _near((*leaf.weights, leaf.cover), (*end.weights, end.cover), near)
            if not same:
                return f"tree {tree.index}: leaf {leaf.node} is {end}"
    return ""


def _near(own: Iterable[float], others: Iterable[float], near: float) -> bool:
    return all(math.isclose(a, b, rel_tol=near, abs_tol=0.1 * near) for a, b in zip(own, others, strict=True))

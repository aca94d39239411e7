"""What the candidate sums of one tree tell the label holder in spite of their permutation: figures of docs/threats.md.

    python docs/measure_linking.py

Plays the label holder against one feature party that holds ten columns of the breast cancer table of scikit-learn. All
nodes of a tree share one permutation, and the left sets of one feature's candidates are nested. So of two candidates of
a feature the lower one has, in every node, no more records, no larger Σ h, and a Σ g that differs by at most the
difference in records. Among all pairs that could be nested, the assignment of least total difference names for each
candidate its next lower bin.

Then a bin that holds a single record of some node gives away (g, h) of that record as a difference of two candidates;
the label holder knows every (g, h). A cell (record, column) counts as read if no other record of the node has the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment
from sklearn.datasets import load_breast_cancer

from treetap.trees.binning import bin_table
from treetap.trees.candidates import CandidateList, column_goes_left
from treetap.trees.centralised import CentralModel, train
from treetap.trees.ensemble import Tree, route
from treetap.trees.loss import UNIT, loss_for
from treetap.trees.params import BoostingParams
from treetap.trees.tree_bins import left_sums

Rows = npt.NDArray[np.int64]


def main() -> None:
    """Print a line per setting."""
    X, y = load_breast_cancer(return_X_y=True)
    print("columns  bins  depth  tree   next lower bin named   cells read")
    for first in (0, 10, 20):
        for max_bin, depth, tree in ((16, 3, 0), (32, 3, 0), (32, 3, 9), (32, 6, 9)):
            linked, cells = attack(X[:, first : first + 10], y, max_bin, depth, tree)
            print(f"{first:2}–{first + 9:2}   {max_bin:4}  {depth:5}  {tree + 1:4}   {linked:20.0%}   {cells:10.0%}")


def attack(X: npt.NDArray[Any], y: npt.NDArray[Any], max_bin: int, depth: int, tree: int) -> tuple[float, float]:
    """Share of candidates whose next lower bin is named, and share of cells read, from one tree's sums."""
    columns = bin_table(X, [str(j) for j in range(X.shape[1])], max_bin)
    codes, candidates = columns.codes, CandidateList(columns.shapes)
    model = train(
        [("p", columns)], y, BoostingParams(n_estimators=tree + 1, max_depth=depth, max_bin=max_bin, learning_rate=0.3)
    )
    scores = np.zeros((len(y), 1))
    for earlier in model.ensemble.trees[:tree]:
        scores[:, 0] += earlier.values(leaf_of(model, earlier, codes))[:, 0]
    loss = loss_for("binary:logistic", 2)
    fixed = loss.quantise(*loss.gradients(scores, y))
    values = np.c_[fixed.g, fixed.h, np.ones(len(y), dtype=np.int64)]
    reached = leaf_of(model, model.ensemble.trees[tree], codes)
    nodes = [at_or_below(reached, split.node) for split in model.ensemble.trees[tree].splits]
    permutation = np.random.default_rng(1).permutation(len(candidates))
    offered = left_sums(codes, candidates, values, nodes)[:, permutation]
    named = next_lower(offered)
    follows = (candidates.bin > 0)[permutation]
    linked = permutation[named[follows]] == permutation[follows] - 1
    return float(linked.mean()), cells_read(codes, values, nodes)


def leaf_of(model: CentralModel, tree: Tree, codes: npt.NDArray[np.integer[Any]]) -> Rows:
    """The leaf that each record reaches."""

    def goes_left(split: Any, rows: Rows) -> npt.NDArray[np.bool_]:
        candidate, _ = model.entry(split)
        return column_goes_left(codes[rows, candidate.feature], candidate, int(codes.max()) + 1)

    return route(tree.splits, len(codes), goes_left)


def at_or_below(reached: Rows, node: int) -> Rows:
    """Records whose leaf is the node or below it."""
    up = reached.copy()
    while (up > node).any():
        up = np.where(up > node, up >> 1, up)
    return np.flatnonzero(up == node)


def next_lower(offered: npt.NDArray[np.int64]) -> Rows:
    """For each place the place of its next lower candidate, from sums (nodes, places, 3) alone."""
    g, h, n = offered[..., 0] / UNIT, offered[..., 1] / UNIT, offered[..., 2].astype(float)
    more, weight, slope = (part[:, :, None] - part[:, None, :] for part in (n, h, g))
    nested = ((more >= 0) & (weight >= -1e-9) & (np.abs(slope) <= more + 1e-9)).all(axis=0) & (more.sum(axis=0) > 0)
    cost = np.where(nested, more.sum(axis=0) + np.abs(slope).sum(axis=0), 1e9)
    none = np.full_like(cost, 3.0 * n.max())  # the lowest bin of a feature follows nothing
    _, taken = linear_sum_assignment(np.hstack([cost, none]))
    return np.asarray(taken, dtype=np.int64) % len(cost)


def cells_read(codes: npt.NDArray[np.integer[Any]], values: npt.NDArray[np.int64], nodes: list[Rows]) -> float:
    """Share of (record, column) that lie alone in a bin of a node and have a (g, h) of their own there."""
    read = np.zeros(codes.shape, dtype=bool)
    for rows in nodes:
        _, same, count = np.unique(values[rows, :2], axis=0, return_inverse=True, return_counts=True)
        own = count[same.reshape(-1)] == 1
        for column in range(codes.shape[1]):
            alone = np.bincount(codes[rows, column])[codes[rows, column]] == 1
            read[rows[alone & own], column] = True
    return float(read.mean())


if __name__ == "__main__":
    main()

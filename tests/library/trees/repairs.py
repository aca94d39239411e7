"""Models trained on noisy labels, and a naive repair of them by recursion over raw columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.forest.oracle import _Tree as ForestTree
from tests.library.trees.decisions import raw_decisions
from tests.library.trees.tables import Parties, encoded
from tests.oracle import (
    OracleLeaf,
    OracleModel,
    OracleSplit,
    OracleTree,
    _derivatives,
    _leaf_of,
    bin_cuts,
    factors_of,
    parted,
)
from tests.oracle import _Tree as BoostedTree
from treetap.trees import sampling
from treetap.trees.candidates import Candidate
from treetap.trees.centralised import CentralTrees, Entry, train, train_forest
from treetap.trees.ensemble import ROOT, Split, Subtree, Tree, route
from treetap.trees.params import BoostingParams, ForestParams, TreeParams
from treetap.trees.repair import NoisyModel, RepairedTree
from treetap.trees.tree_bins import GlobalBins, NodeBins
from treetap.trees.withholding import NOTHING, Withholding

Ints = npt.NDArray[np.int64]
#: A node of a tree with its local subtrees in their places: ("split", owner, feature, cut, missing left), or weights.
Node = tuple[Any, ...]
VARIANTS = {"refit": (False, True), "grafting": (True, False), "grafting_refit": (True, True)}


def in_order_of_nodes(repaired: RepairedTree) -> RepairedTree:
    """The same trees, nodes in the order of their numbers."""
    return RepairedTree(*map(by_number, (repaired.refit, repaired.grafting, repaired.grafting_refit)))


def by_number(tree: Tree) -> Tree:
    """The same tree, its nodes and those of its local subtrees in the order of their numbers."""

    def in_order(nodes: Any) -> Any:
        return tuple(sorted(nodes, key=lambda each: each.node))

    local = (replace(each, splits=in_order(each.splits), leaves=in_order(each.leaves)) for each in tree.local)
    return replace(tree, splits=in_order(tree.splits), leaves=in_order(tree.leaves), local=tuple(local))


def flipped(labels: npt.NDArray[Any], classes: int, share: float, seed: int) -> Ints:
    """Labels of which a share is drawn anew."""
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, classes, len(labels))
    found: Ints = np.where(rng.random(len(labels)) < share, drawn, labels).astype(np.int64)
    return found


def trained(
    parties: Parties, noisy: Ints, clean: Ints, params: TreeParams, classes: int, withholding: Withholding = NOTHING
) -> tuple[NoisyModel, dict[str, list[Entry]]]:
    """A centralised model of noisy labels as its label holder, the first party, has it, and all split tables."""
    tables = encoded(parties, params.max_bin)
    if isinstance(params, ForestParams):
        whole: CentralTrees = train_forest(parties, noisy, params, classes, tables, withholding)
    else:
        assert isinstance(params, BoostingParams)
        whole = train(tables, noisy, params, classes, withholding)
    (own, block), trees = parties[0], whole.ensemble.trees
    goes_left = raw_decisions(whole, parties)

    def bins(t: int) -> GlobalBins | NodeBins:
        kept = sampling.columns(params.seed, t, own, block.shape[1], params.colsample_bytree)
        if isinstance(params, ForestParams) and params.binning == "per-node":
            return NodeBins(block, kept, params.drawn(t, len(clean)), params.max_bin)
        return GlobalBins(tables[0][1], kept)

    reached = [route(tree.splits, len(clean), goes_left) for tree in trees]
    model = NoisyModel(trees, reached.__getitem__, noisy, clean, classes, own, bins, whole.splits[own], goes_left)
    return model, whole.splits


def nodes_of(tree: Tree, entries: Mapping[str, list[Entry]]) -> dict[int, Node]:
    """All nodes of a tree, those of its local subtrees in the place of what lies there for other parties."""
    roots = {each.root for each in tree.local}

    def hidden(node: int) -> bool:
        return node in roots or (node > ROOT and hidden(node >> 1))

    found: dict[int, Node] = {}
    parts: list[tuple[bool, Tree | Subtree]] = [(True, tree), *((False, each) for each in tree.local)]
    for shown, part in parts:
        for split in part.splits:
            if not (shown and hidden(split.node)):
                found[split.node] = _meaning(split, *entries[split.owner][split.handle])
        for leaf in part.leaves:
            if not (shown and hidden(leaf.node)):
                found[leaf.node] = leaf.weights
    return found


def _meaning(split: Split, candidate: Candidate, cut: float) -> Node:
    return ("split", split.owner, candidate.feature, cut, candidate.missing_left)


def naive_repair(
    model: NoisyModel,
    entries: Mapping[str, list[Entry]],
    parties: Parties,
    params: TreeParams,
    *,
    grafting: bool,
    refit: bool,
) -> list[dict[int, Node]]:
    """Every repaired tree as `nodes_of` has it, by Algorithm 4 as it is printed but for the test of contamination."""
    columns = [(name, [[float(v) for v in X[:, j]] for j in range(X.shape[1])]) for name, X in parties]
    before = [_stored(tree, entries) for tree in model.trees]
    n = len(model.clean)
    if isinstance(params, ForestParams):
        found = []
        for t, tree in enumerate(before):
            drawn = [int(times) for times in params.drawn(t, n)]
            hot = [[int(c == label) for c in range(model.classes)] for label in model.clean]
            grower = ForestTree(columns[:1], hot, drawn, params, t)
            grower.centre, grower.scale = 0.0, 1.0

            def majority(rows: list[int], labels: Ints, drawn: list[int] = drawn) -> int:
                counts = [sum(drawn[i] for i in rows if labels[i] == c) for c in range(model.classes)]
                return max(range(model.classes), key=lambda c: (counts[c], -c))

            marked = _Recursion(model, columns, tree, grower, majority) if grafting else None
            found.append(_finished(tree, marked, grower, columns, n, refit=refit))
        return [_plain(tree) for tree in found]
    assert isinstance(params, BoostingParams)
    return _naive_boosting(model, columns, before, params, grafting=grafting, refit=refit)


def _naive_boosting(
    model: NoisyModel, columns: Any, before: list[OracleTree], params: BoostingParams, *, grafting: bool, refit: bool
) -> list[dict[int, Node]]:
    n, outputs = len(model.clean), params.outputs(model.classes)
    base = 0.0 if params.objective == "binary:logistic" else 0.5
    scores = [[base] * outputs for _ in range(n)]
    cuts = [[bin_cuts(column, params.max_bin) for column in columns[0][1]]]
    per_round, done = params.trees_per_round(model.classes), []
    for first in range(0, len(before), per_round):
        noisy, clean = ([float(y) for y in labels] for labels in (model.noisy, model.clean))
        of_noisy, *_ = _derivatives(params, scores, noisy, factors_of(params, noisy, [1.0] * n))
        of_clean, h, scale, _ = _derivatives(params, scores, clean, factors_of(params, clean, [1.0] * n))
        any_graft, finished = False, []
        for t in range(first, first + per_round):
            tree = before[t]
            sampled = [bool(times) for times in params.drawn(t, n)]
            grower = BoostedTree(columns[:1], cuts, params, t, sampled)
            grower.g, grower.h = ([[row[k] for k in tree.outputs] for row in part] for part in (of_clean, h))
            grower.scale = scale

            raised = partial(_raised, model, of_noisy, of_clean, tree.outputs, sampled)
            marked = _Recursion(model, columns, tree, grower, raised) if grafting else None
            any_graft |= marked is not None and bool(marked.grafted)
            finished.append(_finished(tree, marked, grower, columns, n, refit=refit))
        for tree in finished:
            for i in range(n):
                for k, weight in zip(tree.outputs, _leaf_of(tree, columns, i).weights, strict=True):
                    scores[i][k] += weight
        done += finished
        refit |= any_graft
    return [_plain(tree) for tree in done]


def _raised(
    model: NoisyModel,
    noisy: Any,
    clean: Any,
    outputs: tuple[int, ...],
    sampled: list[bool],
    rows: list[int],
    labels: Ints,
) -> int:
    """The class that a node's Σ(−g) is largest for; of one output 1 if it is above 0."""
    g = noisy if labels is model.noisy else clean
    up = [sum(-g[i][k] for i in rows if sampled[i]) for k in outputs]
    return int(up[0] > 0) if len(up) == 1 else max(range(len(up)), key=lambda c: (up[c], -c))


class _Recursion:
    """Algorithm 4 on a copy of a tree's nodes, in `nodes`; `grafted`: every node that was regrown last of all."""

    def __init__(
        self, model: NoisyModel, columns: Any, tree: OracleTree, grower: Any, of_class: Callable[[list[int], Ints], int]
    ) -> None:
        self._model, self._columns, self._grower, self._of_class = model, columns, grower, of_class
        self._before, self._limited = dict(tree.nodes), bool(getattr(grower.params, "max_leaves", 0))
        self.nodes = dict(tree.nodes)
        self.grafted: set[int] = set()
        self._graft(ROOT, list(range(len(model.clean))))

    def _graft(self, node: int, rows: list[int]) -> bool:
        """Repair a subtree; True if its root is contaminated."""
        here = self.nodes[node]
        differs = self._of_class(rows, self._model.noisy) != self._of_class(rows, self._model.clean)
        if isinstance(here, OracleLeaf):
            return differs
        left, right = parted(rows, dict(self._columns)[here.owner][here.feature], here.cut, here.missing_left)
        below = [self._graft(2 * node, left), self._graft(2 * node + 1, right)]
        if not any(below):
            return False
        if differs:
            return True
        self._erase(node)
        grown = OracleTree((), {})
        had = self._leaves_of(node) if self._limited else {}
        self._grower.grow(node, rows, node.bit_length() - 1, grown, OracleModel([], 1), **had)
        self.nodes |= grown.nodes
        self.grafted = {each for each in self.grafted if each in self.nodes} | set(grown.nodes)
        return False

    def _leaves_of(self, node: int) -> dict[str, int]:
        """The number of leaves that a node had before any repair: as many has the part that is grown there."""
        leaves = [leaf for leaf, it in self._before.items() if isinstance(it, OracleLeaf)]
        return {"most": sum(f"{leaf:b}".startswith(f"{node:b}") for leaf in leaves)}

    def _erase(self, node: int) -> None:
        if node in self.nodes:
            del self.nodes[node]
            self._erase(2 * node)
            self._erase(2 * node + 1)


def _finished(
    tree: OracleTree, marked: _Recursion | None, grower: Any, columns: Any, n: int, *, refit: bool
) -> OracleTree:
    """A tree with its grafts, and with clean leaves if it is refitted."""
    nodes, grafted = (tree.nodes, set()) if marked is None else (marked.nodes, marked.grafted)
    found = OracleTree(tree.outputs, dict(nodes))
    if refit:
        at = {ROOT: list(range(n))}
        for node in sorted(nodes):
            here = nodes[node]
            if isinstance(here, OracleSplit):
                column = dict(columns)[here.owner][here.feature]
                at[2 * node], at[2 * node + 1] = parted(at[node], column, here.cut, here.missing_left)
            elif node not in grafted:
                depth = grower.params.max_depth  # no deeper node is split: a leaf
                grower.grow(node, at[node], depth, found, OracleModel([], 1))
    return found


def _stored(tree: Tree, entries: Mapping[str, list[Entry]]) -> OracleTree:
    nodes: dict[int, OracleSplit | OracleLeaf] = {}
    for number, node in nodes_of(tree, entries).items():
        nodes[number] = OracleSplit(*node[1:], math.nan, math.nan) if node[0] == "split" else OracleLeaf(node, math.nan)
    return OracleTree(tree.outputs, nodes)


def _plain(tree: OracleTree) -> dict[int, Node]:
    return {
        number: ("split", node.owner, node.feature, node.cut, node.missing_left)
        if isinstance(node, OracleSplit)
        else node.weights
        for number, node in tree.nodes.items()
    }

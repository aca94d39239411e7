"""Shapley values, and their entries.

- Shapley values against their definition, against XGBoost, and as a form in the masks of others.
- Shapley values by entries: what the chain makes of them is what they are in the clear.

Predictions without the owners of some splits equal a naive walk that sends every record both ways by the covers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from math import factorial
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import xgboost

from tests.forest.oracle import forest_train
from tests.library.trees.absent import scores_without
from tests.library.trees.attributed import attribute
from tests.library.trees.decisions import all_masks, decisions, player_of, raw_decisions
from tests.library.trees.tables import Case, cases, encoded, labels_for, signal, table
from tests.oracle import oracle_train, oracle_without
from treetap.errors import DataError
from treetap.trees.centralised import CentralModel, Tables, train, train_forest
from treetap.trees.ensemble import Ensemble, Leaf, Split, Tree
from treetap.trees.leaf_entries import ERROR_BITS, SUM_BITS, Ints
from treetap.trees.params import ForestParams
from treetap.trees.paths import deciding, paths
from treetap.trees.shapley import AttributedHop, AttributionEntries, attributions, expected_score, masked_terms

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
DEEP = [case for case in cases() if case.name.endswith(("plain", "missing", "ties"))]
CASES = [case for case in cases() if case.name.endswith(("plain", "missing"))]


def _trained(case: Case) -> tuple[CentralModel, Tables, list[str]]:
    """A model of depth 4, so that players stand on a path more than once, and its players in order."""
    tables = encoded(case.parties, case.params.max_bin)
    model = train(tables, case.labels, replace(case.params, max_depth=4), case.classes)
    first, first_table = tables[0]
    names = [f"{first}:{j}" for j in range(len(first_table.features))]
    return model, tables, [*names, *(name for name, _ in tables[1:])]


def _by_definition(
    ensemble: Ensemble, n: int, goes_left: Callable[[Split], Bools], player: Callable[[Split], str], players: list[str]
) -> Floats:
    """Σ_S |S|!(M−|S|−1)!/M! · (v(S ∪ p) − v(S)), v by walking the trees."""

    def value(known: set[str]) -> Floats:
        total = np.tile(np.array(ensemble.base_margin), (n, 1))
        for tree in ensemble.used_trees:
            splits = {split.node: split for split in tree.splits}
            leaves = {leaf.node: leaf for leaf in tree.leaves}
            cover = {node.node: node.cover for node in (*tree.splits, *tree.leaves)}

            def below(node: int, splits=splits, leaves=leaves, cover=cover) -> Floats:
                if node in leaves:
                    return np.tile(np.array(leaves[node].weights), (n, 1))
                left, right = below(2 * node), below(2 * node + 1)
                if player(splits[node]) in known:
                    return np.where(goes_left(splits[node])[:, None], left, right)
                a, b = cover[2 * node], cover[2 * node + 1]
                return (a * left + b * right) / (a + b)

            total[:, list(tree.outputs)] += below(1)
        return total

    M = len(players)
    worth = {frozenset(S): value(set(S)) for size in range(M + 1) for S in combinations(players, size)}
    found = np.zeros((n, M, len(ensemble.base_margin)))
    for place, p in enumerate(players):
        for S, alone in worth.items():
            if p not in S:
                weight = factorial(len(S)) * factorial(M - len(S) - 1) / factorial(M)
                found[:, place] += weight * (worth[S | {p}] - alone)
    return found


@pytest.mark.parametrize("case", DEEP, ids=lambda case: case.name)
def test_values_are_those_of_the_definition(case: Case) -> None:
    """Features of the label holder one by one and whole parties: equal to the sum over all coalitions."""
    model, tables, players = _trained(case)
    n, goes_left, player = len(case.labels), decisions(model, tables), player_of(model, "p0")
    found = attribute(model.ensemble, player, all_masks(model.ensemble, n, goes_left, player), players, n)
    expected = _by_definition(model.ensemble, n, goes_left, player, players)
    np.testing.assert_allclose(found.values, expected, rtol=0, atol=1e-12 * max(1.0, np.abs(expected).max()))
    assert np.abs(expected).max() > 1e-3


@pytest.mark.second_tier(but=12)
@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_values_of_known_decisions_are_those_of_masks(case: Case) -> None:
    """What is computed pattern by pattern where all is known is the form in masks, with none that is remote.

    Efficiency: expected value and attributions sum to the prediction, for every objective and strategy.
    """
    model, tables, players = _trained(case)
    n, goes_left, player = len(case.labels), decisions(model, tables), player_of(model, "p0")
    found = attributions(model.ensemble, player, goes_left, players, n)
    expected = attribute(model.ensemble, player, all_masks(model.ensemble, n, goes_left, player), players, n)
    np.testing.assert_allclose(
        found.values, expected.values, rtol=0, atol=1e-12 * max(1.0, np.abs(expected.values).max())
    )
    np.testing.assert_allclose(found.expected, expected.expected, rtol=1e-12)
    whole, scores = expected.expected + expected.values.sum(axis=1), model.predict(tables)
    np.testing.assert_allclose(whole, scores, rtol=0, atol=1e-9 * max(1.0, np.abs(scores).max()))


class _Counted(tuple[Any, ...]):
    """The nodes of a tree; counts how many are read one after the other."""

    read = 0

    def __iter__(self) -> Iterator[Any]:
        for each in super().__iter__():
            _Counted.read += 1
            yield each


def _grown(index: int, outputs: tuple[int, ...], depth: int, seed: int) -> Tree:
    """A tree of random shape whose root is split; covers add up as records do."""
    rng = np.random.default_rng(seed)
    splits, leaves = [], []
    open_nodes = [(1, float(rng.integers(2**depth, 2 ** (depth + 1))))]
    while open_nodes:
        node, cover = open_nodes.pop()
        if node < 2**depth and cover > 1 and (node == 1 or rng.random() < 0.9):
            left = float(rng.integers(0, int(cover) + 1))
            splits.append(Split(node, f"p{rng.integers(3)}", node, 1.0, cover))
            open_nodes += [(2 * node, left), (2 * node + 1, cover - left)]
        else:
            leaves.append(Leaf(node, tuple(rng.normal(size=len(outputs)).tolist()), cover))
    return Tree(index, outputs, tuple(splits), tuple(leaves))


def _mean(tree: Tree, node: int) -> Floats:
    """The leaf weights below a node, each child by its part of the node's cover."""
    for leaf in tree.leaves:
        if leaf.node == node:
            return np.array(leaf.weights)
    cover = {each.node: each.cover for kind in (tree.splits, tree.leaves) for each in kind}
    left, right = ((cover[child] / cover[node]) * _mean(tree, child) for child in (2 * node, 2 * node + 1))
    found: Floats = left + right
    return found


def test_the_expected_score_by_hand() -> None:
    """A quarter goes to the leaf of 8; of the rest a third to that of 4 and two to that of −2; a margin on top."""
    splits = (Split(1, "a", 0, 1.0, 12.0), Split(3, "b", 0, 1.0, 9.0))
    leaves = (Leaf(2, (8.0,), 3.0), Leaf(6, (4.0,), 3.0), Leaf(7, (-2.0,), 6.0))
    tree, stump = Tree(0, (0,), splits, leaves), Tree(1, (0,), (), (Leaf(1, (5.0,), 12.0),))
    by_hand = 8 / 4 + 4 / 4 - 2 / 2
    model = Ensemble("reg:squarederror", 2, (0.5,), (tree, stump), 1)
    assert expected_score(model).tolist() == [pytest.approx(0.5 + by_hand + 5, abs=1e-15)]
    forest = replace(model, base_margin=(0.0,), averaged=True)
    assert expected_score(forest).tolist() == [pytest.approx((by_hand + 5) / 2, abs=1e-15)]
    assert expected_score(replace(model, best_round=0)).tolist() == [pytest.approx(0.5 + by_hand, abs=1e-15)]


@pytest.mark.parametrize("averaged", [False, True])
def test_the_expected_score_by_walking(averaged: bool) -> None:
    """Trees of random shape with several outputs: what the game is worth when no player's splits are decided."""
    trees = tuple(_grown(k, (0, 2) if k % 2 else (1,), 7, k) for k in range(6))
    assert max(len(tree.leaves) for tree in trees) > 10
    model = Ensemble("multi:softprob", 3, (0.1, 0.2, 0.3), trees, 1, averaged=averaged)
    found = np.array(model.base_margin)
    for tree in trees:
        found[list(tree.outputs)] += _mean(tree, 1)
    np.testing.assert_allclose(expected_score(model), found / model.divisor, rtol=0, atol=1e-13)


@pytest.mark.parametrize("depth", [3, 6, 9])
def test_the_expected_score_reads_each_node_a_few_times(depth: int) -> None:
    """However many leaves a tree has: the work is linear in its nodes."""
    nodes = range(1, 2 ** (depth + 1))
    splits = [Split(node, "a", node, 1.0, 2.0 ** (depth + 1 - node.bit_length())) for node in nodes[: 2**depth - 1]]
    tree = Tree(0, (0,), _Counted(splits), _Counted(Leaf(node, (1.0,), 1.0) for node in nodes[2**depth - 1 :]))
    _Counted.read = 0
    assert expected_score(Ensemble("reg:squarederror", 2, (0.0,), (tree,), 1)).tolist() == [1.0]
    assert 0 < _Counted.read <= 5 * len(nodes)


def test_deep_paths_stay_exact() -> None:
    """Twenty players on one path: efficiency to 1e-12, and equal players get equal shares."""
    splits = tuple(Split(2**level, f"p{level}", 0, 1.0, 2.0 ** (20 - level)) for level in range(20))
    right = tuple(Leaf(2 ** (level + 1) + 1, (0.0,), 2.0 ** (19 - level)) for level in range(20))
    model = Ensemble("reg:squarederror", 2, (0.0,), (Tree(0, (0,), splits, (*right, Leaf(2**20, (1.0,), 1.0))),), 1)
    players = [f"p{level}" for level in range(20)]
    player = lambda split: split.owner  # noqa: E731
    masks = all_masks(model, 1, lambda _: np.array([True]), player)
    found = attribute(model, player, masks, players, 1)
    np.testing.assert_allclose(found.values[0, :, 0], (1 - 2.0**-20) / 20, atol=1e-12, rtol=0)
    np.testing.assert_allclose(found.expected, 2.0**-20, rtol=1e-12)


@pytest.mark.parametrize("objective", ["reg:squarederror", "binary:logistic"])
def test_one_feature_per_player_is_what_xgboost_computes(objective: str) -> None:
    """XGBoost's own pred_contribs (TreeSHAP in float32), on a table with missing values."""
    X = table(5, 400, [6], missing=0.2)[0][1].astype(np.float32)
    signal = np.nan_to_num(X).astype(np.float64) @ np.arange(1.0, 7.0)
    y = signal if objective == "reg:squarederror" else (signal > 0).astype(float)
    options = {"objective": objective, "max_depth": 4, "base_score": 0.5, "eta": 0.3}
    booster = xgboost.train(options, xgboost.DMatrix(X, y), num_boost_round=8)
    ensemble, goes_left = _from_xgboost(booster, X, 0.5 if objective == "reg:squarederror" else 0.0)
    players = [str(j) for j in range(6)]
    player = lambda split: split.owner  # noqa: E731
    found = attribute(ensemble, player, all_masks(ensemble, len(X), goes_left, player), players, len(X))
    theirs = booster.predict(xgboost.DMatrix(X), pred_contribs=True)
    scale = np.abs(theirs).max()
    np.testing.assert_allclose(found.values[:, :, 0], theirs[:, :6], rtol=0, atol=2e-5 * scale)
    np.testing.assert_allclose(found.expected[0], theirs[0, 6], rtol=0, atol=2e-5 * scale)


def _from_xgboost(booster: Any, X: npt.NDArray[np.float32], margin: float) -> tuple[Ensemble, Callable[..., Bools]]:
    """The same trees; a split's owner is its feature's number, its handle counts through the ensemble."""
    conditions: dict[int, tuple[int, float, bool]] = {}
    trees = []
    stored = json.loads(booster.save_raw("json"))["learner"]["gradient_booster"]["model"]["trees"]
    for index, tree in enumerate(stored):
        splits, leaves = [], []
        stack = [(0, 1)]
        while stack:
            at, node = stack.pop()
            cover = float(tree["sum_hessian"][at])
            left = tree["left_children"][at]
            if left < 0:
                leaves.append(Leaf(node, (float(tree["split_conditions"][at]),), cover))
                continue
            feature = tree["split_indices"][at]
            splits.append(Split(node, str(feature), len(conditions), 1.0, cover))
            conditions[len(conditions)] = (feature, tree["split_conditions"][at], bool(tree["default_left"][at]))
            stack += [(left, 2 * node), (tree["right_children"][at], 2 * node + 1)]
        trees.append(Tree(index, (0,), tuple(splits), tuple(leaves)))

    def goes_left(split: Split) -> Bools:
        feature, threshold, default_left = conditions[split.handle]
        column = X[:, feature]
        return np.where(np.isnan(column), default_left, column < np.float32(threshold))

    return Ensemble("reg:squarederror", 2, (margin,), tuple(trees), 1), goes_left


@pytest.mark.parametrize("remote", [("p1",), ("p1", "p2"), ("p2",)])
def test_terms_of_masks_give_the_same_values(remote: tuple[str, ...]) -> None:
    """What masked sums would deliver, products of the remote masks included, equals the values in the clear."""
    case = next(case for case in cases() if case.name == "softprob-joint-missing")
    model, tables, players = _trained(case)
    n, player = len(case.labels), player_of(model, "p0")
    masks = all_masks(model.ensemble, n, decisions(model, tables), player)
    found = attribute(model.ensemble, player, masks, players, n)
    total = np.zeros_like(found.values)
    groups = set()
    for tree, known in zip(model.ensemble.used_trees, masks, strict=True):
        shown = {name: mask for name, mask in known.items() if name not in remote}
        for group, by_player in masked_terms(tree, player, shown, remote, n).items():
            groups.add(group)
            product = np.prod([known[name] for name in group], axis=0) if group else np.ones((n, len(tree.leaves)))
            for name, part in by_player.items():
                total[:, players.index(name), list(tree.outputs)] += np.einsum("nl,nlo->no", product, part)
    np.testing.assert_allclose(total, found.values, rtol=0, atol=1e-12)
    assert {(), remote} <= groups


def test_what_cannot_be_attributed_is_refused() -> None:
    """A mask that is not there and a split without cover are named."""
    tree = Tree(3, (0,), (Split(1, "b", 0, 1.0, 2.0),), (Leaf(2, (1.0,), 1.0), Leaf(3, (2.0,), 1.0)))
    with pytest.raises(DataError, match="tree 3: 'b' has splits there"):
        masked_terms(tree, lambda split: split.owner, {}, (), 1)
    empty = replace(tree, leaves=(Leaf(2, (1.0,), 0.0), Leaf(3, (2.0,), 0.0)))
    with pytest.raises(DataError, match="node 1 have no cover"):
        expected_score(Ensemble("reg:squarederror", 2, (0.0,), (empty,), 1))


def _entries(model: CentralModel, tables: Tables) -> AttributionEntries:
    holder, *chain = [name for name, _ in tables]
    feature_of = {handle: str(candidate.feature) for handle, (candidate, _) in enumerate(model.splits[holder])}
    return AttributionEntries(model.ensemble, holder, chain, feature_of, 0)


def _branches(tree: Tree, place: int, member: str) -> list[tuple[Split, bool]]:
    """The member's own splits on the way to a leaf, as its shard has them; −1: nothing of its own counts."""
    way = [] if place < 0 else list(paths(tree).values())[place]
    return [(split, left) for split, left in way if split.owner == member]


def _along(
    entries: AttributionEntries,
    hops: list[list[AttributedHop]],
    model: CentralModel,
    goes_left: Callable,
    chain,
    n: int,
) -> Ints:
    """The work of every member, in the clear: drop what its own branches exclude, add up what goes on as one."""
    trees = {tree.index: tree for tree in model.ensemble.used_trees}
    values = len(entries.players) * len(model.ensemble.base_margin)
    held = np.zeros((n, len(entries.constant) + len(entries.varying), values))
    own = {split.handle: split for tree in trees.values() for split in tree.splits if split.owner not in chain}
    held[:, entries.varying] = entries.values(lambda handle: goes_left(own[handle]), n)
    held[:, entries.constant] = entries.constants()
    for member, hop in zip(chain, hops, strict=True):
        told = [(0, [])] + [
            (to, _branches(trees[each.tree], place, member))
            for each in hop
            for place, to in zip(each.leaves, each.outgoing, strict=True)
        ]
        assert len(told) == held.shape[1]
        going = np.zeros((n, max(to for to, _ in told) + 1, held.shape[2]))
        for entry, (to, branches) in enumerate(told):
            mask = np.ones(n, dtype=bool)
            for split, left in branches:
                mask &= goes_left(split) if left else ~goes_left(split)
            going[:, to] += np.where(mask[:, None], held[:, entry], 0)
        held = going
    assert held.shape[1] == 1
    return held[:, 0].astype(np.int64)


@pytest.mark.second_tier(but=8)
@pytest.mark.parametrize("averaged", [False, True], ids=["sum", "mean"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_chain_finds_the_shapley_values(case: Case, averaged: bool) -> None:
    """Whatever the number of parties and columns: the sums are `attribute`'s values, and complete, within the error."""
    model, tables, _ = _trained(case)
    model = replace(model, ensemble=replace(model.ensemble, averaged=averaged))
    n, goes_left, chain = len(case.labels), decisions(model, tables), [name for name, _ in tables[1:]]
    entries = _entries(model, tables)
    sums = _along(entries, entries.hops(), model, goes_left, chain, n)
    assert np.abs(sums).max() < 2**SUM_BITS
    found = entries.weights(sums)
    player = player_of(model, tables[0][0])

    def named(split: Split) -> str:
        return player(split).replace(f"{tables[0][0]}:", "own:")

    masks = all_masks(model.ensemble, n, goes_left, named)
    exact = attribute(model.ensemble, named, masks, entries.players, n)
    np.testing.assert_allclose(found, exact.values, rtol=0, atol=2.0**ERROR_BITS)
    scores = model.predict(tables)
    gap = np.abs(exact.expected + found.sum(axis=1) - scores)
    assert (gap <= entries.tolerance + 1e-12 * np.abs(scores).max()).all()


def test_sums_of_single_sets_never_come_into_being() -> None:
    """Behind splits of two parties a leaf's three sets are three entries at first, then one, then part of the sum."""
    splits = (Split(1, "b", 0, 1.0, 8.0), Split(2, "c", 0, 1.0, 4.0))
    leaves = (Leaf(4, (1.0,), 2.0), Leaf(5, (2.0,), 2.0), Leaf(3, (4.0,), 4.0))
    model = Ensemble("reg:squarederror", 2, (0.0,), (Tree(0, (0,), splits, leaves),), 1)
    entries = AttributionEntries(model, "a", ["b", "c"], {}, 0)
    # b left; c left; both; c right; both; b right
    first = AttributedHop(0, (0,), (0, -1, 0, -1, 1, 2), (0, 1, 1, 2, 2, 0), (0, 1))
    assert entries.hops() == [[first], [AttributedHop(0, (0,), (0, 1), (0, 0), (0, 1))]]
    assert entries.players == ("b", "c")
    assert (entries.varying.tolist(), entries.constant.tolist()) == ([0], [1, 2, 3, 4, 5, 6])


def test_bits_to_spare_count_every_value() -> None:
    """Sixty trees leave bits beyond a score, and none beyond the values of two players as well."""
    tree = (Split(1, "a", 0, 1.0, 8.0), Split(2, "b", 0, 1.0, 4.0), Split(3, "b", 1, 1.0, 4.0))
    leaves = tuple(Leaf(node, (float(node),), 2.0) for node in (4, 5, 6, 7))
    trees = tuple(Tree(k, (0,), tree, leaves) for k in range(60))
    model = Ensemble("reg:squarederror", 2, (0.0,), trees, 1)
    entries = AttributionEntries(model, "a", ["b"], {0: "age"}, 0)
    (spare,) = entries.spare(deciding("a", lambda _: np.array([True])), 1)
    # 60 bits of leaves; a score of 181 values; each player one of 361 steps of 2^-fraction_bits
    each = np.log2(360 * 2.0**entries.fraction_bits + 1)
    assert spare == pytest.approx(60 - np.log2(181) - 2 * each)
    assert 60 - np.log2(181) > 40 > spare


def test_a_player_of_one_tree_counts_by_itself() -> None:
    """Forty trees without the label holder's feature help nobody whose value is about one tree alone."""
    with_own = (Split(1, "a", 0, 1.0, 8.0), Split(2, "b", 0, 1.0, 4.0))
    first = Tree(0, (0,), with_own, tuple(Leaf(node, (float(node),), 2.0) for node in (4, 5, 3)))
    far = (Split(1, "b", 1, 1.0, 4.0),)
    rest = [Tree(k, (0,), far, (Leaf(2, (1e-9,), 2.0), Leaf(3, (2e-9,), 2.0))) for k in range(1, 400)]
    model = Ensemble("reg:squarederror", 2, (0.0,), (first, *rest), 1)
    entries = AttributionEntries(model, "a", ["b"], {0: "age"}, 0)
    (spare,) = entries.spare(deciding("a", lambda _: np.array([True])), 1)
    assert spare == pytest.approx(1 - np.log2(2 * 2 * 2.0**entries.fraction_bits + 1))


SHAPES = [case for case in cases() if case.name.endswith(("missing", "sampled", "trees out"))]


@pytest.mark.second_tier(but=6)
@pytest.mark.parametrize("case", SHAPES, ids=lambda case: case.name)
def test_boosting_without_some_parties(case: Case) -> None:
    """Scores and guessed shares for every set of absent parties, of every objective."""
    tables = encoded(case.parties, case.params.max_bin)
    model = train(tables, case.labels, case.params, case.classes)
    oracle = oracle_train(case.parties, case.labels, case.params, case.classes)
    names = [name for name, _ in case.parties]
    for away in ([], names[1:2], names[1:], names):
        n, goes_left = len(case.labels), ignore_loss
        if away != names:
            n, goes_left = model.router([each for each in tables if each[0] not in away])
        scores, guessed = scores_without(model.ensemble, n, goes_left, away)
        expected, shares = oracle_without(oracle, case.parties, away)
        np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-9)
        np.testing.assert_allclose(guessed, shares, rtol=0, atol=1e-9)
        assert (guessed.max() > 0) == bool(away)
        assert (guessed == 1).all() == (away == names)
    np.testing.assert_array_equal(scores_without(model.ensemble, *model.router(tables), [])[0], model.predict(tables))


def test_a_forest_without_a_party() -> None:
    """Means over the trees, with the covers of a forest: its drawn records."""
    parties = table(seed=3, n=60, widths=[2, 2, 1], missing=0.1)
    labels = labels_for("multi:softprob", signal(parties, 4), 4)
    params = ForestParams(n_estimators=4, max_depth=3, bootstrap=True, subsample=1.0, binning="per-node")
    forest, oracle = train_forest(parties, labels, params, 4), forest_train(parties, list(labels), params, 4)
    scores, guessed = scores_without(forest.ensemble, 60, raw_decisions(forest, parties), {"p1"})
    expected, shares = oracle_without(oracle, parties, {"p1"})
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(guessed, shares, rtol=0, atol=1e-12)
    np.testing.assert_allclose(scores.sum(axis=1), 1.0, rtol=0, atol=1e-12)
    assert len(set(guessed.tolist())) > 3


def test_a_way_by_hand() -> None:
    """Root of the absent with covers 3 and 1; to the left a split of one's own: of two splits passed, 1 + 0 guessed."""
    tree = Tree(
        index=0,
        outputs=(0,),
        splits=(Split(1, "away", 0, 1.0, 4.0), Split(2, "own", 0, 1.0, 3.0)),
        leaves=(Leaf(4, (8.0,), 1.0), Leaf(5, (16.0,), 2.0), Leaf(3, (-4.0,), 1.0)),
    )
    ensemble = Ensemble("reg:squarederror", 0, (0.5,), (tree,), 1)
    scores, guessed = scores_without(ensemble, 2, lambda _, places: places == 0, {"away"})
    assert scores.tolist() == [[0.5 + 0.75 * 8 - 0.25 * 4], [0.5 + 0.75 * 16 - 0.25 * 4]]
    assert guessed.tolist() == [1 / 1.75] * 2


def test_children_without_cover_are_an_error() -> None:
    """There is nothing to share by, and half each would be a guess of another kind."""
    leaves = (Leaf(2, (1.0,), 0.0), Leaf(3, (2.0,), 0.0))
    tree = Tree(7, (0,), (Split(1, "away", 0, 1.0, 0.0),), leaves)
    ensemble = Ensemble("reg:squarederror", 0, (0.0,), (tree,), 1)
    with pytest.raises(DataError, match="tree 7: the children of node 1 have no cover to share by"):
        scores_without(ensemble, 1, ignore_loss, {"away"})


def ignore_loss(split: Split, places: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    raise AssertionError(f"{split.owner} was asked about {len(places)} records")

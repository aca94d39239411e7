"""Path decoding against enumeration of all paths, and on models whose paths are known."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from benchmarks.path_options import (
    Game,
    decode_explained,
    explained_options,
    explained_terms,
    fixed_point,
    score_options,
)
from tests.attacks.present import present
from tests.library.trees.attributed import attribute
from tests.library.trees.decisions import all_masks, decisions, player_of
from tests.library.trees.tables import cases, encoded
from treetap.attacks.predictions.decoding import Options, decode
from treetap.trees.centralised import train
from treetap.trees.ensemble import Ensemble, Leaf, Split, Tree
from treetap.trees.paths import candidate_leaves

BITS = 40


def _random(seed: int, trees: int, equations: int, size: int) -> tuple[list[Options], np.ndarray]:
    """Small numbers, so that sums collide, and the target that one choice gives; some equations touch few trees."""
    rng = np.random.default_rng(seed)
    options = []
    for _ in range(trees):
        k = int(rng.integers(1, 5))
        terms = rng.integers(-size, size + 1, size=(k, equations)) * (rng.random(equations) < 0.6)
        options.append(Options(rng.permutation(10)[:k] + 1, terms))
    return options, np.sum([each.terms[rng.integers(len(each.terms))] for each in options], axis=0)


@pytest.mark.second_tier(but=16)
@pytest.mark.parametrize("equations", [1, 2, 4])
@pytest.mark.parametrize("size", [2, 30, 10**6, 2**50])
@pytest.mark.parametrize("seed", range(4))
def test_all_solutions_are_found(seed: int, size: int, equations: int) -> None:
    """As many paths as enumeration finds, the same agreed leaves, for dense and sparse equations."""
    options, target = _random(seed, 6, equations, size)
    every = [
        [int(each.leaves[k]) for each, k in zip(options, choice, strict=True)]
        for choice in product(*(range(len(each.leaves)) for each in options))
        if (np.sum([each.terms[k] for each, k in zip(options, choice, strict=True)], axis=0) == target).all()
    ]
    found = decode(options, target)
    assert (found.solutions, found.complete) == (len(every), True)
    assert found.outcome == ("unique" if len(every) == 1 else "several")
    agreed = [column[0] if len(set(column)) == 1 else -1 for column in zip(*every, strict=True)]
    assert found.leaves.tolist() == agreed


def test_options_that_differ_in_nothing_seen_are_one_path_only_if_their_leaf_is_one() -> None:
    """Two masks with the same leaf leave the path unique; two leaves of the same weight do not."""
    terms = np.array([[3], [3]])
    assert decode([Options(np.array([4, 4]), terms)], np.array([3])).outcome == "unique"
    assert decode([Options(np.array([4, 5]), terms)], np.array([3])).outcome == "several"


def test_inputs_that_contradict_each_other() -> None:
    """A score that no path gives is reported, not explained away."""
    found = decode([Options(np.array([2, 3]), np.array([[1], [2]]))] * 2, np.array([7]))
    assert (found.outcome, found.solutions, found.leaves.tolist()) == ("none", 0, [-1, -1])
    assert decode([Options(np.array([1]), np.array([[5]]))], np.array([4])).outcome == "none"


def test_work_is_bounded() -> None:
    """Beyond the bound: two solutions of a dense knapsack prove it ambiguous, a sparse one stays undecided."""
    rng = np.random.default_rng(1)
    for size, outcome in ((50, "several"), (2**60, "undecided")):
        options = [Options(np.arange(2, 10), rng.integers(0, size, size=(8, 1))) for _ in range(12)]
        target = np.sum([each.terms[3] for each in options], axis=0)
        found = decode(options, target, work=2**10, rounds=3)
        assert (found.outcome, found.complete) == (outcome, False)
        assert (found.leaves == -1).all()


def test_what_was_solved_before_the_bound_is_told() -> None:
    """An equation over two trees opens these two although the rest is too much."""
    rng = np.random.default_rng(2)
    options = [Options(np.arange(2, 10), rng.integers(0, 2**45, size=(8, 2))) for _ in range(14)]
    for each in options[2:]:
        each.terms[:, 1] = 0
    target = np.sum([each.terms[5] for each in options], axis=0)
    found = decode(options, target, work=2**8, rounds=1)
    assert found.leaves.tolist() == [7, 7, *[-1] * 12]
    assert not found.complete


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize("name", ["logistic-plain", "squarederror-missing", "softprob-plain", "softprob-joint-missing"])
def test_paths_of_small_models_lie_open(name: str) -> None:
    """A few trees, every record: the decoded leaves are those reached, by the score and with attributions."""
    case = next(case for case in cases() if case.name == name)
    tables = encoded(case.parties, case.params.max_bin)
    model = train(tables, case.labels, case.params, case.classes)
    ensemble, goes_left, n = model.ensemble, decisions(model, tables), len(case.labels)
    player = player_of(model, "p0")
    remote = tuple(party for party, _ in tables[1:])
    features = range(len(tables[0][1].features))
    game = Game(player, (*(f"p0:{j}" for j in features), *remote), remote)
    masks = all_masks(ensemble, n, goes_left, player)
    values = attribute(ensemble, player, masks, game.players, n).values
    own = [candidate_leaves(tree, n, lambda s: goes_left(s) if s.owner == "p0" else None) for tree in ensemble.trees]
    reached = np.stack(
        [
            np.array([leaf.node for leaf in tree.leaves])[candidate_leaves(tree, n, goes_left).argmax(axis=1)]
            for tree in ensemble.trees
        ]
    )
    unique = 0
    for i in range(0, n, 7):
        scored = score_options(ensemble, [mask[i] for mask in own], BITS)
        truth = [np.flatnonzero(each.leaves == leaf)[0] for each, leaf in zip(scored, reached[:, i], strict=True)]
        alone = decode(scored, np.sum([each.terms[k] for each, k in zip(scored, truth, strict=True)], axis=0))
        known = [{p: mask[i] for p, mask in tree.items() if p not in remote} for tree in masks]
        options = present(explained_options(ensemble, game, known, BITS, 2**12))
        terms = np.sum(
            [
                explained_terms(
                    ensemble, tree, game, mine, {p: m[i : i + 1] for p, m in every.items() if p in remote}, 1, BITS
                ).terms[0]
                for tree, mine, every in zip(ensemble.trees, known, masks, strict=True)
            ],
            axis=0,
        )
        rounding = 2 * sum(len(tree.leaves) for tree in ensemble.trees)
        difference = terms[len(ensemble.base_margin) :] - fixed_point(values[i].ravel(), BITS)
        assert np.abs(difference).max() <= rounding
        explained = decode(options, terms)
        for found in (alone, explained, decode_explained(scored, options, terms)):
            assert found.complete
            assert all(leaf in (-1, true) for leaf, true in zip(found.leaves, reached[:, i], strict=True))
        assert explained.solutions <= alone.solutions
        unique += explained.outcome == "unique"
    assert unique == len(range(0, n, 7))


def test_attributions_cut_what_the_score_leaves_open() -> None:
    """Two leaves of one weight are told apart by an attribution; masks of a leaf that is known already are dropped."""
    scored = [Options(np.array([4, 5]), np.array([[3], [3]])), Options(np.array([2, 3]), np.array([[1], [2]]))]
    explained = [
        Options(np.array([4, 5]), np.array([[3, 10], [3, 20]])),
        Options(np.array([2, 2, 3]), np.array([[1, 0], [1, 0], [2, 10]])),
    ]
    assert decode(scored, np.array([4])).leaves.tolist() == [-1, 2]
    found = decode_explained(scored, explained, np.array([4, 20]))
    assert (found.outcome, found.leaves.tolist()) == ("unique", [5, 2])
    same = [Options(each.leaves, each.terms * [1, 0]) for each in explained]
    found = decode_explained(scored, same, np.array([4, 0]))
    assert (found.outcome, found.solutions, found.leaves.tolist()) == ("several", 2, [-1, 2])
    assert decode_explained(scored, explained, np.array([9, 9])).outcome == "none"


def test_too_many_masks_are_not_listed() -> None:
    """A deep tree of foreign splits under own ones has more masks than a bound: no options rather than no end."""
    splits = tuple(Split(u, "a" if u < 16 else "b", u, 1.0, 2.0 ** (6 - u.bit_length())) for u in range(1, 32))
    tree = Tree(0, (0,), splits, tuple(Leaf(u, (float(u),), 1.0) for u in range(32, 64)))
    model = Ensemble("reg:squarederror", 2, (0.0,), (tree,), 1)
    mine = {"a": candidate_leaves(tree, 1, lambda s: np.array([True]) if s.owner == "a" else None)[0]}
    game = Game(lambda split: split.owner, ("a", "b"), ("b",))
    assert explained_options(model, game, [mine], BITS, 2**15) is None
    found = present(explained_options(model, game, [mine], BITS, 2**16))
    assert set(found[0].leaves.tolist()) == {32, 33}

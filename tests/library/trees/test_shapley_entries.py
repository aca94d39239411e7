"""Shapley values by entries: what the chain makes of them is what they are in the clear."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from tests.library.trees.attributed import attribute
from tests.library.trees.decisions import all_masks, decisions, player_of
from tests.library.trees.tables import Case, cases, encoded
from treetap.arrays import Ints
from treetap.trees.centralised import CentralModel, Tables, train
from treetap.trees.ensemble import Ensemble, Leaf, Split, Tree
from treetap.trees.leaf_entries import ERROR_BITS, SUM_BITS
from treetap.trees.paths import paths
from treetap.trees.shapley import AttributedHop, AttributionEntries, expected_score

Floats = npt.NDArray[np.float64]
CASES = [case for case in cases() if case.name.endswith(("plain", "missing"))]


def _trained(case: Case) -> tuple[CentralModel, Tables]:
    tables = encoded(case.parties, case.params.max_bin)
    return train(tables, case.labels, replace(case.params, max_depth=4), case.classes), tables


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
    held = np.zeros((n, len(entries.constant) + len(entries.varying), len(entries.players) * len(expected(model))))
    held[:, entries.varying] = entries.values(lambda handle: goes_left(_split(model, handle, chain)), n)
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


def expected(model: CentralModel) -> Floats:
    return expected_score(model.ensemble)


def _split(model: CentralModel, handle: int, chain: list[str]) -> Split:
    """The label holder's split of a handle."""
    return next(
        split
        for tree in model.ensemble.trees
        for split in tree.splits
        if split.owner not in chain and split.handle == handle
    )


@pytest.mark.second_tier(but=8)
@pytest.mark.parametrize("averaged", [False, True], ids=["sum", "mean"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_chain_finds_the_shapley_values(case: Case, averaged: bool) -> None:
    """Whatever the number of parties and columns: the sums are `attribute`'s values, and complete, within the error."""
    model, tables = _trained(case)
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
    (spare,) = entries.spare(lambda _: np.array([True]), 1)
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
    (spare,) = entries.spare(lambda _: np.array([True]), 1)
    assert spare == pytest.approx(1 - np.log2(2 * 2 * 2.0**entries.fraction_bits + 1))

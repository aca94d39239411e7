"""Entries: what a chain makes of candidate sets on random trees, and their fixed point."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.library.trees.absent import scores_without
from treetap.arrays import Bools
from treetap.trees.ensemble import Ensemble, Leaf, Split, Tree, route
from treetap.trees.leaf_entries import SUM_BITS, LeafEntries, entries_along
from treetap.trees.paths import candidate_leaves, deciding, expected_guesses, open_ways, paths

HOLDER, *CHAIN = NAMES = ["holder", "b", "c", "d"]
N = 24


def _tree(draw: st.DrawFn, index: int, owners: list[str], outputs: tuple[int, ...]) -> Tree:
    """A random tree, its leaves from left to right; every split has a handle of its own with its owner."""
    splits: list[Split] = []
    leaves: list[Leaf] = []
    stack = [1]
    while stack:
        node = stack.pop()
        if node < 16 and draw(st.integers(0, 3)):
            splits.append(Split(node, draw(st.sampled_from(owners)), 100 * index + node, 1.0, draw(st.integers(1, 9))))
            stack += [2 * node + 1, 2 * node]
        else:
            weights = tuple(draw(st.floats(-50, 50)) for _ in outputs)
            leaves.append(Leaf(node, weights, draw(st.integers(1, 9))))
    return Tree(index, outputs, tuple(splits), tuple(leaves))


@st.composite
def ensembles(draw: st.DrawFn) -> tuple[list[Tree], list[str], int, int]:
    """Trees of two to four parties with one to three outputs, and a seed of the records' directions."""
    owners = NAMES[: draw(st.integers(2, 4))]
    outputs = draw(st.integers(1, 3))
    vector = draw(st.booleans())
    trees = [
        _tree(draw, index, owners, tuple(range(outputs)) if vector else (index % outputs,))
        for index in range(draw(st.integers(1, 3)))
    ]
    return trees, owners, outputs, draw(st.integers(0, 2**32 - 1))


def _ensemble(trees: list[Tree], outputs: int, averaged: bool = False) -> Ensemble:
    return Ensemble("", outputs, (0.0,) * outputs, tuple(trees), 1, averaged=averaged)


def _own(tree: Tree, party: str, goes_left: Callable[[int], Bools]) -> Bools:
    """A party's candidate sets of the N records."""
    return candidate_leaves(tree, N, lambda split: goes_left(split.handle) if split.owner == party else None)


def _directions(trees: list[Tree], seed: int) -> Callable[[int], Bools]:
    """Which of N records go left at a handle."""
    rng = np.random.default_rng(seed)
    left = {split.handle: rng.random(N) < 0.5 for tree in trees for split in tree.splits}
    return lambda handle: left[handle]


@settings(max_examples=60, deadline=None)
@given(ensembles(), st.booleans())
def test_entries_along_the_chain_end_in_the_sum_of_the_leaf_weights(
    drawn: tuple[list[Tree], list[str], int, int], averaged: bool
) -> None:
    """Masked and summed as every member is told, the entries become the score, within 1e-9: of sums and of means."""
    trees, owners, outputs, seed = drawn
    goes_left = _directions(trees, seed)
    ensemble = _ensemble(trees, outputs, averaged)
    entries = LeafEntries(ensemble, HOLDER, owners[1:])
    count = len(entries.constant) + len(entries.varying)
    flowing = np.zeros((N, count, outputs), dtype=np.int64)
    flowing[:, entries.varying] = entries.values(goes_left, N)
    flowing[:, entries.constant] = entries.constants()
    for owner, hop in zip(owners[1:], entries.hops(), strict=True):
        onward = np.zeros((N, 1 + max(int(each.outgoing.max()) for each in hop), outputs), dtype=np.int64)
        done = set()
        for tree, told in zip(trees, hop, strict=True):
            assert (told.tree, told.outputs) == (tree.index, tree.outputs)
            kept = _own(tree, owner, goes_left)
            for place, (entry, to) in enumerate(zip(told.incoming.tolist(), told.outgoing.tolist(), strict=True)):
                if entry in done:
                    continue
                done.add(entry)
                onward[:, to] += np.where(kept[:, place, np.newaxis], flowing[:, entry], 0)
        flowing = onward
    assert flowing.shape[1] == 1
    reached = (route(tree.splits, N, lambda split, rows: goes_left(split.handle)[rows]) for tree in trees)
    values = (tree.values(nodes) for tree, nodes in zip(trees, reached, strict=True))
    scores = ensemble.from_sums(entries.weights(flowing[:, 0]))
    np.testing.assert_allclose(scores, ensemble.summed(values, N), rtol=0, atol=1e-9)


@settings(max_examples=60, deadline=None)
@given(ensembles(), st.booleans(), st.data())
def test_entries_without_the_absent_end_in_the_score_without_them(
    drawn: tuple[list[Tree], list[str], int, int], averaged: bool, data: st.DataObject
) -> None:
    """Any others may be away: the sum is that of the walk that goes both ways at their splits, within 1e-9."""
    trees, owners, outputs, seed = drawn
    away = data.draw(st.lists(st.sampled_from(owners[1:]), min_size=1, unique=True))
    chain = [owner for owner in owners[1:] if owner not in away]
    goes_left = _directions(trees, seed)
    ensemble = _ensemble(trees, outputs, averaged)
    entries = LeafEntries(ensemble, HOLDER, chain, away)
    count = len(entries.constant) + len(entries.varying)
    flowing = np.zeros((N, count, outputs), dtype=np.int64)
    flowing[:, entries.varying] = entries.values(goes_left, N)
    flowing[:, entries.constant] = entries.constants()
    kept = np.ones((N, count), dtype=bool)
    for tree, numbers in zip(trees, entries_along(trees, chain)[0], strict=True):
        for owner in chain:
            own = _own(tree, owner, goes_left)
            for place, number in enumerate(numbers.tolist()):
                if number:
                    kept[:, number] &= own[:, place]
    scores = ensemble.from_sums(entries.weights((flowing * kept[:, :, np.newaxis]).sum(axis=1)))
    expected, shares = scores_without(ensemble, N, lambda split, places: goes_left(split.handle)[places], away)
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-9)
    if not chain:
        decide = lambda split: goes_left(split.handle) if split.owner == HOLDER else None  # noqa: E731
        np.testing.assert_allclose(expected_guesses(trees, N, decide, away), shares, rtol=0, atol=1e-12)


@pytest.mark.second_tier
@settings(max_examples=40, deadline=None)
@given(ensembles(), st.data())
def test_open_ways_are_as_many_as_outcomes(drawn: tuple[list[Tree], list[str], int, int], data: st.DataObject) -> None:
    """By trying all decisions of those who are there: how many sets of leaves a record may come to."""
    trees, owners, _, seed = drawn
    away = set(data.draw(st.lists(st.sampled_from(owners[1:]), unique=True)))
    goes_left = _directions(trees, seed)
    for tree in trees:
        far = [split.node for split in tree.splits if split.owner not in {HOLDER, *away}]
        ways = open_ways(tree, N, lambda s: goes_left(s.handle) if s.owner == HOLDER else None, away)
        for record in range(0, N, 8):
            outcomes = set()
            for sides in product((True, False), repeat=len(far)):
                decided = dict(zip(far, sides, strict=True))
                outcomes.add(
                    frozenset(
                        leaf
                        for leaf, way in paths(tree).items()
                        if all(
                            split.owner in away
                            or left == decided.get(split.node, bool(goes_left(split.handle)[record]))
                            for split, left in way
                        )
                    )
                )
            assert ways[record] == len(outcomes)


def test_what_is_guessed_is_told_by_the_covers() -> None:
    """The root is another's who is there, its left child the absent's: of 1.75 splits expected, 0.75 are guessed."""
    tree = Tree(
        index=0,
        outputs=(0,),
        splits=(Split(1, "b", 0, 1.0, 4.0), Split(2, "c", 0, 1.0, 3.0)),
        leaves=(Leaf(4, (8.0,), 1.0), Leaf(5, (16.0,), 2.0), Leaf(3, (-4.0,), 1.0)),
    )
    entries = LeafEntries(_ensemble([tree], 1), HOLDER, ["b"], ["c"])
    np.testing.assert_allclose(expected_guesses([tree], 2, lambda _: None, ["c"]), [0.75 / 1.75] * 2)
    np.testing.assert_allclose(entries.weights(entries.constants()), [[8 / 3 + 16 * 2 / 3], [-4.0]], atol=1e-9)
    assert expected_guesses([tree], 1, lambda _: None, []) == [0.0]


@settings(max_examples=60, deadline=None)
@given(ensembles())
def test_an_entry_holds_the_leaves_that_nobody_further_down_tells_apart(
    drawn: tuple[list[Tree], list[str], int, int],
) -> None:
    """Leaves share an entry if and only if the remaining members turn alike on the way to both; one at most is open."""
    trees, owners, _, seed = drawn
    goes_left = _directions(trees, seed)
    chain = owners[1:]
    for hop, entries in enumerate(entries_along(trees, chain)):
        keys: dict[int, object] = {}
        for tree, numbers in zip(trees, entries, strict=True):
            further = set(chain[hop:])
            ways = [tuple(turn for turn in way if turn[0].owner in further) for way in paths(tree).values()]
            for number, way in zip(numbers.tolist(), ways, strict=True):
                key = (tree.index, way) if way else "nobody's"
                assert keys.setdefault(number, key) == key
            if hop == 0:
                sets = _own(tree, HOLDER, goes_left)
                for number in set(numbers.tolist()):
                    assert (sets[:, numbers == number].sum(axis=1) <= 1).all()
        assert len(set(keys.values())) == len(keys)


def _stump(weights: tuple[float, float], owner: str, index: int = 0) -> Tree:
    split = Split(1, owner, index, 1.0, 1.0)
    return Tree(index, (0,), (split,), tuple(Leaf(2 + k, (w,), 1.0) for k, w in enumerate(weights)))


def test_the_entries_of_two_known_trees() -> None:
    """A tree of the label holder alone is settled; leaves that only others part never change and come once."""
    entries = LeafEntries(_ensemble([_stump((1.0, 2.0), HOLDER, 0), _stump((3.0, 4.0), "b", 1)], 1), HOLDER, ["b"])
    assert entries.varying.tolist() == [0]
    assert entries.constant.tolist() == [1, 2]
    assert entries.weights(entries.constants()).tolist() == [[3.0], [4.0]]
    left = np.array([True, False, False])
    assert entries.weights(entries.values(lambda _: left, 3)[:, 0]).ravel().tolist() == [1.0, 2.0, 2.0]
    (hop,) = entries.hops()
    assert [each.incoming.tolist() for each in hop] == [[0, 0], [1, 2]]
    assert [each.outgoing.tolist() for each in hop] == [[0, 0], [0, 0]]


@pytest.mark.parametrize("scale", [1e-300, 1e-9, 1.0, 1e6, 1e12, 1e290])
def test_the_fixed_point_fits_every_scale(scale: float) -> None:
    """Whatever the weights' size, a sum stays below its bound and is exact to 1e-9; small and huge ones to a share."""
    trees = [_stump((scale * (k + 1) / 7, -scale * (k + 2) / 3), HOLDER, k) for k in range(50)]
    entries = LeafEntries(_ensemble(trees, 1), HOLDER, ["b"])
    sums = entries.values(lambda _: np.array([True, False]), 2)[:, 0]
    assert np.abs(sums).max() < 1 << SUM_BITS
    expected = [sum(tree.leaves[side].weights[0] for tree in trees) for side in (0, 1)]
    size = max(map(abs, expected))
    np.testing.assert_allclose(entries.weights(sums).ravel(), expected, rtol=1e-14, atol=1e-9 * min(1.0, size))


def test_a_model_without_weight() -> None:
    """Trees that are single leaves of weight zero have one entry and the sum zero."""
    tree = Tree(0, (0, 1), (), (Leaf(1, (0.0, 0.0), 1.0),))
    entries = LeafEntries(_ensemble([tree], 2), HOLDER, ["b"])
    assert entries.values(lambda _: np.zeros(2, dtype=bool), 2).tolist() == [[[0, 0]], [[0, 0]]]
    assert entries.weights(np.zeros((2, 2), dtype=np.int64)).tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_no_more_binary_places_than_the_accuracy_needs() -> None:
    """A sum of weights below 1 has 31 places and more for more trees, a mean of them 31, whatever their number."""
    for trees, places in ((1, 31), (2, 31), (100, 37)):
        model = [_stump((0.9, 0.5), HOLDER, k) for k in range(trees)]
        assert LeafEntries(_ensemble(model, 1, averaged=False), HOLDER, ["b"]).fraction_bits == places
        assert LeafEntries(_ensemble(model, 1, averaged=True), HOLDER, ["b"]).fraction_bits == 31


def test_spare_bits_of_records_that_meet_few_leaves() -> None:
    """Each of 80 trees of another party leaves one bit; the label holder's own leave none; the sum's bits go off."""
    trees = [_stump((0.0, 0.5), "b" if k < 80 else HOLDER, k) for k in range(100)]
    entries = LeafEntries(_ensemble(trees, 1), HOLDER, ["b"])
    spare = entries.spare(deciding(HOLDER, lambda _: np.array([True, False])), 2)
    np.testing.assert_allclose(spare, 80 - np.log2(50 * 2.0**entries.fraction_bits + 1))

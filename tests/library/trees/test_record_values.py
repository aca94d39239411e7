"""Values of leaves that local subtrees decide record by record: random trees, in every form of a prediction."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from tests.library.trees.absent import scores_without
from treetap.lattice.columns import NodeColumns, label_columns
from treetap.trees.ensemble import Ensemble, Leaf, Split, Subtree, Tree, cover_shares
from treetap.trees.leaf_entries import LeafEntries
from treetap.trees.paths import ValueTable, candidate_leaves, deciding, reachable

#: Owners of splits: the holder of the values, who may have none, and others.
OWNERS = (("holder", "b", "c"), ("b",), ("holder", "b", "c", "d"))
N = 40
T = 4_079_617
Bools = npt.NDArray[np.bool_]


class Case:
    """A random model whose local subtrees lie at nodes of all depths, and the directions of N records."""

    def __init__(self, seed: int, vector: bool) -> None:
        self._rng = np.random.default_rng(seed)
        self._handles = 0
        self._owners = OWNERS[seed % 3]
        self.chain = tuple(name for name in self._owners if name != "holder")
        outputs = [(0, 1) if vector else (k % 2,) for k in range(4)]
        shaped = [self._tree(k, each) for k, each in enumerate(outputs)]
        trees = tuple(replace(tree, local=self._local(tree)) for tree in shaped)
        self.public = Ensemble("", 2, (0.5, -0.5), tuple(shaped), 1)
        self.model = replace(self.public, trees=trees)
        self.left = self._rng.random((self._handles, N)) < 0.5

    def goes_left(self, handle: int) -> Bools:
        """Which records go left at a handle."""
        found: Bools = self.left[handle]
        return found

    def score(self, record: int, away: tuple[str, ...] = ()) -> list[float]:
        """The score of one record, by plain recursion; both ways at the splits of the absent."""
        scores = [0.5, -0.5]
        for tree in self.model.trees:
            for output, value in zip(tree.outputs, self._value(tree, record, away), strict=True):
                scores[output] += value
        return scores

    def _value(self, tree: Tree, record: int, away: tuple[str, ...]) -> list[float]:
        shares = cover_shares(tree)

        def walk(
            splits: tuple[Split, ...], leaves: tuple[Leaf, ...], node: int, inside: bool
        ) -> npt.NDArray[np.float64]:
            split = next((each for each in splits if each.node == node), None)
            if split is None:
                above = [node >> up for up in range(node.bit_length())]
                for each in () if inside else tree.local:
                    if each.root in above:
                        return walk(each.splits, each.leaves, each.root, True)
                return np.array(next(leaf.weights for leaf in leaves if leaf.node == node))
            both = [walk(splits, leaves, 2 * node + side, inside) for side in (0, 1)]
            if split.owner in away:
                return shares[node][0] * both[0] + shares[node][1] * both[1]
            return both[0] if self.left[split.handle, record] else both[1]

        found: list[float] = walk(tree.splits, tree.leaves, 1, False).tolist()
        return found

    def _split(self, node: int, owner: str) -> Split:
        self._handles += 1
        return Split(node, owner, self._handles - 1, 1.0, float(self._rng.integers(1, 9)))

    def _tree(self, index: int, outputs: tuple[int, ...]) -> Tree:
        splits, leaves = self._grow(1, 16, self._owners, len(outputs))
        return Tree(index, outputs, splits, leaves)

    def _grow(
        self, root: int, limit: int, owners: tuple[str, ...], outputs: int
    ) -> tuple[tuple[Split, ...], tuple[Leaf, ...]]:
        splits, leaves, waiting = [], [], [root]
        while waiting:
            node = waiting.pop()
            if node < limit and self._rng.random() < 0.8:
                splits.append(self._split(node, str(self._rng.choice(owners))))
                waiting += [2 * node + 1, 2 * node]
            else:
                leaves.append(Leaf(node, tuple(self._rng.normal(size=outputs)), float(self._rng.integers(1, 9))))
        return tuple(splits), tuple(leaves)

    def _local(self, tree: Tree) -> tuple[Subtree, ...]:
        nodes = sorted([split.node for split in tree.splits] + [leaf.node for leaf in tree.leaves], reverse=True)
        roots: list[int] = []
        for node in self._rng.permutation(nodes).tolist():
            related = any(
                a >> up == b for a, b in [*((node, r) for r in roots), *((r, node) for r in roots)] for up in range(6)
            )
            if len(roots) < 2 and not related:
                roots.append(node)
        return tuple(Subtree(root, *self._grow(root, 4 * root, ("holder",), len(tree.outputs))) for root in roots)


CASES = [(seed, vector) for seed in range(8) for vector in (False, True)]


@pytest.mark.second_tier(but=8)
@pytest.mark.parametrize(("seed", "vector"), CASES)
def test_the_walk_gives_the_values_of_local_subtrees(seed: int, vector: bool) -> None:
    """As recursion record by record does; also where an owner is away and a record is at several leaves."""
    case = Case(seed, vector)
    for away in ((), ("b",), ("b", "c")):
        found, _ = scores_without(case.model, N, lambda split, places: case.left[split.handle][places], away)
        np.testing.assert_allclose(found, [case.score(record, away) for record in range(N)], atol=1e-12)


@pytest.mark.parametrize(("seed", "vector"), CASES)
def test_entries_are_laid_out_by_the_public_trees_and_add_up_to_the_score(seed: int, vector: bool) -> None:
    """With and without local subtrees the same entries, plans and spare bits, no constant; the sums are the scores."""
    case = Case(seed, vector)
    plain = LeafEntries(case.public, "holder", case.chain, hides_constants=True)
    entries = LeafEntries(case.model, "holder", case.chain, public=case.public, hides_constants=True)
    assert len(entries.constant) == 0
    assert entries.varying.tolist() == plain.varying.tolist()
    for here, there in zip(entries.hops(), plain.hops(), strict=True):
        assert [(each.tree, each.outputs) for each in here] == [(each.tree, each.outputs) for each in there]
        assert [each.incoming.tolist() for each in here] == [each.incoming.tolist() for each in there]
        assert [each.outgoing.tolist() for each in here] == [each.outgoing.tolist() for each in there]
    decide = deciding("holder", case.goes_left)
    assert entries.spare(decide, N).tolist() == plain.spare(decide, N).tolist()
    values = entries.values(case.goes_left, N)
    kept = np.ones(values.shape[:2], dtype=bool)
    for tree, hop in zip(case.model.trees, entries.hops()[0], strict=True):
        open_to_others = candidate_leaves(
            tree, N, lambda split: None if split.owner == "holder" else case.goes_left(split.handle)
        )
        for place, entry in enumerate(hop.incoming.tolist()):
            if entry:
                kept[:, entry] = open_to_others[:, hop.incoming == entry].any(axis=1)
                assert (open_to_others[:, place] == kept[:, entry]).all()
    sums = np.where(kept[:, :, np.newaxis], values, 0).sum(axis=1)
    exact = [case.score(record) for record in range(N)]
    np.testing.assert_allclose(case.model.from_sums(entries.weights(sums)), exact, atol=1e-9)


@pytest.mark.parametrize(("seed", "vector"), CASES)
def test_columns_are_laid_out_by_the_public_trees_and_add_up_to_the_score(
    seed: int, vector: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With and without local subtrees the same branches of the members and spare bits; masked sums are the scores."""
    monkeypatch.setattr("treetap.lattice.columns.random.SystemRandom", lambda: random.Random(3))
    case = Case(seed, vector)
    columns, plain = NodeColumns(case.model, "holder", T, case.public), NodeColumns(case.public, "holder", T)
    for member in case.chain:
        assert columns.ways(member) == plain.ways(member)
    decide = deciding("holder", case.goes_left)
    assert columns.spare(decide, N).tolist() == plain.spare(decide, N).tolist()
    base = np.zeros((2, N), dtype=np.int64)
    ways = {member: [way for tree in columns.ways(member) for way in tree] for member in case.chain}
    sums = np.zeros((2, N), dtype=np.int64)
    outputs = [tree.outputs for tree, each in zip(columns.trees, columns.ways("b"), strict=True) for _ in each]
    for number, column in enumerate(columns._columns(case.goes_left, N, base)):
        kept = np.ones(N, dtype=bool)
        for member in case.chain:
            kept &= reachable([ways[member][number]], N, case.goes_left)[:, 0]
        sums[list(outputs[number])] += column * kept
    found = case.model.from_sums(columns.weights(sums, base))
    np.testing.assert_allclose(found, [case.score(record) for record in range(N)], atol=1e-4)


def test_the_values_of_a_leaf_that_a_subtree_replaces_do_not_count() -> None:
    """Neither for the scale nor for the output's bits: a withdrawn leaf's own weight goes to no record."""
    tree = Tree(0, (0,), (), (Leaf(1, (1e9,), 1.0),), (Subtree(1, (), (Leaf(1, (0.25,), 1.0),)),))
    assert ValueTable(tree).weights.tolist() == [[0.25]]
    model = Ensemble("", 1, (0.0,), (tree,), 1)
    small = replace(model, trees=(replace(tree, leaves=tree.local[0].leaves, local=()),))
    assert LeafEntries(model, "holder", ["b"]).fraction_bits == LeafEntries(small, "holder", ["b"]).fraction_bits
    with pytest.raises(ValueError, match="local subtrees need all parties"):
        LeafEntries(model, "holder", [], ["b"])


def test_nothing_is_left_where_the_label_holders_nodes_lead_elsewhere() -> None:
    """A remote node behind the label holder's root has an entry only for the records that the root sends there."""
    start, columns = label_columns({4: 7, 5: 2, 3: 9}, [2], {1: np.array([True, False])}, 2)
    assert (start.tolist(), columns[2].tolist()) == ([2, 9], [5, 0])

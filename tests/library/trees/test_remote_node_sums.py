"""The sum over remote nodes."""

from __future__ import annotations

import numpy as np
import pytest

from treetap.lattice.columns import label_columns
from treetap.trees.ensemble import Leaf, Split, Tree, route
from treetap.trees.paths import reachable

RNG = np.random.default_rng(8)
N = 200


def random_tree(owners, depth):
    """A tree that is not full, nodes owned at random: (splits by node, leaf weights by node)."""
    splits, leaves, open_nodes = {}, {}, [1]
    while open_nodes:
        node = open_nodes.pop()
        if node < 2**depth and (node == 1 or RNG.random() < 0.85):
            splits[node] = str(RNG.choice(owners))
            open_nodes += [2 * node, 2 * node + 1]
        else:
            leaves[node] = int(RNG.integers(-1000, 1000))
    return splits, leaves


def own_branches(splits, node, name):
    """A party's branches on the way to a node, by the nodes that it owns."""
    ups = range(node.bit_length() - 1, 0, -1)
    return [(node >> up, (node >> (up - 1)) % 2 == 0) for up in ups if splits[node >> up] == name]


@pytest.mark.parametrize("owners", [["label", "b"], ["label", "b", "c", "d"], ["b"], ["label"]])
def test_the_sum_over_remote_nodes_is_the_leaf(owners):
    """For random trees over one to four parties the masked columns add up to the weight of the leaf reached."""
    for _ in range(30):
        splits, leaves = random_tree(owners, 4)
        left = {node: RNG.random(N) < 0.5 for node in splits}
        remote = sorted(node for node, owner in splits.items() if owner != "label")
        start, columns = label_columns(
            leaves, remote, {node: left[node] for node, owner in splits.items() if owner == "label"}, N
        )
        total = start.copy()
        assert sorted(columns) == remote
        masks = [
            reachable([own_branches(splits, 2 * node, name) for node in remote], N, left.__getitem__)
            for name in owners
            if name != "label"
        ]
        for place, node in enumerate(remote):
            kept = np.logical_and.reduce([part[:, place] for part in masks])
            total += kept * columns[node]
        tree = Tree(
            0,
            (0,),
            tuple(Split(node, owner, 0, 0.0, 0.0) for node, owner in splits.items()),
            tuple(Leaf(node, (float(weight),), 0.0) for node, weight in leaves.items()),
        )
        reached = route(tree.splits, N, lambda split, rows, left=left: left[split.node][rows])
        assert total.tolist() == [leaves[int(node)] for node in reached]


def test_nothing_is_left_where_the_label_holders_nodes_lead_elsewhere():
    """A remote node behind the label holder's root has an entry only for the records that the root sends there."""
    goes_left = np.array([True, False])
    start, columns = label_columns({4: 7, 5: 2, 3: 9}, [2], {1: goes_left}, 2)
    assert start.tolist() == [2, 9]
    assert columns[2].tolist() == [5, 0]

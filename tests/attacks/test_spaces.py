"""What follows from known sets of one tree, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treetap.attacks.view.known_trees import Ints, OwnSplit, TreeView, known_nodes
from treetap.errors import Malformed


def _rows(*records: int) -> Ints:
    return np.array(records, dtype=np.int64)


def _split(node: int) -> OwnSplit:
    return OwnSplit(node, 7, 0, "age", 3, 41.5, False)


def _plain(nodes: object) -> dict[int, tuple[list[int], str]]:
    assert isinstance(nodes, dict)
    return {u: (node.records.tolist(), node.source) for u, node in nodes.items()}


def test_differences_are_taken_until_nothing_new_follows() -> None:
    """A grandchild follows from a difference; so does what only becomes known by it."""
    nodes = known_nodes(np.arange(8), {3: _rows(0, 1), 4: _rows(2, 3, 4), 10: _rows(5)}, [])
    assert _plain(nodes) == {
        1: ([0, 1, 2, 3, 4, 5, 6, 7], "root"),
        2: ([2, 3, 4, 5, 6, 7], "difference"),
        3: ([0, 1], "received"),
        4: ([2, 3, 4], "received"),
        5: ([5, 6, 7], "difference"),
        10: ([5], "received"),
        11: ([6, 7], "difference"),
    }


def test_an_own_split_tells_its_leaf_children_and_a_node_that_was_not_sent() -> None:
    """Both children of an own split together are its node, and then the node's sibling follows too."""
    nodes = known_nodes(np.arange(6), {}, [(_split(2), _rows(0, 1), _rows(4))])
    assert _plain(nodes) == {
        1: ([0, 1, 2, 3, 4, 5], "root"),
        2: ([0, 1, 4], "difference"),
        3: ([2, 3, 5], "difference"),
        4: ([0, 1], "own"),
        5: ([4], "own"),
    }
    assert nodes[2].split == _split(2)
    assert [nodes[u].depth for u in nodes] == [0, 1, 1, 2, 2]


def test_leaves_cells_and_hidden_nodes_where_a_generation_is_hidden() -> None:
    """A node sent without its parent: its ancestors must exist; records beside it stay with the last known node."""
    nodes = known_nodes(np.arange(6), {9: _rows(1, 2)}, [])
    tree = TreeView(0, 1, True, 6, nodes, None)
    assert [leaf.node for leaf in tree.leaves()] == [1, 9]
    assert tree.cells().tolist() == [1, 9, 9, 1, 1, 1]
    assert tree.hidden() == [2, 3, 4, 5, 8]


@pytest.mark.parametrize(
    ("received", "fault"),
    [
        ({2: _rows(0, 9)}, "node 2 holds records that node 1 does not"),
        ({2: _rows(0), 3: _rows(0, 1, 2, 3)}, "nodes 2 and 3 share records"),
        ({2: _rows(0), 3: _rows(1, 2)}, "nodes 2 and 3 do not hold the records of node 1"),
        ({0: _rows(0)}, "there is no node 0"),
        ({1: _rows(0)}, "node 1 is said to hold different records"),
        ({4: _rows(0)}, "node 4 is said to hold different records"),
        ({3: _rows(0, 3), 4: _rows(1), 5: _rows(2)}, "node 4 is said to hold different records"),
    ],
)
def test_sets_that_contradict_each_other_are_of_no_tree(received: dict[int, Ints], fault: str) -> None:
    """Each contradiction is named by its nodes."""
    with pytest.raises(Malformed, match=fault):
        known_nodes(np.arange(4), received, [(_split(2), _rows(1, 2), _rows())] if 4 in received else [])


def test_a_node_is_split_once() -> None:
    """Two own splits of one node are told, even if they make the same children."""
    other = OwnSplit(1, 8, 1, "income", 0, 3.0, True)
    with pytest.raises(Malformed, match="node 1 was split twice"):
        known_nodes(np.arange(3), {}, [(_split(1), _rows(0), _rows(1, 2)), (other, _rows(0), _rows(1, 2))])


@given(st.data())
def test_whatever_is_left_out_what_follows_is_true_and_complete(data: st.DataObject) -> None:
    """Of a random tree some sets are sent: all that follows is right, and no family is left with just two known."""
    total = data.draw(st.integers(2, 12))
    truth = {1: np.arange(total, dtype=np.int64)}
    for node in range(1, 16):
        if node in truth and data.draw(st.booleans() if node > 1 else st.just(True)):
            goes = np.array(data.draw(st.lists(st.booleans(), min_size=total, max_size=total)))
            truth[2 * node], truth[2 * node + 1] = truth[node][goes[truth[node]]], truth[node][~goes[truth[node]]]
    sent = {u: truth[u] for u in truth if u > 1 and data.draw(st.booleans())}
    found = known_nodes(truth[1], sent, [])
    for u, node in found.items():
        assert node.records.tolist() == truth[u].tolist()
        assert (node.source == "received") == (u in sent)
    for u in truth:
        assert len({u, 2 * u, 2 * u + 1} & found.keys()) != 2
    cells = TreeView(0, 1, True, total, found, None).cells()
    for record in range(total):
        assert cells[record] == max(u for u, node in found.items() if record in node.records)


def test_drawn_only_keeps_what_the_tree_was_trained_on() -> None:
    """Records that a tree did not draw leave its leaves; multiplicity does not count; without a word all stay."""
    rows = np.array([0, 2, 3], dtype=np.int64)
    drawn = np.array([1, 1, 0, 2], dtype=np.int64)
    assert TreeView(0, 1, True, 4, {}, drawn).drawn_of(rows).tolist() == [0, 3]
    assert TreeView(0, 1, True, 4, {}, None).drawn_of(rows).tolist() == [0, 2, 3]

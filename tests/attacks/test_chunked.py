from __future__ import annotations

import numpy as np
import pytest

from tests.attacks.worlds import dense, ids, modularity, random_trees
from treetap.attacks.id2graph.adjacency import chunked, exact, signatures


def written(leaves: list[list[np.ndarray]], records: int, discount: float, B: int, w: float, edges: str) -> np.ndarray:
    """Algorithm 3, loop by loop, counting from 0."""
    A = np.zeros((records, records))
    for t, tree in enumerate(leaves):
        for leaf in tree:
            i = np.sort(leaf)
            s = end = 0
            while s < len(i):
                if s != 0:
                    one, other = (i[s], i[end]) if edges == "paper" else (i[s - 1], i[s])
                    A[one, other] += w
                    A[other, one] += w
                end = min(s + B, len(i))
                for j in range(s, end):
                    for k in range(j + 1, end):
                        A[i[j], i[k]] += discount**t
                        A[i[k], i[j]] += discount**t
                s = end
    return A


def test_hand_made_graph_with_the_edge_as_printed() -> None:
    """Five records, B = 2: cliques {0,1}, {2,3}, {4}; self-loops of weight w' on records 2 and 4."""
    expected = np.zeros((5, 5))
    expected[0, 1] = expected[1, 0] = expected[2, 3] = expected[3, 2] = 1
    expected[2, 2] = expected[4, 4] = 2 * 7
    found = chunked([[ids(4, 0, 2, 1, 3)]], 5, 1.0, 2, 7.0, "paper").adjacency().toarray()
    assert found.tolist() == expected.tolist()


def test_hand_made_graph_with_linked_chunks() -> None:
    """The same cliques; edges of weight w' between 1 and 2 and between 3 and 4."""
    expected = np.zeros((5, 5))
    expected[0, 1] = expected[1, 0] = expected[2, 3] = expected[3, 2] = 1
    expected[1, 2] = expected[2, 1] = expected[3, 4] = expected[4, 3] = 7
    found = chunked([[ids(0, 1, 2, 3, 4)]], 5, 1.0, 2, 7.0, "linked").adjacency().toarray()
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("edges", ["paper", "linked"])
@pytest.mark.parametrize("B", [3, 10, 30])
def test_the_graph_is_algorithm_3(edges: str, B: int) -> None:
    """On random leaves, several trees, a discount and records in no leaf; links of trees add up."""
    leaves = random_trees(5, 60, 3, 3, unknown=0.1)
    found = chunked(leaves, 60, 0.6, B, 100.0, edges).adjacency().toarray()
    np.testing.assert_allclose(found, written(leaves, 60, 0.6, B, 100.0, edges), atol=1e-12)


@pytest.mark.parametrize("edges", ["paper", "linked"])
def test_leaves_of_at_most_a_chunk_make_the_exact_graph(edges: str) -> None:
    """A leaf of B records or fewer is one clique and has no edge between chunks."""
    leaves = random_trees(6, 50, 2, 2)
    B = max(len(leaf) for tree in leaves for leaf in tree)
    same = chunked(leaves, 50, 0.6, B, 100.0, edges).adjacency() - exact(leaves, 50, 0.6).adjacency()
    assert abs(same).max() == 0
    np.testing.assert_allclose(exact(leaves, 50, 0.6).adjacency().toarray(), dense(leaves, 50, 0.6))


@pytest.mark.parametrize("edges", ["paper", "linked"])
def test_merging_keeps_the_modularity_of_the_chunked_graph(edges: str) -> None:
    """Records in the same chunks merge, the ends of edges between chunks stay alone; modularity agrees to 1e-12."""
    leaves = random_trees(7, 150, 2, 2)
    graph = chunked(leaves, 150, 0.6, 20, 100.0, edges)
    numbers = signatures(graph)
    small = graph.merged(numbers)
    assert small.vertices < 150
    ends = np.flatnonzero(np.diff(graph.extra.indptr))
    assert len(ends)
    assert np.bincount(numbers)[numbers[ends]].max() == 1
    draw = np.random.default_rng(0)
    for groups in (2, 9):
        part = np.unique(draw.integers(0, groups, small.vertices), return_inverse=True)[1].astype(np.int64)
        truth = modularity(graph.adjacency().toarray(), part[numbers])
        assert abs(small.modularity(part) - truth) < 1e-12
        assert abs(graph.modularity(part[numbers]) - truth) < 1e-12

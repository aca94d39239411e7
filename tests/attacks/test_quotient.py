from __future__ import annotations

import numpy as np
import pytest

from tests.attacks.worlds import dense, ids, modularity, random_trees
from treetap.attacks.id2graph.adjacency import exact, signatures
from treetap.attacks.id2graph.clustering import checked
from treetap.errors import BadInput


def test_the_exact_graph_is_equation_1_on_a_hand_made_case() -> None:
    """Two records get discount^(t−1) for each leaf of tree t that holds both."""
    leaves = [[ids(0, 1, 2), ids(3)], [ids(2, 1), ids(0, 3)]]
    expected = [[0, 1, 1, 0.5], [1, 0, 1.5, 0], [1, 1.5, 0, 0], [0.5, 0, 0, 0]]
    expected[0][3] = expected[3][0] = 0.5
    assert exact(leaves, 4, 0.5).adjacency().toarray().tolist() == expected


@pytest.mark.parametrize("discount", [1.0, 0.6])
def test_the_exact_graph_is_equation_1_on_random_leaves(discount: float) -> None:
    """Also where records lie in no leaf of a tree and where leaves of one tree overlap."""
    leaves = random_trees(1, 40, 4, 5, unknown=0.3)
    leaves[2].append(ids(0, 1, 2, 3, 30))
    graph = exact(leaves, 40, discount)
    matrix = dense(leaves, 40, discount)
    np.testing.assert_allclose(graph.adjacency().toarray(), matrix, atol=1e-12)
    np.testing.assert_allclose(graph.degrees, matrix.sum(axis=1), atol=1e-12)
    assert graph.pairs >= graph.adjacency().nnz


def test_super_vertices_have_the_stated_weights() -> None:
    """Three and two records of one signature: self-loops s(s−1)/2·Σd^(t−1), edges the product of sizes."""
    leaves = [[ids(0, 1, 2, 3, 4)], [ids(0, 1, 2), ids(3, 4)]]
    graph = exact(leaves, 5, 0.5)
    numbers = signatures(graph)
    assert numbers.tolist() == [numbers[0]] * 3 + [numbers[3]] * 2
    matrix = graph.merged(numbers).adjacency().toarray()
    three, two = numbers[0], numbers[3]
    assert matrix[three, three] / 2 == 3 * (1 + 0.5)
    assert matrix[two, two] / 2 == 1 * (1 + 0.5)
    assert matrix[three, two] == matrix[two, three] == 3 * 2 * 1.0


@pytest.mark.parametrize("seed", range(4))
def test_the_quotient_has_the_full_graphs_modularity(seed: int) -> None:
    """To 1e-12, for random partitions of the super-vertices, by the formula without a matrix too."""
    leaves = random_trees(seed, 120, 3, 4, unknown=0.1 * seed)
    graph = exact(leaves, 120, 0.6)
    numbers = signatures(graph)
    small = graph.merged(numbers)
    assert small.vertices < 120
    matrix, small_matrix = dense(leaves, 120, 0.6), small.adjacency().toarray()
    draw = np.random.default_rng(seed)
    for groups in (1, 2, 7, small.vertices):
        part = np.unique(draw.integers(0, groups, small.vertices), return_inverse=True)[1].astype(np.int64)
        truth = modularity(matrix, part[numbers])
        for found in (small.modularity(part), graph.modularity(part[numbers]), modularity(small_matrix, part)):
            assert abs(found - truth) < 1e-12


def test_signatures_are_equal_exactly_for_equal_leaves() -> None:
    """No two different sets of leaves share a number, and none but the empty one has two."""
    leaves = random_trees(3, 200, 3, 3, unknown=0.2)
    sets = [
        tuple((t, k) for t, tree in enumerate(leaves) for k, leaf in enumerate(tree) if i in leaf) for i in range(200)
    ]
    numbers = signatures(exact(leaves, 200, 1.0)).tolist()
    known = {pair for pair in zip(sets, numbers, strict=True) if pair[0]}
    assert len(known) == len({each for each, _ in known}) == len({number for _, number in known})
    unseen = [number for each, number in zip(sets, numbers, strict=True) if not each]
    assert len(unseen) == len(set(unseen)) > 0


def test_fewer_first_leaves_make_a_coarser_partition() -> None:
    """Every number by one leaf is a union of numbers by two."""
    graph = exact(random_trees(4, 100, 3, 4), 100, 1.0)
    coarse, fine = signatures(graph, 1), signatures(graph, 2)
    assert len(np.unique(coarse)) == 4
    assert len(np.unique(fine)) == len(set(zip(coarse.tolist(), fine.tolist(), strict=True))) > 4


@pytest.mark.parametrize(
    ("leaf", "complaint"),
    [
        (ids(0, 5), "leaf 0 of tree 0: position 5 is outside 0..4"),
        (ids(-1, 2), "position -1 is outside 0..4"),
        (ids(1, 2, 1), "names record 1 more than once"),
        (np.array([0.0, 1.0]), "must be a one-dimensional array of whole numbers"),
        (np.array([[0, 1]]), "must be a one-dimensional array of whole numbers"),
    ],
)
def test_a_wrong_leaf_is_refused_by_name(leaf: np.ndarray, complaint: str) -> None:
    """Positions out of range, twice, or no whole numbers."""
    with pytest.raises(BadInput, match=complaint):
        exact([[leaf]], 5, 1.0)


@pytest.mark.parametrize("records", [0, -3, 2.0, True])
def test_no_records_are_refused(records: object) -> None:
    """The number of records is a whole number of at least 1."""
    with pytest.raises(BadInput, match="records: must be a whole number of at least 1"):
        checked([], records)  # type: ignore[arg-type]


def test_a_graph_without_leaves_has_modularity_zero() -> None:
    """No edge, nothing to divide by."""
    graph = exact([[], [ids()]], 6, 1.0)
    assert graph.adjacency().nnz == 0
    assert graph.modularity(np.zeros(6, dtype=np.int64)) == 0.0

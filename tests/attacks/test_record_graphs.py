"""Graphs of records of ID2Graph: chunks, quotients, communities and clusters."""

from __future__ import annotations

import community
import networkx
import numpy as np
import pytest
from sklearn.cluster import KMeans

from tests.attacks.worlds import dense, ids, modularity, planted, random_trees
from treetap.attacks.id2graph.adjacency import RecordGraph, chunked, exact, signatures, union
from treetap.attacks.id2graph.attack import louvain, settle
from treetap.attacks.id2graph.clustering import Points, checked, k_means, normalised
from treetap.errors import BadInput


def matrix_of(graph: RecordGraph) -> np.ndarray:
    """A, as the head of the module has it."""
    held, extra = np.zeros((graph.vertices, len(graph.weights))), np.zeros((graph.vertices, graph.vertices))
    held[graph.at, graph.leaf] = graph.count
    extra[tuple(graph.ends)] = graph.extra
    return (held * graph.weights) @ held.T - np.diag(held @ graph.weights) + extra


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


@pytest.mark.parametrize(
    ("leaf", "edges", "further"),
    [
        # as printed: self-loops of weight w' on records 2 and 4
        (ids(4, 0, 2, 1, 3), "paper", {(2, 2): 2 * 7, (4, 4): 2 * 7}),
        # edges of weight w' between 1 and 2 and between 3 and 4
        (ids(0, 1, 2, 3, 4), "linked", {(1, 2): 7, (2, 1): 7, (3, 4): 7, (4, 3): 7}),
    ],
)
def test_a_hand_made_graph(leaf: np.ndarray, edges: str, further: dict[tuple[int, int], int]) -> None:
    """Five records, B = 2: cliques {0,1}, {2,3}, {4}, and what joins them."""
    expected = np.zeros((5, 5))
    for place, weight in (dict.fromkeys([(0, 1), (1, 0), (2, 3), (3, 2)], 1) | further).items():
        expected[place] = weight
    assert matrix_of(chunked([[leaf]], 5, 1.0, 2, 7.0, edges)).tolist() == expected.tolist()


@pytest.mark.parametrize("edges", ["paper", "linked"])
@pytest.mark.parametrize("B", [3, 10, 30])
def test_the_graph_is_algorithm_3(edges: str, B: int) -> None:
    """On random leaves, several trees, a discount and records in no leaf; links of trees add up."""
    leaves = random_trees(5, 60, 3, 3, unknown=0.1)
    found = matrix_of(chunked(leaves, 60, 0.6, B, 100.0, edges))
    np.testing.assert_allclose(found, written(leaves, 60, 0.6, B, 100.0, edges), atol=1e-12)


@pytest.mark.parametrize("edges", ["paper", "linked"])
def test_merging_keeps_the_modularity_of_the_chunked_graph(edges: str) -> None:
    """Records in the same chunks merge, the ends of edges between chunks stay alone; modularity agrees to 1e-12."""
    leaves = random_trees(7, 150, 2, 2)
    graph = chunked(leaves, 150, 0.6, 20, 100.0, edges)
    numbers = signatures(graph)
    small = graph.merged(numbers)
    assert small.vertices < 150
    ends = np.unique(graph.ends)
    assert len(ends)
    assert np.bincount(numbers)[numbers[ends]].max() == 1
    draw = np.random.default_rng(0)
    for groups in (2, 9):
        part = np.unique(draw.integers(0, groups, small.vertices), return_inverse=True)[1].astype(np.int64)
        truth = modularity(matrix_of(graph), part[numbers])
        assert abs(small.modularity(part) - truth) < 1e-12
        assert abs(graph.modularity(part[numbers]) - truth) < 1e-12


@pytest.mark.parametrize("discount", [1.0, 0.6])
def test_the_exact_graph_is_equation_1_on_random_leaves(discount: float) -> None:
    """Also where records lie in no leaf of a tree and where leaves of one tree overlap."""
    leaves = random_trees(1, 40, 4, 5, unknown=0.3)
    leaves[2].append(ids(0, 1, 2, 3, 30))
    graph = exact(leaves, 40, discount)
    matrix = dense(leaves, 40, discount)
    np.testing.assert_allclose(matrix_of(graph), matrix, atol=1e-12)
    np.testing.assert_allclose(graph.degrees, matrix.sum(axis=1), atol=1e-12)
    assert graph.pairs >= np.count_nonzero(matrix_of(graph))


@pytest.mark.parametrize("seed", range(4))
def test_the_quotient_has_the_full_graphs_modularity(seed: int) -> None:
    """To 1e-12, for random partitions of the super-vertices, by the formula without a matrix too."""
    leaves = random_trees(seed, 120, 3, 4, unknown=0.1 * seed)
    graph = exact(leaves, 120, 0.6)
    numbers = signatures(graph)
    small = graph.merged(numbers)
    assert small.vertices < 120
    matrix, small_matrix = dense(leaves, 120, 0.6), matrix_of(small)
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
    assert np.count_nonzero(matrix_of(graph)) == 0
    assert graph.modularity(np.zeros(6, dtype=np.int64)) == 0.0


def test_columns_are_scaled_to_0_1_and_gaps_get_the_mean() -> None:
    """A constant column and one without a value count 0."""
    nan = np.nan
    table = [[1.0, 5, nan, -2], [3.0, 5, nan, nan], [nan, nan, nan, 2], [2.0, 5, nan, 1]]
    expected = [[0, 0, 0, 0], [1, 0, 0, 7 / 12], [0.5, 0, 0, 1], [0.5, 0, 0, 0.75]]
    np.testing.assert_allclose(normalised(table, 4), expected)


def test_a_range_beyond_float_does_not_overflow() -> None:
    """The largest floats of both signs."""
    assert normalised([[-1.7e308], [1.7e308], [0.0]], 3).tolist() == [[0.0], [1.0], [0.5]]


@pytest.mark.parametrize(
    ("features", "complaint"),
    [
        ([[1.0], [2.0]], "a matrix with 3 rows is needed"),
        ([1.0, 2.0, 3.0], "one per record, not shape"),
        ([["a"], ["b"], ["c"]], "encode categories first"),
        ([[1.0], [np.inf], [2.0]], "column 0 holds an infinite value"),
    ],
)
def test_wrong_features_are_refused(features: list[object], complaint: str) -> None:
    """By shape, type and value."""
    with pytest.raises(BadInput, match=complaint):
        normalised(features, 3)


def test_points_are_features_beside_weighted_one_hot() -> None:
    """[X̄, α·Ω], each column of X̄ less its mean."""
    found = Points.of(np.array([[0.1], [0.2], [0.3]]), np.array([1, 0, 1]), 3.0)
    assert found.at(np.arange(3)) == pytest.approx(np.array([[-0.1, 0, 3], [0, 3, 0], [0.1, 0, 3]]))
    assert found.variance() == pytest.approx(np.var([[0.1, 0, 3], [0.2, 3, 0], [0.3, 0, 3]], axis=0).mean())


@pytest.mark.parametrize("seed", range(8))
def test_it_is_scikit_learns_k_means(seed: int) -> None:
    """The same clusters as KMeans with the stated parameters, on the matrix built by hand, with and without groups."""
    draw = np.random.default_rng(seed)
    features, groups = draw.normal(size=(400, 4)), np.arange(400) % 7 if seed % 2 else None
    matrix = features if groups is None else np.hstack([features, 3.0 * np.eye(7)[groups]])
    model = KMeans(2 + seed, n_init=10, random_state=seed, algorithm="lloyd")
    assert k_means(features, groups, 2 + seed, 3.0, seed=seed).tolist() == model.fit_predict(matrix).tolist()


def test_fewer_different_points_than_clusters() -> None:
    """Two points, three clusters wanted: two come back, without a warning."""
    assert len(set(k_means(np.array([[0.0], [0.0], [1.0], [1.0]]), None, 3).tolist())) == 2


def test_nothing_to_cluster_is_refused() -> None:
    """Neither features nor groups."""
    with pytest.raises(BadInput, match="nothing to cluster"):
        k_means(None, None, 2)
    with pytest.raises(BadInput, match="nothing to cluster"):
        k_means(np.zeros((4, 0)), None, 2)


def planted_graph(seed: int, records: int = 120, classes: int = 3) -> tuple[RecordGraph, np.ndarray]:
    """The graph of noisy trees that follow the labels, and the labels."""
    labels = np.random.default_rng(seed).integers(0, classes, records)
    return exact(planted(seed, labels, 4, 2, 0.1), records, 1.0), labels


@pytest.mark.parametrize("seed", range(2))
def test_never_below_the_planted_partition(seed: int) -> None:
    """Where trees follow the labels, the communities' modularity is at least the labels'."""
    graph, labels = planted_graph(seed)
    found = louvain(graph, seed, 3)
    assert found.modularity >= graph.modularity(labels) > 0.2


def test_two_cliques_are_two_communities() -> None:
    """The partition that a person would draw, largest community first."""
    found = louvain(exact([[ids(5, 6), ids(0, 1, 2, 3)]], 7, 1.0), 0, 2)
    assert found.clusters.tolist() == [0, 0, 0, 0, 2, 1, 1]
    assert (found.found, found.alone) == (3, 1)


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize("seed", range(6))
def test_no_modularity_is_below_other_libraries(seed: int) -> None:
    """networkx's formula is ours; ten runs of its Louvain, or of python-louvain's, find no better partition."""
    labels = np.random.default_rng(seed).integers(0, 4, 150)
    small = exact(planted(seed, labels, 4, 2, 0.3), 150, 0.6)
    small = small.merged(signatures(small))
    found, matrix = louvain(small, seed, 5), matrix_of(small)
    np.fill_diagonal(matrix, matrix.diagonal() / 2)  # there a self-loop counts twice
    graph = networkx.from_numpy_array(matrix)
    parts = [set(np.flatnonzero(found.clusters == k).tolist()) for k in range(int(found.clusters.max()) + 1)]
    assert networkx.community.modularity(graph, parts) == pytest.approx(found.modularity, abs=1e-12)
    for run in range(10):
        theirs = networkx.community.louvain_communities(graph, seed=run)
        assert networkx.community.modularity(graph, theirs) <= found.modularity + 1e-9
        parted = community.best_partition(graph, random_state=run)
        assert community.modularity(parted, graph) <= found.modularity + 1e-9


def test_a_seed_repeats_a_run() -> None:
    """The same partition twice, also on a graph with no structure."""
    graph = exact(random_trees(8, 100, 3, 6), 100, 0.6)
    one, two = (louvain(graph, 5, 2).clusters for _ in range(2))
    assert one.tolist() == two.tolist()


def test_a_graph_not_written_out_loses_no_modularity() -> None:
    """A coarse start and moves of single vertices reach what Louvain on the whole matrix reaches, within 2 %."""
    labels = np.random.default_rng(1).integers(0, 4, 400)
    graph = exact(planted(1, labels, 5, 2, 0.2), 400, 0.6)
    whole = louvain(graph, 0, 3)
    coarse = louvain(graph, 0, 3, largest=400)
    assert graph.pairs > 400
    assert coarse.modularity >= 0.98 * whole.modularity
    assert coarse.modularity >= graph.modularity(labels)


def test_a_graph_too_large_even_for_a_coarse_start_is_refused() -> None:
    """The message says what to change."""
    with pytest.raises(BadInput, match="take larger chunks"):
        louvain(exact(random_trees(1, 60, 2, 6), 60, 1.0), 0, 1, largest=3)


@pytest.mark.parametrize("edges", ["paper", "linked"])
def test_moves_never_lower_modularity(edges: str) -> None:
    """From random partitions, of single records and of super-vertices, and the gain is real."""
    graph = chunked(random_trees(9, 120, 3, 3), 120, 0.6, 15, 4.0, edges)
    for each in (graph, graph.merged(signatures(graph))):
        draw = np.random.default_rng(3)
        for groups in (2, 8):
            start = np.unique(draw.integers(0, groups, each.vertices), return_inverse=True)[1].astype(np.int64)
            settled = settle(each, start, 0, 20, 1e-6)
            assert each.modularity(settled) > each.modularity(start)
            again = settle(each, settled, 1, 20, 1e-6)
            assert each.modularity(again) >= each.modularity(settled) - 1e-12


def test_nothing_to_join_leaves_every_vertex_alone() -> None:
    """Without leaves every record is its own community, and modularity is 0."""
    found = louvain(exact([[], [ids()]], 5, 1.0), 0, 1)
    assert found.clusters.tolist() == [0, 1, 2, 3, 4]
    assert (found.found, found.alone, found.modularity) == (5, 5, 0.0)


def test_chains_of_leaves_join_records() -> None:
    """0–1 and 1–2 share leaves of different trees; 4 and 5 share one; 3 is alone in one; 6 and 7 are in none."""
    parts = union([[ids(0, 1), ids(4, 5)], [ids(2, 1), ids(), ids(3)]], 8)
    assert parts.tolist() == [0, 0, 0, 1, 2, 2, 3, 3]
    # without leaves all are one group, whose V-measure is 0; a group for each would score though nothing is known
    assert union([], 3).tolist() == [0, 0, 0]


def test_components_equal_a_plain_union_find() -> None:
    """On random small leaves, against sets merged one by one."""
    leaves = [tree[::2] for tree in random_trees(4, 60, 2, 25)]
    sets = [{i} for i in range(60)]
    for leaf in (leaf for tree in leaves for leaf in tree):
        joined = set().union(*(s for s in sets if s & set(leaf.tolist())), set())
        sets = [s for s in sets if not s & joined] + ([joined] if joined else [])
    known = {i for tree in leaves for leaf in tree for i in leaf.tolist()}
    sets = [s for s in sets if s & known] + [set(range(60)) - known]
    parts = union(leaves, 60)
    assert len(np.unique(parts)) == len(sets) > 2
    assert all(len(set(parts[sorted(s)].tolist())) == 1 for s in sets)

from __future__ import annotations

import sys

import community
import networkit
import networkx
import numpy as np
import pytest

from tests.attacks.worlds import ids, planted, random_trees
from treetap.attacks.id2graph.adjacency import RecordGraph, chunked, exact, signatures
from treetap.attacks.id2graph.attack import as_networkit, as_networkx, louvain, settle
from treetap.errors import BadInput

ENGINES = ("python-louvain", "networkit", "auto")


def planted_graph(seed: int, records: int = 120, classes: int = 3) -> tuple[RecordGraph, np.ndarray]:
    """The graph of noisy trees that follow the labels, and the labels."""
    labels = np.random.default_rng(seed).integers(0, classes, records)
    return exact(planted(seed, labels, 4, 2, 0.1), records, 1.0), labels


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(2))
def test_never_below_the_planted_partition(engine: str, seed: int) -> None:
    """Where trees follow the labels, the communities' modularity is at least the labels'."""
    graph, labels = planted_graph(seed)
    found = louvain(graph, seed, 3, engine)
    assert found.modularity >= graph.modularity(labels) > 0.2


@pytest.mark.parametrize("engine", ENGINES)
def test_two_cliques_are_two_communities(engine: str) -> None:
    """The partition that a person would draw, largest community first."""
    found = louvain(exact([[ids(5, 6), ids(0, 1, 2, 3)]], 7, 1.0), 0, 2, engine)
    assert found.labels.tolist() == [0, 0, 0, 0, 2, 1, 1]
    assert (found.found, found.alone) == (3, 1)


@pytest.mark.parametrize("edges", ["paper", "linked"])
def test_libraries_read_weights_and_self_loops_as_we_do(edges: str) -> None:
    """On a merged graph with heavy self-loops both give random partitions our modularity, which is the full graph's."""
    graph = chunked(random_trees(2, 80, 3, 3), 80, 0.6, 12, 5.0, edges)
    numbers = signatures(graph)
    small = graph.merged(numbers)
    adjacency = small.adjacency()
    assert adjacency.diagonal().max() > 0
    labels = np.unique(np.random.default_rng(0).integers(0, 4, small.vertices), return_inverse=True)[1].astype(np.int64)
    ours = small.modularity(labels)
    given = networkit.Partition(small.vertices)
    given.setUpperBound(4)
    for v, k in enumerate(labels.tolist()):
        given.addToSubset(k, v)
    assert abs(networkit.community.Modularity().getQuality(given, as_networkit(adjacency)) - ours) < 1e-12
    assert abs(community.modularity(dict(enumerate(labels.tolist())), as_networkx(adjacency)) - ours) < 1e-12
    parts = [set(np.flatnonzero(labels[numbers] == k).tolist()) for k in range(4)]
    assert abs(networkx.community.modularity(as_networkx(graph.adjacency()), parts) - ours) < 1e-12


@pytest.mark.parametrize("engine", ENGINES)
def test_a_seed_repeats_a_run(engine: str) -> None:
    """The same partition twice, also on a graph with no structure."""
    graph = exact(random_trees(8, 100, 3, 6), 100, 0.6)
    one, two = (louvain(graph, 5, 2, engine).labels for _ in range(2))
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
    assert found.labels.tolist() == [0, 1, 2, 3, 4]
    assert (found.found, found.alone, found.modularity) == (5, 5, 0.0)


@pytest.mark.parametrize(("engine", "module"), [("networkit", "networkit"), ("python-louvain", "community")])
def test_an_absent_engine_is_bad_input(engine: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names what to install."""
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(BadInput, match=r"pip install -e '\S*\[audit\]'"):
        louvain(exact([[ids(0, 1)]], 2, 1.0), 0, 1, engine)

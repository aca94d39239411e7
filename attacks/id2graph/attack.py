"""The ID2Graph attack (Takahashi, Liu & Liu, "Eliminating Label Leakage in Tree-based Vertical Federated Learning").

1. Graph: an edge for every two records in one of the attacker's leaves (equation 1; algorithm 3 in chunks).
2. Communities: Louvain on that graph.
3. Clusters: k-means on [own features, α · one-hot community], one cluster per class.

Beyond the paper records that the graph cannot tell apart are merged first, which changes no modularity.

Communities of the graph of records by the Louvain method (Blondel et al. 2008), from maintained libraries.

`python-louvain` is the reference, `networkit` the engine for graphs of millions of edges (compressed rows, one thread,
so that a seed repeats a run). Louvain depends on the order in which it visits vertices: each engine runs from several
seeds and the partition with the highest modularity counts.

The engines' partition is improved by moving single vertices and joining communities in turn, while modularity grows.
A graph that may have more than `largest` entries is not stored as a matrix: the engines then start from coarser
super-vertices, which agree on their first leaves (the trees of highest weight), and single moves refine the result.
Memory grows with the vertices' leaves instead of with their pairs.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse

from treetap.arrays import Array, Floats, Ints
from treetap.attacks.id2graph.adjacency import RecordGraph, chunked, exact, signatures
from treetap.attacks.id2graph.clustering import Leaves, library
from treetap.attacks.id2graph.schema import Settings
from treetap.errors import BadInput
from treetap.trees import sampling

#: Most entries of an adjacency matrix that is stored, at some 60 bytes each.
LARGEST = 4_000_000
#: Most entries for which `auto` runs the reference besides networkit: it takes a second for some 100,000.
SMALL = 40_000


@dataclass(frozen=True)
class Outcome:
    """The result of one of these attacks.

    `clusters` (N,): the guess; records in one cluster share a label. `groups` (N,): the communities, components or
    signatures behind it, largest first for communities; None for `cl`. `alone`: the number of those that are single
    records without an edge. `modularity`, `vertices` and `entries` describe the graph; None without one. `seconds` by
    step; `parameters`: the settings that the attack reads.
    """

    clusters: Ints
    seconds: dict[str, float] = field(default_factory=dict)
    groups: Ints | None = None
    alone: int | None = None
    modularity: float | None = None
    vertices: int | None = None
    entries: int | None = None
    parameters: dict[str, Any] = field(default_factory=dict)

    @property
    def found(self) -> int | None:
        """The number of groups."""
        return None if self.groups is None else int(self.groups.max()) + 1


def louvain(
    graph: RecordGraph,
    seed: int,
    runs: int,
    engine: str = "auto",
    passes: int = 100,
    tolerance: float = 1e-6,
    largest: int = LARGEST,
) -> Outcome:
    """The best partition of `runs` seeded runs per engine, at most `passes` passes over the vertices of a level.

    `tolerance` is the least gain of modularity that continues the moves. The libraries differ: python-louvain stops
    below 1e-7 and has no limit of passes, networkit stops when no vertex moves.

    Raises:
        BadInput: the engine's library is not installed, or even the coarsest start has more than `largest` entries.
    """
    labels = np.arange(graph.vertices, dtype=np.int64)
    joined = np.flatnonzero(graph.degrees > 0)
    if len(joined):
        inner = graph if len(joined) == graph.vertices else graph.part(joined)
        labels[joined] = graph.vertices + _partition(inner, seed, runs, engine, passes, tolerance, largest)
    labels = _by_size(labels)
    alone, modularity = graph.vertices - len(joined), graph.modularity(labels)
    return Outcome(labels, {}, labels, alone, modularity, graph.vertices, graph.pairs)


def _partition(
    graph: RecordGraph, seed: int, runs: int, engine: str, passes: int, tolerance: float, largest: int
) -> Ints:
    """Run Louvain from the finest start that can be stored, then moves and joins in turn."""
    cells = _start(graph, largest)
    labels = _best(graph.merged(cells), seed, runs, engine, passes)[cells]
    reached = graph.modularity(labels)
    for turn in range(passes):
        labels = settle(graph, labels, seed + turn, passes, tolerance)
        between = graph.merged(labels)
        if between.pairs <= largest:
            labels = max(labels, _best(between, seed, runs, engine, passes)[labels], key=graph.modularity)
        before, reached = reached, graph.modularity(labels)
        if reached - before < tolerance:
            break
    return labels


def _start(graph: RecordGraph, largest: int) -> Ints:
    """The vertices themselves, or the finest partition by first leaves whose graph can be stored."""
    if graph.pairs <= largest:
        return np.arange(graph.vertices, dtype=np.int64)
    pairs = graph.pairs
    for kept in range(int(np.diff(graph.held.indptr).max(initial=0)), 0, -1):
        cells = signatures(graph, kept)
        pairs = graph.merged(cells).pairs
        if pairs <= largest:
            return cells
    raise BadInput(
        f"the graph has {graph.vertices:,} vertices, and {pairs:,} entries even if only a record's first leaf "
        "counts: take larger chunks (chunk_size), or id2graph-quotient"
    )


def _best(graph: RecordGraph, seed: int, runs: int, engine: str, passes: int) -> Ints:
    """The best partition of all Louvain runs on the adjacency matrix."""
    adjacency = graph.adjacency()
    engines = [_networkit] if engine != "python-louvain" else [_python_louvain]
    if engine == "auto" and adjacency.nnz <= SMALL:
        engines.append(_python_louvain)
    partitions = [part for run in engines for part in run(adjacency, seed, runs, passes)]
    return max(partitions, key=graph.modularity)


def _networkit(adjacency: sparse.csr_array, seed: int, runs: int, passes: int) -> list[Ints]:
    """Partitions found by networkit's Louvain (PLM), in order of vertices and in `runs` random orders."""
    graph, networkit = as_networkit(adjacency), library("networkit", "networkit")
    threads = networkit.getMaxNumberOfThreads()
    networkit.setNumberOfThreads(1)  # the order of moves in several threads is not repeatable
    partitions = []
    try:
        for run in range(-1, runs):
            networkit.setSeed(max(0, seed + run), False)
            order = "none" if run < 0 else "none randomized"
            method = networkit.community.PLM(graph, refine=True, par=order, maxIter=passes)
            partitions.append(np.array(method.run().getPartition().getVector(), dtype=np.int64))
    finally:
        networkit.setNumberOfThreads(threads)
    return [np.unique(part, return_inverse=True)[1].astype(np.int64) for part in partitions]


def as_networkit(adjacency: sparse.csr_array) -> Any:
    """The graph for networkit. Raises BadInput if it is not installed."""
    networkit, upper = library("networkit", "networkit"), sparse.triu(adjacency, format="coo")
    # Row numbers must have 64 bits: networkit reads narrower arrays beyond their end.
    ends = (upper.row.astype(np.uint64), upper.col.astype(np.uint64))
    return networkit.GraphFromCoo((_edge_weights(upper), ends), n=upper.shape[0], weighted=True, directed=False)


def _python_louvain(adjacency: sparse.csr_array, seed: int, runs: int, passes: int) -> list[Ints]:  # noqa: ARG001
    """Partitions found by python-louvain in `runs` random orders; it has no limit of passes to set."""
    graph, community = as_networkx(adjacency), library("community", "python-louvain")
    partitions = []
    for run in range(runs):
        best: dict[int, int] = community.best_partition(graph, random_state=seed + run)
        partitions.append(np.array([best[v] for v in range(len(best))], dtype=np.int64))
    return partitions


def as_networkx(adjacency: sparse.csr_array) -> Any:
    """The graph for networkx, weights under `weight`. Raises BadInput if it is not installed."""
    networkx, upper = library("networkx", "networkx"), sparse.triu(adjacency, format="coo")
    edges = zip(upper.row.tolist(), upper.col.tolist(), _edge_weights(upper).tolist(), strict=True)
    graph = networkx.Graph()
    graph.add_nodes_from(range(adjacency.shape[0]))
    graph.add_weighted_edges_from(edges)
    return graph


def _edge_weights(upper: sparse.coo_array) -> Floats:
    """Edge weights for the libraries: they count a self-loop twice in a degree, the matrix holds it doubled."""
    return np.asarray(np.where(upper.row == upper.col, upper.data / 2, upper.data))


def _by_size(labels: Array) -> Ints:
    """The same partition numbered from 0, larger communities first, ties by the first vertex."""
    _, first, numbers, sizes = np.unique(labels, return_index=True, return_inverse=True, return_counts=True)
    rank = np.empty(len(sizes), dtype=np.int64)
    rank[np.lexsort((first, -sizes))] = np.arange(len(sizes))
    return np.asarray(rank[numbers])


def settle(graph: RecordGraph, communities: Ints, seed: int, passes: int, tolerance: float) -> Ints:
    """Apply Louvain's local moving to a partition (V,); the result has the same or a higher modularity.

    A pass visits every vertex with an edge, in a seeded order, and moves it to the community of highest gain. The moves
    end after `passes`, or after a pass that gains less than `tolerance`.
    """
    state = _Moving(graph, communities)
    visited = np.flatnonzero(graph.degrees > 0)
    for number in range(passes):
        order = sampling.generator(seed, "moves", number).permutation(visited).tolist()
        if sum(state.move(v) for v in order) < tolerance:
            break
    return np.unique(np.array(state.labels, dtype=np.int64), return_inverse=True)[1].astype(np.int64)


class _Moving:
    """State of the moves. `inside[l][c]`: records of community c in leaf l; `mass[c]`: K_c, its degrees' sum."""

    def __init__(self, graph: RecordGraph, communities: Ints) -> None:
        self.labels: list[int] = communities.tolist()
        self.degrees: list[float] = graph.degrees.tolist()
        self.total = float(graph.degrees.sum())
        self.mass: list[float] = np.bincount(communities, weights=graph.degrees).tolist()
        self.weights: list[float] = graph.weights.tolist()
        self.held, self.extra = _rows(graph.held), _rows(graph.extra)
        self.inside: list[dict[int, float]] = [{} for _ in self.weights]
        for v in range(graph.vertices):
            self._enter(v, self.labels[v])

    def move(self, v: int) -> float:
        """Move v to the c of largest k_vc − d_v·K_c/2m (without v), or stay on a tie; return the gain of modularity."""
        here = self.labels[v]
        for leaf, count in self.held[v]:
            left = self.inside[leaf].pop(here) - count
            if left > 0:
                self.inside[leaf][here] = left
        self.mass[here] -= self.degrees[v]
        pull = self.degrees[v] / self.total
        toward = self._edges(v)
        stay = toward.get(here, 0.0) - pull * self.mass[here]
        best, there = max(((k - pull * self.mass[c], -c) for c, k in toward.items()), default=(stay, -here))
        to = -there if best > stay + 1e-12 * self.total else here
        self.labels[v] = to
        self.mass[to] += self.degrees[v]
        self._enter(v, to)
        return 2 * (best - stay) / self.total if to != here else 0.0

    def _edges(self, v: int) -> dict[int, float]:
        """k_vc: the weight of v's edges into each community."""
        toward: dict[int, float] = {}
        for leaf, count in self.held[v]:
            factor = self.weights[leaf] * count
            for c, records in self.inside[leaf].items():
                toward[c] = toward.get(c, 0.0) + factor * records
        for u, weight in self.extra[v]:
            if u != v:
                toward[self.labels[u]] = toward.get(self.labels[u], 0.0) + weight
        return toward

    def _enter(self, v: int, community: int) -> None:
        for leaf, count in self.held[v]:
            self.inside[leaf][community] = self.inside[leaf].get(community, 0.0) + count


def _rows(matrix: sparse.csr_array) -> list[list[tuple[int, float]]]:
    """(column, value) of every entry, row by row."""
    columns, values, starts = matrix.indices.tolist(), matrix.data.tolist(), matrix.indptr.tolist()
    return [list(zip(columns[a:b], values[a:b], strict=True)) for a, b in pairwise(starts)]


def whole(leaves: Leaves, records: int, settings: Settings) -> Outcome:
    """Communities of the exact graph, a vertex per record.

    Raises:
        BadInput: a leaf is malformed, or the matrix may have more than `settings.max_entries` entries.
    """
    start = time.perf_counter()
    graph = exact(leaves, records, settings.discount)
    if graph.pairs > settings.max_entries:
        raise BadInput(
            f"the adjacency matrix may have {graph.pairs:,} entries at some 60 bytes each, and max_entries allows "
            f"{settings.max_entries:,}: use id2graph-quotient, which has exactly its modularity, or id2graph-chunked"
        )
    return _grouped(graph, None, settings, max(LARGEST, settings.max_entries), start)


def quotient(leaves: Leaves, records: int, settings: Settings) -> Outcome:
    """Communities of the exact graph, records of the same signature merged. Raises BadInput for a malformed leaf."""
    start = time.perf_counter()
    graph = exact(leaves, records, settings.discount)
    return _grouped(graph, signatures(graph), settings, LARGEST, start)


def in_chunks(leaves: Leaves, records: int, settings: Settings) -> Outcome:
    """Communities of algorithm 3's graph; records in the same chunks and without an edge between chunks are merged.

    Raises:
        BadInput: a leaf is malformed, or there are too many chunks to start from.
    """
    start = time.perf_counter()
    graph = chunked(
        leaves, records, settings.discount, settings.chunk_size, settings.chunk_weight, settings.chunk_edges
    )
    return _grouped(graph, signatures(graph), settings, LARGEST, start)


def _grouped(graph: RecordGraph, merged: Ints | None, settings: Settings, largest: int, start: float) -> Outcome:
    if merged is not None:
        graph = graph.merged(merged)
    built = time.perf_counter()
    best = louvain(graph, settings.seed, settings.runs, settings.engine, settings.passes, settings.tolerance, largest)
    seconds = {"graph": built - start, "communities": time.perf_counter() - built}
    of_records = best.clusters if merged is None else best.clusters[merged]
    return replace(best, clusters=of_records, groups=of_records, seconds=seconds)

"""The ID2Graph attack (Takahashi, Liu & Liu, "Eliminating Label Leakage in Tree-based Vertical Federated Learning").

1. Graph: an edge for every two records in one of the attacker's leaves (equation 1; algorithm 3 in chunks).
2. Communities: Louvain on that graph.
3. Clusters: k-means on [own features, α · one-hot community], one cluster per class.

Beyond the paper records that the graph cannot tell apart are merged first, which changes no modularity.

Communities of the graph of records by the Louvain method (Blondel et al. 2008): single vertices are moved and
communities joined in turn, while modularity grows. The result depends on the order in which vertices are visited: it
runs from several seeds and the partition with the highest modularity counts. Vertices in the same leaves move together
first; where these are too many it starts from coarser super-vertices, which agree on their first leaves (the trees of
highest weight). Memory grows with the vertices' leaves and not with their pairs.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from treetap.arrays import Ints
from treetap.attacks.id2graph.adjacency import RecordGraph, chunked, exact, signatures
from treetap.attacks.id2graph.clustering import Leaves
from treetap.attacks.id2graph.schema import Settings
from treetap.errors import BadInput
from treetap.trees import sampling

#: Most numbers of records of a community in a leaf that are kept: 128 MB.
LARGEST = 16_000_000
#: A vertex stays where another community gains less than this share of all weight.
_TIED = 1e-12


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
    graph: RecordGraph, seed: int, runs: int, passes: int = 100, tolerance: float = 1e-6, largest: int = LARGEST
) -> Outcome:
    """The best partition of `runs` seeded runs, at most `passes` passes over the vertices of a level.

    `tolerance` is the least gain of modularity that continues the moves.

    Raises:
        BadInput: even of the coarsest start more than `largest` numbers would be kept.
    """
    cells = _start(graph, largest)
    coarse = graph.merged(cells)
    partitions = (_partition(coarse, seed + run, passes, tolerance) for run in range(runs))
    best = max(partitions, key=coarse.modularity)[cells]
    labels, alone = _partition(graph, seed, passes, tolerance, best), np.flatnonzero(graph.degrees == 0)
    labels[alone] = graph.vertices + np.arange(len(alone))
    # numbered from 0, larger communities first, ties by the first vertex
    _, first, numbers, sizes = np.unique(labels, return_index=True, return_inverse=True, return_counts=True)
    rank = np.empty(len(sizes), dtype=np.int64)
    rank[np.lexsort((first, -sizes))] = np.arange(len(sizes))
    labels = np.asarray(rank[numbers])
    return Outcome(labels, {}, labels, len(alone), graph.modularity(labels), graph.vertices, graph.pairs)


def _partition(graph: RecordGraph, seed: int, passes: int, tolerance: float, labels: Ints | None = None) -> Ints:
    """Moves of vertices and joins of communities in turn, from a partition (V,), or from single vertices."""
    labels = np.arange(graph.vertices, dtype=np.int64) if labels is None else labels
    reached = graph.modularity(labels)
    for turn in range(passes):
        labels = settle(graph, labels, seed + turn, passes, tolerance)
        between = graph.merged(labels)
        labels = settle(between, np.arange(between.vertices, dtype=np.int64), seed + turn, passes, tolerance)[labels]
        before, reached = reached, graph.modularity(labels)
        if reached - before < tolerance:
            break
    return labels


def _start(graph: RecordGraph, largest: int) -> Ints:
    """The vertices in the same leaves as one; of too many the finest partition by first leaves."""
    leaves, cells = max(1, len(graph.weights)), np.zeros(0, dtype=np.int64)
    for kept in (None, *range(int(np.bincount(graph.at).max(initial=0)), 0, -1)):
        cells = signatures(graph, kept)
        if (int(cells.max(initial=-1)) + 1) * leaves <= largest:
            return cells
    raise BadInput(
        f"the graph has {graph.vertices:,} vertices and {leaves:,} leaves, too many even if only a record's first leaf "
        "counts: take larger chunks (chunk_size), or id2graph-quotient"
    )


def settle(graph: RecordGraph, communities: Ints, seed: int, passes: int, tolerance: float) -> Ints:
    """Apply Louvain's local moving to a partition (V,); the result has the same or a higher modularity.

    A pass visits every vertex with an edge, in a seeded order, and moves it to the community of highest gain. The moves
    end after `passes`, or after a pass that gains less than `tolerance`.
    """
    labels, degrees, total = communities, graph.degrees.tolist(), float(graph.degrees.sum())
    visited = np.flatnonzero(graph.degrees > 0)
    of_leaves, of_edges = (np.searchsorted(it, np.arange(graph.vertices + 1)) for it in (graph.at, graph.ends[0]))
    weighed = graph.weights[graph.leaf] * graph.count
    for number in range(passes):
        labels, gained = np.unique(labels, return_inverse=True)[1].astype(np.int64), 0.0
        together = graph.merged(labels)
        inside, mass = np.zeros((len(graph.weights), together.vertices)), together.degrees.copy()
        inside[together.leaf, together.at] = together.count
        for v in sampling.generator(seed, "moves", number).permutation(visited).tolist():
            here, leaves = labels[v], graph.leaf[some := slice(of_leaves[v], of_leaves[v + 1])]
            inside[leaves, here] -= graph.count[some]
            mass[here] -= degrees[v]
            # k_vc - d_v K_c / 2m of each community c: the weight of edges into it, less that by chance, without v
            pull = weighed[some] @ inside[leaves] - degrees[v] / total * mass
            if of_edges[v] < of_edges[v + 1]:
                edges = slice(of_edges[v], of_edges[v + 1])
                others = graph.ends[1, edges] != v
                np.add.at(pull, labels[graph.ends[1, edges][others]], graph.extra[edges][others])
            there = int(pull.argmax())
            if (more := float(pull[there] - pull[here])) > _TIED * total:
                gained += 2 * more / total
                labels[v] = here = there
            inside[leaves, here] += graph.count[some]
            mass[here] += degrees[v]
        if gained < tolerance:
            break
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)


def whole(leaves: Leaves, records: int, settings: Settings) -> Outcome:
    """Communities of the exact graph, a vertex per record.

    Raises:
        BadInput: a leaf is malformed, or the matrix may have more than `settings.max_entries` entries.
    """
    start = time.perf_counter()
    graph = exact(leaves, records, settings.discount)
    if graph.pairs > settings.max_entries:
        raise BadInput(
            f"the adjacency matrix may have {graph.pairs:,} entries, and max_entries allows "
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
    best = louvain(graph, settings.seed, settings.runs, settings.passes, settings.tolerance, largest)
    seconds = {"graph": built - start, "communities": time.perf_counter() - built}
    of_records = best.clusters if merged is None else best.clusters[merged]
    return replace(best, clusters=of_records, groups=of_records, seconds=seconds)

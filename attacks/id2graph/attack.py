"""The ID2Graph attack (Takahashi, Liu & Liu, "Eliminating Label Leakage in Tree-based Vertical Federated Learning").

1. Graph: an edge for every two records in one of the attacker's leaves (equation 1; algorithm 3 in chunks).
2. Communities: Louvain on that graph.
3. Clusters: k-means on [own features, α · one-hot community], one cluster per class.

Beyond the paper records that the graph cannot tell apart are merged first, which changes no modularity.
"""

from __future__ import annotations

import time
from dataclasses import replace

from treetap.attacks.id2graph.adjacency import RecordGraph, chunked, exact, signatures
from treetap.attacks.id2graph.communities import LARGEST, Communities, louvain
from treetap.attacks.id2graph.leaves import Ints, Leaves
from treetap.attacks.id2graph.schema import Settings
from treetap.errors import BadInput

#: The result of steps 1 and 2: the community of every record (N,) with the measures of the graph; seconds by step.
Groups = tuple[Communities, dict[str, float]]


def whole(leaves: Leaves, records: int, settings: Settings) -> Groups:
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


def quotient(leaves: Leaves, records: int, settings: Settings) -> Groups:
    """Communities of the exact graph, records of the same signature merged. Raises BadInput for a malformed leaf."""
    start = time.perf_counter()
    graph = exact(leaves, records, settings.discount)
    return _grouped(graph, signatures(graph), settings, LARGEST, start)


def in_chunks(leaves: Leaves, records: int, settings: Settings) -> Groups:
    """Communities of algorithm 3's graph; records in the same chunks and without an edge between chunks are merged.

    Raises:
        BadInput: a leaf is malformed, or there are too many chunks to start from.
    """
    start = time.perf_counter()
    graph = chunked(
        leaves, records, settings.discount, settings.chunk_size, settings.chunk_weight, settings.chunk_edges
    )
    return _grouped(graph, signatures(graph), settings, LARGEST, start)


def _grouped(graph: RecordGraph, merged: Ints | None, settings: Settings, largest: int, start: float) -> Groups:
    if merged is not None:
        graph = graph.merged(merged)
    built = time.perf_counter()
    best = louvain(graph, settings.seed, settings.runs, settings.engine, settings.passes, settings.tolerance, largest)
    seconds = {"graph": built - start, "communities": time.perf_counter() - built}
    return best if merged is None else replace(best, labels=best.labels[merged]), seconds

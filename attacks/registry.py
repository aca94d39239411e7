"""The attacks by name, each with a one-line description, and one function that runs any of them."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from attacks.id2graph.adjacency import union
from attacks.id2graph.attack import Groups, in_chunks, quotient, whole
from attacks.id2graph.clustering import k_means, normalised
from attacks.id2graph.leaves import Ints, Leaves, checked
from attacks.id2graph.settings import Settings
from treetap.errors import BadInput

#: Name → one line, in the order of a report.
ATTACKS = {
    "cl": "k-means on the attacker's own features: what it knows without the protocol",
    "uni": "union–find: records that a chain of the attacker's leaves joins share a label",
    "uni+cl": "k-means on own features and the groups of uni",
    "id2graph": "communities of the graph of records that share leaves, then k-means; memory grows with N²",
    "id2graph-chunked": "the same on leaves cut into chunks of chunk_size records, as the paper does for large N",
    "id2graph-quotient": "the same as id2graph with records in the same leaves merged: same modularity, any N",
}
_KMEANS = ("columns", "starts", "iterations", "kmeans_tolerance", "seed")
_LOUVAIN = ("discount", "engine", "runs", "passes", "tolerance")
_CHUNKS = ("chunk_size", "chunk_weight", "chunk_edges")
_USED = {
    "cl": _KMEANS,
    "uni": (),
    "uni+cl": ("alpha", *_KMEANS),
    "id2graph": ("alpha", *_LOUVAIN, "max_entries", *_KMEANS),
    "id2graph-chunked": ("alpha", *_LOUVAIN, *_CHUNKS, *_KMEANS),
    "id2graph-quotient": ("alpha", *_LOUVAIN, *_KMEANS),
}
_GRAPHS: dict[str, Callable[[Leaves, int, Settings], Groups]] = {
    "id2graph": whole,
    "id2graph-chunked": in_chunks,
    "id2graph-quotient": quotient,
}


@dataclass(frozen=True)
class Outcome:
    """The result of an attack.

    `clusters` (N,): the guess; records in one cluster share a label. `groups` (N,): the communities or
    components behind it, largest first for communities; None for `cl`. `found` counts them, `alone` those that are
    single records without an edge. `modularity`, `vertices` and `entries` describe the graph; None without one.
    `seconds` by step; `parameters`: the settings that this attack reads.
    """

    attack: str
    clusters: Ints
    groups: Ints | None
    found: int | None
    alone: int | None
    modularity: float | None
    vertices: int | None
    entries: int | None
    seconds: dict[str, float]
    parameters: dict[str, Any]


def attack(
    name: str,
    leaves: Leaves,
    records: int,
    features: npt.ArrayLike | None,
    clusters: int,
    settings: Settings | None = None,
) -> Outcome:
    """Run one attack.

    `leaves`: per tree, in training order, the attacker's leaves as int64 arrays of record positions. `features` (N, d),
    NaN for a missing value, or None for none; `settings.columns` picks some. `clusters` is C, the number of classes.
    `uni` uses neither features nor C: its components are its clusters. Without features the other attacks cluster on
    groups alone.

    Raises:
        BadInput: an unknown attack, C outside 2..N, wrong leaves or features, a graph too large for the exact form.
    """
    chosen = settings or Settings()
    if name not in ATTACKS:
        raise BadInput(f"attack {name!r}: unknown; known are {', '.join(ATTACKS)}")
    checked([], records)
    if isinstance(clusters, bool) or not isinstance(clusters, int | np.integer) or not 2 <= clusters <= records:
        raise BadInput(f"clusters: must be a whole number in [2, {records}], the number of records, not {clusters!r}")
    own = None
    if name != "uni" and features is not None:
        own = normalised(_picked(features, chosen), records)
    if name == "cl" and own is None:
        raise BadInput("attack 'cl' clusters the attacker's own features: give its table")
    _load(name)
    groups: Groups | None = None
    parts: Ints | None = None
    seconds: dict[str, float] = {}
    if name in _GRAPHS:
        groups = _GRAPHS[name](leaves, records, chosen)
        parts, seconds = groups.of, dict(groups.seconds)
    elif name != "cl":
        start = time.perf_counter()
        parts = union(leaves, records)
        seconds["union"] = time.perf_counter() - start
    guess = parts
    if name != "uni":
        start = time.perf_counter()
        guess = k_means(
            own, parts, clusters, chosen.alpha, chosen.starts, chosen.iterations, chosen.kmeans_tolerance, chosen.seed
        )
        seconds["clustering"] = time.perf_counter() - start
    assert guess is not None
    return Outcome(
        attack=name,
        clusters=guess,
        groups=parts,
        found=None if parts is None else int(parts.max()) + 1,
        alone=groups.alone if groups else None,
        modularity=groups.modularity if groups else None,
        vertices=groups.vertices if groups else None,
        entries=groups.entries if groups else None,
        seconds=seconds,
        parameters=chosen.of(*_USED[name]),
    )


def _load(name: str) -> None:
    """Import an attack's libraries before its timer starts; a missing library is reported where it is used."""
    with suppress(ImportError):
        if name != "uni":
            importlib.import_module("sklearn.cluster")
        if name in _GRAPHS:
            importlib.import_module("networkit")
            importlib.import_module("community")


def _picked(features: npt.ArrayLike, settings: Settings) -> npt.NDArray[Any]:
    table = np.asarray(features)
    if settings.columns is None:
        return table
    if table.ndim != 2 or max(settings.columns) >= table.shape[1]:
        raise BadInput(f"attack settings: columns names {max(settings.columns)}; the features have shape {table.shape}")
    return table[:, list(settings.columns)]

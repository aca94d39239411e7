"""The attacks that sort records into groups which should share a label: by own features, by leaves, or by both."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from treetap.arrays import Array, Ints
from treetap.attacks.id2graph.adjacency import union
from treetap.attacks.id2graph.attack import Outcome, in_chunks, quotient, whole
from treetap.attacks.id2graph.clustering import Leaves, OwnCuts, checked, k_means, normalised, signatures
from treetap.attacks.id2graph.schema import Settings
from treetap.errors import BadInput


@dataclass(frozen=True)
class GroupEvidence:
    """All that these attacks use.

    Attributes:
        leaves: per tree, in training order, the attacker's leaves as int64 arrays of record positions.
        features: (N, d), NaN for a missing value, or None for none; `settings.columns` picks some.
        clusters: C, the number of classes; `uni` has no use for it.
        cuts: per tree the party's own splits, which `own-cuts` alone uses.

    Raises:
        BadInput: on construction; C is outside 2..N.
    """

    leaves: Leaves = field(repr=False)
    records: int
    features: npt.ArrayLike | None = field(repr=False)
    clusters: int
    settings: Settings = field(default_factory=Settings)
    cuts: OwnCuts = field(default=(), repr=False)

    def __post_init__(self) -> None:
        checked([], self.records)
        whole_number = isinstance(self.clusters, int | np.integer) and not isinstance(self.clusters, bool)
        if not whole_number or not 2 <= self.clusters <= self.records:
            raise BadInput(
                f"clusters: must be a whole number in [2, {self.records}], the number of records, not {self.clusters!r}"
            )

    def own(self) -> Array | None:
        """The own features, scaled; None without any."""
        if self.features is None:
            return None
        table, columns = np.asarray(self.features), self.settings.columns
        if columns is not None:
            if table.ndim != 2 or max(columns) >= table.shape[1]:
                raise BadInput(f"attack settings: columns names {max(columns)}; the features have shape {table.shape}")
            table = table[:, list(columns)]
        return normalised(table, self.records)


def cl(evidence: GroupEvidence) -> Outcome:
    """k-means on the own features alone. Raises BadInput without any."""
    own = evidence.own()
    if own is None:
        raise BadInput("attack 'cl' clusters the attacker's own features: give its table")
    return _clustered(evidence, own, Outcome(_one(evidence)))


def _one(evidence: GroupEvidence) -> Ints:
    """All records in one cluster."""
    return np.zeros(evidence.records, dtype=np.int64)


def uni(evidence: GroupEvidence) -> Outcome:
    """The components of records that leaves join are the clusters."""
    start = time.perf_counter()
    parts = union(evidence.leaves, evidence.records)
    return Outcome(parts, {"union": time.perf_counter() - start}, parts)


def uni_cl(evidence: GroupEvidence) -> Outcome:
    """k-means on the own features and the components of `uni`."""
    own, joined = evidence.own(), uni(evidence)
    return _clustered(evidence, own, joined)


def own_cuts(evidence: GroupEvidence) -> Outcome:
    """k-means on the sides of own splits; without any all records are one group."""
    start, settings = time.perf_counter(), evidence.settings
    points = signatures(evidence.cuts, evidence.records, settings.discount, settings.max_entries)
    seconds = {"signatures": time.perf_counter() - start}
    # equal rows have equal sums
    groups = np.unique((points * np.random.default_rng(0).random(points.shape[1])).sum(axis=1), return_inverse=True)[1]
    return replace(_clustered(evidence, points, Outcome(_one(evidence), seconds)), groups=groups, entries=points.size)


def _by_graph(graph: Callable[[Leaves, int, Settings], Outcome], evidence: GroupEvidence) -> Outcome:
    """Communities of a graph, then k-means on own features and communities."""
    own = evidence.own()
    return _clustered(evidence, own, graph(evidence.leaves, evidence.records, evidence.settings))


#: ID2Graph on the whole graph; BadInput where its matrix is too large.
id2graph = partial(_by_graph, whole)
#: ID2Graph on leaves in chunks.
id2graph_chunked = partial(_by_graph, in_chunks)
#: ID2Graph with records merged that no leaf tells apart.
id2graph_quotient = partial(_by_graph, quotient)


def _clustered(evidence: GroupEvidence, own: Array | None, before: Outcome) -> Outcome:
    """The clusters of k-means on own features, the groups of `before`, or both."""
    start, chosen = time.perf_counter(), evidence.settings
    clusters = k_means(
        own,
        before.groups,
        evidence.clusters,
        chosen.alpha,
        chosen.starts,
        chosen.iterations,
        chosen.kmeans_tolerance,
        chosen.seed,
    )
    return replace(before, clusters=clusters, seconds={**before.seconds, "clustering": time.perf_counter() - start})

"""`gradient-clusters`: k-means on the directions of one epoch's gradients, without a label.

The gradient of a record's loss in the outputs of the top is its probabilities less its label. Backwards through the top
it keeps a direction by label, so that the rows of one class lie close together, most of all where the loss is large.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from attacks.id2graph.clustering import k_means
from attacks.networks.draws import attack_draws
from attacks.view.gradient_rows import GradientRows, Ints, Rows, some_of

#: The outcome of clustering: clusters; every row has the same direction, so that there is one; there is no row.
Outcome = Literal["clusters", "one direction", "no gradients"]
#: The numbers of clusters that the silhouette chooses from, and most records of it.
SILHOUETTE_CLUSTERS, SILHOUETTE_RECORDS = range(2, 11), 1000
_STARTS = 4
#: Directions nearer than this are the same.
_SAME = 1e-5


@dataclass(frozen=True)
class Clusters:
    """Groups of records that should share a label.

    Attributes:
        outcome: see `Outcome`.
        groups: (n,) the cluster of each row.
        clusters: their number.
    """

    outcome: Outcome
    groups: Ints = field(repr=False)
    clusters: int


def gradient_clusters(rows: GradientRows, classes: int | None, seed: int = 0) -> Clusters:
    """Cluster the directions of rows (n, width).

    `classes`: the number of clusters, for an attacker who knows how many classes there are. None: the number from 2 to
    10 with the largest mean silhouette (Rousseeuw 1987) on `SILHOUETTE_RECORDS` of the rows.
    """
    points = rows.directions
    if not len(points):
        return Clusters("no gradients", np.zeros(0, dtype=np.int64), 0)
    if float(np.abs(points - points[0]).max()) < _SAME:
        return Clusters("one direction", np.zeros(len(points), dtype=np.int64), 1)
    chosen = min(_by_silhouette(points, seed) if classes is None else classes, len(points))
    groups = k_means(points.astype(np.float64), None, chosen, starts=_STARTS, seed=seed)
    return Clusters("clusters", groups, chosen)


def _by_silhouette(points: Rows, seed: int) -> int:
    """The number of clusters with the largest mean silhouette, the first of several."""
    from sklearn.metrics import silhouette_score

    every = np.arange(len(points), dtype=np.int64)
    sample = points[some_of(every, SILHOUETTE_RECORDS, attack_draws(seed), "silhouette")].astype(np.float64)
    best = (2, -1.0)
    for clusters in SILHOUETTE_CLUSTERS:
        if clusters >= len(sample):
            break
        groups = k_means(sample.copy(), None, clusters, starts=_STARTS, seed=seed)
        if len(np.unique(groups)) < 2:
            break
        found = float(silhouette_score(sample, groups))
        if found > best[1]:
            best = (clusters, found)
    return best[0]

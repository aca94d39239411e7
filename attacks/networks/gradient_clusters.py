"""`gradient-clusters`: k-means on the directions of one epoch's gradients, without a label.

The gradient of a record's loss in the outputs of the top is its probabilities less its label. Backwards through the top
it keeps a direction by label, so that the rows of one class lie close together, most of all where the loss is large.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from treetap.attacks.id2graph.clustering import k_means
from treetap.attacks.networks.schema import ClusterFigures, EpochClusters
from treetap.attacks.scores import SCORES, UNKNOWN, matched, score
from treetap.attacks.view.received_rows import EpochRows, Ints, Rows, attack_draws, some_of, together

if TYPE_CHECKING:
    from treetap.attacks.networks.evidence import Evidence

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


def gradient_clusters(rows: EpochRows, classes: int | None, seed: int = 0) -> Clusters:
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
        silhouette = float(silhouette_score(sample, groups))
        if silhouette > best[1]:
            best = (clusters, silhouette)
    return best[0]


def cluster_figures(evidence: Evidence) -> ClusterFigures:
    """The clusters of each epoch, and of all side by side; the figures are of the best by the V-measure."""
    wanted, chosen_by = evidence.clusters
    side_by_side = together(evidence.rows)
    epochs = [*evidence.rows, *([] if side_by_side is None else [side_by_side])]
    figures = [_clustered(evidence, rows, wanted) for rows in epochs]
    scored = [(row, scores) for row, scores in figures if row.v_measure is not None]
    last = figures[len(evidence.rows) - 1]
    best, scores = max(scored, key=lambda pair: pair[0].v_measure or 0.0) if scored else last
    return ClusterFigures(
        **{**best.model_dump(), **scores},
        left_out=evidence.left_out,
        chosen_by=chosen_by,
        by_epoch=[row for row, _ in figures],
    )


def _clustered(
    evidence: Evidence, rows: EpochRows, wanted: int | None
) -> tuple[EpochClusters, dict[str, float | None]]:
    """The clusters of one epoch's rows, and all scores on the records whose label is at hand."""
    clusters = gradient_clusters(rows, wanted, evidence.settings.seed)
    truth = evidence.known.truth[rows.records]
    known = truth != UNKNOWN
    scores: dict[str, float | None] = dict.fromkeys(SCORES)
    if known.any():
        scores = asdict(score(truth[known], clusters.groups[known]))
        evidence.grouped.append((rows.records[known], matched(truth[known], clusters.groups[known])))
    row = EpochClusters(
        epoch=rows.epoch,
        outcome=clusters.outcome,
        records=len(rows.records),
        clusters=clusters.clusters,
        v_measure=scores["v_measure"],
        accuracy=scores["accuracy"],
    )
    return row, scores

"""What returned gradients say about labels: clusters, labels by few known ones, and scores of single gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from treetap.arrays import Ints
from treetap.attacks.id2graph.clustering import k_means
from treetap.attacks.networks.schema import (
    ClusterFigures,
    EpochClusters,
    EpochScore,
    LabelFigures,
    Measured,
    ScoreFigures,
)
from treetap.attacks.scores import SCORES, UNKNOWN, auc, majority, matched, score
from treetap.attacks.view.received_rows import EpochRows, Rows, attack_draws, some_of, together

if TYPE_CHECKING:
    from treetap.attacks.networks.evidence import Evidence


# `norm-scoring` and `direction-scoring`: labels of two classes from the length and the direction of single gradients.
#
# Li et al. (ICLR 2022, "Label leakage and protection in two-party split learning"): where one class is
# rare or harder its gradients are longer (norm-based scoring), and gradients of one class point the same way
# (direction-based scoring by the cosine, with one record of the second class known).


def norm_scoring(evidence: Evidence) -> ScoreFigures | None:
    """Figures of the lengths; None, with a reason, where there are not two classes."""
    if not _of_two_classes(evidence, "norm-scoring"):
        return None
    labelled = (_labelled(evidence, rows) for rows in evidence.rows)
    lengths = ((np.linalg.norm(rows.values.astype(np.float64), axis=1), labels) for rows, labels in labelled)
    return _figures(evidence, [[auc(*of_epoch)] for of_epoch in lengths], 1)


def direction_scoring(evidence: Evidence) -> ScoreFigures | None:
    """Figures of the cosines; None, with a reason, where there are not two classes or no record is known."""
    if not _of_two_classes(evidence, "direction-scoring"):
        return None
    known = [places[evidence.known.truth[places] == 1][:1] for places in evidence.draws]
    positives = [int(places[0]) for places in known if len(places)]
    if not positives:
        evidence.reasons["direction-scoring"] = "no record of the second class is known"
        return None
    aucs = [[cosine_auc(*_labelled(evidence, rows), positive) for positive in positives] for rows in evidence.rows]
    return _figures(evidence, aucs, len(positives))


def cosine_auc(rows: EpochRows, labels: Ints, known: int) -> float | None:
    """AUC of the rows' cosines with that of `known`, the place of a record of the second class, among the others.

    None where that record has no row, or one class has no other row.
    """
    mine = np.flatnonzero(rows.records == known)
    if not len(mine):
        return None
    directions = rows.directions.astype(np.float64)
    others = np.arange(len(directions)) != mine[0]
    return auc((directions @ directions[mine[0]])[others], labels[others])


def _of_two_classes(evidence: Evidence, name: str) -> bool:
    classes = len(evidence.known.classes)
    if classes != 2:
        what = "without labels nothing scores it" if not classes else f"it is for two classes, and there are {classes}"
        evidence.reasons[name] = what
    return classes == 2


def _labelled(evidence: Evidence, rows: EpochRows) -> tuple[EpochRows, Ints]:
    """The rows whose label is at hand, and the labels."""
    kept = rows.of(evidence.known.scored)
    return kept, evidence.known.truth[kept.records]


def _figures(evidence: Evidence, aucs: Sequence[Sequence[float | None]], draws: int) -> ScoreFigures:
    """The epochs' figures, by the AUC of each draw."""
    by_epoch = []
    for rows, of_epoch in zip(evidence.rows, aucs, strict=True):
        known = [value for value in of_epoch if value is not None]
        mean, deviation = float(np.mean(known)) if known else None, float(np.std(known)) if len(known) > 1 else None
        by_epoch.append(EpochScore(epoch=rows.epoch or 0, auc=mean, deviation=deviation))
    best = max(by_epoch, key=lambda row: -1.0 if row.auc is None else abs(row.auc - 0.5))
    return ScoreFigures(epoch=best.epoch, auc=best.auc, draws=draws, left_out=evidence.left_out, by_epoch=by_epoch)


# `gradient-clusters`: k-means on the directions of one epoch's gradients, without a label.
#
# The gradient of a record's loss in the outputs of the top is its probabilities less its label. Backwards through
# the top
# it keeps a direction by label, so that the rows of one class lie close together, most of all where the loss is large.


#: The outcome of clustering: clusters; every row has the same direction, so that there is one; there is no row.
Outcome = Literal["clusters", "one direction", "no gradients"]
#: The numbers of clusters that the silhouette chooses from, and most records of it.
SILHOUETTE_CLUSTERS, SILHOUETTE_RECORDS = range(2, 11), 1000
_STARTS = 4
#: Directions nearer than this are the same.
_SAME = 1e-5


def gradient_clusters(rows: EpochRows, classes: int | None, seed: int = 0) -> tuple[Outcome, Ints, int]:
    """Cluster the directions of rows (n, width): the outcome, the cluster (n,) of each row, and their number.

    `classes`: the number of clusters, for an attacker who knows how many classes there are. None: the number from 2 to
    10 with the largest mean silhouette (Rousseeuw 1987) on `SILHOUETTE_RECORDS` of the rows.
    """
    points = rows.directions
    if not len(points):
        return "no gradients", np.zeros(0, dtype=np.int64), 0
    if float(np.abs(points - points[0]).max()) < _SAME:
        return "one direction", np.zeros(len(points), dtype=np.int64), 1
    chosen = min(_by_silhouette(points, seed) if classes is None else classes, len(points))
    groups = k_means(points.astype(np.float64), None, chosen, starts=_STARTS, seed=seed)
    return "clusters", groups, chosen


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
    outcome, groups, clusters = gradient_clusters(rows, wanted, evidence.settings.seed)
    truth = evidence.known.truth[rows.records]
    known = truth != UNKNOWN
    scores: dict[str, float | None] = dict.fromkeys(SCORES)
    if known.any():
        scores = asdict(score(truth[known], groups[known]))
        evidence.grouped.append((rows.records[known], matched(truth[known], groups[known])))
    row = EpochClusters(
        epoch=rows.epoch,
        outcome=outcome,
        records=len(rows.records),
        clusters=clusters,
        v_measure=scores["v_measure"],
        accuracy=scores["accuracy"],
    )
    return row, scores


# `gradient-labels`: from few known labels and the directions of gradients to the label of every training record.
#
# There are three ways: a record gets the label of the `nearest` known direction; of the class whose known directions
# have
# the nearest `mean`; or of its group, by k-means that begins at these means (`groups`; Basu, Banerjee, Mooney 2002,
# "Semi-supervised clustering by seeding"). The way, and the epoch or all of them side by side, the attacker chooses by
# the known labels alone: it keeps each out once and counts how many are named right.


#: Rows whose distances to the known ones are in memory at once.
_PIECE = 4096
#: Most known labels by which ways are compared, parts of which each is kept out once, and other rows that take part.
_MOST_TRIED, _FOLDS, _TRIED_ROWS = 200, 5, 1000
_ROUNDS = 20


@dataclass(frozen=True)
class InferredLabels:
    """The labels that follow from the gradients.

    Attributes:
        records: (n,) places of the records whose label is inferred: those with a row, the known ones among them.
        labels: (n,) numbers of classes.
        epoch: the epoch whose rows were used; None: all side by side.
        way: `nearest`, `mean` or `groups`.
        kept_out: share of the known labels (at most 200) that this way names right when they are kept out; one whose
            record has no row counts as wrong.
    """

    records: Ints = field(repr=False)
    labels: Ints = field(repr=False)
    epoch: int | None
    way: str
    kept_out: float


def gradient_labels(epochs: Sequence[EpochRows], known: Mapping[int, int]) -> InferredLabels | None:
    """Infer labels by known ones, place of a record → number of its class; None if no known record has a row.

    Of several best ways the first counts: all epochs side by side, then each.
    """
    side_by_side = together(epochs)
    tried = {record: known[record] for record in sorted(known)[:_MOST_TRIED]}
    best: tuple[float, EpochRows, str] | None = None
    for rows in [*([] if side_by_side is None else [side_by_side]), *epochs]:
        directions, labels = _known(rows, tried)
        others = rows.directions[:: -(-len(rows.records) // _TRIED_ROWS) or 1]
        for name, way in _WAYS.items() if len(labels) else ():
            right = _right_when_kept_out(way, directions, labels, others) / len(tried)
            if best is None or right > best[0]:
                best = right, rows, name
    if best is None:
        return None
    kept_out, rows, name = best
    inferred = _WAYS[name](*_known(rows, known), rows.directions)
    return InferredLabels(rows.records, inferred, rows.epoch, name, kept_out)


def label_figures(evidence: Evidence) -> LabelFigures | None:
    """The labels that follow from the known ones of each draw, scored; None where none is known."""
    truth = evidence.known.truth
    inferred, scored = list[tuple[Ints, InferredLabels]](), list[tuple[Ints, Ints]]()
    for places in evidence.draws:
        labels = gradient_labels(evidence.rows, dict(zip(places.tolist(), truth[places].tolist(), strict=True)))
        if labels is None:
            continue
        inferred.append((places, labels))
        # guessed and true labels of the other records whose label is at hand
        others = ~np.isin(labels.records, places) & (truth[labels.records] != UNKNOWN)
        if others.any():
            scored.append((labels.labels[others], truth[labels.records[others]]))
    if not inferred:
        evidence.reasons["gradient-labels"] = "no label of a record with a gradient is known"
        return None
    evidence.inferred.extend((labels.records, labels.labels) for _, labels in inferred)
    from treetap.attacks.networks.completion import own_model_accuracy  # needs PyTorch

    known, first = inferred[0]
    own_model = own_model_accuracy(evidence, first.records, first.labels)
    if own_model is None:
        evidence.reasons["gradient-labels, own model"] = (
            "needs the party's published model and table, records to measure it on, and a bottom within most_weights"
        )
    return LabelFigures(
        known=len(known),
        records=len(first.records) - int(np.isin(first.records, known).sum()),
        left_out=evidence.left_out,
        inferred=Measured.of([float(np.mean(guess == truth)) for guess, truth in scored]) if scored else None,
        majority=majority(scored[0][1]) if scored else None,
        kept_out=float(np.mean([labels.kept_out for _, labels in inferred])),
        ways=[labels.way for _, labels in inferred],
        epochs=[labels.epoch for _, labels in inferred],
        own_model=own_model,
    )


def _known(rows: EpochRows, known: Mapping[int, int]) -> tuple[Rows, Ints]:
    """Directions and labels of the known records that have a row."""
    mine = rows.of(np.array(sorted(known), dtype=np.int64))
    return mine.directions, np.array([known[record] for record in mine.records.tolist()], dtype=np.int64)


def _nearest(directions: Rows, labels: Ints, points: Rows) -> Ints:
    """The label of the known direction with the largest cosine, for each point (n,)."""
    nearest = [labels[np.argmax(piece @ directions.T, axis=1)] for piece in _pieces(points)]
    return np.concatenate([np.zeros(0, dtype=np.int64), *nearest])


def _mean(directions: Rows, labels: Ints, points: Rows) -> Ints:
    """The label whose known directions have the nearest mean, for each point (n,)."""
    classes, means = _means(directions, labels)
    return classes[_closest(means, points)]


def _groups(directions: Rows, labels: Ints, points: Rows) -> Ints:
    """The label at whose known directions' mean the group of each point (n,) began."""
    classes, means = _means(directions, labels)
    groups = _closest(means, points)
    for _ in range(_ROUNDS):
        means = np.stack(
            [points[groups == k].mean(axis=0) if (groups == k).any() else means[k] for k in range(len(classes))]
        )
        before, groups = groups, _closest(means, points)
        if np.array_equal(before, groups):
            break
    return classes[groups]


_WAYS: Mapping[str, Callable[[Rows, Ints, Rows], Ints]] = {"nearest": _nearest, "mean": _mean, "groups": _groups}


def _means(directions: Rows, labels: Ints) -> tuple[Ints, Rows]:
    """The classes that occur, and the mean of each one's directions."""
    classes = np.unique(labels)
    return classes, np.stack([directions[labels == label].mean(axis=0) for label in classes])


def _closest(means: Rows, points: Rows) -> Ints:
    """The nearest of the means for each point (n,)."""
    squares = (means**2).sum(axis=1)
    nearest = [np.argmin(squares - 2.0 * piece @ means.T, axis=1) for piece in _pieces(points)]
    return np.concatenate([np.zeros(0, dtype=np.int64), *nearest])


def _right_when_kept_out(way: Callable[[Rows, Ints, Rows], Ints], directions: Rows, labels: Ints, others: Rows) -> int:
    """The number of known labels that the way names right by those of the other folds; 0 of a single one."""
    if len(labels) < 2:
        return 0
    fold, right = np.arange(len(labels)) % _FOLDS, 0
    for number in range(min(_FOLDS, len(labels))):
        out = fold == number
        named = way(directions[~out], labels[~out], np.concatenate([directions[out], others]))[: int(out.sum())]
        right += int((named == labels[out]).sum())
    return right


def _pieces(points: Rows) -> Iterator[Rows]:
    for start in range(0, len(points), _PIECE):
        yield points[start : start + _PIECE]

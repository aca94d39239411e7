"""Split networks: what gradients say about labels, and completion beside the floors that need no training."""

from __future__ import annotations

from dataclasses import dataclass

from treetap.attacks.document import Document, Party
from treetap.attacks.id2graph.schema import AttackResult
from treetap.attacks.networks.schema import ClusterFigures, CompletionRow, Measured, NetworkFigures
from treetap.attacks.report.glossary import count, either_way, score
from treetap.attacks.scores import SCORES
from treetap.pages.pictures import Dots, DottedTable, Lines, Table, dots, lines

CLUSTER_HEADS = (
    *("party", "attack", "V-measure", "epoch", "homogeneity", "completeness", "ARI", "NMI", "accuracy"),
    *("named by sizes", "clusters", "number by", "records", "left out"),
)
LABEL_HEADS = (
    *("party", "known labels", "others named right", "±", "largest class", "kept out", "records", "left out"),
    *("way", "own model"),
)
SCORE_HEADS = ("party", "score", "AUC", "epoch", "draws", "left out")
COMPLETION_HEADS = (
    *("party", "head", "bottom", "labels", "completed", "±", "untrained bottom", "from scratch"),
    *("from scratch, all labels", "largest class", "records", "measured on"),
)
GAIN_HEADS = ("together", "label holder alone", "gain", "without defence", "gain kept")
REASON_HEADS = ("party", "left out", "reason")
#: The places on the axis of accuracy: field → its name and its class in the style sheet.
DOTS = {
    "completed": ("completed", "graph"),
    "untrained": ("untrained bottom, same labels", "cl"),
    "scratch": ("from scratch, same labels", "own"),
    "scratch_all": ("from scratch, all labels", "received"),
}
#: The sentence that a reader of completion figures must have.
COVERED = (
    "DIMIP covers the extractor, and not the log: it lowers what the party's model tells about labels, which "
    "completion measures; what the returned gradients tell about the labels of the training, which clusters and "
    "inferred labels measure, it lowers in part at best. Noise on gradients does the reverse."
)


@dataclass(frozen=True)
class Networks:
    """The section's content. `amplified`: parties with that optimiser."""

    curves: dict[str, Lines]
    clusters: Table
    labels: Table
    scores: Table
    completions: DottedTable
    gain: Table
    gain_reason: str
    reasons: Table
    amplified: list[str]


def networks(document: Document) -> Networks | None:
    """The section of a split network; None of another job, and where a label holder alone is audited."""
    parties = {name: party.network for name, party in document.parties.items() if party.network is not None}
    if document.gain is None or (document.parties and not document.on_labels):
        return None
    # parties without scores have tables and no curves
    drawn = {name: _curves(own.gradient_clusters) for name, own in parties.items() if own.gradient_clusters}
    completions = [
        (figures, _dots(row))
        for name, own in parties.items()
        if own.completion is not None
        for row, figures in zip(own.completion.rows, _completion_rows(name, own), strict=True)
    ]
    return Networks(
        curves={name: curves for name, curves in drawn.items() if curves is not None},
        clusters=Table(CLUSTER_HEADS, [row for name in parties for row in _cluster_rows(name, document.parties[name])]),
        labels=Table(LABEL_HEADS, [row for name, own in parties.items() for row in _label_rows(name, own)]),
        scores=Table(SCORE_HEADS, [row for name, own in parties.items() for row in _score_rows(name, own)]),
        completions=DottedTable(COMPLETION_HEADS, 4, "accuracy, 0 to 1", completions),
        gain=Table(GAIN_HEADS, [row] if (row := gain_row(document)) else []),
        gain_reason=document.gain.reason,
        reasons=Table(
            REASON_HEADS, [[name, what, why] for name, own in parties.items() for what, why in own.reasons.items()]
        ),
        amplified=[name for name, own in parties.items() if own.amplified],
    )


def _cluster_rows(name: str, party: Party) -> list[list[str]]:
    """The clusters of gradients under `CLUSTER_HEADS`, and those of the party's own columns."""
    rows = []
    if party.network is not None and (clusters := party.network.gradient_clusters) is not None:
        at = _epoch(clusters.epoch) if clusters.outcome == "clusters" else clusters.outcome
        sizes = (count(clusters.clusters), clusters.chosen_by, count(clusters.records), count(clusters.left_out))
        rows.append([name, "gradient clusters", score(clusters.v_measure), at, *_scores(clusters), *sizes])
    if (own := party.attacks.get("cl")) is not None:
        rows.append([name, "CL", score(own.v_measure), "–", *_scores(own), count(own.clusters), "–", "–", "–"])
    return rows


def _scores(it: ClusterFigures | AttackResult) -> list[str]:
    return [score(getattr(it, name)) for name in SCORES if name != "v_measure"]


def _label_rows(name: str, figures: NetworkFigures) -> list[list[str]]:
    """The inferred labels under `LABEL_HEADS`."""
    labels = figures.gradient_labels
    if labels is None:
        return []
    right = labels.inferred
    ways = {f"{way}, {_epoch(epoch)}" for way, epoch in zip(labels.ways, labels.epochs, strict=True)}
    return [
        [
            *(name, count(labels.known), *_measured(right), score(labels.majority), score(labels.kept_out)),
            *(count(labels.records), count(labels.left_out), "; ".join(sorted(ways)), score(labels.own_model)),
        ]
    ]


def _score_rows(name: str, figures: NetworkFigures) -> list[list[str]]:
    """The AUCs of single gradients under `SCORE_HEADS`."""
    return [
        [name, what, either_way(scores.auc), _epoch(scores.epoch), count(scores.draws), count(scores.left_out)]
        for what, scores in (("norm-based", figures.norm_scoring), ("direction-based", figures.direction_scoring))
        if scores is not None
    ]


def _completion_rows(name: str, figures: NetworkFigures) -> list[list[str]]:
    """The ways to complete under `COMPLETION_HEADS`."""
    completion = figures.completion
    if completion is None:
        return []
    return [
        [
            *(name, row.head, "tuned" if row.tuned else "frozen"),
            f"all, {count(row.known)}" if row.labels == "all" else count(row.known),
            *_measured(row.completed),
            *(_measured(floor)[0] for floor in (row.untrained, row.scratch, row.scratch_all)),
            *(score(completion.majority), count(completion.records), completion.evaluated_on),
        ]
        for row in completion.rows
    ]


def gain_row(document: Document) -> list[str]:
    """The accuracies of the model under `GAIN_HEADS`; empty where none is at hand."""
    it = document.gain
    if it is None or (it.together, it.alone, it.undefended) == (None, None, None):
        return []
    kept = "–" if it.kept is None else f"{100 * it.kept:.0f} %"
    return [score(it.together), score(it.alone), score(it.gain), score(it.undefended), kept]


def _measured(measured: Measured | None) -> list[str]:
    return ["–", "–"] if measured is None else [score(measured.accuracy), score(measured.deviation)]


def _epoch(epoch: int | None) -> str:
    """An epoch as a reader counts it, from 1."""
    return "all together" if epoch is None else str(epoch + 1)


def _curves(clusters: ClusterFigures) -> Lines | None:
    """V-measure by epoch; None without scores."""
    steps = {row.epoch + 1: row.v_measure for row in clusters.by_epoch if row.epoch is not None}
    if all(value is None for value in steps.values()):
        return None
    rows = [
        [_epoch(row.epoch), row.outcome, score(row.v_measure), score(row.accuracy), count(row.records)]
        for row in clusters.by_epoch
    ]
    table = Table(("epoch", "outcome", "V-measure", "accuracy", "records"), rows)
    values = [steps.get(epoch) for epoch in range(min(steps), max(steps) + 1)]
    look = ("gradient\nclusters", "graph")
    return lines({look: values}, table, ("epoch", "V-measure"), first=min(steps), rows=2)


def _dots(row: CompletionRow) -> Dots:
    accuracies = {name: getattr(row, name) for name in reversed(DOTS)}
    return dots((DOTS[name][1], None if it is None else it.accuracy) for name, it in accuracies.items())

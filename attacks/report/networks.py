"""Split networks: what gradients say about labels, and completion beside the floors that need no training."""

from __future__ import annotations

from treetap.attacks.document import Document, Party
from treetap.attacks.id2graph.schema import AttackResult
from treetap.attacks.networks.schema import ClusterFigures, GainFigures, Measured, NetworkFigures
from treetap.attacks.report.glossary import count, either_way, left_out, score, unscored
from treetap.attacks.scores import SCORES
from treetap.pages.pictures import Lines, dots, lines
from treetap.pages.section import Entry, Key, Section, Table, Text

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
    *("party", "head", "bottom", "labels", "accuracy, 0 to 1", "completed", "±", "untrained bottom", "from scratch"),
    *("from scratch, all labels", "largest class", "records", "measured on"),
)
GAIN_HEADS = ("together", "label holder alone", "gain", "without defence", "gain kept")
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


def networks(document: Document) -> Section | None:
    """The section of a split network; None of another job, and where a label holder alone is audited."""
    parties = {name: party.network for name, party in document.parties.items() if party.network is not None}
    if document.gain is None or (document.parties and not document.on_labels):
        return None
    curves = [_curves(name, own.gradient_clusters) for name, own in parties.items() if own.gradient_clusters]
    clusters = [row for name in parties for row in _cluster_rows(name, document.parties[name])]
    labels = [row for name, own in parties.items() for row in _label_rows(name, own)]
    scores = [
        [name, what, either_way(it.auc), _epoch(it.epoch), count(it.draws), count(it.left_out)]
        for name, own in parties.items()
        for what, it in (("norm-based", own.norm_scoring), ("direction-based", own.direction_scoring))
        if it is not None
    ]
    completions = [row for name, own in parties.items() for row in _completion_rows(name, own)]
    by_clusters = [
        Table(CLUSTER_HEADS, clusters, "Gradients: clusters", names=2),
        Text(
            "The number of clusters is a setting: of the labels at hand, of the audit's file, or that with the "
            "largest silhouette, which an attacker can compute alone. The figures are those of the epoch, or of all "
            "epochs side by side, with the largest V-measure.",
            style="soft",
        ),
    ]
    from_few = Section(
        "Labels from few known ones",
        [
            Text(
                "With some labels known, a record gets the label of the known gradients that are nearest. **Kept "
                "out** is the share of known labels that were named right when kept out, by which the attacker "
                "itself can judge. **Own model** is the accuracy, on the records of evaluation, of a model of its "
                "own columns that was fitted to the inferred labels."
            ),
            Table(LABEL_HEADS, labels, "Gradients: inferred labels"),
        ],
    )
    single = Section(
        "Norm-based and direction-based scoring of single gradients",
        [
            Text(
                "AUC for the second of two classes; 0.5 is no knowledge. Below it the opposite guess is knowledge: its "
                "AUC stands here, “inverted”."
            ),
            Table(SCORE_HEADS, scores, "Gradients: norm-based and direction-based scoring", names=2),
        ],
    )
    completion = Section(
        "Model completion",
        [
            Text(
                "A head on the party's own published model, fitted to known labels. An untrained model of the same "
                "architecture, and a model that is trained from scratch by the party alone, need no federation: only "
                "what exceeds these was learned by taking part."
            ),
            Key("dot", [(style, label) for label, style in DOTS.values()]),
            Table(COMPLETION_HEADS, completions, "Model completion", names=4, words=(4,), style="cards"),
        ],
    )
    reason = document.gain.reason
    return Section(
        "Gradients and the own model",
        [
            Text(
                "In a split network the label holder returns to each feature party the gradient of the loss with "
                "respect to every embedding. The direction of such a gradient follows from the record's label. "
                "**Gradient clusters** sorts the records by it without a label; its V-measure compares the groups "
                "with the classes as those of attacks on trees do. **CL** clusters the party's own columns, without "
                "taking part."
            ),
            Text("See the note at the top on what is scored." if unscored(document) else "", style="notice"),
            Section("", curves, style="grid"),
            *(by_clusters if clusters else []),
            *(section for section, rows in ((from_few, labels), (single, scores), (completion, completions)) if rows),
            *(
                Text(
                    '{} trained with `optimizer = "amplified"`: its figures are of active completion.',
                    name,
                    where="both",
                )
                for name, own in parties.items()
                if own.amplified
            ),
            Text(COVERED, where="both" if document.on_labels else "page"),
            Section(
                "What the federation gains",
                [
                    Table(
                        GAIN_HEADS, _gain(document.gain), "Accuracy of the model, and gain over the label holder alone"
                    ),
                    Text(f"Gain over alone that is kept: {reason}." if reason else "", style="soft", where="both"),
                ],
            ),
            *left_out({name: own.reasons for name, own in parties.items()}),
        ],
        "network",
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


def _completion_rows(name: str, figures: NetworkFigures) -> list[list[Entry]]:
    """The ways to complete under `COMPLETION_HEADS`."""
    completion = figures.completion
    if completion is None:
        return []
    looks = list(reversed(DOTS.items()))
    return [
        [
            *(name, row.head, "tuned" if row.tuned else "frozen"),
            f"all, {count(row.known)}" if row.labels == "all" else count(row.known),
            dots((style, it and it.accuracy) for name, (_, style) in looks for it in [getattr(row, name)]),
            *_measured(row.completed),
            *(_measured(floor)[0] for floor in (row.untrained, row.scratch, row.scratch_all)),
            *(score(completion.majority), count(completion.records), completion.evaluated_on),
        ]
        for row in completion.rows
    ]


def _gain(gain: GainFigures) -> list[list[str]]:
    """The accuracies of the model under `GAIN_HEADS`; no row where none is at hand."""
    if (gain.together, gain.alone, gain.undefended) == (None, None, None):
        return []
    kept = "–" if gain.kept is None else f"{100 * gain.kept:.0f} %"
    return [[score(gain.together), score(gain.alone), score(gain.gain), score(gain.undefended), kept]]


def _measured(measured: Measured | None) -> list[str]:
    return ["–", "–"] if measured is None else [score(measured.accuracy), score(measured.deviation)]


def _epoch(epoch: int | None) -> str:
    """An epoch as a reader counts it, from 1."""
    return "all together" if epoch is None else str(epoch + 1)


def _curves(name: str, clusters: ClusterFigures) -> Lines | None:
    """V-measure by epoch; None without scores."""
    steps = {row.epoch + 1: row.v_measure for row in clusters.by_epoch if row.epoch is not None}
    if all(value is None for value in steps.values()):
        return None
    rows = [
        [_epoch(row.epoch), row.outcome, score(row.v_measure), score(row.accuracy), count(row.records)]
        for row in clusters.by_epoch
    ]
    table = Table(("epoch", "outcome", "V-measure", "accuracy", "records"), rows, "V-measure by epoch")
    label = f"V-measure of the gradient clusters of {name} by epoch"
    values = [steps.get(epoch) for epoch in range(min(steps), max(steps) + 1)]
    look = ("gradient\nclusters", "graph")
    return lines({look: values}, table, ("epoch", "V-measure"), name, label, first=min(steps), rows=2)

"""Settings of attacks on split networks, and their findings in the audit document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from treetap.attacks.schema import Count, DrawingSettings, Findings
from treetap.trees.job_params import Range


@dataclass(frozen=True)
class NetworkSettings(DrawingSettings):
    """Settings of all attacks on a feature party's log and model.

    Attributes:
        most_epochs: epochs whose gradients are attacked at most, evenly spread, with the first and the last.
        most_weights: weights of a bottom that is fitted again at most; of a larger one only heads are fitted.
    """

    ATTACKS: ClassVar = "attacks on networks"
    RANGES: ClassVar = DrawingSettings.RANGES | {
        "most_epochs": Range(1, 1000, integer=True),
        "most_weights": Range(0, 10**9, integer=True),
    }

    most_epochs: int = 10
    most_weights: int = 2_000_000


class EpochClusters(Findings):
    """The clusters of one epoch; of all epochs side by side `epoch` is null. Scores are null without labels.

    `outcome`: `clusters`; `one direction`, if all gradients have the same one; `no gradients`.
    """

    epoch: Count | None
    outcome: Literal["clusters", "one direction", "no gradients"]
    records: Count
    clusters: Count
    v_measure: float | None
    accuracy: float | None


class ClusterFigures(Findings):
    """k-means on the directions of gradients, without a label. The scores have the meaning of those of ID2Graph.

    All figures but the lists are those of `epoch` (null: all side by side), which has the largest V-measure, the first
    of several; without labels the last epoch. `chosen_by`: what gave the number of clusters: the classes of the
    `labels` at hand, `classes` of the audit's file, or the `silhouette`. `left_out`: records that took no part,
    beyond the most records of the settings. `by_epoch` ends with all epochs side by side, where they are.
    """

    epoch: Count | None
    outcome: Literal["clusters", "one direction", "no gradients"]
    records: Count
    left_out: Count
    clusters: Count
    chosen_by: Literal["labels", "classes", "silhouette"]
    v_measure: float | None
    homogeneity: float | None
    completeness: float | None
    ari: float | None
    nmi: float | None
    accuracy: float | None
    named_accuracy: float | None
    by_epoch: list[EpochClusters]


class Measured(Findings):
    """Accuracy over several draws of the known labels: mean, and standard deviation (null of one draw)."""

    accuracy: float
    deviation: float | None
    draws: Count

    @classmethod
    def of(cls, accuracies: Sequence[float]) -> Measured:
        """The mean of the accuracies of several draws, and their spread."""
        deviation = float(np.std(accuracies)) if len(accuracies) > 1 else None
        return cls(accuracy=float(np.mean(accuracies)), deviation=deviation, draws=len(accuracies))


class LabelFigures(Findings):
    """Labels of training records from gradients and `known` labels.

    `inferred`: accuracy among the other records with a gradient, `records` of the first draw; null where there are no
    labels to score by. `majority`: the share of their largest class. `kept_out`: the mean share of the known labels
    that were named right when kept out, which the attacker sees too. `ways`, `epochs`: those chosen, by draw; an epoch
    is null for all side by side. `own_model`: accuracy of a model of the party's own columns that was fitted to the
    inferred labels of the first draw, on the records of evaluation; null where it is among the reasons.
    """

    known: Count
    records: Count
    left_out: Count
    inferred: Measured | None
    majority: float | None
    kept_out: float
    ways: list[str]
    epochs: list[Count | None]
    own_model: float | None


class EpochScore(Findings):
    """The AUC of one epoch, null where one class has no gradient; of `direction-scoring` with the draws' deviation."""

    epoch: Count
    auc: float | None
    deviation: float | None


class ScoreFigures(Findings):
    """A score of gradients for the second of two classes: the epoch whose AUC is farthest from ½, and all of them.

    An AUC below ½ is knowledge of the inverted guess.
    """

    epoch: Count | None
    auc: float | None
    draws: Count
    left_out: Count
    by_epoch: list[EpochScore]


class CompletionRow(Findings):
    """One way to complete the model: `head` on the party's bottom, which is `tuned` with it or frozen.

    `labels`: `n` known ones, or `all` of the training records at hand; `known` says how many. `untrained`: the same
    head on an untrained bottom with the same labels. `scratch`, `scratch_all`: bottom and head from fresh weights, with
    the same labels and with all; null where no bottom is fitted, or not all labels are at hand.
    """

    head: Literal["mlp", "linear"]
    tuned: bool
    labels: Literal["n", "all"]
    known: Count
    completed: Measured
    untrained: Measured
    scratch: Measured | None
    scratch_all: Measured | None


class CompletionFigures(Findings):
    """Model completion, measured on `records` of evaluation: those of the party's `own table` of other records, or some
    of the training `set aside`, on whose labels the published bottom was trained.

    `majority`: the share of their largest class.
    """

    evaluated_on: Literal["own table", "set aside"]
    records: Count
    left_out: Count
    majority: float
    rows: list[CompletionRow]


class NetworkFigures(Findings):
    """All attacks on one party's log and model; `reasons`: attack, or a part of one → why it was left out.

    `epochs`: those with gradients, of which `attacked` were attacked. `sat_out`: batches that the party sat out by
    `party_dropout`. `width`: numbers of a gradient. `amplified`: the party trained with the optimiser of active
    completion, as the manifest of its model says; null where that is not given.
    """

    epochs: Count
    attacked: Count
    sat_out: Count
    width: Count
    amplified: bool | None
    gradient_clusters: ClusterFigures | None = Field(alias="gradient-clusters")
    gradient_labels: LabelFigures | None = Field(alias="gradient-labels")
    norm_scoring: ScoreFigures | None = Field(alias="norm-scoring")
    direction_scoring: ScoreFigures | None = Field(alias="direction-scoring")
    completion: CompletionFigures | None
    reasons: dict[str, str]


class GainFigures(Findings):
    """Accuracies of the trained model on other records: of all parties `together`, of the label holder `alone`, and
    `undefended`, together without a defence.

    `gain`: together less alone. `kept`: that as a share of undefended less alone; null where that is not positive, or
    a figure is not at hand, which `reason` then says.
    """

    together: float | None
    alone: float | None
    undefended: float | None
    gain: float | None
    kept: float | None
    reason: str

    @classmethod
    def of(cls, together: float | None, alone: float | None, undefended: float | None) -> GainFigures:
        """The figures, as far as they follow."""
        accuracies = {"together": together, "alone": alone, "undefended": undefended}
        kept, reason = None, ""
        if together is None or alone is None or undefended is None:
            absent = ", ".join(name for name, value in accuracies.items() if value is None)
            reason = (
                f"{absent}: not at hand; an audit of files alone has not trained them: say them under [accuracy], "
                "as an experiment does"
            )
        elif undefended <= alone:
            reason = "without a defence the parties together are no better than the label holder alone"
        else:
            kept = (together - alone) / (undefended - alone)
        gain = None if together is None or alone is None else together - alone
        return cls(**accuracies, gain=gain, kept=kept, reason=reason)

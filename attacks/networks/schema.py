"""Settings of attacks on split networks, on labels and on other parties' columns, and their findings."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from treetap.arrays import Singles
from treetap.attacks.schema import Count, DrawingSettings, Findings, RangedSettings
from treetap.attacks.verdict import Compared
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


class ClusterFigures(EpochClusters):
    """k-means on the directions of gradients, without a label. The scores have the meaning of those of ID2Graph.

    All figures but the lists are those of `epoch` (null: all side by side), which has the largest V-measure, the first
    of several; without labels the last epoch. `chosen_by`: what gave the number of clusters: the classes of the
    `labels` at hand, `classes` of the audit's file, or the `silhouette`. `left_out`: records that took no part,
    beyond the most records of the settings. `by_epoch` ends with all epochs side by side, where they are.
    """

    left_out: Count
    chosen_by: Literal["labels", "classes", "silhouette"]
    homogeneity: float | None
    completeness: float | None
    ari: float | None
    nmi: float | None
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


@dataclass(frozen=True)
class FeatureSettings(RangedSettings):
    """Settings of all attacks on columns.

    Attributes:
        most_auxiliary: auxiliary records that an attack uses at most; which ones is drawn.
        most_victims: victims that `attributes` and `decode` guess at most; which ones is drawn.
        matched: victims of `match` and `match-exact`, the first of these.
        match_steps: steps of the optimisation of a match.
        total_variation: weight of the total variation of images beside the distance of embeddings.
        most_classes: a column of whole numbers with at most as many different ones is a class, as a column of text is.
        pictures: victims that the document has pictures of.
        seed: number that all draws and initial weights follow from.
    """

    ATTACKS: ClassVar = "attacks on columns"
    RANGES: ClassVar = {
        "most_auxiliary": Range(2, 1_000_000, integer=True),
        "most_victims": Range(1, 1_000_000, integer=True),
        "matched": Range(1, 10_000, integer=True),
        "match_steps": Range(1, 100_000, integer=True),
        "total_variation": Range(0, 1000),
        "most_classes": Range(2, 1000, integer=True),
        "pictures": Range(0, 100, integer=True),
        "seed": Range(0, 2**31 - 1, integer=True),
    }

    most_auxiliary: int = 10_000
    most_victims: int = 2_000
    matched: int = 64
    match_steps: int = 300
    total_variation: float = 0.1
    most_classes: int = 20
    pictures: int = 8
    seed: int = 0


#: The embeddings that an attack is given: as they came, or with mean 0 and deviation 1 in each coordinate.
Scale = Literal["raw", "standardised"]
#: A PNG file as data URL.
PictureUrl = Annotated[str, Field(pattern=r"\Adata:image/png;base64,[A-Za-z0-9+/]*={0,2}\z")]


#: The beginning of a PNG file (ISO/IEC 15948).
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
#: Channels → colour type: grey, colours, colours and opacity.
_COLOURS = {1: 0, 3: 2, 4: 6}


class RecordScores(Findings):
    """Distances of guessed records from the true ones.

    `mse`: of images of pixels in [0, 1], of tables of standardised numbers. `psnr`, in dB, the mean over images, null
    where one has no error; `ssim` (Wang et al. 2004): null of tables, and of images smaller than its window. Of several
    columns of images all are means over the columns.
    """

    mse: float
    psnr: float | None = None
    ssim: float | None = None


class Reconstruction(Findings):
    """One attack that guesses whole records. `headline`: the stronger one, by SSIM of images and MSE of tables.

    Scores are of the images of a table that has some, otherwise of its numbers; null where the victims' columns are not
    at hand. `floor`: the mean auxiliary record.
    """

    attack: str
    records: Count
    raw: RecordScores | None
    standardised: RecordScores | None
    headline: Scale | None
    floor: RecordScores | None
    seconds: float


class ClassScores(Findings):
    """Scores of a guessed class; F1, precision and recall are means over the classes (macro)."""

    accuracy: float
    f1: float
    precision: float
    recall: float


class Attribute(Findings):
    """One column, guessed as a class or as a number.

    `classes`: different ones among the auxiliary records, null of a number. `left_out`: victims without a value.
    `raw`, `standardised`, `floor` (the majority class): of a class; `raw_r2`, `standardised_r2`: of a number, whose
    floor, the mean, is about 0. All are null where no victim has a value, and R² where all have the same. `headline`:
    the stronger one, by accuracy or R².
    """

    name: str
    kind: Literal["class", "number"]
    classes: Count | None
    auxiliary: Count
    records: Count
    left_out: Count
    raw: ClassScores | None = None
    standardised: ClassScores | None = None
    floor: ClassScores | None = None
    raw_r2: float | None = None
    standardised_r2: float | None = None
    headline: Scale | None = None


class Picture(Findings):
    """One victim beside its reconstructions: PNG files as data URLs, by `truth`, `floor` and `ATTACK, SCALE`."""

    column: str
    images: dict[str, PictureUrl]


class VictimFigures(Findings):
    """All attacks on one feature party's columns; `reasons`: attack, or a part of one → why it was left out.

    `source`: embeddings of a training's `epoch` (from 0), or of a prediction, `job`. `auxiliary`, `victims`: records
    used. `scored`: the victims' columns were at hand. `compared`: accuracy of classes and R² of numbers, the mean over
    columns, beside the floor; null where none is scored.
    """

    source: Literal["training", "prediction"]
    job: str
    epoch: Count | None
    width: Count
    auxiliary: Count
    victims: Count
    left_out: Count
    scored: bool
    compared: Compared | None = None
    reconstructions: list[Reconstruction]
    attributes: list[Attribute]
    pictures: list[Picture]
    reasons: dict[str, str]


def png_url(image: Singles) -> str:
    """An image (channels, height, width) of pixels in [0, 1]; its mean channel where it has not 1, 3 or 4."""
    shown = image if len(image) in _COLOURS else image.mean(axis=0, keepdims=True)
    pixels = np.rint(np.clip(shown, 0.0, 1.0) * 255).astype(np.uint8).transpose(1, 2, 0)
    height, width, channels = pixels.shape
    lines = b"".join(b"\x00" + line.tobytes() for line in pixels)  # 0: a line without a filter
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOURS[channels], 0, 0, 0)
    content = _SIGNATURE
    for kind, part in ((b"IHDR", header), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b"")):
        content += struct.pack(">I", len(part)) + kind + part + struct.pack(">I", zlib.crc32(kind + part))
    return "data:image/png;base64," + base64.b64encode(content).decode()


def attribute_figure(column: Attribute, what: Scale | Literal["floor"] | None) -> float | None:
    """Accuracy of a class, or R² of a number, by embeddings or of the floor, which is 0 of a number.

    None where it is not scored, and for None, the stronger scale of a column that is not.
    """
    if what is None:
        return None
    if column.kind == "class":
        scores = getattr(column, what)
        return None if scores is None else float(scores.accuracy)
    if what == "floor":
        return None if column.raw_r2 is None else 0.0
    return column.raw_r2 if what == "raw" else column.standardised_r2


def record_strength(guess: Reconstruction, scale: Scale) -> float | None:
    """SSIM of images; of tables, and of images smaller than its window, the share of the floor's error that is removed.

    None where nothing is scored. Below 0 the mean auxiliary record is nearer.
    """
    scores, floor = getattr(guess, scale), guess.floor
    if scores is None or floor is None:
        return None
    if scores.ssim is not None:
        return float(scores.ssim)
    return float(1.0 - scores.mse / floor.mse) if floor.mse else float(not scores.mse)

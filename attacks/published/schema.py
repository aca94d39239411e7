"""What a holder of a published model learns of records of its training: the document of this audit.

A motivated intruder test: what the intruder `knew`, what it `tried`, and what it got: the verdicts and the figures
behind them. And what scores of predictions tell their recipient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import AwareDatetime, Field

from treetap.attacks.schema import Count, Findings, RangedSettings
from treetap.attacks.verdict import Compared, Verdict
from treetap.trees.job_params import Range

Artefact = Literal["card", "answers", "export", "export and answers"]
#: Artefact → the words for it in verdicts, and what it holds.
HELD: dict[Artefact, tuple[str, str]] = {
    "card": ("the card", "metrics, importances by party and the sizes of trees"),
    "answers": ("served answers", "class, probability and score of each record by its id"),
    "export": ("the export", "thresholds, leaf weights and covers of all trees, hence the score of any record"),
    "export and answers": ("the export and served answers", "both, hence the score that fits the record's own"),
}


class Membership(Findings):
    """Whether a record was in the training, by one artefact.

    `auc`, with its 95 % interval `low` to `high`: the chance that of a record of the training and another one the first
    is told apart; of the better of the ways that were tried, `how`. `found`: the share of the training's records that
    are named where 1 % of the others are named wrongly, `found_low` to `found_high` with 95 %. `compared`: the AUC
    beside that of a guess without the artefact.
    """

    artefact: Artefact
    how: str
    auc: float
    low: float
    high: float
    found: float
    found_low: float
    found_high: float
    compared: Compared


class ColumnGuess(Findings):
    """One column of records of the training, guessed by one artefact, beside a guess by the other columns alone.

    `bins`: the values that are told apart: categories, or of a number the intervals between the model's thresholds.
    `records`: those that were guessed. `compared`: by accuracy, or of numbers also by explained variance (R²).
    """

    artefact: Artefact
    party: str
    column: str
    kind: Literal["number", "category"]
    bins: Count
    records: Count
    compared: Compared


class PublishedDocument(Findings):
    """The audit of one published model.

    `records`: that took part, half of them `members`, records of the training; `left_out`: of the table. `seconds`: of
    a processor, with the shadow models. `reasons`: what was not measured → why.
    """

    model: str
    protocol: str
    parties: list[str]
    records: Count
    members: Count
    left_out: Count
    shadow_models: Count
    most_shadow_models: Count
    seconds: float = Field(ge=0)
    most_seconds: float = Field(gt=0)
    seed: Count
    created: AwareDatetime
    treetap: str
    knew: list[str]
    tried: list[str]
    verdicts: list[Verdict]
    membership: list[Membership]
    member_columns: list[ColumnGuess]
    reasons: dict[str, str]


@dataclass(frozen=True)
class DecodingSettings(RangedSettings):
    """Settings of path decoding and prediction inversion.

    Attributes:
        records: most records whose leaves are decoded; which ones is drawn.
        work: most sums on one side of a join, and most combinations kept. 2^21 take half a second and 100 MB a record.
        rounds: random parts searched for two solutions before a record beyond the work bound stays undecided.
        seed: number that all draws follow from.
    """

    ATTACKS: ClassVar = "attacks on predictions"
    RANGES: ClassVar = {
        "records": Range(1, 1_000_000, integer=True),
        "work": Range(2, 2**26, integer=True),
        "rounds": Range(1, 10_000, integer=True),
        "seed": Range(0, 2**31 - 1, integer=True),
    }

    records: int = 200
    work: int = 2**18
    rounds: int = 4
    seed: int = 0


class DecodedPaths(Findings):
    """Path decoding of `records`, some of those that were scored.

    Records by outcome: `unique`, one choice of leaves gives the score, so that the whole path is known; `several`, two
    or more do; `undecided`, beyond the bound of work; `contradicted`, none does, since the files are of another model
    or table. `leaves_known`: the mean share of the trees whose leaf is certain. `candidate_bits`: log2 of the
    combinations of leaves that the own columns leave open, the median; `output_bits`: log2 of the sums that are
    possible, null where the weights are not all known.
    """

    records: Count
    left_out: Count
    trees: Count
    unique: Count
    several: Count
    undecided: Count
    contradicted: Count
    leaves_known: float
    candidate_bits: float
    output_bits: float | None
    seconds: float


class InvertedWeights(Findings):
    """Prediction inversion by the scores of all `records`.

    Of `leaves` of all trees the recipient had the exact weight of all but `unknown`, those below its own splits;
    `solved` of these follow exactly from scores. `before`, `after`: the paths that it can decode without these weights
    and with them, of the records whose leaves all have a known weight.
    """

    records: Count
    leaves: Count
    unknown: Count
    solved: Count
    before: DecodedPaths
    after: DecodedPaths


class PredictionFigures(Findings):
    """The attacks on one prediction by its `recipient`, who got the scores; null of one that is not on its `protocol`.

    `reasons`: attack → why it was left out; `faults`: gaps of the transcript.
    """

    OMITTED: ClassVar = ("path_decoding", "prediction_inversion")

    recipient: str
    model: str
    protocol: str
    records: Count
    path_decoding: DecodedPaths | None = None
    prediction_inversion: InvertedWeights | None = None
    reasons: dict[str, str]
    faults: list[str]
    signed: str

"""Settings of attacks on the scores of predictions, and their findings in the audit document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from treetap.attacks.schema import Count, Findings, RangedSettings
from treetap.trees.job_params import Range


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

"""The results of attacks on the scores of predictions, in the audit document."""

from __future__ import annotations

from typing import ClassVar

from attacks.findings import Count, Findings


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

"""Prediction inversion: how many hidden leaf weights follow from scores, and what path decoding finds with them."""

from __future__ import annotations

from attacks.predictions.evidence import MASKED, ScoreEvidence
from attacks.predictions.masked_trees import invert
from attacks.predictions.path_decoding import decoded
from attacks.predictions.results import InvertedWeights


def prediction_inversion(evidence: ScoreEvidence) -> InvertedWeights | None:
    """Find weights by the scores of all records; None, with a reason, of encrypted sums, whose reader has them."""
    if not evidence.is_of("prediction-inversion", MASKED):
        return None
    before = evidence.trees
    after = invert(before, evidence.sums)
    unknown, left = (sum(int((~tree.known).sum()) for tree in trees) for trees in (before, after))
    return InvertedWeights(
        records=len(evidence.sums),
        leaves=sum(len(tree.leaves) for tree in before),
        unknown=unknown,
        solved=unknown - left,
        before=decoded(evidence, before),
        after=decoded(evidence, after),
    )

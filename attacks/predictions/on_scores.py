"""The attacks on the scores of a prediction: path decoding, and prediction inversion with path decoding after it.

Path decoding says how many records' leaves follow from their score, prediction inversion how many hidden leaf weights.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

import numpy as np

from treetap.attacks.predictions.evidence import ENCRYPTED, MASKED, ScoreEvidence
from treetap.attacks.predictions.masked_trees import MaskedTree, decode_paths, invert
from treetap.attacks.predictions.schema import DecodedPaths, InvertedWeights


def path_decoding(evidence: ScoreEvidence) -> DecodedPaths | None:
    """Decode the scores that the label holder opened; None, with a reason, of masked sums."""
    if not evidence.is_of("path-decoding", ENCRYPTED):
        return None
    return decoded(evidence, evidence.trees)


def decoded(evidence: ScoreEvidence, trees: Sequence[MaskedTree]) -> DecodedPaths:
    """Decode some records by trees with weights; of a record with a possible leaf of unknown weight nothing follows."""
    records, settings = evidence.tried, evidence.settings
    outcomes: Counter[str] = Counter()
    shares, begun = [], time.perf_counter()
    for record in records.tolist():
        paths = decode_paths(trees, evidence.sums, record, work=settings.work, rounds=settings.rounds)
        outcomes["undecided" if paths is None else paths.outcome] += 1
        shares.append(0.0 if paths is None or not len(paths.leaves) else float((paths.leaves >= 0).mean()))
    bits = np.sum([np.log2(tree.possible[records].sum(axis=1)) for tree in trees], axis=0)
    return DecodedPaths(
        records=len(records),
        left_out=len(evidence.sums) - len(records),
        trees=len(trees),
        unique=outcomes["unique"],
        several=outcomes["several"],
        undecided=outcomes["undecided"],
        contradicted=outcomes["none"],
        leaves_known=float(np.mean(shares)) if shares else 0.0,
        candidate_bits=float(np.median(bits)) if len(records) else 0.0,
        output_bits=evidence.output_bits,
        seconds=time.perf_counter() - begun,
    )


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

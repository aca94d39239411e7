"""Path decoding of a prediction: how many records' leaves follow from their score, and how many leaves in the mean."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

import numpy as np

from attacks.predictions.evidence import ENCRYPTED, ScoreEvidence
from attacks.predictions.masked_trees import MaskedTree, decode_paths
from attacks.predictions.results import DecodedPaths


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

"""The differential attack (Zhu et al. 2023, Theorem 2): sums over two sets that differ in a few records.

With known scores a sum of g = p − y over known records is the number k of records of the second class among them. Two
nested sets give the number in their difference, and where that is 0, or all, the labels of the records.

A source whose candidates' sums are open to it has such sets: consecutive candidates of a column differ in the records
of one bin. In PIVODL the split party opens them, which knows no record of a candidate; a transcript of an honest run
holds no sum of a candidate, and the sets that are left are nodes of trees, of at least as many records as the
thresholds permit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from treetap.attacks.pivodl.evidence import SharedLabelEvidence
from treetap.attacks.pivodl.schema import DifferentialFigures
from treetap.attacks.pivodl.solved_gains import SolvedGains
from treetap.attacks.scores import UNKNOWN
from treetap.attacks.view.known_trees import Ints
from treetap.attacks.view.pivodl_view import PivodlTree
from treetap.trees.loss import UNIT

Floats = npt.NDArray[np.float64]
#: Records, and how many of them are of the second class.
Count = tuple[Ints, int]


def counted(records: Ints, sums: Ints, negative: Ints, one: int = UNIT) -> Count | None:
    """The records of the second class behind a sum (2,) of g and h over records with known scores.

    `negative`: (n, 2) their g and h if all were of the first class. `one`: the difference that the class makes to g.
    None where the sum is none of these records.
    """
    positives = round((int(negative[:, 0].sum()) - int(sums[0])) / one)
    return (records, positives) if 0 <= positives <= len(records) else None


def differences(nested: Sequence[Count]) -> list[Count]:
    """The sets between consecutive ones of a chain, each of which holds the one before it."""
    between = list(nested[:1])
    for (inner, few), (outer, more) in pairwise(nested):
        between.append((np.setdiff1d(outer, inner, assume_unique=True), more - few))
    return between


def recovered(counts: Iterable[Count], total: int) -> Ints:
    """(N,) labels 0 and 1 of the records in sets of one class; `UNKNOWN` of others."""
    labels = np.full(total, UNKNOWN, dtype=np.int64)
    for records, positives in counts:
        if len(records) and positives in (0, len(records)):
            labels[records] = 1 if positives else 0
    return labels


def differential(evidence: SharedLabelEvidence) -> DifferentialFigures:
    """The attack on the sets of a transcript: by messages alone, and with the sums that solved gains give away."""
    sets, inverted = _sets(evidence, inverted=False), _sets(evidence, inverted=True)
    labels, right = _revealed(evidence, sets)
    by_inversion, right_by_inversion = _revealed(evidence, inverted)
    return DifferentialFigures(
        opened_by_source=sum(tree.opened_by_source for tree in evidence.view.trees),
        known_sums=len(sets),
        smallest_set=min((len(rows) for rows, _ in sets), default=None),
        labels=labels,
        labels_right=right,
        labels_by_inversion=by_inversion,
        labels_right_by_inversion=right_by_inversion,
    )


def _revealed(evidence: SharedLabelEvidence, sets: list[Count]) -> tuple[int, int | None]:
    """The number of records of other parties whose label follows, and how many of these labels are right."""
    labels, truth = recovered(sets, evidence.records), evidence.truth
    labels[evidence.view.own] = UNKNOWN
    known = labels != UNKNOWN
    return int(known.sum()), None if truth is None else int((labels[known] == truth[known]).sum())


def _sets(evidence: SharedLabelEvidence, *, inverted: bool) -> list[Count]:
    """The known nodes with known sums, whose records' scores are known: by messages, or by solved gains as well."""
    solved, counts = evidence.solved, []
    for tree, scores, solution in zip(evidence.view.trees, solved.scores, solved.trees, strict=True):
        sums = solution.sums if inverted else tree.sums
        counts += [count for node in sums if (count := _of_node(solved, tree, node, sums[node], scores)) is not None]
    return counts


def _of_node(solved: SolvedGains, tree: PivodlTree, node: int, sums: Ints, scores: Floats) -> Count | None:
    rows = tree.records(node)
    if rows is None or np.isnan(scores[rows]).any():
        return None
    return counted(rows, sums, solved.negative(rows, scores), UNIT)

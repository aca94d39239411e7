"""The labels that a feature party can guess before a training and after it, by the measure of an audit's verdict.

Accuracy of groups that are matched to classes; where a class is rare, so that always naming the most frequent one is
right for most records, the AUC by few known labels. Before: by own columns, or the most frequent class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attacks.advice.results import Measure
from attacks.known_labels.evidence import SignatureEvidence
from attacks.known_labels.labels import KnownLabels
from attacks.known_labels.names import macro_auc
from attacks.known_labels.naming import regressed
from attacks.known_labels.schema import KnownSettings
from attacks.scores import majority
from attacks.verdict import unbalanced
from attacks.view.known_trees import TreeView
from treetap.commands.frontier.stored import Guess
from treetap.tables.labels import Labels
from treetap.trees.local_values import Floats, Ints

#: The attack by known labels.
NAMING = "known-regression"
#: Settings of the attacks by known labels: few draws, since a frontier has many trainings.
KNOWN: Mapping[str, Any] = {"draws": 5}
#: Rows by which labels are named: the nodes that a party knows, its own columns, both.
KINDS = ("nodes", "columns", "both")
#: The AUC of guessing.
CHANCE = 0.5


def measure_of(labels: Ints) -> Measure:
    """The measure for a table with these classes (N,)."""
    return "AUC" if unbalanced(np.bincount(labels).tolist()) else "accuracy"


def by_groups(accuracies: Mapping[str, float], own: str, labels: Ints) -> Guess:
    """The best of attacks that group records. `own`: the one that needs no training."""
    before = max(accuracies[own], majority(labels))
    return Guess(before=before, after=max(before, *accuracies.values()))


def by_names(results: Mapping[str, Any] | None) -> Guess:
    """The attack by known labels. `results`: `known-regression` of an audit; None: nothing could be named."""
    if results is None:
        return Guess(before=CHANCE, after=CHANCE)
    reached = {kind: CHANCE if (it := results[kind]) is None else it["auc"]["mean"] for kind in KINDS}
    return _guess(reached)


def named_centrally(trees: Sequence[TreeView], features: Floats, labels: Labels) -> Guess:
    """The same attack on a view of a training on the joined table, without the audit's control.

    `features`: own columns (N, d), categories one-hot.
    """
    from scipy import sparse

    known = KnownLabels.of(len(labels.values), labels, None)
    evidence = SignatureEvidence(trees, known, features, KnownSettings.read(dict(KNOWN)))
    if evidence.obstacle:
        return by_names(None)
    rows: dict[str, Any] = {"nodes": evidence.memberships}
    if (own := evidence.standardised) is not None:
        rows |= {"columns": own, "both": sparse.hstack([rows["nodes"], sparse.csr_matrix(own)], format="csr")}
    reached = dict.fromkeys(KINDS, CHANCE)
    for kind, it in rows.items():
        aucs = []
        for places, named in evidence.drawn:
            every = np.zeros((len(named), len(labels.classes)))
            classes, chances = regressed(it[places], it[named], evidence.truth[places])
            every[:, classes] = chances
            aucs.append(macro_auc(every, evidence.truth[named]))
        reached[kind] = float(np.mean(aucs))
    return _guess(reached)


def _guess(reached: Mapping[str, float]) -> Guess:
    before = max(CHANCE, reached["columns"])
    return Guess(before=before, after=max(before, *reached.values()))

"""The labels that a feature party can guess before a training and after it, by the measure of an audit's verdict.

Where a class is rare, so that always naming the most frequent one is right for most records, the AUC by few known
labels: the verdict's own figures, by the same draws. Else the accuracy of groups that are matched to classes. Before:
by own columns, or the most frequent class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from treetap.attacks.advice.results import Measure
from treetap.attacks.known_labels.compared import compared_names
from treetap.attacks.known_labels.evidence import SignatureEvidence
from treetap.attacks.known_labels.labels import KnownLabels
from treetap.attacks.known_labels.naming import WAYS, named_by_rows
from treetap.attacks.known_labels.rankings import first_component, heaviest_cut, vote
from treetap.attacks.known_labels.schema import KnownSettings
from treetap.attacks.scores import majority
from treetap.attacks.verdict import Compared, Verdict, unbalanced
from treetap.attacks.view.known_trees import TreeView
from treetap.lab.frontier.stored import Guess
from treetap.tables.labels import Labels
from treetap.trees.local_values import Floats, Ints

#: The AUC of guessing.
CHANCE = 0.5


def measure_of(labels: Ints) -> Measure:
    """The measure for a table with these classes (N,)."""
    return "AUC" if unbalanced(np.bincount(labels).tolist()) else "accuracy"


def by_groups(accuracies: Mapping[str, float], own: str, labels: Ints) -> Guess:
    """The best of attacks that group records. `own`: the one that needs no training."""
    before = max(accuracies[own], majority(labels))
    return Guess(before=before, after=max(before, *accuracies.values()))


def by_names(told: Compared | Verdict | None) -> Guess:
    """The attacks by known labels, as an audit compares them; other verdicts and None: nothing could be named."""
    if told is None or told.measure != "AUC" or told.before is None or told.after is None:
        return Guess(before=CHANCE, after=CHANCE)
    return Guess(before=told.before, after=told.after, drawn=told.drawn or 0.0)


def named_centrally(trees: Sequence[TreeView], features: Floats, labels: Labels, settings: Mapping[str, Any]) -> Guess:
    """The same attacks on a view of a training on the joined table, without the audit's control.

    `features`: own columns (N, d), categories one-hot.
    """
    known = KnownLabels.of(len(labels.values), labels, None)
    evidence = SignatureEvidence(trees, known, features, KnownSettings.read(settings))
    with threadpool_limits(1):  # tens of small fits: threads would wait for each other
        for name in () if evidence.obstacle else WAYS:
            named_by_rows(evidence, name)
        for attack in (first_component, vote, heaviest_cut):
            attack(evidence)
    return by_names(next(compared_names(evidence), None))

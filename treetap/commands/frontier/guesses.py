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
from attacks.known_labels.schema import KnownSettings
from attacks.registry import Needs, rows
from attacks.scores import majority
from attacks.verdict import unbalanced
from attacks.view.known_trees import TreeView
from treetap.commands.frontier.stored import Guess
from treetap.tables.labels import Labels
from treetap.trees.local_values import Floats, Ints

#: Settings of the attacks by known labels: few draws, since a frontier has many trainings.
KNOWN: Mapping[str, Any] = {"draws": 5}
#: The AUC of guessing.
CHANCE = 0.5


def measure_of(labels: Ints) -> Measure:
    """The measure for a table with these classes (N,)."""
    return "AUC" if unbalanced(np.bincount(labels).tolist()) else "accuracy"


def by_groups(accuracies: Mapping[str, float], own: str, labels: Ints) -> Guess:
    """The best of attacks that group records. `own`: the one that needs no training."""
    before = max(accuracies[own], majority(labels))
    return Guess(before=before, after=max(before, *accuracies.values()))


def by_names(results: Mapping[str, Mapping[str, Any]]) -> Guess:
    """The best of attacks by known labels. `results`: as an audit's document has them; none where nothing is known."""
    own = [it["columns"]["auc"]["mean"] for it in results.values() if it["columns"] is not None]
    told = [it[kind]["auc"]["mean"] for it in results.values() for kind in ("nodes", "both") if it[kind] is not None]
    before = max([CHANCE, *own])
    return Guess(before=before, after=max([before, *told]))


def named_centrally(trees: Sequence[TreeView], features: Floats, labels: Labels) -> Guess:
    """The same for a view of a training on the joined table. `features`: own columns (N, d), categories one-hot."""
    known = KnownLabels.of(len(labels.values), labels, None)
    evidence = SignatureEvidence(trees, known, features, KnownSettings.read(dict(KNOWN)))
    results = {name: row.run(evidence) for name, row in rows(Needs.KNOWN_LABELS).items()}
    return by_names({name: it.model_dump() for name, it in results.items() if it is not None})

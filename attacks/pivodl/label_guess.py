"""The label guess of PIVODL (Zhu et al. 2023, Definition 9): the sign of the leaf weights that a party received.

A party adds up, for each record that another party labels, the weights of the leaves in which it knows the record to
be: of leaves below its own splits, with noise where the job has epsilon; and, where a leaf's sibling may be split, of
leaves below other parties' splits, whose records follow by difference, and whose weight it has as owner of labels. It
guesses the second class where the sum is above 0; of several classes the one with the largest sum.

Beside it stands what the party could tell without any weight, by a model of the labels that it has itself: a logistic
one of the innermost known node of each record in each tree, and boosted trees of its own columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from attacks.pivodl.evidence import Floats, SharedLabelEvidence, Weights
from attacks.pivodl.schema import GuessFigures, LabelGuess
from attacks.scores import auc, majority
from attacks.view.known_trees import Ints
from attacks.view.pivodl_view import PivodlTree, PivodlView, Weight

Bools = npt.NDArray[np.bool_]
#: The weight (K,) that counts for a leaf of a tree, or None for none.
Choice = Callable[[PivodlTree, int, Weight], "Floats | None"]


def received(tree: PivodlTree, leaf: int, weight: Weight) -> Floats | None:
    """Every weight, as the party received it."""
    del tree, leaf
    return weight.value


def from_own_splits(view: PivodlView) -> Choice:
    """Weights of leaves below the party's own splits: those to which noise is added."""
    return lambda tree, leaf, weight: weight.value if tree.source_above(leaf) == view.party else None


def exact_only(tree: PivodlTree, leaf: int, weight: Weight) -> Floats | None:
    """Weights that came without noise."""
    del tree, leaf
    return weight.value if weight.exact else None


def in_place_of(known: Weights) -> Choice:
    """Weights as received, but those of `known` where it has the leaf."""
    return lambda tree, leaf, weight: known.get((tree.view.index, leaf), weight.value)


def summed(view: PivodlView, records: int, choice: Choice = received, trees: int | None = None) -> tuple[Floats, Bools]:
    """Weights (N, K) added up over the records that the party does not label, and which (N,) have any.

    Of the first `trees` trees; None: of all.
    """
    sums, guessed = np.zeros((records, view.params.width)), np.zeros(records, dtype=bool)
    for tree in view.trees[:trees]:
        for leaf, weight in tree.weights.items():
            rows, value = tree.records(leaf), choice(tree, leaf, weight)
            if rows is not None and value is not None:
                sums[rows] += value
                guessed[rows] = True
    sums[view.own], guessed[view.own] = 0.0, False
    return sums, guessed


def score(sums: tuple[Floats, Bools], labels: Ints | None) -> GuessFigures:
    """The guess by the sums of the records that have any: above 0, or the largest of several.

    `labels` (N,): numbers of classes.
    """
    scores, guessed = sums
    if labels is None or not guessed.any():
        return GuessFigures(records=int(guessed.sum()), accuracy=None, inverted=None, majority=None, auc=None)
    chosen, two = scores[guessed], scores.shape[1] == 1
    guesses = (chosen[:, 0] > 0).astype(np.int64) if two else chosen.argmax(axis=1)
    return _figures(guesses, chosen[:, 0], labels[guessed], two=two)


def _figures(guesses: Ints, scores: Floats, truth: Ints, *, two: bool) -> GuessFigures:
    accuracy = float((guesses == truth).mean())
    return GuessFigures(
        records=len(truth),
        accuracy=accuracy,
        inverted=1.0 - accuracy if two else None,
        majority=majority(truth),
        auc=auc(scores, truth) if two else None,
    )


def label_guess(evidence: SharedLabelEvidence) -> LabelGuess:
    """The guess by all weights, by some of them, and by models that take no weights."""
    view, records, features = evidence.view, evidence.records, evidence.features
    truth = None if view.params.regression else evidence.truth

    def guess(choice: Choice = received, trees: int | None = None) -> GuessFigures:
        return score(summed(view, records, choice, trees), truth)

    inverted = {(tree.index, leaf): value for tree in evidence.solved.trees for leaf, value in tree.weights.items()}
    noise = view.params.epsilon is not None
    # what noise hides can be told only if the exact weight of every leaf reached some audited party
    hides = noise and all((tree.view.index, leaf) in evidence.exact for tree in view.trees for leaf in tree.weights)
    steps = [guess(trees=trees) for trees in range(1, len(view.trees) + 1)]
    return LabelGuess(
        **guess().model_dump(),
        others=records - len(view.own),
        epsilon=view.params.epsilon,
        as_source=guess(from_own_splits(view)),
        exact=guess(exact_only) if noise else None,
        without_noise=guess(in_place_of(evidence.exact)) if hides else None,
        after_inversion=guess(in_place_of(inverted)) if noise else None,
        own_labels_and_spaces=None if truth is None else _by_spaces(view, truth),
        own_labels_and_columns=None if truth is None or features is None else _by_columns(view, features, truth),
        accuracy_by_tree=[step.accuracy for step in steps],
        auc_by_tree=[step.auc for step in steps],
    )


def _by_spaces(view: PivodlView, labels: Ints) -> GuessFigures | None:
    """A logistic model of the known nodes; None where the party's own labels are of one class or its trees unknown."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import OneHotEncoder

    if not view.trees:
        return None
    cells = np.stack([tree.view.cells() for tree in view.trees], axis=1)
    return _own_model(view, OneHotEncoder(handle_unknown="ignore").fit_transform(cells), labels, LogisticRegression())


def _by_columns(view: PivodlView, columns: Floats, labels: Ints) -> GuessFigures | None:
    """Boosted trees of the party's own columns (N, d), NaN where missing."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    return _own_model(view, columns, labels, HistGradientBoostingClassifier(random_state=0))


def _own_model(view: PivodlView, inputs: Any, labels: Ints, model: Any) -> GuessFigures | None:
    """A model that is fitted on the records that the party labels, and judged on the others."""
    own = view.own
    others = np.setdiff1d(np.arange(len(labels)), own)
    if len(np.unique(labels[own])) < 2 or not len(others):
        return None
    model.fit(inputs[own], labels[own])
    chances = model.predict_proba(inputs[others])
    guesses = model.classes_[chances.argmax(axis=1)]
    return _figures(guesses, chances[:, -1], labels[others], two=view.params.width == 1)

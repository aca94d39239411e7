"""The label guess of PIVODL (Zhu et al. 2023, Definition 9): the sign of the leaf weights that a party received.

A party adds up, for each record that another party labels, the weights of the leaves in which it knows the record to
be: of leaves below its own splits, with noise where the job has epsilon; and, where a leaf's sibling may be split, of
leaves below other parties' splits, whose records follow by difference, and whose weight it has as owner of labels. It
guesses the second class where the sum is above 0; of several classes the one with the largest sum.

Beside it stands what the party could tell without any weight, by a model of the labels that it has itself: a logistic
one of the innermost known node of each record in each tree, and boosted trees of its own columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from treetap.arrays import Bools, Floats, Ints
from treetap.attacks.known_labels.names import macro_auc
from treetap.attacks.pivodl.evidence import SharedLabelEvidence, Weights
from treetap.attacks.pivodl.schema import GuessFigures, LabelGuess
from treetap.attacks.scores import auc, majority
from treetap.attacks.verdict import MOST_FREQUENT, Compared, paired_error, unbalanced
from treetap.attacks.view.pivodl_view import PivodlView


def received(view: PivodlView, *, exact: bool = False, own: bool = False) -> Weights:
    """The weights that the party received, as they came.

    `exact`: those without noise alone. `own`: those alone of leaves below its own splits, to which noise is added.
    """
    return {
        (tree.view.index, leaf): weight.value
        for tree in view.trees
        for leaf, weight in tree.weights.items()
        if (weight.exact or not exact) and (not own or tree.source_above(leaf) == view.party)
    }


def summed(view: PivodlView, records: int, weights: Weights, trees: int | None = None) -> tuple[Floats, Bools]:
    """Weights (N, K) added up over the records that the party does not label, and which (N,) have any.

    Of the first `trees` trees; None: of all.
    """
    sums, guessed = np.zeros((records, view.params.width)), np.zeros(records, dtype=bool)
    for tree in view.trees[:trees]:
        for leaf in tree.weights:
            rows, value = tree.records(leaf), weights.get((tree.view.index, leaf))
            if rows is not None and value is not None:
                sums[rows] += value
                guessed[rows] = True
    sums[view.own], guessed[view.own] = 0.0, False
    return sums, guessed


class _Guess(NamedTuple):
    """A guess of labels: the records (n,), their guessed classes, and a number that grows with that of class 1."""

    rows: Ints
    classes: Ints
    scores: Floats

    def figures(self, truth: Ints, *, two: bool) -> GuessFigures:
        """Its quality by the labels (N,)."""
        right = truth[self.rows]
        accuracy = float((self.classes == right).mean())
        return GuessFigures(
            records=len(right),
            accuracy=accuracy,
            inverted=1.0 - accuracy if two else None,
            majority=majority(right),
            auc=auc(self.scores, right) if two else None,
        )


def _by_sums(sums: tuple[Floats, Bools]) -> _Guess:
    """The guess of the records that have any sum: above 0, or the largest of several."""
    rows = np.flatnonzero(sums[1])
    chosen = sums[0][rows]
    classes = (chosen[:, 0] > 0).astype(np.int64) if chosen.shape[1] == 1 else chosen.argmax(axis=1)
    return _Guess(rows, classes, chosen[:, 0])


def score(sums: tuple[Floats, Bools], labels: Ints | None) -> GuessFigures:
    """The quality of the guess by sums; `labels` (N,): numbers of classes."""
    guess = _by_sums(sums)
    if labels is None or not len(guess.rows):
        return GuessFigures(records=len(guess.rows), accuracy=None, inverted=None, majority=None, auc=None)
    return guess.figures(labels, two=sums[0].shape[1] == 1)


def label_guess(evidence: SharedLabelEvidence) -> LabelGuess:
    """The guess by all weights, by some of them, and by models that take no weights."""
    view, records, features = evidence.view, evidence.records, evidence.features
    truth = None if view.params.regression else evidence.truth

    def guess(weights: Weights, trees: int | None = None) -> GuessFigures:
        return score(summed(view, records, weights, trees), truth)

    every, exact, own = received(view), received(view, exact=True), received(view, own=True)
    inverted = {(tree.index, leaf): value for tree in evidence.solved.trees for leaf, value in tree.weights.items()}
    noise = view.params.epsilon is not None
    # what noise hides can be told only if the exact weight of every leaf reached some audited party
    hides = noise and all((tree.view.index, leaf) in evidence.exact for tree in view.trees for leaf in tree.weights)
    steps = [guess(every, trees) for trees in range(1, len(view.trees) + 1)]
    two = view.params.width == 1
    spaces = None if truth is None else _by_spaces(view, truth)
    columns = None if truth is None or features is None else _by_columns(view, features, truth)
    if truth is not None:
        ways: dict[str, tuple[Weights, int]] = {
            f"leaf weights of {trees} trees": (every, trees) for trees in range(1, len(view.trees) + 1)
        }
        if noise:
            ways["exact leaf weights"] = exact, len(view.trees)
            ways["leaf weights from gains"] = {**every, **inverted}, len(view.trees)
        trained = {how: _by_sums(summed(view, records, *way)) for how, way in ways.items()}
        trained |= {} if spaces is None else {"own labels and nodes": spaces}
        others = np.setdiff1d(np.arange(records), view.own)
        evidence.compared.extend(_compared(trained, columns, truth, others, two=two))
    return LabelGuess(
        **guess(every).model_dump(),
        others=records - len(view.own),
        epsilon=view.params.epsilon,
        as_source=guess(own),
        exact=guess(exact) if noise else None,
        without_noise=guess({**every, **evidence.exact}) if hides else None,
        after_inversion=guess({**every, **inverted}) if noise else None,
        own_labels_and_spaces=None if truth is None or spaces is None else spaces.figures(truth, two=two),
        own_labels_and_columns=None if truth is None or columns is None else columns.figures(truth, two=two),
        accuracy_by_tree=[step.accuracy for step in steps],
        auc_by_tree=[step.auc for step in steps],
    )


def _by_spaces(view: PivodlView, labels: Ints) -> _Guess | None:
    """A logistic model of the known nodes; None where the party's own labels are of one class or its trees unknown."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import OneHotEncoder

    if not view.trees:
        return None
    cells = np.stack([tree.view.cells() for tree in view.trees], axis=1)
    return _own_model(view, OneHotEncoder(handle_unknown="ignore").fit_transform(cells), labels, LogisticRegression())


def _by_columns(view: PivodlView, columns: Floats, labels: Ints) -> _Guess | None:
    """Boosted trees of the party's own columns (N, d), NaN where missing."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    return _own_model(view, columns, labels, HistGradientBoostingClassifier(random_state=0))


def _own_model(view: PivodlView, inputs: Any, labels: Ints, model: Any) -> _Guess | None:
    """A model that is fitted on the records that the party labels, and judged on the others."""
    own = view.own
    others = np.setdiff1d(np.arange(len(labels)), own)
    if len(np.unique(labels[own])) < 2 or not len(others):
        return None
    model.fit(inputs[own], labels[own])
    chances = model.predict_proba(inputs[others])
    return _Guess(others, model.classes_[chances.argmax(axis=1)], chances[:, -1])


def _compared(
    trained: Mapping[str, _Guess], columns: _Guess | None, truth: Ints, others: Ints, *, two: bool
) -> Iterator[Compared]:
    """The best guess of the labels (N,) of others beside a model of own labels and columns, or the most frequent class.

    Records that a guess leaves out are named by the most frequent class. Of two classes the opposite guess counts too.
    """
    if not len(others) or not trained:
        return
    right, frequent = truth[others], int(np.bincount(truth[others]).argmax())
    by_auc = two and unbalanced(np.bincount(right).tolist())

    def told(guess: _Guess) -> tuple[float, Floats]:
        """The figure, and by record what adds up to it: right ones, or influences."""
        if by_auc:
            scores = np.zeros(len(truth))
            scores[guess.rows] = guess.scores
            value = auc(scores[others], right)
            influence = macro_auc(scores[others][:, None], 1 - right)[1]
            return (
                (0.5, influence) if value is None else (value, influence) if value >= 0.5 else (1 - value, -influence)
            )
        classes = np.full(len(truth), frequent, dtype=np.int64)
        classes[guess.rows] = guess.classes
        hits = (classes[others] == right).astype(np.float64)
        if two and hits.mean() < 0.5:
            hits = 1 - hits
        return float(hits.mean()), hits

    figures = {how: told(guess) for how, guess in trained.items()}
    best = max(figures, key=lambda how: figures[how][0])
    before, how = (0.5, np.zeros(len(right))), "guessing"
    if not by_auc:
        before, how = (majority(right), (right == frequent).astype(np.float64)), MOST_FREQUENT
    if columns is not None and (own := told(columns))[0] > before[0]:
        before, how = own, "own labels and columns"
    difference = figures[best][1] - before[1]
    yield Compared(
        measure="AUC" if by_auc else "accuracy",
        before=before[0],
        before_how=how,
        reached=figures[best][0],
        reached_how=best,
        error=float(np.sqrt((difference**2).sum())) if by_auc else paired_error(difference),
        tries=len(figures) * (2 if two else 1),
        details="shared",
    )

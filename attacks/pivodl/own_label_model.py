"""What a party could tell of other parties' labels without any leaf weight: a model of the labels that it has itself.

Two are fitted on the records that the party labels, and judged on the others: a logistic model of the innermost known
node of each record in each tree, and boosted trees of the party's own columns, which need no training together.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from attacks.pivodl.label_guess import Guess, auc
from attacks.view.known_trees import Ints
from attacks.view.pivodl_view import PivodlView

Floats = npt.NDArray[np.float64]


def by_spaces(view: PivodlView, labels: Ints) -> Guess | None:
    """A logistic model of the known nodes; None where the party's own labels are of one class or its trees unknown."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import OneHotEncoder

    if not view.trees:
        return None
    cells = np.stack([tree.view.cells() for tree in view.trees], axis=1)
    return _judged(view, OneHotEncoder(handle_unknown="ignore").fit_transform(cells), labels, LogisticRegression())


def by_columns(view: PivodlView, columns: Floats, labels: Ints) -> Guess | None:
    """Boosted trees of the party's own columns (N, d), NaN where missing."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    return _judged(view, columns, labels, HistGradientBoostingClassifier(random_state=0))


def _judged(view: PivodlView, inputs: Any, labels: Ints, model: Any) -> Guess | None:
    own = view.own
    others = np.setdiff1d(np.arange(len(labels)), own)
    if len(np.unique(labels[own])) < 2 or not len(others):
        return None
    model.fit(inputs[own], labels[own])
    truth, found = labels[others], model.predict_proba(inputs[others])
    accuracy = float((model.classes_[found.argmax(axis=1)] == truth).mean())
    majority = float(np.bincount(truth).max() / len(others))
    two = view.params.width == 1
    return Guess(
        len(others), accuracy, 1 - accuracy if two else None, majority, auc(found[:, -1], truth) if two else None
    )

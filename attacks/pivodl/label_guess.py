"""The label guess of PIVODL (Zhu et al. 2023, Definition 9): the sign of the leaf weights that a party received.

A party adds up, for each record that another party labels, the weights of the leaves in which it knows the record to
be: of leaves below its own splits, with noise where the job has epsilon; and, where a leaf's sibling may be split, of
leaves below other parties' splits, whose records follow by difference, and whose weight it has as owner of labels. It
guesses the second class where the sum is above 0; of several classes the one with the largest sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from attacks.view.known_trees import Ints
from attacks.view.pivodl_view import PivodlTree, PivodlView, Weight

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
#: The weight (K,) that counts for a leaf of a tree, or None for none.
Choice = Callable[[PivodlTree, int, Weight], "Floats | None"]
#: Weights by (tree, leaf).
Weights = Mapping[tuple[int, int], Floats]


@dataclass(frozen=True, eq=False)
class Sums:
    """Accumulated weights (N, K) of each record, and the number of leaves (N,) behind each."""

    total: Floats
    leaves: Ints


@dataclass(frozen=True)
class Guess:
    """How well a guess of the labels of some records does; None without labels or records.

    Attributes:
        records: those that are guessed.
        accuracy: share of right guesses.
        inverted: that of the opposite guess, of two classes.
        majority: that of always naming the class that is most frequent among these records.
        auc: probability that a record of the second class has a larger sum than one of the first, of two classes.
    """

    records: int
    accuracy: float | None
    inverted: float | None
    majority: float | None
    auc: float | None


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


def summed(view: PivodlView, records: int, choice: Choice = received, trees: int | None = None) -> Sums:
    """Weights added up over the records that the party does not label, of the first `trees` trees."""
    found = Sums(np.zeros((records, view.params.width)), np.zeros(records, dtype=np.int64))
    for tree in view.trees[:trees]:
        for leaf, weight in tree.weights.items():
            rows, value = tree.records(leaf), choice(tree, leaf, weight)
            if rows is not None and value is not None:
                found.total[rows] += value
                found.leaves[rows] += 1
    found.total[view.own], found.leaves[view.own] = 0.0, 0
    return found


def score(sums: Sums, labels: Ints | None) -> Guess:
    """The guess over the records that have some weight; `labels` (N,) are numbers of classes."""
    return judged(sums.total, sums.leaves > 0, labels)


def judged(scores: Floats, guessed: Bools, labels: Ints | None) -> Guess:
    """The guess of some records by scores (N, K): above 0, or the largest of several."""
    records = int(guessed.sum())
    if labels is None or not records:
        return Guess(records, None, None, None, None)
    truth, found = labels[guessed], scores[guessed]
    two = scores.shape[1] == 1
    guesses = (found[:, 0] > 0).astype(np.int64) if two else found.argmax(axis=1)
    accuracy = float((guesses == truth).mean())
    majority = float(np.bincount(truth).max() / records)
    return Guess(records, accuracy, 1.0 - accuracy if two else None, majority, auc(found[:, 0], truth) if two else None)


def auc(scores: Floats, positive: Ints) -> float | None:
    """Area under the ROC curve, ties half; None without records of both classes."""
    from scipy.stats import rankdata

    ones = int((positive == 1).sum())
    others = len(positive) - ones
    if not ones or not others:
        return None
    ranks = rankdata(scores)[positive == 1].sum()
    return float((ranks - ones * (ones + 1) / 2) / (ones * others))


def after_each_tree(view: PivodlView, records: int, labels: Ints | None) -> Sequence[Guess]:
    """The guess by the weights of the first tree, the first two, and so on."""
    return [score(summed(view, records, trees=trees), labels) for trees in range(1, len(view.trees) + 1)]

"""Agreement of clusters with the true labels. Only the scorer uses it: an attacker has no labels."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields

import numpy as np
import numpy.typing as npt

from treetap.arrays import Array, Bools, Floats, Ints
from treetap.errors import BadInput
from treetap.tables.labels import Labels
from treetap.trees import metrics as measures
from treetap.trees.information import class_entropy, mutual_information, numbered


@dataclass(frozen=True)
class Scores:
    """V-measure (Rosenberg & Hirschberg 2007) with its two parts, adjusted Rand index, normalised mutual information
    (arithmetic mean, hence equal to V), and two accuracies.

    `accuracy`: after the best one-to-one matching of clusters to classes, which takes labels. `named_accuracy`: with
    the largest cluster named after the largest class, the second after the second, and so on, which takes the sizes of
    the classes alone.
    """

    v_measure: float
    homogeneity: float
    completeness: float
    ari: float
    nmi: float
    accuracy: float
    named_accuracy: float


#: Stands for the class of a record whose label is not known.
UNKNOWN = -1
#: The measures by name.
SCORES = tuple(field.name for field in fields(Scores))


def scores(labels: Labels | None, clusters: Ints) -> dict[str, float | None]:
    """All measures of a guess by name; None each where there are no labels."""
    return dict.fromkeys(SCORES) if labels is None else asdict(score(labels.values, clusters))


def majority(labels: Ints) -> float:
    """The share of the largest class."""
    return float(np.bincount(labels).max() / len(labels))


def auc(chances: Floats, labels: Ints) -> float | None:
    """The chance that a record of class 1 has a larger number than one of class 0, ties half; None of one class."""
    return measures.auc(chances, labels) if 0 < int(labels.sum()) < len(labels) else None


def score(labels: npt.ArrayLike, clusters: npt.ArrayLike) -> Scores:
    """Scores of clusters (N,) against labels (N,) of any type that can be sorted.

    More clusters than classes leave some unmatched: their records count as wrong in both accuracies.

    Raises:
        BadInput: not two one-dimensional arrays of the same length, or empty ones.
    """
    truth, guess = _numbers(labels, "labels"), _numbers(clusters, "clusters")
    if len(truth) != len(guess):
        raise BadInput(f"{len(truth)} labels but {len(guess)} clusters: score the same records")
    shared, both = mutual_information(truth, guess), numbered(truth * (guess.max() + 1) + guess)[1]
    sizes = (np.bincount(truth), np.bincount(guess))
    entropies = [class_entropy(of) for of in sizes]
    homogeneity, completeness = (shared / it if it else 1.0 for it in entropies)
    mean = sum(entropies) / 2
    v_measure = shared / mean if mean else 1.0
    # adjusted Rand index (Hubert, Arabie 1985) by pairs of records of one class, of one group, of both, and of all:
    # whole numbers, so that ties are exact
    in_class, in_group, alike = (int((of * (of - 1)).sum()) // 2 for of in (*sizes, both))
    every = len(truth) * (len(truth) - 1) // 2
    expected, most = in_class * in_group, every * (in_class + in_group)
    # The share of records right when clusters and classes are matched by the order of their sizes; where sizes are
    # equal their order is a guess: the mean over all orders.
    (of_kind, kinds), (of_group, groups) = _places(truth), _places(guess)
    cells, count = np.unique(truth * len(groups) + guess, return_counts=True)
    kind, group = cells // len(groups), cells % len(groups)
    first = np.maximum(of_kind[kind], of_group[group])
    last = np.minimum((of_kind + kinds)[kind], (of_group + groups)[group])
    matched = np.maximum(0, last - first) / (kinds[kind] * groups[group])
    return Scores(
        v_measure=v_measure,
        homogeneity=homogeneity,
        completeness=completeness,
        ari=1.0 if in_class == alike == in_group else 2 * (every * alike - expected) / (most - 2 * expected),
        nmi=v_measure,
        accuracy=float(_matched(truth, guess).mean()),
        named_accuracy=float((count * matched).sum() / len(truth)),
    )


def v_measure(labels: Ints, clusters: Ints) -> float:
    """The same measure as `score` has it, of few classes (N,) and few clusters (N,), both numbered from 0."""
    many = int(clusters.max()) + 1
    table = np.bincount(labels * many + clusters, minlength=(int(labels.max()) + 1) * many).reshape(-1, many)
    of_classes, of_clusters, joint = map(class_entropy, (table.sum(axis=1), table.sum(axis=0), table.ravel()))
    both = of_classes + of_clusters
    return 2 * (both - joint) / both if both else 1.0


def matched(labels: npt.ArrayLike, clusters: npt.ArrayLike) -> Bools:
    """The records (N,) that the best one-to-one matching of clusters to classes names right. Raises as `score` does."""
    return _matched(_numbers(labels, "labels"), _numbers(clusters, "clusters"))


def _matched(truth: Ints, guess: Ints) -> Bools:
    # Records per class and cluster, (C, clusters), only for clusters that an optimal matching may need: the C largest
    # of each class, as the other C - 1 classes cannot match them all. The table thus has at most C² columns.
    kinds, groups = int(truth.max()) + 1, int(guess.max()) + 1
    cells, count = np.unique(truth * groups + guess, return_counts=True)
    kind, group = cells // groups, cells % groups
    order = np.lexsort((-count, kind))
    kind, group, count = kind[order], group[order], count[order]
    rank = np.arange(len(kind)) - np.searchsorted(kind, kind)
    kept = np.unique(group[rank < kinds])
    here = np.isin(group, kept)
    table = np.zeros((kinds, len(kept)), dtype=np.int64)
    table[kind[here], np.searchsorted(kept, group[here])] = count[here]
    taken, named = assigned(-table.astype(np.float64)), np.full(int(guess.max()) + 1, UNKNOWN, dtype=np.int64)
    named[kept[taken[taken >= 0]]] = np.flatnonzero(taken >= 0)
    return np.asarray(named[guess] == truth)


def assigned(cost: Floats) -> Ints:
    """The column (n,) of each row at the least sum of costs (n, m), no column twice; −1 of a row beyond m.

    By scipy's linear_sum_assignment (Crouse 2016, "On implementing 2D rectangular assignment algorithms").
    """
    from scipy.optimize import linear_sum_assignment

    columns = np.full(len(cost), -1)
    rows, taken = linear_sum_assignment(cost)
    columns[rows] = taken
    return columns


def midranks(values: Array) -> Floats:
    """Ranks (n,) of values, from ½, equal ones the same; NaN of NaN."""
    ranks, here = np.full(len(values), np.nan), ~np.isnan(values)
    value, counts = np.unique(values[here], return_inverse=True, return_counts=True)[1:]
    ranks[here] = (np.cumsum(counts) - counts / 2)[value]
    return ranks


def _places(numbers: Ints) -> tuple[Ints, Ints]:
    """Of each number from 0: its first place, from 0, in the order of sizes, largest first, and how many share it."""
    sizes = np.bincount(numbers)
    ascending = np.sort(sizes)
    upto = np.searchsorted(ascending, sizes, side="right")
    return len(sizes) - upto, upto - np.searchsorted(ascending, sizes, side="left")


def _numbers(values: npt.ArrayLike, name: str) -> Ints:
    given: Array = np.asarray(values)
    if given.ndim != 1 or not len(given):
        raise BadInput(f"{name}: a one-dimensional array of at least one record is needed, not shape {given.shape}")
    if given.dtype.kind == "i":
        return numbered(given.astype(np.int64))[0]
    return np.unique(given, return_inverse=True)[1].astype(np.int64)

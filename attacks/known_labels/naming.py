"""`known-neighbours` and `known-regression`: from few known labels and the nodes of trees to all other labels.

The nodes are those of which a party knows the records, over all trees: together they are the record's signature. Both
attacks are fitted by nodes, by the party's own columns alone, which is what it can do without the protocol, and by the
two together.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from attacks.known_labels.evidence import SignatureEvidence
from attacks.known_labels.names import Named, auc_influence
from attacks.known_labels.schema import Averaged, KnownLabelResult, Naming
from attacks.scores import auc

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
#: Inverse strength of the penalty on weights, of rows of length 1.
_INVERSE_PENALTY = 10.0
#: Names chances (n, classes) of the named records, by known records and their classes.
_Way = Callable[[Any, Any, Ints], tuple[Ints, Floats]]


def known_neighbours(evidence: SignatureEvidence) -> KnownLabelResult | None:
    """The label of each record by a vote of the nearest known ones, by inverse distance (Cover, Hart 1967)."""
    return _result(evidence, "known-neighbours", partial(_nearest, evidence.settings.neighbours))


def known_regression(evidence: SignatureEvidence) -> KnownLabelResult | None:
    """The label of each record by a logistic regression on the known ones."""
    return _result(evidence, "known-regression", _regressed)


def _result(evidence: SignatureEvidence, name: str, way: _Way) -> KnownLabelResult | None:
    """The attack by each kind of rows; None, with a reason, where it cannot run."""
    if evidence.obstacle:
        evidence.reasons[name] = evidence.obstacle
        return None
    from scipy import sparse

    start = time.perf_counter()
    nodes, columns = evidence.memberships, evidence.standardised
    both = None if columns is None else sparse.hstack([nodes, sparse.csr_matrix(columns)], format="csr")

    def of_truth(kind: str, rows: Any) -> Naming | None:
        if rows is None:
            return None
        figures, evidence.named[name, kind] = _named(evidence, way, rows, evidence.truth)
        return figures

    figures = {kind: of_truth(kind, rows) for kind, rows in (("nodes", nodes), ("columns", columns), ("both", both))}
    return KnownLabelResult(
        **figures,
        reassigned=_named(evidence, way, nodes, evidence.reassigned)[0],
        reassigned_columns=None if columns is None else _named(evidence, way, columns, evidence.reassigned)[0],
        seconds=time.perf_counter() - start,
    )


def _named(evidence: SignatureEvidence, way: _Way, rows: Any, truth: Ints) -> tuple[Naming, Named]:
    """The figures of an attack by these rows (n, ·), over all draws, and record by record; `truth`: classes (n,)."""
    aucs, precisions, rights, influences = [], [], [], []
    for known, named in evidence.drawn:
        classes, chances = way(rows[known], rows[named], truth[known])
        every = np.zeros((len(named), len(evidence.known.classes)))
        every[:, classes] = chances
        right = truth[named]
        aucs.append(macro_auc(every, right))
        precisions.append(precision_first(every[:, evidence.rarest], right == evidence.rarest, evidence.settings.first))
        by_record = np.full((2, len(truth)), [[np.nan], [0.0]])
        by_record[:, named] = every.argmax(axis=1) == right, auc_influence(every, right)
        rights.append(by_record[0])
        influences.append(by_record[1])
    result = Named(aucs, precisions, rights, influences)
    accuracies = [float(np.nanmean(draw)) for draw in rights]
    figures = Naming(auc=Averaged.of(aucs), precision=Averaged.of(precisions), accuracy=Averaged.of(accuracies))
    return figures, result


def macro_auc(chances: Floats, truth: Ints) -> float:
    """The mean AUC of all classes (n, classes) that some but not all records have, each against the others.

    Of two classes both have the same, unless their chances are tied otherwise. ½ where all records are of one class.
    """
    aucs = [auc(chances[:, number], (truth == number).astype(np.int64)) for number in range(chances.shape[1])]
    scored = [value for value in aucs if value is not None]
    return float(np.mean(scored)) if scored else 0.5


def precision_first(chances: Floats, right: npt.NDArray[np.bool_], first: int) -> float:
    """The share that is right among the `first` records with the largest chances (n,); the mean over orders of ties."""
    first = min(first, len(chances))
    least = np.partition(chances, len(chances) - first)[len(chances) - first]
    above, tied = chances > least, chances == least
    places = first - int(above.sum())
    return float((right[above].sum() + places * right[tied].mean()) / first)


def _nearest(neighbours: int, known: Any, named: Any, labels: Ints) -> tuple[Ints, Floats]:
    """The vote of the nearest known rows (k, ·) on each named one (n, ·)."""
    from sklearn.neighbors import KNeighborsClassifier

    model = KNeighborsClassifier(min(neighbours, len(labels)), weights="distance", algorithm="brute")
    model.fit(known, labels)
    return model.classes_, model.predict_proba(named)


def _regressed(known: Any, named: Any, labels: Ints) -> tuple[Ints, Floats]:
    """The chances by a logistic regression; certainty of the only class that is known."""
    from sklearn.linear_model import LogisticRegression

    if len(classes := np.unique(labels)) < 2:
        return classes, np.ones((named.shape[0], 1))
    model = LogisticRegression(C=_INVERSE_PENALTY, max_iter=1000).fit(known, labels)
    return model.classes_, model.predict_proba(named)

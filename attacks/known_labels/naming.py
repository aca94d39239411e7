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
from attacks.known_labels.names import Named, named_by
from attacks.known_labels.schema import Averaged, KnownLabelResult, Naming

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
#: Inverse strength of the penalty on weights, of rows of length 1.
_INVERSE_PENALTY = 10.0
#: Draws of the control, which a verdict does not need.
_CONTROLS = 5
#: Names chances (n, classes) of the named records, by known records and their classes.
_Way = Callable[[Any, Any, Ints], tuple[Ints, Floats]]


def known_neighbours(evidence: SignatureEvidence) -> KnownLabelResult | None:
    """The label of each record by a vote of the nearest known ones, by inverse distance (Cover, Hart 1967)."""
    return _result(evidence, "known-neighbours", partial(_nearest, evidence.settings.neighbours))


def known_regression(evidence: SignatureEvidence) -> KnownLabelResult | None:
    """The label of each record by a logistic regression on the known ones."""
    return _result(evidence, "known-regression", regressed)


def _result(evidence: SignatureEvidence, name: str, way: _Way) -> KnownLabelResult | None:
    """The attack by each kind of rows; None, with a reason, where it cannot run."""
    if evidence.obstacle:
        evidence.reasons[name] = evidence.obstacle
        return None
    from scipy import sparse

    start = time.perf_counter()
    nodes, columns = evidence.memberships, evidence.standardised
    both = None if columns is None else sparse.hstack([nodes, sparse.csr_matrix(columns)], format="csr")

    def of_truth(kind: str, rows: Any) -> Naming:
        figures, evidence.named[name, kind] = _named(evidence, way, rows, evidence.truth)
        return figures

    return KnownLabelResult(
        nodes=of_truth("nodes", nodes),
        columns=None if columns is None else of_truth("columns", columns),
        both=None if both is None else of_truth("both", both),
        reassigned=_named(evidence, way, nodes, evidence.reassigned, _CONTROLS)[0],
        reassigned_columns=None
        if columns is None
        else _named(evidence, way, columns, evidence.reassigned, _CONTROLS)[0],
        seconds=time.perf_counter() - start,
    )


def _named(
    evidence: SignatureEvidence, way: _Way, rows: Any, truth: Ints, draws: int | None = None
) -> tuple[Naming, Named]:
    """The figures of an attack by these rows (n, ·), over all or the first draws, and record by record.

    `truth`: classes (n,).
    """
    from sklearn import config_context

    drawn = []
    with config_context(assume_finite=True, skip_parameter_validation=True):  # tens of small fits
        for known, named in evidence.drawn[:draws]:
            classes, chances = way(rows[known], rows[named], truth[known])
            every = np.zeros((len(named), len(evidence.known.classes)))
            every[:, classes] = chances
            drawn.append((named, every))
    result = named_by(drawn, truth, evidence.rarest, evidence.settings.first)
    figures = (result.aucs, result.firsts, [float(np.nanmean(draw)) for draw in result.right])
    auc, precision, accuracy = (Averaged.of(values) for values in figures)
    return Naming(auc=auc, precision=precision, accuracy=accuracy), result


def _nearest(neighbours: int, known: Any, named: Any, labels: Ints) -> tuple[Ints, Floats]:
    """The vote of the nearest known rows (k, ·) on each named one (n, ·)."""
    from sklearn.neighbors import KNeighborsClassifier

    model = KNeighborsClassifier(min(neighbours, len(labels)), weights="distance", algorithm="brute")
    model.fit(known, labels)
    return model.classes_, model.predict_proba(named)


def regressed(known: Any, named: Any, labels: Ints) -> tuple[Ints, Floats]:
    """The chances by a logistic regression; certainty of the only class that is known."""
    from sklearn.linear_model import LogisticRegression

    if len(classes := np.unique(labels)) < 2:
        return classes, np.ones((named.shape[0], 1))
    model = LogisticRegression(C=_INVERSE_PENALTY, max_iter=1000).fit(known, labels)
    return model.classes_, model.predict_proba(named)

"""`known-neighbours` and `known-regression`: from few known labels and the nodes of trees to all other labels.

The nodes are those of which a party knows the records, over all trees: together they are the record's signature. Both
attacks are fitted by nodes, by the party's own columns alone, which is what it can do without the protocol, and by the
two together.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from treetap.attacks.known_labels.evidence import Rows, SignatureEvidence
from treetap.attacks.known_labels.names import Named, named_by
from treetap.attacks.known_labels.schema import Averaged, KnownLabelResult, KnownSettings, Naming

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
#: Inverse strength of the penalty on weights, of rows of length 1.
_INVERSE_PENALTY = 10.0
#: Squared distances are 0 up to this many units in the last place of what they are the difference of.
_ROUNDED = 16
#: Records whose distances are computed together: few enough for them to stay in a processor's cache.
_TOGETHER = 2000
#: Draws of the control, which a verdict does not need.
_CONTROLS = 5
#: Names chances (u, classes) of unlike rows, by settings, known rows, all rows, and classes of the known ones.
Way = Callable[[KnownSettings, Any, Rows, Ints], tuple[Ints, Floats]]


def known_neighbours(evidence: SignatureEvidence) -> KnownLabelResult | None:
    """The label of each record by a vote of the nearest known ones, by inverse distance (Cover, Hart 1967)."""
    return _result(evidence, "known-neighbours")


def known_regression(evidence: SignatureEvidence) -> KnownLabelResult | None:
    """The label of each record by a logistic regression on the known ones."""
    return _result(evidence, "known-regression")


def named_by_rows(evidence: SignatureEvidence, name: str) -> dict[str, Naming]:
    """The figures of an attack by each kind of rows; the evidence gets what it named."""
    figures = {}
    for kind, rows in evidence.rows.items():
        figures[kind], evidence.named[name, kind] = _named(evidence, WAYS[name], rows, evidence.truth)
    return figures


def _result(evidence: SignatureEvidence, name: str) -> KnownLabelResult | None:
    """The attack by each kind of rows, and its control; None, with a reason, where it cannot run."""
    if evidence.obstacle:
        evidence.reasons[name] = evidence.obstacle
        return None
    start, figures = time.perf_counter(), dict.fromkeys(("columns", "both")) | named_by_rows(evidence, name)
    control = {
        kind: _named(evidence, WAYS[name], evidence.rows[kind], evidence.reassigned, _CONTROLS)[0]
        for kind in ("nodes", "columns")
        if kind in evidence.rows
    }
    return KnownLabelResult.model_validate(
        {
            **figures,
            "reassigned": control["nodes"],
            "reassigned_columns": control.get("columns"),
            "seconds": time.perf_counter() - start,
        }
    )


def _named(
    evidence: SignatureEvidence, way: Way, rows: Rows, truth: Ints, draws: int | None = None
) -> tuple[Naming, Named]:
    """The figures of an attack by these rows, over all or the first draws, and record by record.

    `truth`: classes (n,).
    """
    drawn = []
    for known, named in evidence.drawn[:draws]:
        classes, chances = way(evidence.settings, rows.every[known], rows, truth[known])
        every = np.zeros((len(chances), len(evidence.known.classes)))
        every[:, classes] = chances
        drawn.append((named, every, rows.alike[named]))
    result = named_by(drawn, truth, evidence.rarest, evidence.settings.first)
    figures = (result.aucs, result.firsts, [float(np.nanmean(draw)) for draw in result.right])
    auc, precision, accuracy = (Averaged.of(values) for values in figures)
    return Naming(auc=auc, precision=precision, accuracy=accuracy), result


def _nearest(settings: KnownSettings, known: Any, rows: Rows, labels: Ints) -> tuple[Ints, Floats]:
    """The vote of the nearest known rows (k, ·) on each unlike one, by inverse distance; of equal ones alone."""
    classes, of_known = np.unique(labels, return_inverse=True)
    known = known.toarray() if hasattr(known, "toarray") else known
    lengths, chances = (known**2).sum(axis=1), np.empty((len(classes), len(rows.lengths)), dtype=known.dtype)
    for some, products in rows.times(-2 * known.T, _TOGETHER):
        squares, both = products, rows.lengths[some] + lengths
        squares += both
        both *= _ROUNDED * np.finfo(both.dtype).eps
        squares *= squares >= both
        near = _smallest(squares, min(settings.neighbours, len(labels)))
        with np.errstate(divide="ignore"):
            votes = 1 / np.sqrt(squares.ravel()[near])
        equal = np.isinf(votes)
        votes = np.where(equal.any(axis=0), equal, votes)
        of_near = of_known[near % len(labels)]
        for number in range(len(classes)):
            chances[number, some] = (votes * (of_near == number)).sum(axis=0)
    return classes, (chances / chances.sum(axis=0)).T


def _smallest(values: Floats, count: int) -> Ints:
    """Places (count, n) among all values of the smallest ones of each row (n, ·), in any order; of equal ones any."""
    within = values <= np.partition(values, count - 1, axis=1)[:, count - 1, None]
    places = np.flatnonzero(within)
    if len(places) > count * len(values):  # some are equal
        some = np.argpartition(values, count - 1, axis=1)[:, :count]
        places = some + np.arange(0, values.size, values.shape[1])[:, None]
    return np.ascontiguousarray(places.reshape(-1, count).T)


def regressed(known: Any, rows: Rows, labels: Ints) -> tuple[Ints, Floats]:
    """The chances of unlike rows by a logistic regression; certainty of the only class that is known.

    The steps are those of scikit-learn's solver, whose checks of its input take longer than so small a fit.
    """
    from scipy.optimize import minimize

    classes, of_known = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        return classes, np.ones((len(rows.which), 1))
    beside_one = np.hstack([known.toarray() if hasattr(known, "toarray") else known, np.ones((len(labels), 1))])
    # of two classes the first one's weights are 0
    truth, free = np.eye(len(classes))[of_known], slice(int(len(classes) == 2), None)
    penalty = 1 / (_INVERSE_PENALTY * len(labels))
    weights = np.zeros((len(classes), beside_one.shape[1]))

    def loss(flat: Floats) -> tuple[float, Floats]:
        weights[free] = flat.reshape(-1, beside_one.shape[1])
        chances, logarithms = _chances(beside_one @ weights.T)
        unlike = -logarithms[truth > 0].mean()
        gradient = (chances - truth)[:, free].T @ beside_one / len(beside_one)
        gradient[:, :-1] += penalty * weights[free, :-1]
        return float(unlike + penalty / 2 * (weights[:, :-1] ** 2).sum()), gradient.ravel()

    options = {"maxiter": 1000, "maxls": 50, "gtol": 1e-4, "ftol": 64 * np.finfo(np.float64).eps}
    fitted = minimize(loss, weights[free].ravel(), method="L-BFGS-B", jac=True, options=options)
    weights[free] = fitted.x.reshape(-1, beside_one.shape[1])
    products = np.concatenate([some for _, some in rows.times(weights[:, :-1].T, _TOGETHER)])
    return classes, _chances(products + weights[:, -1])[0]


def _chances(margins: Floats) -> tuple[Floats, Floats]:
    """Chances (n, classes), and their logarithms."""
    lower = margins - margins.max(axis=1, keepdims=True)
    shares = np.exp(lower)
    total = shares.sum(axis=1, keepdims=True)
    return shares / total, lower - np.log(total)


#: Attack → how it names records.
WAYS: dict[str, Way] = {
    "known-neighbours": _nearest,
    "known-regression": lambda _, known, rows, labels: regressed(known, rows, labels),
}

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

from treetap.attacks.known_labels.evidence import SignatureEvidence
from treetap.attacks.known_labels.names import Named, named_by
from treetap.attacks.known_labels.schema import Averaged, KnownLabelResult, KnownSettings, Naming

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
#: Inverse strength of the penalty on weights, of rows of length 1.
_INVERSE_PENALTY = 10.0
#: Squared distances are 0 up to this many units in the last place of what they are the difference of.
_ROUNDED = 16
#: Draws of the control, which a verdict does not need.
_CONTROLS = 5
#: Names chances (n, classes) of the named records, by settings, known records and their classes.
Way = Callable[[KnownSettings, Any, Any, Ints], tuple[Ints, Floats]]


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
    evidence: SignatureEvidence, way: Way, rows: Any, truth: Ints, draws: int | None = None
) -> tuple[Naming, Named]:
    """The figures of an attack by these rows (n, ·), over all or the first draws, and record by record.

    `truth`: classes (n,).
    """
    from sklearn import config_context

    drawn, (first, alike) = [], _alike(rows)
    unlike = rows[first]
    with config_context(assume_finite=True, skip_parameter_validation=True):  # tens of small fits
        for known, named in evidence.drawn[:draws]:
            classes, chances = way(evidence.settings, rows[known], unlike, truth[known])
            every = np.zeros((len(named), len(evidence.known.classes)))
            every[:, classes] = chances[alike[named]]
            drawn.append((named, every))
    result = named_by(drawn, truth, evidence.rarest, evidence.settings.first)
    figures = (result.aucs, result.firsts, [float(np.nanmean(draw)) for draw in result.right])
    auc, precision, accuracy = (Averaged.of(values) for values in figures)
    return Naming(auc=auc, precision=precision, accuracy=accuracy), result


def _alike(rows: Any) -> tuple[Ints, Ints]:
    """One of each set of equal rows (n, ·), and the number (n,) of each row's set."""
    told = rows @ np.random.default_rng(0).random(rows.shape[1])  # equal rows have equal sums, and others do not
    return np.unique(told, return_index=True, return_inverse=True)[1:]


def _nearest(settings: KnownSettings, known: Any, named: Any, labels: Ints) -> tuple[Ints, Floats]:
    """The vote of the nearest known rows (k, ·) on each named one (n, ·), by inverse distance; of equal ones alone."""
    classes, of_known = np.unique(labels, return_inverse=True)
    known = known.toarray() if hasattr(known, "toarray") else known
    lengths = named.multiply(named).sum(axis=1) if hasattr(named, "multiply") else (named**2).sum(axis=1, keepdims=True)
    both = np.asarray(lengths) + (known**2).sum(axis=1)
    squares = both - 2 * (named @ known.T)
    squares[squares < _ROUNDED * np.finfo(squares.dtype).eps * both] = 0
    count = min(settings.neighbours, len(labels))
    near = np.argpartition(squares, count - 1, axis=1)[:, :count]
    distances = np.sqrt(np.take_along_axis(squares, near, axis=1))
    with np.errstate(divide="ignore"):
        votes = 1 / distances
    equal = np.isinf(votes)
    votes = np.where(equal.any(axis=1, keepdims=True), equal, votes)
    chances = np.stack([(votes * (of_known[near] == number)).sum(axis=1) for number in range(len(classes))], axis=1)
    return classes, chances / chances.sum(axis=1, keepdims=True)


def regressed(known: Any, named: Any, labels: Ints) -> tuple[Ints, Floats]:
    """The chances by a logistic regression; certainty of the only class that is known."""
    from sklearn.linear_model import LogisticRegression

    if len(classes := np.unique(labels)) < 2:
        return classes, np.ones((named.shape[0], 1))
    model = LogisticRegression(C=_INVERSE_PENALTY, max_iter=1000).fit(known, labels)
    return model.classes_, model.predict_proba(named)


#: Attack → how it names records.
WAYS: dict[str, Way] = {
    "known-neighbours": _nearest,
    "known-regression": lambda _, known, named, labels: regressed(known, named, labels),
}

"""All attacks on one feature party's log and model of a split network, as the audit document has them.

Needs PyTorch, which modules that commands import at start do not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from attacks.networks.binary_scores import cosine_auc, norm_auc
from attacks.networks.completion_figures import completion_figures, majority, measured, own_model_accuracy
from attacks.networks.evidence import Evidence
from attacks.networks.gradient_clusters import gradient_clusters
from attacks.networks.gradient_labels import InferredLabels, gradient_labels
from attacks.networks.known_labels import UNKNOWN
from attacks.scores import score
from attacks.view.gradient_rows import GradientRows, together

Ints = npt.NDArray[np.int64]
_SCORES = ("v_measure", "homogeneity", "completeness", "ari", "nmi", "accuracy", "named_accuracy")


def findings(evidence: Evidence, only: str | None = None) -> dict[str, Any]:
    """Run every attack, or `only` one; the result of each under its name, None with a reason where it cannot run."""
    reasons: dict[str, str] = {}
    made: dict[str, Callable[[], dict[str, Any] | None]] = {
        "gradient-clusters": lambda: _clusters(evidence),
        "gradient-labels": lambda: _labels(evidence, reasons),
        "norm": lambda: _norm(evidence, reasons),
        "cosine": lambda: _cosine(evidence, reasons),
        "completion": lambda: completion_figures(evidence, reasons),
    }
    found: dict[str, Any] = dict.fromkeys(made)
    view = evidence.view
    for name, make in made.items():
        if view.params.regression:
            reasons[name] = "the label is a number, and these attacks look for classes"
        elif not view.epochs and name != "completion":
            reasons[name] = "the transcript has no gradients"
        elif only in (None, name):
            found[name] = make()
    batches = sum(view.schedule.batches - len(view.taken_part(epoch)) for epoch in view.epochs)
    return {
        "epochs": len(view.epochs),
        "attacked": len(evidence.epochs),
        "sat_out": batches,
        "width": view.width,
        "amplified": None if evidence.own is None else evidence.own.amplified,
        **found,
        "reasons": reasons,
    }


def _clusters(evidence: Evidence) -> dict[str, Any]:
    wanted, chosen_by = evidence.clusters
    every = [*evidence.rows, *(each for each in [together(evidence.rows)] if each is not None)]
    by_epoch = [_clustered(evidence, rows, wanted) for rows in every]
    scored = [each for each in by_epoch if each["v_measure"] is not None]
    best = max(scored, key=lambda each: each["v_measure"]) if scored else by_epoch[len(evidence.rows) - 1]
    names = ("epoch", "outcome", "records", "clusters", "v_measure", "accuracy")
    return {
        **best,
        "left_out": evidence.left_out,
        "chosen_by": chosen_by,
        "by_epoch": [{name: each[name] for name in names} for each in by_epoch],
    }


def _clustered(evidence: Evidence, rows: GradientRows, wanted: int | None) -> dict[str, Any]:
    """The clusters of one epoch's rows, scored on the records whose label is at hand."""
    found = gradient_clusters(rows, wanted, evidence.settings.seed)
    truth = evidence.known.truth[rows.records]
    scored = truth != UNKNOWN
    scores = dict.fromkeys(_SCORES) if not scored.any() else asdict(score(truth[scored], found.groups[scored]))
    return {
        "epoch": rows.epoch,
        "outcome": found.outcome,
        "records": len(rows.records),
        "clusters": found.clusters,
        **{name: scores[name] for name in _SCORES},
    }


def _labels(evidence: Evidence, reasons: dict[str, str]) -> dict[str, Any] | None:
    known = evidence.known
    found: list[tuple[Ints, InferredLabels]] = []
    for places in evidence.draws:
        inferred = gradient_labels(evidence.rows, dict(zip(places.tolist(), known.truth[places].tolist(), strict=True)))
        if inferred is not None:
            found.append((places, inferred))
    if not found:
        reasons["gradient-labels"] = "no label of a record with a gradient is known"
        return None
    accuracies, others = [], np.zeros(0, dtype=np.int64)
    for places, inferred in found:
        scored = ~np.isin(inferred.records, places) & (known.truth[inferred.records] != UNKNOWN)
        if scored.any():
            truth = known.truth[inferred.records[scored]]
            accuracies.append(float(np.mean(inferred.labels[scored] == truth)))
            others = truth if not len(others) else others
    first = found[0][1]
    own_model = own_model_accuracy(evidence, first.records, first.labels)
    if own_model is None:
        reasons["gradient-labels, own model"] = (
            "needs the party's published model and table, records to measure it on, and a bottom within most_weights"
        )
    return {
        "known": len(found[0][0]),
        "records": len(first.records) - int(np.isin(first.records, found[0][0]).sum()),
        "left_out": evidence.left_out,
        "inferred": measured(tuple(accuracies)) if accuracies else None,
        "majority": majority(others) if len(others) else None,
        "kept_out": float(np.mean([inferred.kept_out for _, inferred in found])),
        "ways": [inferred.way for _, inferred in found],
        "epochs": [inferred.epoch for _, inferred in found],
        "own_model": own_model,
    }


def _norm(evidence: Evidence, reasons: dict[str, str]) -> dict[str, Any] | None:
    if not _of_two_classes(evidence, "norm", reasons):
        return None
    return _scores(evidence, [[norm_auc(*_scored(evidence, rows))] for rows in evidence.rows], 1)


def _cosine(evidence: Evidence, reasons: dict[str, str]) -> dict[str, Any] | None:
    if not _of_two_classes(evidence, "cosine", reasons):
        return None
    known = [places[evidence.known.truth[places] == 1][:1] for places in evidence.draws]
    positives = [int(places[0]) for places in known if len(places)]
    if not positives:
        reasons["cosine"] = "no record of the second class is known"
        return None
    aucs = [[cosine_auc(*_scored(evidence, rows), positive) for positive in positives] for rows in evidence.rows]
    return _scores(evidence, aucs, len(positives))


def _of_two_classes(evidence: Evidence, name: str, reasons: dict[str, str]) -> bool:
    classes = len(evidence.known.classes)
    if classes != 2:
        what = "without labels nothing scores it" if not classes else f"it is for two classes, and there are {classes}"
        reasons[name] = what
    return classes == 2


def _scored(evidence: Evidence, rows: GradientRows) -> tuple[GradientRows, Ints]:
    """The rows whose label is at hand, and the labels."""
    kept = rows.of(evidence.known.scored)
    return kept, evidence.known.truth[kept.records]


def _scores(evidence: Evidence, aucs: Sequence[Sequence[float | None]], draws: int) -> dict[str, Any]:
    by_epoch = []
    for rows, each in zip(evidence.rows, aucs, strict=True):
        known = [value for value in each if value is not None]
        by_epoch.append(
            {
                "epoch": rows.epoch,
                "auc": float(np.mean(known)) if known else None,
                "deviation": float(np.std(known)) if len(known) > 1 else None,
            }
        )
    best = max(by_epoch, key=lambda each: -1.0 if each["auc"] is None else abs(each["auc"] - 0.5))
    return {
        "epoch": best["epoch"],
        "auc": best["auc"],
        "draws": draws,
        "left_out": evidence.left_out,
        "by_epoch": by_epoch,
    }

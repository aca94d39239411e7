"""The figures of model completion, each beside those that an untrained bottom and training from scratch reach."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from attacks.networks.classifier import HEADS, named
from attacks.networks.completion import Completion, Known, completed, completions
from attacks.networks.draws import attack_draws
from attacks.networks.evidence import Evidence
from attacks.view.gradient_rows import some_of
from treetap.neural.threads import pin

Ints = npt.NDArray[np.int64]


def completion_figures(evidence: Evidence, reasons: dict[str, str]) -> dict[str, Any] | None:
    """The figures; None where something is missing, which `reasons` then says."""
    own, found = evidence.own, evidence.evaluation()
    if own is None or found is None or not evidence.draws:
        reasons["completion"] = _missing(evidence)
        return None
    evaluation, evaluated_on = found
    tuned = own.weights <= evidence.settings.most_weights
    if not tuned:
        reasons["completion, tuned"] = (
            f"the bottom has {own.weights} weights, more than most_weights: only heads are fitted"
        )
    labels = {"n": [_known(evidence, places) for places in evidence.draws]}
    if evidence.known.all:
        labels["all"] = [_known(evidence, _all(evidence))]
    else:
        reasons["completion, all labels"] = "not all labels of the training are at hand"
    classes, seed = len(evidence.known.classes), evidence.settings.seed
    by_labels = {
        name: {
            (each.head, each.bottom, each.tuned): each
            for each in completions(
                own.bottom, own.untrained, own.inputs, draws, classes, evaluation, tuned=tuned, seed=seed
            )
        }
        for name, draws in labels.items()
    }
    everything = evidence.other.labels if evidence.other is not None else evaluation.labels
    return {
        "evaluated_on": evaluated_on,
        "records": len(evaluation.records),
        "left_out": max(0, len(everything) - len(evaluation.records)),
        "majority": majority(evaluation.labels),
        "rows": [
            _row(by_labels, head, together, name, len(labels[name][0].records))
            for head in HEADS
            for together in ((False, True) if tuned else (False,))
            for name in by_labels
        ],
    }


def own_model_accuracy(evidence: Evidence, records: Ints, labels: Ints) -> float | None:
    """Accuracy of a model that is fitted from scratch to inferred labels (n,) of these records, or None."""
    own, found = evidence.own, evidence.evaluation()
    if own is None or found is None or own.weights > evidence.settings.most_weights:
        return None
    pin(1)
    outside = ~np.isin(records, evidence.set_aside)
    known = Known(records[outside], labels[outside])
    if not len(known.records):
        return None
    classes, seed = len(evidence.known.classes), evidence.settings.seed
    model = completed(own.untrained(0), own.inputs, known, classes, "mlp", tuned=True, seed=seed)
    evaluation = found[0]
    return float(np.mean(named(model, evaluation.inputs, evaluation.records) == evaluation.labels))


def majority(labels: Ints) -> float:
    """The share of the largest class."""
    return float(np.bincount(labels).max() / len(labels))


def _missing(evidence: Evidence) -> str:
    if evidence.own is None:
        return "needs the party's published model and its table"
    if not evidence.draws:
        return "no label is known"
    return "no label is at hand but those that are assumed to be known, so that nothing scores it"


def _known(evidence: Evidence, places: Ints) -> Known:
    return Known(places, evidence.known.truth[places])


def _all(evidence: Evidence) -> Ints:
    """Places of all records of the training but those set aside, at most as many as the settings say."""
    every = np.setdiff1d(evidence.view.schedule.training, evidence.set_aside)
    return some_of(every, evidence.settings.most_records, attack_draws(evidence.settings.seed), "all labels")


_Found = Mapping[str, Mapping[tuple[str, str, bool], Completion]]


def _row(found: _Found, head: str, tuned: bool, labels: str, known: int) -> dict[str, Any]:
    scratch = (head, "untrained", True)
    return {
        "head": head,
        "tuned": tuned,
        "labels": labels,
        "known": known,
        "completed": measured(found[labels][head, "published", tuned].accuracies),
        "untrained": measured(found[labels][head, "untrained", False].accuracies),
        "scratch": measured(found[labels][scratch].accuracies) if scratch in found[labels] else None,
        "scratch_all": measured(found["all"][scratch].accuracies) if scratch in found.get("all", {}) else None,
    }


def measured(accuracies: tuple[float, ...]) -> dict[str, Any]:
    """Mean, deviation and number of the accuracies of several draws."""
    deviation = float(np.std(accuracies)) if len(accuracies) > 1 else None
    return {"accuracy": float(np.mean(accuracies)), "deviation": deviation, "draws": len(accuracies)}

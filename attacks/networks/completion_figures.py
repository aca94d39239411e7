"""The figures of model completion, each beside those that an untrained bottom and training from scratch reach."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from attacks.networks.classifier import HEADS, Head, named
from attacks.networks.completion import Completion, Evaluation, Known, completed, completions
from attacks.networks.evidence import Evidence
from attacks.networks.own_network import OwnNetwork
from attacks.networks.results import CompletionFigures, CompletionRow, Measured
from attacks.scores import majority
from attacks.view.gradient_rows import attack_draws, some_of
from treetap.neural.numbers import pin

Ints = npt.NDArray[np.int64]


def completion_figures(evidence: Evidence) -> CompletionFigures | None:
    """The figures; None where something is missing, which the reasons then say."""
    own, measuring = evidence.own, evidence.evaluation()
    if own is None or measuring is None or not evidence.draws:
        evidence.reasons["completion"] = _missing(evidence)
        return None
    evaluation, evaluated_on = measuring
    tuned = own.weights <= evidence.settings.most_weights
    if not tuned:
        evidence.reasons["completion, tuned"] = (
            f"the bottom has {own.weights} weights, more than most_weights: only heads are fitted"
        )
    labels = {"n": [_known(evidence, places) for places in evidence.draws]}
    if evidence.known.all:
        labels["all"] = [_known(evidence, _all(evidence))]
    else:
        evidence.reasons["completion, all labels"] = "not all labels of the training are at hand"
    by_labels = {name: _by_way(evidence, own, draws, evaluation, tuned=tuned) for name, draws in labels.items()}
    everything = evidence.other.labels if evidence.other is not None else evaluation.labels
    return CompletionFigures(
        evaluated_on=evaluated_on,
        records=len(evaluation.records),
        left_out=max(0, len(everything) - len(evaluation.records)),
        majority=majority(evaluation.labels),
        rows=[
            _row(by_labels, head, together, name, len(labels[name][0].records))
            for head in HEADS
            for together in ((False, True) if tuned else (False,))
            for name in by_labels
        ],
    )


def _by_way(
    evidence: Evidence, own: OwnNetwork, draws: list[Known], evaluation: Evaluation, *, tuned: bool
) -> dict[tuple[str, str, bool], Completion]:
    """Completions by head, bottom and whether the bottom is tuned."""
    classes, seed = len(evidence.known.classes), evidence.settings.seed
    made = completions(own.bottom, own.untrained, own.inputs, draws, classes, evaluation, tuned=tuned, seed=seed)
    return {(way.head, way.bottom, way.tuned): way for way in made}


def own_model_accuracy(evidence: Evidence, records: Ints, labels: Ints) -> float | None:
    """Accuracy of a model that is fitted from scratch to inferred labels (n,) of these records, or None."""
    own, measuring = evidence.own, evidence.evaluation()
    if own is None or measuring is None or own.weights > evidence.settings.most_weights:
        return None
    pin(1)
    outside = ~np.isin(records, evidence.set_aside)
    known = Known(records[outside], labels[outside])
    if not len(known.records):
        return None
    classes, seed = len(evidence.known.classes), evidence.settings.seed
    model = completed(own.untrained(0), own.inputs, known, classes, "mlp", tuned=True, seed=seed)
    evaluation = measuring[0]
    return float(np.mean(named(model, evaluation.inputs, evaluation.records) == evaluation.labels))


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


_Completions = Mapping[str, Mapping[tuple[str, str, bool], Completion]]


def _row(by_labels: _Completions, head: Head, tuned: bool, labels: str, known: int) -> CompletionRow:
    scratch, ways = (head, "untrained", True), by_labels[labels]
    scratch_all = by_labels.get("all", {}).get(scratch)
    return CompletionRow(
        head=head,
        tuned=tuned,
        labels="all" if labels == "all" else "n",
        known=known,
        completed=Measured.of(ways[head, "published", tuned].accuracies),
        untrained=Measured.of(ways[head, "untrained", False].accuracies),
        scratch=Measured.of(ways[scratch].accuracies) if scratch in ways else None,
        scratch_all=None if scratch_all is None else Measured.of(scratch_all.accuracies),
    )

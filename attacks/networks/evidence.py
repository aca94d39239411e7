"""The evidence of an attacker on a split network, within bounds: gradients, known labels, its own model and table.

The auditor's labels score what the attacks find; of these a party is assumed to know some.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from treetap.attacks.files import AuditedParty, LabelTable
from treetap.attacks.known_labels.labels import KnownLabels, labels_at_hand, numbered
from treetap.attacks.networks.own_network import OwnNetwork, load_own_network
from treetap.attacks.networks.schema import NetworkSettings
from treetap.attacks.scores import UNKNOWN
from treetap.attacks.view.own_table import load_labels
from treetap.attacks.view.received_rows import EpochRows, ReceivedRows, attack_draws, some_of
from treetap.attacks.view.view import View
from treetap.neural.inputs import Inputs
from treetap.tables.labels import Labels
from treetap.tables.reading import Table

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Evaluation:
    """Records on which a classifier is measured: the inputs, places (n,) and classes (n,)."""

    inputs: Inputs
    records: Ints
    labels: Ints


@dataclass(frozen=True)
class Evidence:
    """All that attacks on one party's log and model use.

    Attributes:
        classes: the number of clusters to look for, if it is given.
        own: the party's model and table; None where they are not given.
        other: its table of records that were not trained on, with their classes.
        reasons: attack, or a part of one → why it was left out, which attacks write down.
        inferred: by draw, places (n,) of records whose labels followed from gradients, and these (n,), for the verdict.
        grouped: of each clustering places (n,) of records with a label at hand, and which of them it names right.
    """

    view: ReceivedRows
    known: KnownLabels
    classes: int | None
    settings: NetworkSettings
    own: OwnNetwork | None = field(default=None, repr=False)
    other: Evaluation | None = field(default=None, repr=False)
    reasons: dict[str, str] = field(default_factory=dict)
    inferred: list[tuple[Ints, Ints]] = field(default_factory=list, repr=False)
    grouped: list[tuple[Ints, npt.NDArray[np.bool_]]] = field(default_factory=list, repr=False)

    @cached_property
    def epochs(self) -> list[int]:
        """The epochs that are attacked."""
        epochs, most = self.view.epochs, self.settings.most_epochs
        if len(epochs) <= most:
            return epochs
        places = np.unique(np.linspace(0, len(epochs) - 1, most).round().astype(int))
        return [epochs[place] for place in places.tolist()]

    @cached_property
    def draws(self) -> list[Ints]:
        """Places of the known labels, by draw."""
        return self.known.draws(self.settings, self.set_aside)

    @cached_property
    def set_aside(self) -> Ints:
        """Places of the records of the training on which classifiers are measured; none with another table."""
        return np.zeros(0, dtype=np.int64) if self.other is not None else self.known.evaluated(self.settings)

    @cached_property
    def chosen(self) -> Ints:
        """Places of the records that attacks use: some of those trained on, with all known ones, ascending."""
        some = some_of(
            self.view.schedule.training, self.settings.most_records, attack_draws(self.settings.seed), "records"
        )
        return np.unique(np.concatenate([some, *self.draws]))

    @cached_property
    def rows(self) -> list[EpochRows]:
        """The gradients of each attacked epoch, of the chosen records."""
        return [self.view.rows(epoch).of(self.chosen) for epoch in self.epochs]

    @property
    def left_out(self) -> int:
        """Records of the training that take no part."""
        return len(np.setdiff1d(self.view.schedule.training, self.chosen))

    @property
    def clusters(self) -> tuple[int | None, Literal["labels", "classes", "silhouette"]]:
        """The number of clusters to look for, and what gives it."""
        if self.classes is not None:
            return self.classes, "classes"
        classes = len(self.known.classes)
        return (classes, "labels") if classes > 1 else (None, "silhouette")

    def evaluation(self) -> tuple[Evaluation, Literal["own table", "set aside"]] | None:
        """Records on which classifiers are measured, at most as many as the settings say; None: there are none."""
        if self.other is not None:
            scored = np.flatnonzero(self.other.labels != UNKNOWN)
            some = some_of(scored, self.settings.most_records, attack_draws(self.settings.seed), "other")
            if not len(some):
                return None
            return Evaluation(self.other.inputs, self.other.records[some], self.other.labels[some]), "own table"
        if self.own is None or not len(self.set_aside):
            return None
        return Evaluation(self.own.inputs, self.set_aside, self.known.truth[self.set_aside]), "set aside"


def evidence_of(
    view: View,
    party: AuditedParty,
    table: Table | None,
    labels: Labels | None,
    known: LabelTable | None,
    evaluation: LabelTable | None,
    classes: int | None,
    settings: NetworkSettings,
) -> Evidence:
    """Read what the attacks use.

    Args:
        table: the party's table in the common order, by whose ids known labels are found.
        labels: of all records, by which the auditor scores.
        known: labels that the party is assumed to know.
        evaluation: labels of its records that were not trained on.
        classes: the number of clusters, where the auditor gives it.

    Raises:
        BadInput: a file cannot be used.
        Malformed: a gradient does not fit its batch.
    """
    network = view.network
    assert network is not None  # attacks on networks run on transcripts of networks
    at_hand = labels_at_hand(view, table, labels, known)
    own = None
    if party.model is not None and party.table is not None and not view.regression:
        own = load_own_network(party.model, party.table, view, party.id, settings.seed)
    other = None if own is None else _other(party, evaluation, own, at_hand)
    return Evidence(network, at_hand, classes, settings, own, other)


def _other(
    party: AuditedParty, evaluation: LabelTable | None, own: OwnNetwork, known: KnownLabels
) -> Evaluation | None:
    """The party's records that were not trained on, with their classes among those that are known."""
    if party.evaluation is None or evaluation is None:
        return None
    table, inputs = own.evaluation(party.evaluation, party.id)
    labels = load_labels(evaluation.path, evaluation.column, table, evaluation.id)
    return Evaluation(inputs, np.arange(len(table.ids), dtype=np.int64), numbered(labels, known.classes))


def runnable(evidence: Evidence, name: str) -> bool:
    """True if an attack can run; else the evidence's reasons say why not."""
    view = evidence.view
    if view.params.regression:
        evidence.reasons[name] = "the label is a number, and these attacks look for classes"
    elif not view.epochs and name != "completion":
        evidence.reasons[name] = "the transcript has no gradients"
    return name not in evidence.reasons


def described(evidence: Evidence) -> dict[str, Any]:
    """The fields of `NetworkFigures` that are no attack's."""
    view = evidence.view
    return {
        "epochs": len(view.epochs),
        "attacked": len(evidence.epochs),
        "sat_out": sum(view.schedule.batches - len(view.taken_part(epoch)) for epoch in view.epochs),
        "width": view.width,
        "amplified": None if evidence.own is None else evidence.own.amplified,
        "reasons": evidence.reasons,
    }

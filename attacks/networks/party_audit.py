"""The evidence on one party of a split network, from its files: transcript, table, published model, known labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from attacks.files import AuditedParty, LabelTable
from attacks.networks.completion import Evaluation
from attacks.networks.evidence import Evidence
from attacks.networks.known_labels import KnownLabels, numbered
from attacks.networks.own_network import OwnNetwork, load_own_network
from attacks.networks.settings import NetworkSettings
from attacks.view.own_table import load_known_labels, load_labels
from attacks.view.view import View
from treetap.errors import BadInput
from treetap.tables.labels import Labels
from treetap.tables.reading import Table


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
    places = None
    if known is not None and not view.regression:
        if table is None:
            raise BadInput(f"{view.party}: known labels are found by the ids of the party's table: give it")
        places = load_known_labels(known.path, known.column, table, known.id)
    at_hand = KnownLabels.of(view.records, labels, places)
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

"""The attacks on one party of a split network, from its files: transcript, table, published model, known labels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from attacks.networks.completion import Evaluation
from attacks.networks.evidence import Evidence
from attacks.networks.findings import findings
from attacks.networks.known_labels import KnownLabels, numbered
from attacks.networks.own_network import OwnNetwork, load_own_network
from attacks.networks.settings import NetworkSettings
from attacks.view.own_table import load_known_labels, load_labels
from attacks.view.view import View
from treetap.errors import BadInput
from treetap.tables.labels import Labels
from treetap.tables.reading import Table

#: A table with labels: file, label column, id column.
LabelSource = tuple[Path, str, str]


@dataclass(frozen=True)
class PartyFiles:
    """The files of a party beside its transcript, each optional.

    Attributes:
        table: that it trained on, `id` its id column.
        model: the folder of its published model.
        known: labels that it is assumed to know.
        other: its table of records that were not trained on, `other_labels` their labels.
    """

    table: Path | None = None
    id: str = "id"
    model: Path | None = None
    known: LabelSource | None = None
    other: Path | None = None
    other_labels: LabelSource | None = None


def audited_party(
    view: View,
    files: PartyFiles,
    table: Table | None,
    labels: Labels | None,
    classes: int | None,
    settings: NetworkSettings,
    only: str | None = None,
) -> dict[str, Any]:
    """Run every attack, or `only` one; see `findings`.

    Args:
        table: the party's table in the common order, by whose ids known labels are found.
        labels: of all records, by which the auditor scores.
        classes: the number of clusters, where the auditor gives it.

    Raises:
        BadInput: a file cannot be used.
        Malformed: a gradient does not fit its batch.
    """
    network = view.network
    assert network is not None  # attacks on networks run on transcripts of networks
    known = KnownLabels.of(view.records, labels, _known(view, files, table))
    own = _own(view, files, settings)
    other = None if own is None else _other(files, own, known)
    return findings(Evidence(network, known, classes, settings, own, other), only)


def _known(
    view: View, files: PartyFiles, table: Table | None
) -> tuple[np.ndarray[Any, np.dtype[np.int64]], Labels] | None:
    if files.known is None or view.regression:
        return None
    if table is None:
        raise BadInput(f"{view.party}: known labels are found by the ids of the party's table: give it")
    path, column, id_column = files.known
    return load_known_labels(path, column, table, id_column)


def _own(view: View, files: PartyFiles, settings: NetworkSettings) -> OwnNetwork | None:
    if files.model is None or files.table is None or view.regression:
        return None
    return load_own_network(files.model, files.table, view, files.id, settings.seed)


def _other(files: PartyFiles, own: OwnNetwork, known: KnownLabels) -> Evaluation | None:
    """The party's records that were not trained on, with their classes among those that are known."""
    if files.other is None or files.other_labels is None:
        return None
    table, inputs = own.evaluation(files.other, files.id)
    path, column, id_column = files.other_labels
    labels = load_labels(path, column, table, id_column)
    return Evaluation(inputs, np.arange(len(table.ids), dtype=np.int64), numbered(labels, known.classes))

"""A label holder's attacks on one feature party's columns, from files.

Ids join an auxiliary record to its embedding: the label holder's own table has the ids of the common records.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from treetap.attacks.features.evidence import FeatureEvidence, RealBottom
from treetap.attacks.features.findings import findings
from treetap.attacks.features.guesses import Attacker
from treetap.attacks.files import Victim
from treetap.attacks.networks.evidence import published_bottom
from treetap.attacks.networks.schema import FeatureSettings, VictimFigures
from treetap.attacks.view.own_table import read_numbers
from treetap.attacks.view.received_rows import EpochRows
from treetap.attacks.view.view import View
from treetap.errors import BadInput
from treetap.tables.cells import shape_text
from treetap.tables.reading import Table


@dataclass(frozen=True)
class Received:
    """The embeddings of one feature party that the label holder received, by the ids of the records.

    Attributes:
        ids: of all records in the order by which `rows` counts.
        job: the training, or the prediction.
        predicted: it is a prediction.
        faults: gaps of the prediction's transcript; those of the training are the view's.
    """

    rows: EpochRows
    ids: Sequence[str] = field(repr=False)
    job: str
    predicted: bool = False
    faults: tuple[str, ...] = ()

    @property
    def what(self) -> str:
        """The records in words."""
        return f"the {'records of prediction' if self.predicted else 'common records of job'} {self.job!r}"

    @cached_property
    def order(self) -> dict[str, int]:
        """Id → its place among all records."""
        return {name: number for number, name in enumerate(self.ids)}

    @cached_property
    def place(self) -> dict[str, int]:
        """Id → the row of its embedding; records of batches that the party sat out are not there."""
        return {self.ids[record]: row for row, record in enumerate(self.rows.records.tolist())}

    def check(self, path: Path, key: str, ids: Collection[str]) -> None:
        """Raise BadInput unless all ids are among the records."""
        if strangers := [name for name in ids if name not in self.order]:
            raise BadInput(
                f"{path}: {len(strangers)} of its ids, such as {strangers[0]!r}, are not among {self.what}: leave them "
                f"out of {key}"
            )

    def embedded(self, ids: Collection[str]) -> list[str]:
        """Those of the ids that have an embedding, in the common order."""
        return sorted((name for name in ids if name in self.place), key=self.order.__getitem__)


def audited_victim(
    view: View,
    files: Victim,
    received: Received,
    settings: FeatureSettings,
    attacks: Mapping[str, Callable[[Attacker], None]],
    progress: Callable[[str], None] | None = None,
) -> VictimFigures:
    """Run attacks, by name, on a party's columns.

    Raises:
        BadInput: a file cannot be used: see `FeatureEvidence`.
        DataError: a file cannot be read, or has no such column.
    """
    embeddings = view.embeddings
    assert embeddings is not None  # the view is a label holder's
    assert files.auxiliary is not None  # `treetap.attacks.label_holder_audit` checks it
    auxiliary = read_numbers(files.auxiliary, files.id, files.columns, view.missing)
    received.check(files.auxiliary, "auxiliary", auxiliary.ids)
    truth = None if files.truth is None else read_numbers(files.truth, files.id, auxiliary.sources, view.missing)
    wanted = _victims(files, received, auxiliary, truth, view.missing)
    known, victims = received.embedded(auxiliary.ids), received.embedded(wanted)
    evidence = FeatureEvidence(
        party=files.name,
        bottom=embeddings.params.bottom_of(files.name),
        auxiliary=_records(auxiliary, known),
        known=received.rows.values[[received.place[name] for name in known]],
        victims=victims,
        embeddings=received.rows.values[[received.place[name] for name in victims]],
        settings=settings,
        attributes=None if files.attributes is None else tuple(files.attributes),
    )
    if truth is not None:
        _check_truth(truth, auxiliary, victims)
    real = None
    if files.model is not None and "match-exact" in attacks:
        described, bottom = published_bottom(files.model, embeddings.params, files.name, view.job)
        real = RealBottom(bottom, described.scaler, described.categories)
    figures = findings(evidence, None if truth is None else _records(truth, victims), real, attacks, progress)
    reasons = figures.pop("reasons")
    for what, count in (
        ("auxiliary records", len(auxiliary.ids) - len(known)),
        ("victims", len(wanted) - len(victims)),
    ):
        if count:
            reasons[what] = f"{count} have no embedding: the party sat out their batch"
    if received.faults:
        reasons["embeddings"] = "; ".join(received.faults)
    return VictimFigures(
        **figures,
        reasons=reasons,
        source="prediction" if received.predicted else "training",
        job=received.job,
        epoch=received.rows.epoch,
    )


def _victims(
    files: Victim, received: Received, auxiliary: Table, truth: Table | None, missing: float | None
) -> Sequence[str]:
    """Ids of the records to guess."""
    known = set(auxiliary.ids)
    if files.victims is not None:
        asked = read_numbers(files.victims, files.id, [], missing).ids
        received.check(files.victims, "victims", asked)
        if both := sorted(known.intersection(asked)):
            raise BadInput(
                f"{files.victims}: {len(both)} of its ids, such as {both[0]!r}, are auxiliary records of "
                f"{files.auxiliary}: leave them out of victims or of auxiliary"
            )
        return asked
    ids = list(received.order) if truth is None else [name for name in truth.ids if name in received.order]
    if not (others := [name for name in ids if name not in known]):
        of = received.what if truth is None else f"{truth.path}"
        raise BadInput(f"{files.auxiliary}: has all of {of}, so none is left to guess: leave some out of auxiliary")
    return others


def _check_truth(truth: Table, auxiliary: Table, victims: Sequence[str]) -> None:
    """Raise BadInput if the truth lacks victims, or has images of another shape, before any attack runs."""
    if absent := sorted(set(victims) - set(truth.ids)):
        raise BadInput(
            f"{truth.path}: lacks {len(absent)} of the victims, such as {absent[0]!r}: add them to truth, or leave "
            "them out of victims"
        )
    for name in auxiliary.sources:
        shapes = auxiliary.shapes.get(name), truth.shapes.get(name)
        if shapes[0] != shapes[1]:
            said = ["no images" if shape is None else f"images of {shape_text(shape)}" for shape in shapes]
            raise BadInput(
                f"{truth.path}: column {name!r} holds {said[1]}, and that of {auxiliary.path} {said[0]}: give truth "
                "and auxiliary the same columns"
            )


def _records(table: Table, ids: Sequence[str]) -> Table:
    """The records with these ids, which the table has, in this order."""
    place = {name: number for number, name in enumerate(table.ids)}
    return table.take(np.array([place[name] for name in ids], dtype=np.int64))

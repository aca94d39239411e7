"""The evidence of attacks on split networks: a party's gradients, columns and published model.

Labels that follow from gradients and few known labels stand beside what own columns tell with the same ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from math import hypot, sqrt
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import nn

from treetap.arrays import Bools, Ints
from treetap.attacks.files import AuditedParty, LabelTable
from treetap.attacks.known_labels.evidence import standardised
from treetap.attacks.known_labels.names import KnownLabels, Named, compared, labels_at_hand, named_by, numbered
from treetap.attacks.known_labels.naming import regressed
from treetap.attacks.known_labels.rows import Rows
from treetap.attacks.networks.schema import CompletionFigures, Measured, NetworkFigures, NetworkSettings
from treetap.attacks.scores import UNKNOWN
from treetap.attacks.verdict import MOST_FREQUENT, Compared, compared_right
from treetap.attacks.view.own_table import in_common_order, load_labels
from treetap.attacks.view.received_rows import EpochRows, ReceivedRows, attack_draws, some_of
from treetap.attacks.view.view import View
from treetap.errors import DataError
from treetap.models.store import MANIFEST, read_weights
from treetap.neural.architectures import bottom_model, bottom_to_load
from treetap.neural.inputs import Inputs, InputScaler
from treetap.neural.optimiser import load_weights
from treetap.neural.params import SplitnnParams
from treetap.neural.sides import BOTTOM
from treetap.tables.categories import Category
from treetap.tables.config import TableConfig
from treetap.tables.labels import Labels
from treetap.tables.reading import Table, read_table

# A feature party's published model and its table, from its own disk: bottom, inputs, and inputs of other records.


@dataclass(frozen=True)
class Described:
    """The part of a published model's manifest that says how its tables are read and scaled."""

    scaler: InputScaler
    columns: list[str]
    categories: dict[str, Category]
    shapes: dict[str, tuple[int, ...]]
    missing: float | None
    amplified: bool

    @classmethod
    def of(cls, model: Path, manifest: dict[str, Any]) -> Described:
        """The part of this manifest, which anyone may have written; `DataError` if it is no network's."""
        try:
            return cls(
                InputScaler.from_dict(manifest["inputs"]),
                [str(name) for name in manifest["source_columns"]],
                {str(name): Category.from_dict(category) for name, category in manifest["categories"].items()},
                {str(name): tuple(map(int, category["shape"])) for name, category in manifest["tensors"].items()},
                None if manifest["missing"] is None else float(manifest["missing"]),
                bool(manifest.get("amplified")),
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise DataError(f"{model / MANIFEST}: is not that of a network; bring a back-up of it back") from None

    def table(self, path: Path, id_column: str) -> Table:
        """A table with the columns of the model, encoded as those of the training."""
        config = TableConfig(path=path, id=id_column, columns=self.columns)
        return read_table(
            config, with_label=False, missing=self.missing, categories=self.categories, shapes=self.shapes
        )


@dataclass(frozen=True)
class OwnNetwork:
    """A party's part of a network.

    Attributes:
        bottom: with its published weights.
        inputs: of the common records, in their order.
        described: the columns, and whether the party trained with `optimizer = "amplified"`, active completion.
    """

    view: ReceivedRows = field(repr=False)
    bottom: nn.Module = field(repr=False)
    inputs: Inputs = field(repr=False)
    described: Described = field(repr=False)
    seed: int

    @property
    def weights(self) -> int:
        """The number of weights of the bottom."""
        return sum(weight.numel() for weight in self.bottom.parameters())

    def untrained(self, draw: int) -> nn.Module:
        """A bottom of the same architecture with fresh weights."""
        settings = self.view.params.bottom_of(self.view.party)
        return bottom_model(settings, self.described.scaler.shape, attack_draws(self.seed), "untrained", draw)

    def evaluation(self, path: Path, id_column: str) -> tuple[Table, Inputs]:
        """Another table of the party, of records that were not trained on, and its inputs.

        Raises:
            DataError: the file cannot be read, or has other columns than the training.
        """
        table = self.described.table(path, id_column)
        return table, self.described.scaler.apply(table)


def load_own_network(model: Path, table: Path, view: View, id_column: str = "id", seed: int = 0) -> OwnNetwork:
    """Load the party's published model and the table that it trained on.

    Raises:
        DataError: there is no such model or table, either is of another job or party, or the transcript does not say
            which rows the common records are.
    """
    network = view.network
    assert network is not None  # of another job no attack on a network runs
    if view.rows is None:
        raise DataError(f"{view.path}: does not say which rows of {view.party}'s table the records are")
    described, bottom = published_bottom(model, network.params, view.party, view.job)
    own = described.table(table, id_column)
    inputs = described.scaler.apply(in_common_order(table, own, view, view.rows))
    return OwnNetwork(network, bottom, inputs, described, seed)


def published_bottom(model: Path, params: SplitnnParams, party: str, job: str) -> tuple[Described, nn.Module]:
    """Load a feature party's published model: how it reads its tables, and its bottom.

    Raises:
        DataError: there is no such model, or it is of another job or party.
    """
    manifest, weights = read_weights(model)
    if [manifest.get(name) for name in ("job", "party", "role")] != [job, party, "feature_party"]:
        raise DataError(f"{model}: is not the model that {party} trained in job {job!r}")
    described = Described.of(model, manifest)
    bottom = bottom_to_load(params.bottom_of(party), described.scaler.shape)
    try:
        load_weights({BOTTOM: bottom}, weights)
    except ValueError as fault:
        raise DataError(f"{model}: the weights are not those of this model: {fault}") from None
    return described, bottom


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
    grouped: list[tuple[Ints, Bools]] = field(default_factory=list, repr=False)

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
        "amplified": None if evidence.own is None else evidence.own.described.amplified,
        "reasons": evidence.reasons,
    }


def compared_network(
    evidence: Evidence, figures: NetworkFigures, columns: Any, own: Bools | None
) -> Iterator[Compared]:
    """The comparisons of a party of a split network: labels from gradients, groups of them, and its completed model.

    Args:
        columns: (N, d) the party's own, NaN where missing; None where they are not at hand.
        own: (N,) the records that groups of own columns name right; None without such.
    """
    yield from _inferred(evidence, columns)
    yield from _grouped(evidence, own)
    if figures.completion is not None:
        yield from _completed(figures.completion)


def _grouped(evidence: Evidence, own: Bools | None) -> Iterator[Compared]:
    """Groups without a label beside those of own columns or the most frequent class."""
    if not evidence.grouped:
        return
    records, right = max(evidence.grouped, key=lambda pair: float(pair[1].mean()))
    truth, alone = evidence.known.truth[records], None if own is None else own[records]
    groups = {"groups of gradients": right}
    yield compared_right(truth, groups, alone, tries=len(evidence.grouped), details="network")


def _completed(completion: CompletionFigures) -> Iterator[Compared]:
    """The completed model on other records beside the most frequent class or models that need no federation.

    The draws' figures are means, so that the error is that of two guesses without any relation, which is larger.
    """
    rows = completion.rows
    if not rows or not completion.records:
        return
    best = max(rows, key=lambda row: row.completed.accuracy)
    alone = [it for row in rows for it in (row.untrained, row.scratch, row.scratch_all) if it is not None]
    own: Measured | None = max(alone, key=lambda it: it.accuracy)
    assert own is not None
    before, how = own.accuracy, "a model of own columns"
    if completion.majority > before:
        before, how, own = completion.majority, MOST_FREQUENT, None
    spread = [(it.deviation or 0.0) / sqrt(it.draws) for it in (best.completed, own) if it is not None and it.draws > 1]
    over_records = [sqrt(value * (1 - value) / completion.records) for value in (before, best.completed.accuracy)]
    yield Compared(
        measure="accuracy",
        before=before,
        before_how=f"{how}, of other records",
        reached=best.completed.accuracy,
        reached_how="its published model, completed",
        error=hypot(*over_records, *spread, 0.5 / completion.records),
        tries=len(rows),
        known=best.known,
        details="network",
    )


def _inferred(evidence: Evidence, columns: Any) -> Iterator[Compared]:
    """Labels that follow from gradients and known ones, of the training records whose label is at hand."""
    known, truth = evidence.known, evidence.known.truth
    drawn, alone = list[tuple[Ints, Any]](), list[tuple[Ints, Any]]()
    own = standardised(columns)
    for places, (records, labels) in zip(evidence.draws, evidence.inferred, strict=False):
        scored = ~np.isin(records, places) & (truth[records] != UNKNOWN)
        named, chances = records[scored], np.zeros((int(scored.sum()), len(known.classes)))
        chances[np.arange(len(named)), labels[scored]] = 1.0
        drawn.append((named, chances))
        if own is not None:
            rows = Rows.of(None, own[named])
            classes, likely = next(regressed(own[places], rows, [truth[places]]))
            chances = np.zeros_like(chances)
            chances[:, classes] = likely.T[rows.alike]
            alone.append((named, chances))
    if not any(len(named) for named, _ in drawn):
        return
    taking_part = np.unique(np.concatenate([named for named, _ in drawn]))
    if len(np.unique(truth[taking_part])) < 2:
        return

    def names_of(pairs: list[tuple[Ints, Any]]) -> Named:
        within = [(np.searchsorted(taking_part, rows), chances, None) for rows, chances in pairs]
        return named_by(within, truth[taking_part], 0, 1)

    yield compared(
        {"gradients": names_of(drawn)},
        [names_of(alone)] if alone else [],
        truth[taking_part],
        known=len(evidence.draws[0]),
        first=None,
        details="network",
    )

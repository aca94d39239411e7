"""The evidence of an attacker on a split network, within bounds: gradients, known labels, its own model and table."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from attacks.networks.completion import Evaluation
from attacks.networks.known_labels import UNKNOWN, KnownLabels
from attacks.networks.own_network import OwnNetwork
from attacks.networks.settings import NetworkSettings
from attacks.view.gradient_rows import GradientRows, attack_draws, some_of
from attacks.view.received_rows import NetworkView

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Evidence:
    """All that attacks on one party's log and model use.

    Attributes:
        classes: the number of clusters to look for, if it is given.
        own: the party's model and table; None where they are not given.
        other: its table of records that were not trained on, with their classes.
        reasons: attack, or a part of one → why it was left out, which attacks write down.
    """

    view: NetworkView
    known: KnownLabels
    classes: int | None
    settings: NetworkSettings
    own: OwnNetwork | None = field(default=None, repr=False)
    other: Evaluation | None = field(default=None, repr=False)
    reasons: dict[str, str] = field(default_factory=dict)

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
    def rows(self) -> list[GradientRows]:
        """The gradients of each attacked epoch, of the chosen records."""
        return [self.view.gradients(epoch).of(self.chosen) for epoch in self.epochs]

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

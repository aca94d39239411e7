"""The evidence of one party of a PIVODL job, which its attacks share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from treetap.attacks.pivodl.solved_gains import SolvedGains
from treetap.attacks.verdict import Compared
from treetap.attacks.view.known_trees import Ints
from treetap.attacks.view.pivodl_view import PivodlView
from treetap.tables.labels import Labels

Floats = npt.NDArray[np.float64]
#: Weights by (tree, leaf).
Weights = Mapping[tuple[int, int], Floats]


@dataclass(frozen=True, eq=False)
class SharedLabelEvidence:
    """All that the attacks use.

    Attributes:
        records: N.
        features: the party's own columns (N, d), for a model of its own labels.
        labels: of all records, for scoring; the attacker's model is fitted on those that the party has itself.
        exact: exact weights of all leaves that some audited party received, to tell what the noise hides.
        columns: the bins (N, d) of other audited parties' columns, for scoring alone.
        compared: guesses without and with the training, which attacks write down for the verdict.
    """

    view: PivodlView
    records: int
    features: Floats | None = field(default=None, repr=False)
    labels: Labels | None = field(default=None, repr=False)
    exact: Weights = field(default_factory=dict, repr=False)
    columns: Mapping[str, Ints] = field(default_factory=dict, repr=False)
    compared: list[Compared] = field(default_factory=list, repr=False)

    @cached_property
    def truth(self) -> Ints | None:
        """Labels (N,) as numbers of the job's classes; None for a regression or other classes."""
        names = self.view.params.class_names
        if self.labels is None or not set(self.labels.classes) <= set(names):
            return None
        numbers = np.array([names.index(label) for label in self.labels.classes], dtype=np.int64)
        return np.asarray(numbers[self.labels.values], dtype=np.int64)

    @cached_property
    def solved(self) -> SolvedGains:
        """The gains that give sums away."""
        return SolvedGains(self.view, self.records, self.truth)


def exact_weights(views: Mapping[str, PivodlView]) -> dict[tuple[int, int], Floats]:
    """Exact weights by (tree, leaf) that some party received."""
    return {
        (tree.view.index, leaf): weight.value
        for view in views.values()
        for tree in view.trees
        for leaf, weight in tree.weights.items()
        if weight.exact
    }

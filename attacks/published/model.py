"""A published model that is opened, and records of which some were in its training: the object of an intruder test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from treetap.models.own_split import OwnSplit
from treetap.tables.labels import Labels
from treetap.tables.reading import Table
from treetap.trees.ensemble import (
    Ensemble,
    Split,
    deciding_splits,
    deciding_tree,
    importance_by_owner,
    route,
    weights_at,
)
from treetap.trees.job_params import REGRESSIONS
from treetap.trees.params import TreeParams

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
#: Party → its columns (n, d), NaN where missing.
Features = Mapping[str, Floats]
#: Least probability that a confidence takes the logarithm of: a leaf of one class gives 0 and 1.
_LEAST = 1e-4


@dataclass(frozen=True)
class OpenTrees:
    """Trees with the meaning of all splits; `metrics`: those of the training, as a card has them."""

    ensemble: Ensemble
    meaning: Callable[[Split], OwnSplit] = field(repr=False)
    metrics: Mapping[str, float | None]

    def reached(self, features: Features) -> Iterator[tuple[tuple[int, ...], Floats, Floats]]:
        """Of each used tree its columns of the score, and weights (n, width) and covers (n,) of n records' leaves."""
        n = len(next(iter(features.values())))

        def goes_left(split: Split, rows: Ints) -> Bools:
            own = self.meaning(split)
            return np.asarray(own.goes_left(features[split.owner][rows, own.feature]))

        for tree in map(deciding_tree, self.ensemble.used_trees):
            nodes = route(tree.splits, n, goes_left)
            both = weights_at([replace(leaf, weights=(*leaf.weights, leaf.cover)) for leaf in tree.leaves], nodes)
            yield tree.outputs, both[:, :-1], both[:, -1]

    def scores(self, features: Features) -> Floats:
        """Scores (n, outputs) of n records."""
        return self.ensemble.summed(
            (weights for _, weights, _ in self.reached(features)), len(next(iter(features.values())))
        )

    def card(self) -> dict[str, float]:
        """The numbers of a card, by name."""
        trees = [deciding_tree(tree) for tree in self.ensemble.used_trees]
        numbers = {name: value for name, value in self.metrics.items() if value is not None}
        for party, it in importance_by_owner(trees).items():
            numbers |= {f"{party} {name}": value for name, value in vars(it).items()}
        return numbers | {"leaves": sum(len(tree.leaves) for tree in trees)}

    def cuts(self) -> dict[tuple[str, int], list[float]]:
        """(Party, place of a column) → the thresholds at which a tree splits it, ascending; none of categories."""
        of_columns: dict[tuple[str, int], set[float]] = {}
        for split in (split for tree in self.ensemble.used_trees for split in deciding_splits(tree)):
            own = self.meaning(split)
            thresholds = of_columns.setdefault((split.owner, own.feature), set())
            if own.categories is None and np.isfinite(own.threshold):
                thresholds.add(own.threshold)
        return {column: sorted(thresholds) for column, thresholds in of_columns.items()}


@dataclass(frozen=True)
class Target:
    """A published model and n records whose columns and labels an intruder knows.

    `params`: of the training. `tables`: party → its columns of the records. `members` (n,): the records of the
    training. `least`: party → the fewest records of a cell that it sums. `lacking`: what the training had and shadow
    models have not.
    """

    name: str
    protocol: str
    params: TreeParams
    trees: OpenTrees = field(repr=False)
    tables: Mapping[str, Table] = field(repr=False)
    labels: Labels
    members: Bools = field(repr=False)
    least: Mapping[str, int]
    lacking: list[str]
    features: Features = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "features", {party: table.features for party, table in self.tables.items()})

    def take(self, rows: Ints) -> Target:
        """The same model with the records at these places."""
        tables = {party: table.take(rows) for party, table in self.tables.items()}
        return replace(self, tables=tables, labels=self.labels.at(rows), members=self.members[rows])

    @property
    def regression(self) -> bool:
        return self.trees.ensemble.objective in REGRESSIONS

    def chances(self, outcome: Floats, labels: npt.NDArray[np.generic]) -> Floats:
        """The probabilities (n,) of the classes `labels` (n,) by what `Ensemble.outcome` returned."""
        if outcome.ndim == 1:
            return np.where(labels == 1, outcome, 1 - outcome)
        picked: Floats = outcome[np.arange(len(labels)), labels.astype(np.int64)]
        return picked

    def statistics(self, trees: OpenTrees) -> dict[str, Floats]:
        """What each artefact of a model says of each record, (n, statistics).

        answers: the confidence in the label, log p / (1 − p) as in LiRA, of a number minus the error. export: also what
        the leaves of few records pull towards the label, in which a record weighs most, and the mean logarithm of the
        leaves' covers. card: its numbers, the same for all records.
        """
        labels, outputs = self.labels.values, len(trees.ensemble.base_margin)
        if self.regression:
            truth = (labels - labels.mean())[:, None] * np.ones(outputs)
        else:
            truth = np.where(labels[:, None] == (np.arange(outputs) if outputs > 1 else 1), 1.0, -1.0)
        pull, covers, parts = np.zeros(len(labels)), np.zeros(len(labels)), []
        for columns, weights, cover in trees.reached(self.features):
            parts.append(weights)
            pull += (weights * truth[:, list(columns)]).sum(axis=1) / (1 + cover)
            covers += np.log1p(cover)
        outcome = trees.ensemble.outcome(trees.ensemble.summed(parts, len(labels)))
        if self.regression:
            confidence = -np.abs(outcome.reshape(-1) - labels)
        else:
            chance = np.clip(self.chances(outcome, labels), _LEAST, 1 - _LEAST)
            confidence = np.log(chance / (1 - chance))
        theirs = trees.card()
        card = np.array([theirs.get(name, 0.0) for name in self.trees.card()])
        return {
            "card": np.tile(card, (len(labels), 1)),
            "answers": confidence[:, None],
            "export": np.stack([confidence, pull, covers / max(1, len(parts))], axis=1),
        }

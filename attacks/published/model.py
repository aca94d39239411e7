"""The object of an intruder test: a published model that is opened, and records of which some were in its training.

Shadow models are trainings like the published one on halves of an intruder's records, within bounds of work.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from treetap.arrays import Bools, Floats, Ints
from treetap.errors import BadInput
from treetap.models.own_split import OwnSplit
from treetap.protocols.registry import training
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

    @cached_property
    def features(self) -> Features:
        return {party: table.features for party, table in self.tables.items()}

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
        return np.asarray(outcome[np.arange(len(labels)), labels.astype(np.int64)])

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


# Shadow models: trainings like the published one on halves of an intruder's records, within bounds of work.


#: Number from which all draws of an intruder follow.
SEED = 0
#: Fewest shadow models, of which half have a record in their training.
FEWEST = 4
#: Fewest records of each half of a table.
LEAST_RECORDS = 20
#: Records of each half of the first sample by which the work is estimated.
_FIRST = 250
#: Trees of the trainings that time one of all trees.
_TRIALS = (1, 4)
#: Shadow models' part of the seconds, and that within which no further one begins.
_PLANNED, _ENDS = 0.4, 0.6


@dataclass(frozen=True)
class Bounds:
    """The most work of an intruder: shadow models, and seconds of a processor."""

    shadows: int = 16
    seconds: float = 60.0


@dataclass(frozen=True)
class Intruder:
    """The evidence of attacks on a published model; `reasons`: what was not measured → why.

    Of S shadow models `inside` (S, n): the records that each was trained on, and `statistics`: by artefact, (S, n, d).
    """

    target: Target
    inside: Bools = field(repr=False)
    statistics: dict[str, Floats] = field(repr=False)
    bounds: Bounds
    begun: float
    reasons: dict[str, str] = field(default_factory=dict)

    @cached_property
    def cells(self) -> Floats:
        """Columns of all parties and, last, the label: (n, d + 1)."""
        return np.column_stack([*self.target.features.values(), self.target.labels.values])

    @cached_property
    def scores(self) -> Floats:
        """Scores (n, outputs) of the published model."""
        return self.target.trees.scores(self.target.features)

    @property
    def spent(self) -> float:
        """Seconds of a processor since the audit has `begun`."""
        return time.process_time() - self.begun


def trained(target: Target, rows: Ints, seed: int, trees: int | None = None) -> OpenTrees:
    """A model of the records at these places, with the parameters of the published one but for the seed.

    `trees`: in the place of all rounds.
    """
    centrally = training(target.protocol).centrally
    assert centrally.train is not None  # the table of a model without joint scores is refused
    assert centrally.rounds is not None
    params = replace(target.params, seed=seed, n_estimators=trees or target.params.n_estimators)
    labels, classes = target.labels.values[rows], len(target.labels.classes)
    # a column may be constant among few records
    tables = [(party, replace(table.take(rows), dropped=[])) for party, table in target.tables.items()]
    rounds = centrally.rounds(params, classes, labels, None, None)
    model = centrally.train(tables, labels, classes, params, min_cell_records=target.least, rounds=rounds)
    own = {
        (owner, handle): OwnSplit.of(handle, 0, *entry)
        for owner, entries in model.splits.items()
        for handle, entry in enumerate(entries)
    }
    metrics = rounds.summary()["training_metrics"]
    return OpenTrees(model.ensemble, lambda split: own[split.owner, split.handle], metrics)


def affordable(target: Target, bounds: Bounds, draw: np.random.Generator) -> Ints:
    """The records, as many of the training as others, for which the bounds suffice.

    The sample is doubled as long as the time of one training allows.

    Raises:
        BadInput: a half of the table has too few records, or not even few models fit.
    """
    halves = [draw.permutation(np.flatnonzero(target.members == side)) for side in (True, False)]
    most = min(map(len, halves))
    if most < LEAST_RECORDS:
        raise BadInput(
            f"the table has {len(halves[0])} records of the training and {len(halves[1])} others: give at least "
            f"{LEAST_RECORDS} of each, best as many of one as of the other"
        )
    planned, size = _PLANNED * bounds.seconds, min(_FIRST, most)
    while True:
        rows = np.sort(np.concatenate([half[:size] for half in halves]))
        seconds = _seconds(target.take(rows), np.sort(draw.permutation(2 * size)[:size]))
        if size == most or 2 * seconds * bounds.shadows > planned:
            break
        size = min(2 * size, most)
    if FEWEST * seconds > planned:
        raise BadInput(
            f"a shadow model of {size} records takes {seconds:.0f} seconds, so that {FEWEST} do not fit into the "
            f"{bounds.seconds:g} seconds of this audit: the model has {target.params.n_estimators} rounds; audit one "
            "of fewer"
        )
    return rows


def shadows(target: Target, bounds: Bounds, begun: float, draw: np.random.Generator) -> tuple[Bools, dict[str, Floats]]:
    """Shadow models in pairs, the second of which has the records that the first one has not: see `Intruder`.

    Further pairs are left out once time is short.
    """
    n = len(target.members)
    inside: list[Bools] = []
    statistics: list[dict[str, Floats]] = []
    while len(inside) + 2 <= bounds.shadows and (
        len(inside) < FEWEST or time.process_time() - begun < _ENDS * bounds.seconds
    ):
        half = np.zeros(n, dtype=bool)
        half[draw.permutation(n)[: n // 2]] = True
        for side in (half, ~half):
            inside.append(side)
            statistics.append(target.statistics(trained(target, np.flatnonzero(side), len(inside))))
    stacked = {name: np.stack([of_model[name] for of_model in statistics]) for name in statistics[0]}
    return np.stack(inside), stacked


def _seconds(target: Target, rows: Ints) -> float:
    """Seconds of one training on these records, and of the scores of all, from trainings of few trees."""
    took = []
    for trees in _TRIALS:
        begun = time.process_time()
        model = trained(target, rows, 0, trees)
        target.statistics(model)
        took.append(time.process_time() - begun)
    slope = max(0.0, took[1] - took[0]) / (_TRIALS[1] - _TRIALS[0])
    return max(1e-3, took[0] + slope * (target.params.n_estimators - 1))

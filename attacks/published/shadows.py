"""Shadow models: trainings like the published one on halves of an intruder's records, within bounds of work."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

import numpy as np

from treetap.attacks.published.model import Bools, Floats, Ints, OpenTrees, Target
from treetap.errors import BadInput
from treetap.models.own_split import OwnSplit
from treetap.protocols.registry import training

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
class Clock:
    """Seconds of a processor since it was made."""

    start: float = field(default_factory=time.process_time)

    @property
    def spent(self) -> float:
        return time.process_time() - self.start


@dataclass(frozen=True)
class Shadows:
    """S shadow models. `inside` (S, n): the records that each was trained on. `statistics`: by artefact, (S, n, d)."""

    inside: Bools
    statistics: dict[str, Floats] = field(repr=False)


@dataclass(frozen=True)
class Intruder:
    """The evidence of attacks on a published model; `reasons`: what was not measured → why."""

    target: Target
    shadows: Shadows
    bounds: Bounds
    clock: Clock
    reasons: dict[str, str] = field(default_factory=dict)
    cells: Floats = field(init=False, repr=False)
    """Columns of all parties and, last, the label: (n, d + 1)."""
    scores: Floats = field(init=False, repr=False)
    """Scores (n, outputs) of the published model."""

    def __post_init__(self) -> None:
        target = self.target
        object.__setattr__(self, "cells", np.column_stack([*target.features.values(), target.labels.values]))
        object.__setattr__(self, "scores", target.trees.scores(target.features))


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


def shadows(target: Target, bounds: Bounds, clock: Clock, draw: np.random.Generator) -> Shadows:
    """Shadow models in pairs: the second of a pair has the records that the first one has not.

    Further pairs are left out once time is short.
    """
    n = len(target.members)
    inside: list[Bools] = []
    statistics: list[dict[str, Floats]] = []
    while len(inside) + 2 <= bounds.shadows and (len(inside) < FEWEST or clock.spent < _ENDS * bounds.seconds):
        half = np.zeros(n, dtype=bool)
        half[draw.permutation(n)[: n // 2]] = True
        for side in (half, ~half):
            inside.append(side)
            statistics.append(target.statistics(trained(target, np.flatnonzero(side), len(inside))))
    stacked = {name: np.stack([of_model[name] for of_model in statistics]) for name in statistics[0]}
    return Shadows(np.stack(inside), stacked)


def _seconds(target: Target, rows: Ints) -> float:
    """Seconds of one training on these records, and of the scores of all, from trainings of few trees."""
    took = []
    for trees in _TRIALS:
        clock = Clock()
        model = trained(target, rows, 0, trees)
        target.statistics(model)
        took.append(clock.spent)
    slope = max(0.0, took[1] - took[0]) / (_TRIALS[1] - _TRIALS[0])
    return max(1e-3, took[0] + slope * (target.params.n_estimators - 1))

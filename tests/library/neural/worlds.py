"""Small federations: both sides of the cut, driven batch by batch, and the same training in one process or graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.library.neural.one_graph import OneGraph
from treetap.neural.centralised import CentralNetwork, Party
from treetap.neural.defences import FeatureDefences, LabelDefences
from treetap.neural.draws import Draws
from treetap.neural.inputs import Inputs, InputScaler
from treetap.neural.numbers import from_bytes, to_bytes
from treetap.neural.params import SplitnnParams
from treetap.neural.schedule import Schedule
from treetap.neural.sides import FeatureSide, LabelSide, Objective
from treetap.tables.features import Held
from treetap.tables.reading import Table
from treetap.tables.record_ids import Ids

NAMES = ("bank", "shop", "telco")
Weights = dict[str, dict[str, np.ndarray]]


def table(records: int, columns: int, *, images: bool = False, seed: int = 0) -> Table:
    """Random numbers, each seventh of the first column missing, or random images of 6 × 4."""
    draws = np.random.default_rng(seed)
    values = draws.normal(size=(records, 0 if images else columns))
    values[::7, :1] = np.nan
    tensors = {"photo": draws.integers(0, 256, size=(records, 6, 4), dtype=np.uint8)} if images else {}
    ids, names = [f"{number:03d}" for number in range(records)], [f"c{place}" for place in range(values.shape[1])]
    return Table(Path("own.csv"), Ids.of(ids), names, Held(values), None, np.arange(records), tensors=tensors)


@dataclass
class World:
    """A job and its parties' inputs; the first party holds the labels.

    `columns`: of each party's table; None of a label holder without a table. `of_columns`: of each
    feature party, its defences.
    """

    params: SplitnnParams
    columns: list[int | None] = field(default_factory=lambda: [3, 3])
    records: int = 37
    images: bool = False
    defences: LabelDefences = field(default_factory=LabelDefences)
    of_columns: FeatureDefences = field(default_factory=FeatureDefences)
    amplified: bool = False
    classes: int = 3

    def __post_init__(self) -> None:
        self.params.validate()
        self.schedule = Schedule.of(self.params, self.records)
        self.inputs: dict[str, Inputs | None] = {}
        for number, (name, columns) in enumerate(zip(NAMES, self.columns, strict=False)):
            if columns is None:
                self.inputs[name] = None
                continue
            own = table(self.records, columns, images=self.images, seed=number)
            self.inputs[name] = InputScaler.fit(own, self.schedule.training).apply(own)
        draws = np.random.default_rng(99)
        self.labels: np.ndarray[Any, Any] = draws.integers(0, max(2, self.classes), size=self.records)
        if self.params.regression:
            self.labels = self.labels * 100.0 + draws.normal(size=self.records)

    @property
    def parties(self) -> list[Party]:
        """The parties, with draws of a reproducible job."""
        return [
            Party(
                name,
                own,
                Draws.reproducible(self.params.seed, name),
                self.amplified and name == NAMES[1],
                FeatureDefences() if name == NAMES[0] else self.of_columns,
            )
            for name, own in self.inputs.items()
        ]

    def central(self) -> CentralNetwork:
        """The untrained network in one process."""
        return CentralNetwork(self.params, self.parties, self.labels, self.classes, self.defences)

    def one_graph(self) -> OneGraph:
        """The untrained network in one graph."""
        return OneGraph(self.params, self.parties, self.labels, self.classes, self.defences)

    def federation(self) -> Federation:
        """The untrained sides."""
        return Federation(self)


class Federation:
    """A label side and its feature sides, which meet on bytes."""

    def __init__(self, world: World) -> None:
        self.world, params = world, world.params
        (holder, own), *others = world.inputs.items()
        objective = Objective.of(params, world.classes, world.labels[world.schedule.training])
        draws = {name: Draws.reproducible(params.seed, name) for name in world.inputs}
        names = [name for name, _ in others]
        self.holder = LabelSide(params, holder, names, own, world.labels, objective, draws[holder], world.defences)
        self.others = {
            name: FeatureSide(
                params,
                name,
                inputs,
                draws[name],
                amplified=world.amplified and name == NAMES[1],
                defences=world.of_columns,
            )
            for name, inputs in others
            if inputs is not None
        }
        self.losses: list[float] = []

    def train_epoch(self, epoch: int) -> None:
        """One epoch, batch by batch."""
        schedule, wire_type = self.world.schedule, self.world.params.wire_type
        for batch, rows in enumerate(schedule.epoch(epoch)):
            rate, received = schedule.rate(epoch, batch), {}
            taking = [name for name in self.others if schedule.takes_part(epoch, batch, name)]
            for name in taking:
                content = to_bytes(self.others[name].forward(rows), wire_type)
                received[name] = from_bytes(content, len(rows), self.others[name].width, wire_type)
            trained = self.holder.train(rows, received, epoch, batch, rate)
            self.losses.append(trained.loss)
            for name in taking:
                content = to_bytes(trained.gradients[name], wire_type)
                gradient = from_bytes(content, len(rows), self.others[name].width, wire_type)
                self.others[name].backward(gradient, rate, epoch, batch)

    def resumed(self) -> Federation:
        """Other sides that continue from the states of these."""
        found = Federation(self.world)
        found.holder.load(self.holder.state())
        for name, side in self.others.items():
            found.others[name].load(side.state())
        found.losses = list(self.losses)
        return found

    def train(self, *, resume_at: int | None = None) -> Federation:
        """All epochs; `resume_at`: the epoch before which each party begins anew from its state."""
        sides = self
        for epoch in range(self.world.params.epochs):
            if epoch == resume_at:
                sides = sides.resumed()
            sides.train_epoch(epoch)
        return sides

    def weights(self) -> Weights:
        """Party → its weights by name."""
        own = {NAMES[0]: dict(self.holder.weights())}
        return own | {name: dict(side.weights()) for name, side in self.others.items()}

    def scores(self, rows: np.ndarray, away: frozenset[str] = frozenset()) -> np.ndarray:
        """Scores of records; parties that are away send nothing."""
        embeddings = {name: side.embed(rows) for name, side in self.others.items() if name not in away}
        return np.asarray(self.holder.scores(rows, embeddings))


def assert_same(found: Weights, expected: Weights) -> None:
    """The same parties and names, and under each the same bits."""
    assert {name: set(each) for name, each in found.items()} == {name: set(each) for name, each in expected.items()}
    for party, arrays in found.items():
        for name, values in arrays.items():
            assert values.dtype == expected[party][name].dtype
            assert np.array_equal(values, expected[party][name]), f"{party}: {name}"

"""The baseline of a further head: the label holder keeps a second top model for its own embedding (paper, section 5.1).

Each batch has two losses, one of each head. Their sum is minimised, so that each head learns by its own loss and the
label holder's bottom model by both. Once the feature party has quit, the second head predicts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from treetap.neural.architectures import bottom_model, top_model
from treetap.neural.centralised import Party
from treetap.neural.inputs import Inputs
from treetap.neural.numbers import pin
from treetap.neural.optimiser import Optimiser
from treetap.neural.params import SplitnnParams
from treetap.neural.schedule import Schedule
from treetap.neural.sides import PIECE, Objective

Rows = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
JOINT, OWN = "joint", "own"


class MultiHead:
    """Two parties, the label holder first, with a head for both embeddings and one for the label holder's own."""

    def __init__(self, params: SplitnnParams, parties: list[Party], labels: npt.NDArray[Any], classes: int) -> None:
        """`labels`: (N,) class numbers. Both parties have inputs."""
        self._params, self._labels = params, labels
        self._inputs = {party.name: _inputs(party) for party in parties}
        self.schedule = Schedule.of(params, len(labels))
        self.objective = Objective.of(params, classes, labels)
        holder, draws = parties[0].name, parties[0].draws
        self._bottoms = {
            party.name: bottom_model(
                params.bottom_of(party.name), _inputs(party).shape, party.draws, "bottom", party.name
            )
            for party in parties
        }
        widths = {party.name: params.bottom_of(party.name).width for party in parties}
        outputs = self.objective.outputs
        self._heads = {
            JOINT: top_model(params.top, sum(widths.values()), outputs, draws, "top"),
            OWN: top_model(params.top, widths[holder], outputs, draws, "own top"),
        }
        self._holder = holder
        self._optimiser = Optimiser({**self._bottoms, **self._heads}, params)

    def train(self) -> MultiHead:
        """Train to the last epoch."""
        pin(self._params.threads)
        for epoch in range(self._params.epochs):
            for batch, rows in enumerate(self.schedule.epoch(epoch)):
                self._optimiser.clear()
                self._set(training=True)
                outputs = self._outputs(self._inputs, rows)
                losses = [self.objective.loss(each, self._labels[rows]) for each in outputs.values()]
                torch.autograd.backward(losses)
                self._optimiser.step(self.schedule.rate(epoch, batch))
        return self

    def scores(self, inputs: Mapping[str, Inputs], rows: Rows, away: frozenset[str] = frozenset()) -> Floats:
        """Scores (n, K) of records: of the joint head, or of the own one if a party is away."""
        pin(self._params.threads)
        self._set(training=False)
        with torch.no_grad():
            pieces = np.split(rows, range(PIECE, len(rows), PIECE))
            found = [self._outputs(inputs, piece)[OWN if away else JOINT] for piece in pieces]
            return np.concatenate([self.objective.scores(each) for each in found])

    def _outputs(self, inputs: Mapping[str, Inputs], rows: Rows) -> dict[str, torch.Tensor]:
        embeddings = {name: bottom(inputs[name].batch(rows)) for name, bottom in self._bottoms.items()}
        joined = torch.cat(list(embeddings.values()), dim=1)
        return {JOINT: self._heads[JOINT](joined), OWN: self._heads[OWN](embeddings[self._holder])}

    def _set(self, *, training: bool) -> None:
        for model in (*self._bottoms.values(), *self._heads.values()):
            model.train(training)


def _inputs(party: Party) -> Inputs:
    assert party.inputs is not None  # both parties of this baseline have columns
    return party.inputs

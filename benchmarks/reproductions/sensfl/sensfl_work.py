"""The work on cells that have no result yet: trainings with attacks, federations, biases of projections."""

from __future__ import annotations

from typing import Any

import federated_weights
from keyed_cells import KeyedScale
from resumable import Results
from sensfl_cells import CLIP, Cell
from sensfl_projections import biases
from sensfl_sets import HOLDER, PARTIES, files_of
from sensfl_settings import params_of
from sensfl_trainings import network_of, run, split_for

FEDERATION, PROJECTIONS = "federation", "projections"


class Work:
    """Work at one scale, into one file of results."""

    def __init__(self, scale: KeyedScale, results: Results) -> None:
        self._scale, self._results = scale, results

    def attack(self, cell: Cell) -> None:
        """Train a cell without a result, and attack what its label holder has read."""
        if self._results.get(self._key(cell)) is None:
            self._results.add({"trial": self._key(cell), **run(cell, self._scale)})

    def federate(self, cell: Cell) -> None:
        """Train a cell by a federation of processes too, and compare the weights."""
        key = self._key(cell, FEDERATION)
        if self._results.get(key) is not None:
            return
        params, features = params_of(cell, self._scale.epochs), PARTIES[1 : cell.parties]
        folder = files_of(cell.set, cell.seed, cell.parties, self._scale.most)
        settings = federated_weights.party_settings(folder, HOLDER, features)
        for name in features:
            settings[name]["defences"] = _defences(cell)
        network = network_of(cell, params, split_for(cell, self._scale))
        self._results.add({"trial": key, **federated_weights.compared(network, params, settings)})

    def project(self, cell: Cell) -> None:
        """Measure what one projection makes of the norm on a cell's bottom before its training."""
        key = self._key(cell, PROJECTIONS)
        if self._results.get(key) is None:
            self._results.add({"trial": key, **biases(cell, params_of(cell), split_for(cell, self._scale))})

    def _key(self, cell: Cell, asked: str = "") -> dict[str, Any]:
        return cell.key() | self._scale.key() | ({"asked": asked} if asked else {})


def _defences(cell: Cell) -> dict[str, Any]:
    """The defences of a feature party's file."""
    if cell.sensitivity:
        return {"sensitivity": cell.sensitivity, "sensitivity_norm": cell.norm}
    return {"dp_sgd": {"clip": CLIP, "noise": cell.multiplier}} if cell.noise else {}

"""A cell by a federation of processes under mutual TLS, its weights beside those of the centralised code."""

from __future__ import annotations

from typing import Any

import federated_weights
from network_cells import Cell, Scale
from network_sets import FEATURE, HOLDER, files_of
from network_settings import defences_of, params_of
from network_trainings import network_of, split_for

from treetap.errors import BadInput


def compared(cell: Cell, scale: Scale) -> dict[str, Any]:
    """Train a cell in both ways: the largest difference of a weight, and seconds.

    Raises:
        BadInput: the cell has labels or a party's optimiser that the centralised code draws or sets in its own way.
        TreetapError: the federation has failed.
    """
    if cell.label_dp or cell.amplified or not cell.random_labels:
        raise BadInput(f"{cell.name()}: only dropout and defences of gradients are compared with a federation")
    params, split = params_of(cell, epochs=scale.epochs, resnet=scale.resnet), split_for(cell, scale)
    folder = files_of(cell.set, cell.seed, scale.most, turns=cell.turns)
    settings = federated_weights.party_settings(folder, HOLDER, [FEATURE])
    if (defences := _defences(cell)) is not None:
        settings[HOLDER]["defences"] = defences
    return federated_weights.compared(network_of(cell, params, split, split.labels["train"]), params, settings)


def _defences(cell: Cell) -> dict[str, Any] | None:
    """The defences of the label holder's file."""
    wanted = defences_of(cell)
    found: dict[str, Any] = {"dimip": dict(wanted.dimip)} if wanted.dimip else {}
    if wanted.gradient is not None:
        found["gradient"] = {name: value for name, value in vars(wanted.gradient).items() if value}
    return found or None

"""The factor by which J with one projection is smaller than the norm that it estimates, on one network."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from divided_sets import Split
from sensfl_cells import Cell
from sensfl_sets import FEATURE
from sensfl_trainings import network_of

from treetap.neural.architectures import held_statistics
from treetap.neural.draws import Draws
from treetap.neural.numbers import pin
from treetap.neural.params import SplitnnParams
from treetap.neural.sides import BOTTOM

#: Records of the batch, and draws of a projection for each.
_RECORDS, _DRAWS = 8, 200


def biases(cell: Cell, params: SplitnnParams, split: Split) -> dict[str, Any]:
    """`factor`: the mean over draws of J in "record" mode with one projection over the exact J; `square`: of squares.

    The bottom has its initial weights or, of a cell under SensFL, those after its training; `square` is 1 but for the
    draws.
    """
    pin(params.threads)
    inputs, draws = split.inputs["train"][FEATURE], Draws.reproducible(cell.seed, FEATURE)
    network = network_of(cell, params, split)
    bottom = (network.train() if cell.sensitivity else network).models[FEATURE][BOTTOM].train()
    x = inputs.batch(np.arange(_RECORDS)).requires_grad_()
    with held_statistics(bottom):
        embeddings = bottom(x)
    exact = torch.zeros(_RECORDS)
    for column in range(embeddings.shape[1]):
        exact += _squares(embeddings, x, torch.eye(embeddings.shape[1])[column].expand_as(embeddings))
    drawn = torch.stack(
        [
            _squares(
                embeddings,
                x,
                torch.from_numpy(draws.signs(embeddings.numel(), "projections", draw)).reshape(embeddings.shape),
            )
            for draw in range(_DRAWS)
        ]
    )
    factor = drawn.sqrt().mean(dim=1).mean() / exact.sqrt().mean()
    return {"factor": float(factor), "square": float(drawn.mean() / exact.mean())}


def _squares(embeddings: torch.Tensor, x: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """(n,) ‖vᵀ∂e/∂x‖² of each record."""
    (found,) = torch.autograd.grad(embeddings, x, v, retain_graph=True)
    return found.flatten(1).square().sum(dim=1)

"""SensFL: the norm J of the Jacobian of a batch's embeddings, whose gradient a feature party adds to its own step.

"SensFL: Privacy-Preserving Vertical Federated Learning with Sensitive Regularization" (2024), Equations 8 and 9. The
paper does not say over what the norm is taken; both readings are here, and ε is not comparable between them. Inputs are
those of the model: standardised numbers, indicators, standardised pixels.

Batch normalisation makes each embedding depend on all records of its batch. J is taken with the statistics of the batch
held fixed, so that every record has a Jacobian (width, inputs) of its own.
"""

from __future__ import annotations

import math

import torch
from torch import nn

from treetap.neural.architectures import has_statistics, held_statistics, is_perceptron
from treetap.neural.draws import Draws
from treetap.neural.feature_defences import RECORD, FeatureDefences

#: The largest product of width and inputs for which every row of the Jacobian is computed.
EXACT = 20_000


def sensitivity(
    model: nn.Module,
    x: torch.Tensor,
    defences: FeatureDefences,
    draws: Draws,
    *path: str | int,
    embeddings: torch.Tensor | None = None,
) -> torch.Tensor:
    """J of a batch (Equation 9), a number with its graph; exact if width × inputs is at most `EXACT`.

    Otherwise the square of each record's norm is the mean of ‖vᵀ∂e/∂x‖² over projections v of random signs, whose
    expectation it is (Hutchinson 1990). The root of a mean is below the mean of roots: with few projections J itself
    is smaller than the norm, by a factor that depends on the network.

    Args:
        x: (n, …) the inputs of the batch.
        draws: the party's private ones; `path`: their name.
        embeddings: (n, width) of these inputs, with their graph, where they are at hand: another pass is saved unless
            statistics must be held.
    """
    if embeddings is None or has_statistics(model):
        x = x.detach().requires_grad_()
        with held_statistics(model):
            embeddings = model(x)
    if embeddings.shape[1] * (x.numel() // len(x)) <= EXACT:
        rows = _jacobians(embeddings, x, at_once=is_perceptron(model))
    else:
        rows = _projected(embeddings, x, defences.projections, draws, *path)
    norms: torch.Tensor = torch.linalg.vector_norm(rows, dim=1)
    whole: torch.Tensor = norms.mean() if defences.sensitivity_norm == RECORD else torch.linalg.vector_norm(rows)
    return whole


def _projected(
    embeddings: torch.Tensor, x: torch.Tensor, projections: int, draws: Draws, *path: str | int
) -> torch.Tensor:
    """(n, m) numbers, of which the squares of a record's add up to an estimate of the square of its norm."""
    records, width = embeddings.shape
    signs = torch.from_numpy(draws.signs(projections * records * width, *path)).reshape(projections, records, width)
    products = torch.stack([torch.autograd.grad(embeddings, x, sign, create_graph=True)[0] for sign in signs], dim=1)
    return products.reshape(records, -1) / math.sqrt(projections)


def _jacobians(embeddings: torch.Tensor, x: torch.Tensor, *, at_once: bool) -> torch.Tensor:
    """(n, width × inputs) every record's Jacobian, row by row or, where inputs are fewer, column by column.

    A column is the derivative of vᵀ∂e/∂x, which is linear in v, with respect to v. `at_once`: PyTorch has batched rules
    for all layers, which it lacks for group normalisation.
    """
    if x.numel() >= embeddings.numel():
        rows = _by_each(embeddings, x, at_once)
    else:
        v = torch.zeros_like(embeddings, requires_grad=True)
        rows = _by_each(torch.autograd.grad(embeddings, x, v, create_graph=True)[0], v, at_once)
    return rows.transpose(0, 1).reshape(len(x), -1)


def _by_each(outputs: torch.Tensor, inputs: torch.Tensor, at_once: bool) -> torch.Tensor:
    """(m, n, …) the derivatives of each of a record's m outputs in its inputs."""
    count = outputs[0].numel()
    one_hot = torch.eye(count).reshape(count, 1, *outputs.shape[1:]).expand(count, *outputs.shape)
    if at_once:
        slopes: torch.Tensor = torch.autograd.grad(outputs, inputs, one_hot, create_graph=True, is_grads_batched=True)[
            0
        ]
        return slopes
    return torch.stack([torch.autograd.grad(outputs, inputs, direction, create_graph=True)[0] for direction in one_hot])

"""The gradients of a feature party's own step, with its defences: the same in a federation and in one graph."""

from __future__ import annotations

import torch
from torch import nn

from treetap.neural.dp_sgd import noised_gradients
from treetap.neural.draws import Draws
from treetap.neural.feature_defences import FeatureDefences
from treetap.neural.sensitivity import sensitivity


def own_gradients(
    model: nn.Module,
    x: torch.Tensor,
    embeddings: torch.Tensor,
    gradient: torch.Tensor,
    defences: FeatureDefences,
    draws: Draws,
    *path: str | int,
) -> None:
    """Compute the gradients of the model's weights for a batch.

    Args:
        x: (n, …) the inputs of the batch, with a gradient of their own where there is a sensitivity.
        embeddings: (n, width) the model's outputs for them, with their graph.
        gradient: (n, width) that has returned from the label holder.
        draws: the party's private ones; `path`: the names of party, epoch and batch.
    """
    if defences.dp_sgd is not None:
        noised = noised_gradients(model, x, gradient, defences.dp_sgd, draws, "dp_sgd", *path)
        for name, weight in model.named_parameters():
            weight.grad = noised[name]
    elif defences.sensitivity and x.numel():
        j = sensitivity(model, x, defences, draws, "sensitivity", *path, embeddings=embeddings)
        loss = defences.sensitivity * j
        torch.autograd.backward([embeddings, loss], [gradient, torch.ones_like(loss)], inputs=list(model.parameters()))
    else:
        torch.autograd.backward(embeddings, gradient)

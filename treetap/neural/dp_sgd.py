"""DP-SGD (Abadi et al. 2016, Algorithm 1) in a feature party's own step: clipped gradients of single records, noise.

The gradient that returns is that of the mean loss of a batch of n records; n times its row is the gradient of one
record's loss in that record's embedding. With these taken as given, the noise hides one record in the party's weights.
It hides nothing in embeddings: they are computed from the records and sent as they are.

Noise is named by the SHA-256 of the sum that it hides, as that of `treetap.neural.gradient_defences` is: a batch that
is repeated with other gradients gets other noise.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from treetap.neural.draws import Draws
from treetap.neural.feature_defences import DpSgd
from treetap.neural.gradient_defences import digest_of

#: Most numbers of the gradients of single records that are held at once.
_HELD = 1 << 25


def noised_gradients(
    model: nn.Module, x: torch.Tensor, gradient: torch.Tensor, defence: DpSgd, draws: Draws, *path: str | int
) -> dict[str, torch.Tensor]:
    """Weight → the gradient of the batch's mean loss, clipped by record and with noise.

    Args:
        model: without batch normalisation, where no record has a gradient of its own.
        x: (n, …) the inputs of the batch.
        gradient: (n, width) that has returned.
        draws: the party's private ones; `path`: the name of the noise.
    """
    total = clipped_sum(model, x, gradient, defence.clip)
    deviation, noised = defence.noise * defence.clip, {}
    for name, clipped in total.items():
        noise = draws.gaussian(deviation, clipped.numel(), *path, name, digest_of(clipped), repr(defence))
        noised[name] = (clipped + torch.from_numpy(noise).to(clipped.dtype).reshape(clipped.shape)) / len(x)
    return noised


def clipped_sum(model: nn.Module, x: torch.Tensor, gradient: torch.Tensor, clip: float) -> dict[str, torch.Tensor]:
    """Weight → the sum over records of the gradient of each one's loss, scaled to a norm of at most `clip`.

    Gradients of single records are never formed for linear layers: that of a layer's weights is the product of the
    gradient in the layer's output and of its input, and so is its norm (Goodfellow 2015, "Efficient per-example
    gradient computations").
    """
    inputs, slopes = _of_linear_layers(model, x, gradient)
    squares = torch.zeros(len(x))
    for name, slope in slopes.items():
        squares += slope.square().sum(dim=1) * (inputs[name].square().sum(dim=1) + 1)
    # What is no linear layer needs each record's gradient, a piece of the batch at a time.
    of_linear = {f"{name}.{kind}" for name in slopes for kind in ("weight", "bias")}
    others = {name: torch.zeros_like(weight) for name, weight in model.named_parameters() if name not in of_linear}
    factors = [_factors(squares, clip)] if not others else []
    if others:
        at_once = max(1, _HELD // sum(weight.numel() for weight in others.values()))
        for start in range(0, len(x), at_once):
            piece = slice(start, start + at_once)
            by_record = record_gradients(model, x[piece], len(x) * gradient[piece], others)
            more = torch.stack([rows.flatten(1).square().sum(dim=1) for rows in by_record.values()]).sum(dim=0)
            factors.append(_factors(squares[piece] + more, clip))
            for name, rows in by_record.items():
                others[name] += torch.tensordot(factors[-1], rows, dims=1)
    # The sums of linear layers follow from the factors, without any gradient of a single record.
    scale, total = torch.cat(factors)[:, None], others
    for name, slope in slopes.items():
        total |= {f"{name}.weight": (scale * slope).T @ inputs[name], f"{name}.bias": (scale * slope).sum(dim=0)}
    return {name: total[name] for name, _ in model.named_parameters()}


def record_gradients(
    model: nn.Module, x: torch.Tensor, gradient: torch.Tensor, names: Collection[str]
) -> dict[str, torch.Tensor]:
    """Name → (n, …) the gradient of each record's loss in a weight, by the gradients (n, width) in its embedding."""
    held = {name: weight.detach() for name, weight in model.named_parameters()}
    weights = {name: held.pop(name) for name in names}

    def product(weights: dict[str, torch.Tensor], record: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        embedding: torch.Tensor = functional_call(model, {**held, **weights}, (record[None],))[0]
        return (embedding * gradient).sum()

    by_record: dict[str, torch.Tensor] = vmap(grad(product), in_dims=(None, 0, 0))(weights, x, gradient)
    return by_record


def _of_linear_layers(
    model: nn.Module, x: torch.Tensor, gradient: torch.Tensor
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """By linear layer, its inputs (n, ·) and the gradients of each record's loss in its outputs (n, ·)."""
    inputs, outputs = dict[str, torch.Tensor](), dict[str, torch.Tensor]()

    def note(name: str, given: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        inputs[name], outputs[name] = given[0].detach(), output

    hooks = [
        layer.register_forward_hook(lambda _, given, output, name=name: note(name, given, output))
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear)
    ]
    try:
        embeddings = model(x)
    finally:
        for hook in hooks:
            hook.remove()
    slopes = torch.autograd.grad(embeddings, list(outputs.values()), len(x) * gradient)
    return inputs, dict(zip(outputs, slopes, strict=True))


def _factors(squares: torch.Tensor, clip: float) -> torch.Tensor:
    """(n,) factors that bring gradients with these squared norms (n,) to a norm of at most `clip`."""
    norms = squares.sqrt()
    return torch.where(norms > clip, clip / norms, 1.0)

"""The gradients of a feature party's own step, with its defences: the same in a federation and in one graph.

DP-SGD (Abadi et al. 2016, Algorithm 1) clips gradients of single records and adds noise. The gradient that returns is
that of the mean loss of a batch of n records; n times its row is the gradient of one record's loss in that record's
embedding. With these taken as given, the noise hides one record in the party's weights. It hides nothing in embeddings:
they are computed from the records and sent as they are. Sums and noise are whole multiples of a grid, without an error
of floating point; `treetap.neural.defences` has the proof. Noise follows from the party's key, which is from the
operating system, and from the SHA-256 of the sum that it hides: a batch that is repeated after an interruption releases
nothing new, and one that is repeated with other gradients gets other noise.

SensFL adds the gradient of J, the norm of the Jacobian of a batch's embeddings ("SensFL: Privacy-Preserving Vertical
Federated Learning with Sensitive Regularization", 2024, Equations 8 and 9). The paper does not say over what the norm
is taken; both readings are here, and ε is not comparable between them. Inputs are those of the model: standardised
numbers, indicators, standardised pixels. Batch normalisation makes each embedding depend on all records of its batch. J
is taken with the statistics of the batch held fixed, so that every record has a Jacobian (width, inputs) of its own.
"""

from __future__ import annotations

import math
from collections.abc import Collection

import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from treetap.neural.architectures import has_statistics, held_statistics, is_perceptron
from treetap.neural.defences import RECORD, DpSgd, FeatureDefences, finest_grid
from treetap.neural.draws import Draws
from treetap.neural.gradient_defences import digest_of
from treetap.privacy.discrete_gaussian import discrete_gaussians

#: Most numbers of the gradients of single records that are held at once, and most records of a sum: below 2⁵³ grids.
_HELD, _RECORDS = 1 << 24, 1 << 16
#: Inputs of linear layers are multiples of this, and gradients in their outputs of the grid divided by it.
_INPUTS = 2.0**-14
#: Norms are clipped to this share of the bound: 2³² squares added in float64 are wrong by less than 2⁻²⁰ of their sum.
_SURE = 1 - 2.0**-20
#: The largest product of width and inputs for which every row of the Jacobian is computed.
EXACT = 20_000


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
    total = clipped_sum(model, x, gradient, defence.clip, defence.grid)
    whole = (torch.cat([sums.flatten() for sums in total.values()]) / defence.grid).to(torch.int64)
    source = draws.source(*path, digest_of(whole), repr(defence))
    whole += torch.from_numpy(discrete_gaussians(len(whole), defence.variance, source))
    noised = torch.split((whole.double() * (defence.grid / len(x))).float(), [sums.numel() for sums in total.values()])
    return {name: part.reshape(sums.shape) for (name, sums), part in zip(total.items(), noised, strict=True)}


def clipped_sum(
    model: nn.Module, x: torch.Tensor, gradient: torch.Tensor, clip: float, grid: float | None = None
) -> dict[str, torch.Tensor]:
    """Weight → the sum over records of the gradient of each one's loss, scaled to a norm of at most `clip`; float64.

    Numbers are multiples of `grid`, a power of two of at least 2⁻³⁶ of the clip, or the finest. What a record adds
    follows from it alone: a number that is not finite counts as 0, and what was scaled is rounded towards 0, so that no
    norm rises. At most 2¹⁶ records of at most 2³⁶ grids each: every partial sum is exact in float64, in any order.

    Gradients of single records are never formed for linear layers: that of a layer's weights is the product of the
    gradient in the layer's output and of its input, and so is its norm (Goodfellow 2015, "Efficient per-example
    gradient computations"). There both factors are rounded, the input first, so that the norm is that of the product.

    Raises:
        ValueError: more records, or a finer grid.
    """
    least = finest_grid(clip)
    grid = grid or least
    if len(x) > _RECORDS or grid < least:
        raise ValueError(f"{len(x)} records on a grid of {grid:g}: at most {_RECORDS}, and {least:g} or coarser")
    inputs, slopes = _of_linear_layers(model, x, gradient)
    squares = torch.zeros(len(x), dtype=torch.float64)
    for name, slope in slopes.items():
        squares += slope.square().sum(dim=1) * (inputs[name].square().sum(dim=1) + 1)
    # What is no linear layer needs each record's gradient, a piece of the batch at a time.
    of_linear = {f"{name}.{kind}" for name in slopes for kind in ("weight", "bias")}
    others = {
        name: torch.zeros_like(weight, dtype=torch.float64)
        for name, weight in model.named_parameters()
        if name not in of_linear
    }
    factors = [_factors(squares, clip)] if not others else []
    if others:
        at_once = max(1, _HELD // sum(weight.numel() for weight in others.values()))
        for start in range(0, len(x), at_once):
            piece = slice(start, start + at_once)
            by_record = record_gradients(model, x[piece], len(x) * gradient[piece], others)
            exact = {name: _finite(rows.flatten(1)) for name, rows in by_record.items()}
            more = torch.stack([rows.square().sum(dim=1) for rows in exact.values()]).sum(dim=0)
            factors.append(_factors(squares[piece] + more, clip))
            for name, rows in exact.items():
                others[name] += _towards_zero(factors[-1][:, None] * rows, grid).sum(dim=0).reshape(others[name].shape)
    # The sums of linear layers follow from the factors, without any gradient of a single record.
    scale, total = torch.cat(factors)[:, None], others
    for name, slope in slopes.items():
        share = _towards_zero(scale * slope, grid / _INPUTS)
        total |= {f"{name}.weight": share.T @ inputs[name], f"{name}.bias": share.sum(dim=0)}
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
    """By linear layer, its inputs on their grid and the gradients of each record's loss in its outputs, both (n, ·)."""
    inputs, outputs = dict[str, torch.Tensor](), dict[str, torch.Tensor]()

    def note(name: str, given: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        inputs[name], outputs[name] = torch.round(_finite(given[0]) / _INPUTS) * _INPUTS, output

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
    return inputs, {name: _finite(slope) for name, slope in zip(outputs, slopes, strict=True)}


def _finite(numbers: torch.Tensor) -> torch.Tensor:
    """Numbers in float64, 0 for those that are not finite: their squares and sums are finite."""
    return numbers.detach().double().nan_to_num(0.0, 0.0, 0.0)


def _towards_zero(numbers: torch.Tensor, grid: float) -> torch.Tensor:
    """The multiples of the grid, a power of two, that are next to numbers on the side of 0."""
    return torch.trunc(numbers / grid) * grid


def _factors(squares: torch.Tensor, clip: float) -> torch.Tensor:
    """(n,) factors that bring gradients with these squared norms (n,) to a norm of at most `clip`."""
    norms, most = squares.sqrt(), _SURE * clip
    return torch.where(norms > most, most / norms, 1.0)


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
    return norms.mean() if defences.sensitivity_norm == RECORD else torch.linalg.vector_norm(rows)


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
        return torch.autograd.grad(outputs, inputs, one_hot, create_graph=True, is_grads_batched=True)[0]
    return torch.stack([torch.autograd.grad(outputs, inputs, direction, create_graph=True)[0] for direction in one_hot])

"""The optimiser of one party's weights, with a rate for each batch, and its state as arrays.

Adam and stochastic gradient descent with momentum are PyTorch's functions with a state of their own: the classes of
`torch.optim` import PyTorch's compiler, which takes a process two to four seconds and is used by none.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import nn
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from treetap.arrays import Array
from treetap.neural.params import SplitnnParams

#: Decay of Adam's two means and the number added to its divisor, as PyTorch has them.
BETAS, EPSILON = (0.9, 0.999), 1e-8
#: The factor of an amplified gradient lies between 1 and this.
MOST_AMPLIFIED = 5.0


class GradientDescent:
    """Steps of named weights against their gradients, with a rate for each.

    By Adam (Kingma, Ba 2015), or with a `momentum` by stochastic gradient descent. `fused`: one pass of Adam over each
    weight, which is faster and rounds otherwise.

    Attributes:
        kept: by weight, the quantities of those that have had a gradient, by PyTorch's names.
    """

    def __init__(
        self,
        weights: Mapping[str, torch.Tensor],
        *,
        momentum: float | None = None,
        weight_decay: float = 0.0,
        fused: bool = False,
    ) -> None:
        self._weights, self._momentum = dict(weights), momentum
        self._weight_decay, self._fused = weight_decay, fused
        self.kept: dict[str, dict[str, torch.Tensor]] = {}

    def clear(self) -> None:
        """Forget the gradients of the step before."""
        for weight in self._weights.values():
            weight.grad = None

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Apply the gradients at a learning rate; weights without a gradient stay as they are."""
        gradients = {name: weight.grad for name, weight in self._weights.items() if weight.grad is not None}
        weights = {name: self._weights[name] for name in gradients}
        if self._momentum is None:
            for name, weight in weights.items():
                if name not in self.kept:
                    means = {key: torch.zeros_like(weight) for key in ("exp_avg", "exp_avg_sq")}
                    self.kept[name] = {"step": torch.tensor(0.0), **means}
            adam(
                list(weights.values()),
                list(gradients.values()),
                [self.kept[name]["exp_avg"] for name in weights],
                [self.kept[name]["exp_avg_sq"] for name in weights],
                [],
                [self.kept[name]["step"] for name in weights],
                foreach=False,
                fused=self._fused,
                amsgrad=False,
                beta1=BETAS[0],
                beta2=BETAS[1],
                lr=rate,
                weight_decay=self._weight_decay,
                eps=EPSILON,
                maximize=False,
            )
        else:
            momenta = [self.kept.get(name, {}).get("momentum_buffer") for name in weights]
            sgd(
                list(weights.values()),
                list(gradients.values()),
                momenta,
                foreach=False,
                weight_decay=self._weight_decay,
                momentum=self._momentum,
                lr=rate,
                dampening=0.0,
                nesterov=False,
                maximize=False,
            )
            self.kept |= {
                name: {"momentum_buffer": buffer}
                for name, buffer in zip(weights, momenta, strict=True)
                if buffer is not None
            }


class Optimiser(GradientDescent):
    """SGD with momentum, or Adam, over the weights of some models: see `treetap.neural.optimiser`.

    `amplified`: scale each gradient by clamp(1 + γ g_t / g_{t-1}, 1, 5) with γ = 1, the malicious local optimiser of
    active model completion (Fu et al. 2022, "Label inference attacks against vertical federated learning"), for audits.
    """

    def __init__(self, models: Mapping[str, nn.Module], params: SplitnnParams, *, amplified: bool = False) -> None:
        weights = {
            f"{prefix}/{name}": weight for prefix, model in models.items() for name, weight in model.named_parameters()
        }
        momentum = None if params.optimizer == "adam" else params.momentum
        super().__init__(weights, momentum=momentum, weight_decay=params.weight_decay)
        self._before: dict[str, torch.Tensor] | None = {} if amplified else None

    def step(self, rate: float) -> None:
        """Apply the gradients at a learning rate; weights without a gradient stay as they are."""
        if self._before is not None:
            for name, weight in self._weights.items():
                gradient = weight.grad
                if gradient is None:
                    continue
                plain = gradient.clone()
                if name in self._before:
                    ratio = torch.nan_to_num(
                        1.0 + plain / self._before[name], nan=1.0, posinf=MOST_AMPLIFIED, neginf=1.0
                    )
                    gradient.mul_(ratio.clamp(1.0, MOST_AMPLIFIED))
                self._before[name] = plain
        super().step(rate)

    def state(self) -> dict[str, Array]:
        """Momenta and counts as arrays, by name."""
        arrays = arrays_of({name: self.kept.get(name, {}) for name in self._weights})
        for name, gradient in (self._before or {}).items():
            arrays[f"{name}/before"] = gradient.numpy().copy()
        return arrays

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Continue from a state that `state` has returned."""
        kept = {key: array for key, array in arrays.items() if not _is_before(key)}
        self.kept = tensors_of(kept, self._weights)
        if self._before is not None:
            before = {key.rpartition("/")[0]: array for key, array in arrays.items() if _is_before(key)}
            self._before = {name: torch.from_numpy(np.array(array)) for name, array in before.items()}


def _is_before(key: str) -> bool:
    """True for an amplified optimiser's gradient of the batch before."""
    return key.endswith("/before")


def arrays_of(quantities: Mapping[str, Mapping[str, torch.Tensor | None]]) -> dict[str, Array]:
    """Quantities of each weight, by `weight/quantity`."""
    return {
        f"{name}/{key}": torch.as_tensor(value).detach().numpy().copy()
        for name, kept in quantities.items()
        for key, value in kept.items()
        if value is not None
    }


def tensors_of(arrays: Mapping[str, Array], weights: Mapping[str, torch.Tensor]) -> dict[str, dict[str, torch.Tensor]]:
    """The quantities that `arrays_of` has returned, of these weights.

    Raises:
        ValueError: a quantity is of another weight, or of another shape.
    """
    tensors: dict[str, dict[str, torch.Tensor]] = {}
    for name, array in arrays.items():
        weight, _, key = name.rpartition("/")
        if weight not in weights or np.shape(array) not in {(), tuple(weights[weight].shape)}:
            raise ValueError(f"state {name} of an optimiser is of no weight of this model")
        tensors.setdefault(weight, {})[key] = torch.from_numpy(np.array(array))
    return tensors


def weights_of(models: Mapping[str, nn.Module]) -> dict[str, Array]:
    """Weights and buffers of models as arrays, by name."""
    return {
        f"{prefix}/{name}": tensor.detach().numpy().copy()
        for prefix, model in models.items()
        for name, tensor in model.state_dict().items()
    }


def load_weights(models: Mapping[str, nn.Module], arrays: Mapping[str, Array]) -> None:
    """Set weights and buffers to those that `weights_of` has returned.

    Raises:
        ValueError: a weight is missing, superfluous, or of another shape or type.
    """
    for prefix, model in models.items():
        own = {key[len(prefix) + 1 :]: array for key, array in arrays.items() if key.startswith(f"{prefix}/")}
        expected = model.state_dict()
        if set(own) != set(expected):
            raise ValueError(f"weights of {prefix}: {sorted(set(own) ^ set(expected))} are missing or superfluous")
        for name, tensor in expected.items():
            if tuple(own[name].shape) != tuple(tensor.shape):
                raise ValueError(f"weight {prefix}/{name}: shape {own[name].shape}, not {tuple(tensor.shape)}")
            if own[name].dtype != tensor.numpy().dtype:
                raise ValueError(f"weight {prefix}/{name}: numbers of {own[name].dtype}, not {tensor.numpy().dtype}")
            with torch.no_grad():
                tensor.copy_(torch.from_numpy(np.array(own[name])))

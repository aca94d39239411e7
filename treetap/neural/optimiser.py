"""The optimiser of one party's weights, with a rate for each batch, and its state as arrays."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from treetap.neural.gradient_descent import Adam, GradientDescent, Sgd
from treetap.neural.params import SplitnnParams

Array = npt.NDArray[np.generic]
#: The factor of an amplified gradient lies between 1 and this.
MOST_AMPLIFIED = 5.0


class Optimiser:
    """SGD with momentum, or Adam, over the weights of some models: see `treetap.neural.gradient_descent`.

    `amplified`: scale each gradient by clamp(1 + γ g_t / g_{t-1}, 1, 5) with γ = 1, the malicious local optimiser of
    active model completion (Fu et al. 2022, "Label inference attacks against vertical federated learning"), for audits.
    """

    def __init__(self, models: Mapping[str, nn.Module], params: SplitnnParams, *, amplified: bool = False) -> None:
        self._weights = {
            f"{prefix}/{name}": weight for prefix, model in models.items() for name, weight in model.named_parameters()
        }
        decay = params.weight_decay
        self._descent: GradientDescent = (
            Adam(self._weights, weight_decay=decay)
            if params.optimizer == "adam"
            else Sgd(self._weights, momentum=params.momentum, weight_decay=decay)
        )
        self._before: dict[str, torch.Tensor] | None = {} if amplified else None

    def clear(self) -> None:
        """Forget the gradients of the batch before."""
        self._descent.clear()

    def step(self, rate: float) -> None:
        """Apply the gradients at a learning rate; weights without a gradient stay as they are."""
        if self._before is not None:
            self._amplify(self._before)
        self._descent.step(rate)

    def state(self) -> dict[str, Array]:
        """Momenta and counts as arrays, by name."""
        arrays = arrays_of({name: self._descent.kept.get(name, {}) for name in self._weights})
        for name, gradient in (self._before or {}).items():
            arrays[f"{name}/before"] = gradient.numpy().copy()
        return arrays

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Continue from a state that `state` has returned."""
        kept = {key: array for key, array in arrays.items() if not _is_before(key)}
        self._descent.kept = tensors_of(kept, self._weights)
        if self._before is not None:
            before = {key.rpartition("/")[0]: array for key, array in arrays.items() if _is_before(key)}
            self._before = {name: torch.from_numpy(np.array(array)) for name, array in before.items()}

    def _amplify(self, before: dict[str, torch.Tensor]) -> None:
        for name, weight in self._weights.items():
            gradient = weight.grad
            if gradient is None:
                continue
            plain = gradient.clone()
            if name in before:
                ratio = torch.nan_to_num(1.0 + plain / before[name], nan=1.0, posinf=MOST_AMPLIFIED, neginf=1.0)
                gradient.mul_(ratio.clamp(1.0, MOST_AMPLIFIED))
            before[name] = plain


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

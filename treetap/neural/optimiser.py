"""The optimiser of one party's weights, with a rate for each batch, and its state as arrays."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from treetap.neural.params import SplitnnParams

Array = npt.NDArray[np.generic]
#: The factor of an amplified gradient lies between 1 and this.
MOST_AMPLIFIED = 5.0


class Optimiser:
    """SGD with momentum, or Adam, over the weights of some models.

    `amplified`: scale each gradient by clamp(1 + γ g_t / g_{t-1}, 1, 5) with γ = 1, the malicious local optimiser of
    active model completion (Fu et al. 2022, "Label inference attacks against vertical federated learning"), for audits.
    """

    def __init__(self, models: Mapping[str, nn.Module], params: SplitnnParams, *, amplified: bool = False) -> None:
        self._weights = {
            f"{prefix}/{name}": weight for prefix, model in models.items() for name, weight in model.named_parameters()
        }
        weights, rate = list(self._weights.values()), params.learning_rate
        self._optimiser: torch.optim.Optimizer
        if params.optimizer == "adam":
            self._optimiser = torch.optim.Adam(weights, lr=rate, weight_decay=params.weight_decay)
        else:
            self._optimiser = torch.optim.SGD(
                weights, lr=rate, momentum=params.momentum, weight_decay=params.weight_decay
            )
        self._before: dict[str, torch.Tensor] | None = {} if amplified else None

    def clear(self) -> None:
        """Forget the gradients of the batch before."""
        self._optimiser.zero_grad(set_to_none=True)

    def step(self, rate: float) -> None:
        """Apply the gradients at a learning rate; weights without a gradient stay as they are."""
        if self._before is not None:
            self._amplify(self._before)
        for group in self._optimiser.param_groups:
            group["lr"] = rate
        self._optimiser.step()

    def state(self) -> dict[str, Array]:
        """Momenta and counts as arrays, by name."""
        found = state_of(self._optimiser, self._weights)
        for name, gradient in (self._before or {}).items():
            found[f"{name}/before"] = gradient.numpy().copy()
        return found

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Continue from a state that `state` has returned."""
        load_state(self._optimiser, self._weights, {key: each for key, each in arrays.items() if not _is_before(key)})
        if self._before is not None:
            before = {key.rpartition("/")[0]: each for key, each in arrays.items() if _is_before(key)}
            self._before = {name: torch.from_numpy(np.array(each)) for name, each in before.items()}

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


def state_of(optimiser: torch.optim.Optimizer, weights: Mapping[str, torch.Tensor]) -> dict[str, Array]:
    """The quantities that an optimiser of PyTorch keeps of some weights, as arrays by `weight/quantity`."""
    return {
        f"{name}/{key}": torch.as_tensor(value).detach().numpy().copy()
        for name, weight in weights.items()
        for key, value in optimiser.state.get(weight, {}).items()
        if value is not None
    }


def load_state(
    optimiser: torch.optim.Optimizer, weights: Mapping[str, torch.Tensor], arrays: Mapping[str, Array]
) -> None:
    """Set the quantities that an optimiser keeps to those that `state_of` has returned.

    Raises:
        ValueError: it is of another weight, or of another shape.
    """
    optimiser.state.clear()
    for name, each in arrays.items():
        weight, _, key = name.rpartition("/")
        if weight not in weights or np.shape(each) not in {(), tuple(weights[weight].shape)}:
            raise ValueError(f"state {name} of an optimiser is of no weight of this model")
        optimiser.state[weights[weight]][key] = torch.from_numpy(np.array(each))


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
        own = {key[len(prefix) + 1 :]: each for key, each in arrays.items() if key.startswith(f"{prefix}/")}
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

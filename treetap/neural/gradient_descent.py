"""Adam and stochastic gradient descent with momentum: PyTorch's functions with a state of their own.

The classes of `torch.optim` import PyTorch's compiler, which takes a process two to four seconds and is used by none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
from torch.optim.adam import adam
from torch.optim.sgd import sgd

#: Decay of Adam's two means and the number added to its divisor, as PyTorch has them.
BETAS, EPSILON = (0.9, 0.999), 1e-8


class GradientDescent(ABC):
    """Steps of named weights against their gradients, with a rate for each.

    Attributes:
        kept: by weight, the quantities of those that have had a gradient, by PyTorch's names.
    """

    def __init__(self, weights: Mapping[str, torch.Tensor], *, weight_decay: float = 0.0) -> None:
        self._weights, self._weight_decay = dict(weights), weight_decay
        self.kept: dict[str, dict[str, torch.Tensor]] = {}

    def clear(self) -> None:
        """Forget the gradients of the step before."""
        for weight in self._weights.values():
            weight.grad = None

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Apply the gradients at a learning rate; weights without a gradient stay as they are."""
        gradients = {name: weight.grad for name, weight in self._weights.items() if weight.grad is not None}
        self._apply({name: self._weights[name] for name in gradients}, gradients, rate)

    @abstractmethod
    def _apply(
        self, weights: Mapping[str, torch.Tensor], gradients: Mapping[str, torch.Tensor], rate: float
    ) -> None: ...


class Adam(GradientDescent):
    """Adam (Kingma, Ba 2015). `fused`: one pass over each weight, which is faster and rounds otherwise."""

    def __init__(self, weights: Mapping[str, torch.Tensor], *, weight_decay: float = 0.0, fused: bool = False) -> None:
        super().__init__(weights, weight_decay=weight_decay)
        self._fused = fused

    def _apply(self, weights: Mapping[str, torch.Tensor], gradients: Mapping[str, torch.Tensor], rate: float) -> None:
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


class Sgd(GradientDescent):
    """Stochastic gradient descent with momentum."""

    def __init__(
        self, weights: Mapping[str, torch.Tensor], *, momentum: float = 0.0, weight_decay: float = 0.0
    ) -> None:
        super().__init__(weights, weight_decay=weight_decay)
        self._momentum = momentum

    def _apply(self, weights: Mapping[str, torch.Tensor], gradients: Mapping[str, torch.Tensor], rate: float) -> None:
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
            name: {"momentum_buffer": momentum}
            for name, momentum in zip(weights, momenta, strict=True)
            if momentum is not None
        }

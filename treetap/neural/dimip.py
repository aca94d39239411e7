"""DIMIP: less information about the label in a feature party's embeddings (the paper's section 4.2).

The gradient that returns to a feature party is that of the task loss + λ (L_A + L_R) in its embeddings (Eq. 10, 11):

    L_A = -CE(q_ψ(e_i), y_i)        adversarial term
    L_R = +CE(q_ψ(e_i), y_{k_i})    random-label term, k_i uniform over the batch

which is the sampled CLUB bound of the mutual information (vCLUB-S, Eq. 5 with Eq. 9). q_ψ, a predictor of the label at
the label holder, is fitted by likelihood (Eq. 8) with one step a batch, before the adversarial gradient is taken. The
paper then lets the feature party take a third step on new embeddings; here one gradient returns, at the same
embeddings, so that the feature party runs the code that it runs without the defence.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

from treetap.neural.architectures import initialised, linear
from treetap.neural.draws import Draws

Array = npt.NDArray[np.generic]
#: Units of the two hidden layers of q_ψ.
HIDDEN = 128
#: The rate of q_ψ's Adam.
RATE = 1e-3


class Dimip:
    """The term of one feature party.

    `weight`: λ. `random_labels`: False leaves L_R out, the ablation of the paper's Figure 6.
    """

    def __init__(
        self, party: str, width: int, classes: int, weight: float, draws: Draws, *, random_labels: bool = True
    ) -> None:
        self._party, self._weight, self._draws, self._random_labels = party, weight, draws, random_labels
        layers = [("linear0", linear(width, HIDDEN)), ("relu0", nn.ReLU())]
        layers += [("linear1", linear(HIDDEN, HIDDEN)), ("relu1", nn.ReLU()), ("linear2", linear(HIDDEN, classes))]
        self.predictor: nn.Module = initialised(nn.Sequential(OrderedDict(layers)), draws, "dimip", party)
        self._optimiser = torch.optim.Adam(self.predictor.parameters(), lr=RATE)

    def gradient(self, embeddings: torch.Tensor, labels: npt.NDArray[Any], epoch: int, batch: int) -> torch.Tensor:
        """λ ∂(L_A + L_R)/∂e (n, width) at embeddings (n, width), after one step of q_ψ on them; labels (n,)."""
        truth = torch.from_numpy(labels.astype(np.int64))
        self._optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward(functional.cross_entropy(self.predictor(embeddings.detach()), truth))
        self._optimiser.step()  # Eq. 8
        e = embeddings.detach().clone().requires_grad_(True)
        scores = self.predictor(e)
        term = -functional.cross_entropy(scores, truth)  # L_A
        if self._random_labels:
            k = self._draws.integers(len(labels), len(labels), "dimip", self._party, epoch, batch)
            term = term + functional.cross_entropy(scores, truth[torch.from_numpy(k)])  # L_R
        (found,) = torch.autograd.grad(term, e)
        return self._weight * found

    def state(self) -> dict[str, Array]:
        """q_ψ and its optimiser as arrays, by name."""
        found: dict[str, Array] = {
            f"predictor/{name}": tensor.detach().numpy().copy() for name, tensor in self.predictor.state_dict().items()
        }
        for name, weight in self.predictor.named_parameters():
            for key, value in self._optimiser.state.get(weight, {}).items():
                found[f"adam/{name}/{key}"] = torch.as_tensor(value).detach().numpy().copy()
        return found

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Continue from a state that `state` has returned."""
        with torch.no_grad():
            for name, tensor in self.predictor.state_dict().items():
                tensor.copy_(torch.from_numpy(np.array(arrays[f"predictor/{name}"])))
        self._optimiser.state.clear()
        for name, weight in self.predictor.named_parameters():
            prefix = f"adam/{name}/"
            for key, value in arrays.items():
                if key.startswith(prefix):
                    self._optimiser.state[weight][key[len(prefix) :]] = torch.from_numpy(np.array(value))

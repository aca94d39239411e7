"""Defences of labels that change the gradients which return to a feature party, (n, width).

DIMIP (its paper's section 4.2) leaves less information about the label in a feature party's embeddings. The gradient
that returns is that of the task loss + λ (L_A + L_R) in its embeddings (Eq. 10, 11):

    L_A = -CE(q_ψ(e_i), y_i)        adversarial term
    L_R = +CE(q_ψ(e_i), y_{k_i})    random-label term, k_i uniform over the batch

which is the sampled CLUB bound of the mutual information (vCLUB-S, Eq. 5 with Eq. 9). q_ψ, a predictor of the label at
the label holder, is fitted by likelihood (Eq. 8) with one step a batch, before the adversarial gradient is taken. The
paper then lets the feature party take a third step on new embeddings; here one gradient returns, at the same
embeddings, so that the feature party runs the code that it runs without the defence.

After all that is added to a gradient, it is changed by one of the four baselines of that paper (section 5.1), as Fu et
al. 2022 ("Label inference attacks against vertical federated learning", section 5.3) define them. All noise is drawn
from the label holder's private draws. A draw's name has the SHA-256 of the gradient that it hides, and the settings: a
batch that is repeated after an interruption gets the same noise for the same gradient, and other noise for another one,
or at another scale. Otherwise a feature party that breaks a job off and sends other embeddings for the same batch would
see the difference of two gradients without noise, and two scales of one noise would give both noise and gradient.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping

import numpy as np
import torch
from torch.nn import functional

from treetap.arrays import Array
from treetap.errors import ConfigError
from treetap.neural.architectures import top_model
from treetap.neural.defences import GradientDefence, LabelDefences
from treetap.neural.draws import Draws
from treetap.neural.optimiser import GradientDescent, arrays_of, load_weights, tensors_of, weights_of
from treetap.neural.params import Top

#: Units of the two hidden layers of q_ψ.
HIDDEN = 128
#: The rate of q_ψ's Adam.
RATE = 1e-3
_PREDICTOR, _ADAM = "predictor", "adam/"
#: Deviations of a batch's numbers that DiscreteSGD divides into levels, on each side of 0.
_DEVIATIONS = 2.0


class Dimip:
    """The term of one feature party.

    `weight`: λ. `random_labels`: False leaves L_R out, the ablation of the paper's Figure 6.

    Raises:
        ConfigError: the labels are no classes.
    """

    def __init__(
        self, party: str, width: int, classes: int, weight: float, draws: Draws, *, random_labels: bool = True
    ) -> None:
        if classes < 2:
            raise ConfigError(f"defences: dimip of {party}: the labels must be classes, and this job's are numbers")
        self._party, self._weight, self._draws, self._random_labels = party, weight, draws, random_labels
        self.predictor = top_model(Top((HIDDEN, HIDDEN)), width, classes, draws, "dimip", party)
        self._optimiser = GradientDescent(dict(self.predictor.named_parameters()))

    def gradient(self, embeddings: torch.Tensor, labels: Array, epoch: int, batch: int) -> torch.Tensor:
        """λ ∂(L_A + L_R)/∂e (n, width) at embeddings (n, width), after one step of q_ψ on them; labels (n,)."""
        truth = torch.from_numpy(labels.astype(np.int64))
        self._optimiser.clear()
        torch.autograd.backward(functional.cross_entropy(self.predictor(embeddings.detach()), truth))
        self._optimiser.step(RATE)  # Eq. 8
        e = embeddings.detach().clone().requires_grad_(True)
        scores = self.predictor(e)
        term = -functional.cross_entropy(scores, truth)  # L_A
        if self._random_labels:
            k = self._draws.integers(len(labels), len(labels), "dimip", self._party, epoch, batch)
            term = term + functional.cross_entropy(scores, truth[torch.from_numpy(k)])  # L_R
        (slope,) = torch.autograd.grad(term, e)
        return self._weight * slope

    def state(self) -> dict[str, Array]:
        """q_ψ and its optimiser as arrays, by name."""
        kept = arrays_of(self._optimiser.kept)
        return {**weights_of({_PREDICTOR: self.predictor}), **{f"{_ADAM}{name}": array for name, array in kept.items()}}

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Continue from a state that `state` has returned.

        Raises:
            ValueError: it is the state of another predictor, or of none.
        """
        load_weights({_PREDICTOR: self.predictor}, arrays)
        kept = {name.removeprefix(_ADAM): array for name, array in arrays.items() if name.startswith(_ADAM)}
        self._optimiser.kept = tensors_of(kept, dict(self.predictor.named_parameters()))


def dimip_terms(defences: LabelDefences, widths: Mapping[str, int], classes: int, draws: Draws) -> dict[str, Dimip]:
    """The terms of a job by feature party, of those with a λ above 0; `widths`: of the embeddings, by feature party."""
    return {
        name: Dimip(name, widths[name], classes, weight, draws, random_labels=defences.random_labels)
        for name, weight in defences.dimip.items()
        if weight > 0 and name in widths
    }


def applied(defence: GradientDefence, gradient: torch.Tensor, draws: Draws, *path: str | int) -> torch.Tensor:
    """The gradient (n, width) that is sent in the place of this one; `path`: the name of its draws."""
    flat = gradient.reshape(-1)
    path = (*path, digest_of(flat), repr(defence))
    if defence.kind == "noise":
        changed = flat + _noise(defence, flat, draws, *path)
    elif defence.kind == "compression":
        # The numbers (n,), of which the smallest `share` by size are 0.
        dropped = min(flat.numel(), round(defence.share * flat.numel()))
        changed = flat.clone()
        changed[torch.argsort(flat.abs(), stable=True)[:dropped]] = 0.0
    elif defence.kind == "ppdl":
        changed = _selected(defence, flat, draws, *path)
    else:
        # rounded to multiples of the interval of which `levels` make up two deviations on each side
        step = 2.0 * _DEVIATIONS * float(flat.std(unbiased=False)) / defence.levels
        changed = (torch.round(flat / step) * step if step > 0 else flat.clone()) + _noise(defence, flat, draws, *path)
    return changed.reshape(gradient.shape)


def digest_of(gradient: torch.Tensor) -> str:
    """SHA-256 of the numbers of a gradient, in hexadecimal digits."""
    numbers = gradient.detach().numpy()
    return hashlib.sha256(numbers.astype(numbers.dtype.newbyteorder("<"), copy=False).tobytes()).hexdigest()


def _noise(defence: GradientDefence, like: torch.Tensor, draws: Draws, *path: str | int) -> torch.Tensor:
    if not defence.scale:
        return torch.zeros_like(like)
    return torch.from_numpy(draws.laplace(defence.scale, like.numel(), *path)).to(like.dtype)


def _selected(defence: GradientDefence, flat: torch.Tensor, draws: Draws, *path: str | int) -> torch.Tensor:
    """Numbers in a random order, as far as `share` goes, of those that pass the noisy threshold; others 0."""
    least = defence.threshold + _noise(defence, flat, draws, *path, "threshold")
    passes = flat.abs() + _noise(defence, flat, draws, *path, "size") >= least
    order = torch.from_numpy(draws.order(flat.numel(), *path, "order"))
    chosen = order[passes[order]][: math.ceil(defence.share * flat.numel())]
    sent = torch.zeros_like(flat)
    sent[chosen] = (flat + _noise(defence, flat, draws, *path, "sent"))[chosen]
    return sent

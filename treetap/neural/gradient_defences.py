"""Defences that change the gradients which return to a feature party, (n, width), after all that is added to them.

The four baselines of the paper on DIMIP (its section 5.1), as Fu et al. 2022 ("Label inference attacks against vertical
federated learning", section 5.3) define them. All noise is drawn from the label holder's private draws.

A draw's name has the SHA-256 of the gradient that it hides, and the settings: a batch that is repeated after an
interruption gets the same noise for the same gradient, and other noise for another one, or at another scale. Otherwise
a feature party that breaks a job off and sends other embeddings for the same batch would see the difference of two
gradients without noise, and two scales of one noise would give both noise and gradient.
"""

from __future__ import annotations

import hashlib
import math

import torch

from treetap.neural.draws import Draws
from treetap.neural.label_defences import GradientDefence

#: Deviations of a batch's numbers that DiscreteSGD divides into levels, on each side of 0.
_DEVIATIONS = 2.0


def applied(defence: GradientDefence, gradient: torch.Tensor, draws: Draws, *path: str | int) -> torch.Tensor:
    """The gradient (n, width) that is sent in the place of this one; `path`: the name of its draws."""
    flat = gradient.reshape(-1)
    path = (*path, digest_of(flat), repr(defence))
    if defence.kind == "noise":
        changed = flat + _noise(defence, flat, draws, *path)
    elif defence.kind == "compression":
        changed = _compressed(flat, defence.share)
    elif defence.kind == "ppdl":
        changed = _selected(defence, flat, draws, *path)
    else:
        changed = _levelled(flat, defence.levels) + _noise(defence, flat, draws, *path)
    return changed.reshape(gradient.shape)


def digest_of(gradient: torch.Tensor) -> str:
    """SHA-256 of the numbers of a gradient, in hexadecimal digits."""
    return hashlib.sha256(gradient.detach().numpy().astype("<f4", copy=False).tobytes()).hexdigest()


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


def _levelled(flat: torch.Tensor, levels: int) -> torch.Tensor:
    """The numbers (n,) rounded to multiples of the interval of which `levels` make up two deviations on each side."""
    step = 2.0 * _DEVIATIONS * float(flat.std(unbiased=False)) / levels
    return torch.round(flat / step) * step if step > 0 else flat.clone()


def _compressed(flat: torch.Tensor, share: float) -> torch.Tensor:
    """The numbers (n,), of which the smallest `share` by size are 0."""
    dropped = min(flat.numel(), round(share * flat.numel()))
    kept = flat.clone()
    kept[torch.argsort(flat.abs(), stable=True)[:dropped]] = 0.0
    return kept

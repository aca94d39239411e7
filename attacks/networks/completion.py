"""`completion`: passive model completion, a head on the party's own bottom model.

Fu et al. 2022, "Label inference attacks against vertical federated learning", section 4.1; heads as in the paper on
DIMIP, section 5.1. Embeddings are standardised on the records whose labels are known. Each bottom is `frozen`, or
`tuned` with the head; beside the published one stands the untrained one of the same architecture, which tuned is
training from scratch: these floors a party reaches without having taken part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from attacks.networks.classifier import HEADS, Fit, Standardised, fitted, head, named, outputs
from attacks.view.gradient_rows import attack_draws
from treetap.neural.inputs import Inputs
from treetap.neural.numbers import pin

Ints = npt.NDArray[np.int64]
#: Records that a fit passes over, about: few known labels are passed over more often.
_PASSED_FROZEN, _PASSED_TUNED = 40_000, 4_000
_LEAST_EPOCHS, _MOST_EPOCHS = 5, 200
#: The fewest steps of a bottom; the rate follows from their number, so that a weight can go about 1 in all of them.
_LEAST_STEPS = 300
#: The width from which a linear head has the plain rate: its scores are sums over the width, few numbers go further.
_WIDE = 64


@dataclass(frozen=True)
class Known:
    """One draw of the records whose labels the attacker knows: their places (n,), and classes (n,)."""

    records: Ints
    labels: Ints


@dataclass(frozen=True)
class Evaluation:
    """Records on which a classifier is measured: the inputs, places (n,) and classes (n,)."""

    inputs: Inputs
    records: Ints
    labels: Ints


@dataclass(frozen=True)
class Completion:
    """Accuracies of one way to complete.

    Attributes:
        head: `mlp` or `linear`.
        bottom: `published` or `untrained`.
        tuned: the bottom is fitted with the head.
        accuracies: one a draw.
    """

    head: str
    bottom: str
    tuned: bool
    accuracies: tuple[float, ...]


def completions(
    published: nn.Module,
    untrained: Callable[[int], nn.Module],
    inputs: Inputs,
    draws: Sequence[Known],
    classes: int,
    evaluation: Evaluation,
    *,
    tuned: bool = True,
    heads: Sequence[str] = HEADS,
    seed: int = 0,
) -> list[Completion]:
    """Complete the published bottom, and the untrained one, with each head, for each draw of known labels.

    Args:
        published: the party's bottom with its trained weights, left as it is.
        untrained: the number of a draw → a bottom of the same architecture with fresh weights.
        inputs: of the records of the training, in their common order.
        tuned: fit each bottom with its head too.
    """
    pin(1)
    made = []
    for name in heads:
        for bottom in ("published", "untrained"):
            for together in (False, True) if tuned else (False,):
                accuracies = []
                for number, known in enumerate(draws):
                    model = deepcopy(published) if bottom == "published" else untrained(number)
                    classifier = completed(model, inputs, known, classes, name, tuned=together, seed=seed, draw=number)
                    right = named(classifier, evaluation.inputs, evaluation.records) == evaluation.labels
                    accuracies.append(float(right.mean()))
                made.append(Completion(name, bottom, together, tuple(accuracies)))
    return made


def completed(
    bottom: nn.Module,
    inputs: Inputs,
    known: Known,
    classes: int,
    kind: str,
    *,
    tuned: bool,
    seed: int = 0,
    draw: int = 0,
) -> nn.Module:
    """A classifier of inputs: the bottom, whose weights change if `tuned`, and a head fitted to the known labels."""
    draws, path = attack_draws(seed), ("completion", draw)
    embeddings = outputs(bottom, inputs, known.records)
    scaler = Standardised(embeddings)
    width = embeddings.shape[1]
    fit = _tuning(len(known.records)) if tuned else _fitting(len(known.records), kind, width)
    top = head(kind, width, classes, fit, draws, *path)
    if tuned:
        whole = nn.Sequential(bottom, scaler, top)
        return fitted(whole, inputs, known.records, known.labels, fit, draws, *path, statistics=False)
    places = np.arange(len(known.records), dtype=np.int64)
    scaled: torch.Tensor = scaler(embeddings)
    fitted(top, scaled, places, known.labels, fit, draws, *path)
    return nn.Sequential(bottom, scaler, top)


def _fitting(records: int, kind: str, width: int) -> Fit:
    """The fit of a head alone."""
    plain = Fit(_epochs(records, _PASSED_FROZEN))
    return replace(plain, rate=plain.rate * max(1.0, _WIDE / width)) if kind == "linear" else plain


def _tuning(records: int) -> Fit:
    """The fit of a bottom with its head."""
    plain = Fit(_epochs(records, _PASSED_TUNED))
    batches = -(-records // plain.batch)
    epochs = max(plain.epochs, -(-_LEAST_STEPS // batches))
    return replace(plain, epochs=epochs, rate=max(plain.rate, 1.0 / (epochs * batches)))


def _epochs(records: int, passed: int) -> int:
    """The number of passes over this many records: about `passed` records in all, each 5 to 200 times."""
    return min(_MOST_EPOCHS, max(_LEAST_EPOCHS, passed // max(1, records)))

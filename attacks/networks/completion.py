"""`completion`: passive model completion, a head on the party's own bottom model.

Fu et al. 2022, "Label inference attacks against vertical federated learning", section 4.1; heads as in the paper on
DIMIP, section 5.1. Embeddings are standardised on the records whose labels are known. Each bottom is `frozen`, or
`tuned` with the head; beside the published one stands the untrained one of the same architecture, which tuned is
training from scratch: these floors a party reaches without having taken part.

A classifier is a head on embeddings, or on a bottom model that is fitted with it, by cross-entropy with Adam (Kingma,
Ba 2015); the weights, the order of records and all else follow from draws.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from treetap.arrays import Ints
from treetap.attacks.networks.evidence import Evaluation, Evidence
from treetap.attacks.networks.schema import CompletionFigures, CompletionRow, Measured
from treetap.attacks.scores import majority
from treetap.attacks.view.received_rows import attack_draws, some_of
from treetap.neural.architectures import top_model
from treetap.neural.draws import Draws
from treetap.neural.inputs import Inputs
from treetap.neural.numbers import pin
from treetap.neural.optimiser import GradientDescent
from treetap.neural.params import Top

Head = Literal["mlp", "linear"]
#: The heads: `mlp` of three layers, and `linear` (MLP_sim of the paper on DIMIP).
HEADS: tuple[Head, Head] = ("mlp", "linear")
#: Records whose embeddings or classes are computed at once.
_PIECE = 1024
#: The least deviation by which an embedding is divided.
_LEAST = 1e-6


@dataclass(frozen=True)
class Fit:
    """The fit of a classifier: passes over its records, records of a batch, the rate, and units of a hidden layer."""

    epochs: int
    batch: int = 64
    rate: float = 1e-3
    hidden: int = 128


class Standardised(nn.Module):
    """Numbers (n, width) less a mean and over a deviation, which were those of known embeddings."""

    def __init__(self, known: torch.Tensor) -> None:
        super().__init__()
        self._mean = known.mean(dim=0)
        self._deviation = known.std(dim=0, unbiased=False).clamp_min(_LEAST)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """(n, width) → (n, width)."""
        return (values - self._mean) / self._deviation


def head(kind: str, inputs: int, classes: int, fit: Fit, draws: Draws, *path: str | int) -> nn.Module:
    """A head with its initial weights: (n, inputs) → (n, classes)."""
    sizes = (fit.hidden, fit.hidden) if kind == "mlp" else ()
    return top_model(Top(sizes), inputs, classes, draws, *path, kind)


def fitted(
    model: nn.Module,
    inputs: Inputs | torch.Tensor,
    records: Ints,
    labels: Ints,
    fit: Fit,
    draws: Draws,
    *path: str | int,
    statistics: bool = True,
) -> nn.Module:
    """The model fitted to the labels (n,) of these records (n,) of the inputs.

    `statistics`: False keeps those of batch normalisation as they are, of a bottom that was trained before.
    """
    optimiser = GradientDescent(dict(model.named_parameters()), fused=True)
    truth = torch.from_numpy(labels)
    model.train()
    if not statistics:
        for layer in model.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.eval()
    for epoch in range(fit.epochs):
        for places in _batches(draws.order(len(records), *path, "order", epoch), fit.batch):
            optimiser.clear()
            scores = model(_taken(inputs, records[places]))
            torch.autograd.backward(functional.cross_entropy(scores, truth[torch.from_numpy(places)]))
            optimiser.step(fit.rate)
    return model


def outputs(model: nn.Module, inputs: Inputs | torch.Tensor, records: Ints) -> torch.Tensor:
    """The model's outputs (n, ·) of these records: embeddings or scores of classes."""
    model.eval()
    with torch.no_grad():
        return torch.cat([model(_taken(inputs, piece)) for piece in _batches(records, _PIECE)])


def named(model: nn.Module, inputs: Inputs | torch.Tensor, records: Ints) -> Ints:
    """The class (n,) that the model gives each of these records."""
    return np.asarray(outputs(model, inputs, records).argmax(dim=1).numpy(), dtype=np.int64)


def _taken(inputs: Inputs | torch.Tensor, records: Ints) -> torch.Tensor:
    return inputs[torch.from_numpy(records)] if isinstance(inputs, torch.Tensor) else inputs.batch(records)


def _batches(places: Ints, size: int) -> Iterator[Ints]:
    """Pieces of this size; a last one of one is joined with the piece before it, as batch normalisation needs."""
    starts = list(range(0, len(places), size))
    if len(starts) > 1 and len(places) - starts[-1] == 1:
        starts.pop()
    yield from np.split(places, starts[1:])


#: Records that a fit passes over, about: few known labels are passed over more often.
_PASSED_FROZEN, _PASSED_TUNED = 40_000, 4_000
_LEAST_EPOCHS, _MOST_EPOCHS = 5, 200
#: The fewest steps of a bottom; the rate follows from their number, so that a weight can go about 1 in all of them.
_LEAST_STEPS = 300
#: The width from which a linear head has the plain rate: its scores are sums over the width, few numbers go further.
_WIDE = 64


#: One draw of the records whose labels the attacker knows: their places (n,), and classes (n,).
Known = tuple[Ints, Ints]
#: A way to complete: `mlp` or `linear`, a bottom `published` or `untrained`, and whether it is fitted with the head.
Way = tuple[str, str, bool]
#: Way → its accuracies, one a draw.
Completions = dict[Way, tuple[float, ...]]


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
) -> Completions:
    """Complete the published bottom, and the untrained one, with each head, for each draw of known labels.

    Args:
        published: the party's bottom with its trained weights, left as it is.
        untrained: the number of a draw → a bottom of the same architecture with fresh weights.
        inputs: of the records of the training, in their common order.
        tuned: fit each bottom with its head too.
    """
    pin(1)
    made: Completions = {}
    for name in heads:
        for bottom in ("published", "untrained"):
            for together in (False, True) if tuned else (False,):
                accuracies = []
                for number, known in enumerate(draws):
                    model = deepcopy(published) if bottom == "published" else untrained(number)
                    classifier = completed(model, inputs, known, classes, name, tuned=together, seed=seed, draw=number)
                    right = named(classifier, evaluation.inputs, evaluation.records) == evaluation.labels
                    accuracies.append(float(right.mean()))
                made[name, bottom, together] = tuple(accuracies)
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
    draws, path, (records, labels) = attack_draws(seed), ("completion", draw), known
    embeddings = outputs(bottom, inputs, records)
    scaler = Standardised(embeddings)
    width = embeddings.shape[1]
    fit = _tuning(len(records)) if tuned else Fit(_epochs(len(records), _PASSED_FROZEN))
    if kind == "linear" and not tuned:
        fit = replace(fit, rate=fit.rate * max(1.0, _WIDE / width))
    top = head(kind, width, classes, fit, draws, *path)
    if tuned:
        whole = nn.Sequential(bottom, scaler, top)
        return fitted(whole, inputs, records, labels, fit, draws, *path, statistics=False)
    places = np.arange(len(records), dtype=np.int64)
    scaled: torch.Tensor = scaler(embeddings)
    fitted(top, scaled, places, labels, fit, draws, *path)
    return nn.Sequential(bottom, scaler, top)


def _tuning(records: int) -> Fit:
    """The fit of a bottom with its head."""
    plain = Fit(_epochs(records, _PASSED_TUNED))
    batches = -(-records // plain.batch)
    epochs = max(plain.epochs, -(-_LEAST_STEPS // batches))
    return replace(plain, epochs=epochs, rate=max(plain.rate, 1.0 / (epochs * batches)))


def _epochs(records: int, passed: int) -> int:
    """The number of passes over this many records: about `passed` records in all, each 5 to 200 times."""
    return min(_MOST_EPOCHS, max(_LEAST_EPOCHS, passed // max(1, records)))


def completion_figures(evidence: Evidence) -> CompletionFigures | None:
    """The figures; None where something is missing, which the reasons then say."""
    own, measuring = evidence.own, evidence.evaluation()
    if own is None or measuring is None or not evidence.draws:
        evidence.reasons["completion"] = _missing(evidence)
        return None
    evaluation, evaluated_on = measuring
    tuned = own.weights <= evidence.settings.most_weights
    if not tuned:
        evidence.reasons["completion, tuned"] = (
            f"the bottom has {own.weights} weights, more than most_weights: only heads are fitted"
        )
    # completion with all labels is no attack: it says what the few known ones cost the attacker
    truth = evidence.known.truth
    labels = {"n": [(places, truth[places]) for places in evidence.draws]}
    if evidence.known.all:
        every = np.setdiff1d(evidence.view.schedule.training, evidence.set_aside)
        draws = attack_draws(evidence.settings.seed)
        places = some_of(every, evidence.settings.most_records, draws, "all labels")
        labels["all"] = [(places, truth[places])]
    else:
        evidence.reasons["completion, all labels"] = "not all labels of the training are at hand"
    classes, seed = len(evidence.known.classes), evidence.settings.seed
    by_labels = {
        name: completions(own.bottom, own.untrained, own.inputs, draws, classes, evaluation, tuned=tuned, seed=seed)
        for name, draws in labels.items()
    }
    everything = evidence.other.labels if evidence.other is not None else evaluation.labels
    return CompletionFigures(
        evaluated_on=evaluated_on,
        records=len(evaluation.records),
        left_out=max(0, len(everything) - len(evaluation.records)),
        majority=majority(evaluation.labels),
        rows=[
            _row(by_labels, head, together, name, len(labels[name][0][0]))
            for head in HEADS
            for together in ((False, True) if tuned else (False,))
            for name in by_labels
        ],
    )


def own_model_accuracy(evidence: Evidence, records: Ints, labels: Ints) -> float | None:
    """Accuracy of a model that is fitted from scratch to inferred labels (n,) of these records, or None."""
    own, measuring = evidence.own, evidence.evaluation()
    if own is None or measuring is None or own.weights > evidence.settings.most_weights:
        return None
    pin(1)
    outside = ~np.isin(records, evidence.set_aside)
    known = records[outside], labels[outside]
    if not len(known[0]):
        return None
    classes, seed = len(evidence.known.classes), evidence.settings.seed
    model = completed(own.untrained(0), own.inputs, known, classes, "mlp", tuned=True, seed=seed)
    evaluation = measuring[0]
    return float(np.mean(named(model, evaluation.inputs, evaluation.records) == evaluation.labels))


def _missing(evidence: Evidence) -> str:
    if evidence.own is None:
        return "needs the party's published model and its table"
    if not evidence.draws:
        return "no label is known"
    return "no label is at hand but those that are assumed to be known, so that nothing scores it"


def _row(by_labels: Mapping[str, Completions], head: Head, tuned: bool, labels: str, known: int) -> CompletionRow:
    scratch, ways = (head, "untrained", True), by_labels[labels]
    scratch_all = by_labels.get("all", {}).get(scratch)
    return CompletionRow(
        head=head,
        tuned=tuned,
        labels="all" if labels == "all" else "n",
        known=known,
        completed=Measured.of(ways[head, "published", tuned]),
        untrained=Measured.of(ways[head, "untrained", False]),
        scratch=Measured.of(ways[scratch]) if scratch in ways else None,
        scratch_all=None if scratch_all is None else Measured.of(scratch_all),
    )

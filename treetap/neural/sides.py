"""The sides of a split network: in training, with their state as arrays, and at work, with published weights.

A feature party's has its own model, forward and backward; the label holder's has its own model, the top, the loss, and
the gradients that it returns. At work records are computed in pieces of `PIECE`, so that memory does not grow with
them.

The objectives of split networks: loss, and scores with the meaning that they have for trees.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from treetap.arrays import Array, Floats, Rows
from treetap.errors import DataError
from treetap.neural.architectures import bottom_model, bottom_to_load, top_model, top_to_load
from treetap.neural.defences import FeatureDefences, LabelDefences
from treetap.neural.draws import Draws
from treetap.neural.gradient_defences import applied, dimip_terms
from treetap.neural.inputs import Inputs, InputScaler, mean_and_deviation
from treetap.neural.numbers import pin, rounded
from treetap.neural.optimiser import Optimiser, load_weights, weights_of
from treetap.neural.own_step import own_gradients
from treetap.neural.params import Bottom, SplitnnParams, Top
from treetap.tables.reading import Table
from treetap.trees.loss import outcome_of
from treetap.trees.metrics import evaluate, watched

Labels = Array


@dataclass(frozen=True)
class Objective:
    """One objective over outputs (n, K) of the top model.

    `centre`, `spread`: mean and deviation of the training targets of a regression, whose network learns standardised
    targets; 0 and 1 for classes.
    """

    name: str
    classes: int
    outputs: int
    centre: float = 0.0
    spread: float = 1.0

    @classmethod
    def of(cls, params: SplitnnParams, classes: int, labels: Labels) -> Objective:
        """The objective of a job; `labels` are those of the records that are trained on.

        Raises:
            DataError: targets are too large to standardise.
        """
        if not params.regression:
            return cls(params.objective, classes, params.outputs(classes))
        return cls(params.objective, 0, 1, *mean_and_deviation(labels, "the label"))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return asdict(self)

    def loss(self, outputs: torch.Tensor, labels: Labels) -> torch.Tensor:
        """Mean loss of a batch: cross-entropy, or the squared error of standardised targets."""
        if self.name == "multi:softprob":
            return functional.cross_entropy(outputs, torch.from_numpy(labels.astype(np.int64)))
        if self.name == "binary:logistic":
            targets = torch.from_numpy(labels.astype(np.float32))
            return functional.binary_cross_entropy_with_logits(outputs[:, 0], targets)
        targets = torch.from_numpy(((labels - self.centre) / self.spread).astype(np.float32))
        return functional.mse_loss(outputs[:, 0], targets)

    def scores(self, outputs: torch.Tensor) -> Floats:
        """Scores (n, K) with the meaning that a tree's have: margins of classes, or the value of a regression."""
        scores = outputs.detach().to(torch.float64).numpy()
        return np.asarray(scores * self.spread + self.centre)

    def metrics(self, scores: Floats, labels: Labels) -> dict[str, float]:
        """Measures of scores (n, K) against labels (n,): see `treetap.trees.metrics.evaluate`."""
        return evaluate(self.name, outcome_of(self.name, self.classes, scores), labels)

    def watched(self, scores: Floats, labels: Labels) -> float:
        """The loss that early stopping watches, lower is better."""
        return watched(self.name, outcome_of(self.name, self.classes, scores), labels)


#: The name of a party's own model among its weights.
BOTTOM = "bottom"
#: Records of one piece of a prediction: of any model they take a few seconds at most.
PIECE = 128


class FeatureSide:
    """The model of one feature party on its inputs."""

    def __init__(
        self,
        params: SplitnnParams,
        party: str,
        inputs: Inputs,
        draws: Draws,
        *,
        amplified: bool = False,
        defences: FeatureDefences | None = None,
    ) -> None:
        """`draws`: the party's private ones. `amplified`: see `Optimiser`. Raises DataError: see `bottom_model`."""
        self._params, self._party, self._inputs, self._draws = params, party, inputs, draws
        self._defences = defences or FeatureDefences()
        settings = params.bottom_of(party)
        self.width = settings.width
        self._model = bottom_model(settings, inputs.shape, draws, "bottom", party)
        self.models = {BOTTOM: self._model}
        self._optimiser = Optimiser(self.models, params, amplified=amplified)
        self._open: tuple[torch.Tensor, torch.Tensor] | None = None  # inputs and embeddings whose gradient is awaited

    def forward(self, rows: Rows) -> torch.Tensor:
        """The embeddings (n, width) of a batch, as the label holder reads them."""
        pin(self._params.threads)
        self._model.train()
        self._optimiser.clear()
        x = self._inputs.batch(rows).requires_grad_(self._defences.sensitivity > 0)
        embeddings = self._model(x)
        self._open = x, embeddings
        return rounded(embeddings.detach(), self._params.wire_type)

    def backward(self, gradient: torch.Tensor, rate: float, epoch: int, batch: int) -> None:
        """Apply the gradient (n, width) that the label holder has returned for the last embeddings, of this batch."""
        pin(self._params.threads)
        assert self._open is not None
        x, embeddings = self._open
        self._open = None
        own_gradients(self._model, x, embeddings, gradient, self._defences, self._draws, self._party, epoch, batch)
        self._optimiser.step(rate)

    def embed(self, rows: Rows) -> torch.Tensor:
        """The embeddings (n, width) of records that are not trained on, as the label holder reads them."""
        pin(self._params.threads)
        return embedded(self._model, self._inputs, rows, self._params.wire_type)

    def weights(self) -> dict[str, Array]:
        """The weights to publish, by name."""
        return weights_of(self.models)

    def state(self) -> dict[str, Array]:
        """All that a later epoch depends on, by name."""
        return {**self.weights(), **{f"optimiser:{name}": array for name, array in self._optimiser.state().items()}}

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Continue from a state that `state` has returned."""
        load_weights(self.models, arrays)
        own = {name.partition(":")[2]: array for name, array in arrays.items() if name.startswith("optimiser:")}
        self._optimiser.load(own)


def embedded(model: torch.nn.Module, inputs: Inputs, rows: Rows, wire_type: str) -> torch.Tensor:
    """The embeddings (n, width) of a trained model, as their reader has them."""
    model.eval()
    with torch.no_grad():
        return rounded(model(inputs.batch(rows)), wire_type)


#: The name of the top model among the weights.
TOP = "top"


@dataclass(frozen=True)
class Trained:
    """The outcome of a batch: its mean loss, scores (n, K), and by feature party the gradient (n, width) to return."""

    loss: float
    scores: Floats
    gradients: Mapping[str, torch.Tensor]


class LabelSide:
    """The models of the label holder.

    `inputs`: None of a label holder without columns. `labels`: (N,) those that the training uses.
    """

    def __init__(
        self,
        params: SplitnnParams,
        party: str,
        feature_parties: Sequence[str],
        inputs: Inputs | None,
        labels: Array,
        objective: Objective,
        draws: Draws,
        defences: LabelDefences,
    ) -> None:
        """`draws`: the label holder's private ones. Raises DataError: see `bottom_model`."""
        self._params, self._inputs, self._labels = params, inputs, labels
        self._draws, self._defence, self.objective = draws, defences.gradient, objective
        self.widths = {name: params.bottom_of(name).width for name in feature_parties}
        joined = sum(self.widths.values())
        self.models: dict[str, torch.nn.Module] = {}
        if inputs is not None:
            settings = params.bottom_of(party)
            self.models[BOTTOM] = bottom_model(settings, inputs.shape, draws, "bottom", party)
            joined += settings.width
        self.models[TOP] = top_model(params.top, joined, objective.outputs, draws, "top")
        self._optimiser = Optimiser(self.models, params)
        self._dimip = dimip_terms(defences, self.widths, objective.classes, draws)

    def train(self, rows: Rows, embeddings: Mapping[str, torch.Tensor], epoch: int, batch: int, rate: float) -> Trained:
        """One batch: forward, backward, a step of the own weights, and the gradients of those who took part.

        `embeddings`: (n, width) by feature party; those of a party that sits out are 0.

        Raises:
            DataError: the loss is not finite, or a gradient.
        """
        pin(self._params.threads)
        for model in self.models.values():
            model.train()
        self._optimiser.clear()
        received = {name: embedding.detach().requires_grad_(True) for name, embedding in embeddings.items()}
        labels = self._labels[rows]
        outputs = self._outputs(rows, received, self._inputs)
        loss = self.objective.loss(outputs, labels)
        if not bool(torch.isfinite(loss)):
            raise DataError(f"the loss of {_place(epoch, batch)} is not finite; a smaller learning_rate keeps it so")
        torch.autograd.backward(loss)
        self._optimiser.step(rate)
        gradients = {
            name: self._returned(name, embedding, labels, epoch, batch) for name, embedding in received.items()
        }
        if not all(bool(torch.isfinite(gradient).all()) for gradient in gradients.values()):
            raise DataError(f"a gradient of {_place(epoch, batch)} is not finite; a smaller learning_rate keeps it so")
        return Trained(float(loss.detach()), self.objective.scores(outputs), gradients)

    def scores(self, rows: Rows, embeddings: Mapping[str, torch.Tensor], inputs: Inputs | None = None) -> Floats:
        """Scores (n, K) of records that are not trained on; a party without embeddings counts with zeros.

        `inputs`: the label holder's, where the records are not of the training's table.
        """
        pin(self._params.threads)
        for model in self.models.values():
            model.eval()
        with torch.no_grad():
            return self.objective.scores(self._outputs(rows, embeddings, self._inputs if inputs is None else inputs))

    def weights(self) -> dict[str, Array]:
        """The weights to publish, by name."""
        return weights_of(self.models)

    def state(self) -> dict[str, Array]:
        """All that a later epoch depends on, by name."""
        arrays = {**self.weights(), **{f"optimiser:{name}": array for name, array in self._optimiser.state().items()}}
        for party, term in self._dimip.items():
            arrays |= {f"dimip {party}:{name}": array for name, array in term.state().items()}
        return arrays

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Continue from a state that `state` has returned; a DIMIP term that it lacks, added since, begins anew."""
        parts: dict[str, dict[str, Array]] = {}
        for name, array in arrays.items():
            part, colon, rest = name.rpartition(":")
            parts.setdefault(part, {})[rest if colon else name] = array
        load_weights(self.models, parts.get("", {}))
        self._optimiser.load(parts.get("optimiser", {}))
        for party, term in self._dimip.items():
            if (stored := parts.get(f"dimip {party}")) is not None:
                term.load(stored)

    def _outputs(self, rows: Rows, embeddings: Mapping[str, torch.Tensor], inputs: Inputs | None) -> torch.Tensor:
        own = [self.models[BOTTOM](inputs.batch(rows))] if inputs is not None else []
        joined = [embeddings.get(name, torch.zeros(len(rows), width)) for name, width in self.widths.items()]
        outputs: torch.Tensor = self.models[TOP](torch.cat([*own, *joined], dim=1))
        return outputs

    def _returned(self, party: str, received: torch.Tensor, labels: Array, epoch: int, batch: int) -> torch.Tensor:
        """The gradient that a party gets, as it reads it: that of the loss, with DIMIP's term, after the defence."""
        assert received.grad is not None
        gradient = received.grad
        if party in self._dimip:
            gradient = gradient + self._dimip[party].gradient(received, labels, epoch, batch)
        if self._defence is not None:
            gradient = applied(self._defence, gradient, self._draws, "gradient", party, epoch, batch)
        return rounded(gradient, self._params.wire_type)


def _place(epoch: int, batch: int) -> str:
    return f"epoch {epoch}, batch {batch}"


class TrainedBottom:
    """A party's own model on its table.

    Attributes:
        width: numbers of an embedding.
    """

    def __init__(self, settings: Bottom, scaler: InputScaler, weights: Mapping[str, Array], threads: int) -> None:
        """Raises DataError: the weights are those of another model."""
        self.width = settings.width
        self._scaler, self._threads = scaler, threads
        self._model = bottom_to_load(settings, scaler.shape)
        _load({BOTTOM: self._model}, weights)
        self._inputs: Inputs | None = None

    def take(self, table: Table) -> None:
        """Take the records to embed, with the scalers of the training; `DataError` if the table does not fit."""
        self._inputs = self._scaler.apply(table)

    def embed(self, rows: Rows, wire_type: str) -> torch.Tensor:
        """The embeddings (n, width) of the records at these places, as a reader of this wire type has them."""
        pin(self._threads)
        assert self._inputs is not None  # the role takes its table first
        parts = [embedded(self._model, self._inputs, piece, wire_type) for piece in pieces(rows)]
        return torch.cat(parts) if parts else torch.zeros(0, self.width)


class TrainedTop:
    """The label holder's models: the top, and its own one if it has columns.

    Attributes:
        widths: numbers of an embedding by feature party, in the order of the training.
    """

    def __init__(
        self,
        settings: Top,
        widths: Mapping[str, int],
        own: TrainedBottom | None,
        objective: Objective,
        weights: Mapping[str, Array],
        threads: int,
    ) -> None:
        """Raises DataError: the weights are those of another model."""
        self.widths, self._own, self._objective, self._threads = dict(widths), own, objective, threads
        inputs = sum(widths.values()) + (own.width if own is not None else 0)
        self._model = top_to_load(settings, inputs, objective.outputs)
        _load({TOP: self._model}, weights)

    def take(self, table: Table) -> None:
        """Take the label holder's own records; `DataError` if the table does not fit."""
        if self._own is not None:
            self._own.take(table)

    def embed(self, rows: Rows) -> torch.Tensor:
        """The label holder's own embeddings (n, width) of the records at these places; (n, 0) without columns."""
        return torch.zeros(len(rows), 0) if self._own is None else self._own.embed(rows, "float32")

    def scores(self, own: torch.Tensor, embeddings: Mapping[str, torch.Tensor]) -> Floats:
        """Scores (n, K) of records by their embeddings, the label holder's own ones and those of feature parties.

        `embeddings`: (n, width) by party; one without them counts with zeros, as if it sat out a batch of the training.
        """
        pin(self._threads)
        others = [embeddings.get(name, torch.zeros(len(own), width)) for name, width in self.widths.items()]
        joined = torch.cat([own, *others], dim=1)
        self._model.eval()
        with torch.no_grad():
            return np.concatenate([self._objective.scores(self._model(piece)) for piece in torch.split(joined, PIECE)])


def pieces(rows: Rows) -> Iterator[Rows]:
    """The records in pieces of `PIECE` at most, in order."""
    for start in range(0, len(rows), PIECE):
        yield rows[start : start + PIECE]


def _load(models: Mapping[str, torch.nn.Module], weights: Mapping[str, Array]) -> None:
    try:
        load_weights(models, weights)
    except ValueError as fault:
        raise DataError(f"the weights are not those of this model: {fault}") from None

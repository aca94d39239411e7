"""A feature party's side of a split network: its own model, forward and backward, and its state as arrays."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from treetap.arrays import Array, Rows
from treetap.neural.architectures import bottom_model
from treetap.neural.defences import FeatureDefences
from treetap.neural.draws import Draws
from treetap.neural.inputs import Inputs
from treetap.neural.numbers import pin, rounded
from treetap.neural.optimiser import Optimiser, load_weights, weights_of
from treetap.neural.own_step import own_gradients
from treetap.neural.params import SplitnnParams

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
        self._optimiser = Optimiser({BOTTOM: self._model}, params, amplified=amplified)
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
        return weights_of({BOTTOM: self._model})

    def state(self) -> dict[str, Array]:
        """All that a later epoch depends on, by name."""
        return {**self.weights(), **{f"optimiser:{name}": array for name, array in self._optimiser.state().items()}}

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Continue from a state that `state` has returned."""
        load_weights({BOTTOM: self._model}, arrays)
        own = {name.partition(":")[2]: array for name, array in arrays.items() if name.startswith("optimiser:")}
        self._optimiser.load(own)


def embedded(model: torch.nn.Module, inputs: Inputs, rows: Rows, wire_type: str) -> torch.Tensor:
    """The embeddings (n, width) of a trained model, as their reader has them."""
    model.eval()
    with torch.no_grad():
        return rounded(model(inputs.batch(rows)), wire_type)

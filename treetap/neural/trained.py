"""A trained network at work: embeddings by a party's own model, scores by the label holder's, with published weights.

Records are computed in pieces of `PIECE`, as in the centralised prediction, so that memory does not grow with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import torch

from treetap.arrays import Array, Floats, Rows
from treetap.errors import DataError
from treetap.neural.architectures import bottom_to_load, top_to_load
from treetap.neural.inputs import Inputs, InputScaler
from treetap.neural.numbers import pin
from treetap.neural.objective import Objective
from treetap.neural.optimiser import load_weights
from treetap.neural.params import Bottom, Top
from treetap.neural.sides import BOTTOM, PIECE, TOP, embedded
from treetap.tables.reading import Table


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

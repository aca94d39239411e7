"""A split network as one graph on joined columns: the oracle of its sides, bit by bit.

Every party's own model, the top and the loss are one graph. Where the cut between parties is, numbers are rounded as on
the wire, and the gradient that passes backwards is changed as the label holder's defences change it; a party that
defends its columns goes on from there by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from treetap.arrays import Array, Floats, Rows
from treetap.neural.architectures import bottom_model, top_model
from treetap.neural.centralised import Party
from treetap.neural.defences import FeatureDefences, LabelDefences
from treetap.neural.gradient_defences import applied, dimip_terms
from treetap.neural.inputs import Inputs
from treetap.neural.numbers import rounded
from treetap.neural.optimiser import Optimiser, weights_of
from treetap.neural.own_step import own_gradients
from treetap.neural.params import SplitnnParams
from treetap.neural.schedule import Schedule
from treetap.neural.sides import Objective


class _Cut(torch.autograd.Function):
    """The cut between two parties: forward, numbers as on the wire; backward, the gradient that is returned."""

    @staticmethod
    def forward(
        ctx: Any, embeddings: torch.Tensor, wire_type: str, returned: Callable[[torch.Tensor], torch.Tensor]
    ) -> torch.Tensor:
        """The embeddings (n, width) as the label holder reads them."""
        ctx.returned = returned
        return rounded(embeddings, wire_type)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        """The gradient (n, width) as the feature party reads it.

        Its rows lie one after the other, as in a message: in the graph they are columns of the joined gradient, and a
        sum over such columns can be rounded in another order.
        """
        with torch.enable_grad():
            return ctx.returned(gradients[0].contiguous()), None, None


class OneGraph:
    """All parties' models; the first party is the label holder."""

    def __init__(
        self, params: SplitnnParams, parties: list[Party], labels: Array, classes: int, defences: LabelDefences
    ) -> None:
        self._params, self._parties, self._labels, self._defences = params, parties, labels, defences
        self._schedule = Schedule.of(params, len(labels))
        self._objective = Objective.of(params, classes, labels[self._schedule.training])
        holder, *others = parties
        self._bottoms = {
            party.name: bottom_model(
                params.bottom_of(party.name), party.inputs.shape, party.draws, "bottom", party.name
            )
            for party in parties
            if party.inputs is not None
        }
        self._widths = {name: params.bottom_of(name).width for name in self._bottoms}
        self._top = top_model(params.top, sum(self._widths.values()), self._objective.outputs, holder.draws, "top")
        self._models = {name: {"bottom": model} for name, model in self._bottoms.items()}
        self._models[holder.name] = {**self._models.get(holder.name, {}), "top": self._top}
        self._optimisers = {
            party.name: Optimiser(self._models[party.name], params, amplified=party.amplified) for party in parties
        }
        widths = {party.name: self._widths[party.name] for party in others}
        self._dimip = dimip_terms(defences, widths, classes, holder.draws)

    def train_epoch(self, epoch: int) -> float:
        """One epoch; returns the mean loss of its batches."""
        batches = enumerate(self._schedule.epoch(epoch))
        return float(np.mean([self._train_batch(epoch, batch, rows) for batch, rows in batches]))

    def weights(self) -> dict[str, dict[str, Array]]:
        """Party → its weights by name."""
        return {name: weights_of(models) for name, models in self._models.items()}

    def scores(self, inputs: Mapping[str, Inputs], rows: Rows, away: frozenset[str]) -> Floats:
        """Scores (n, K) of records; the embeddings of parties that are away are 0."""
        holder, joined = self._parties[0].name, []
        for model in (*self._bottoms.values(), self._top):
            model.eval()
        with torch.no_grad():
            for name, bottom in self._bottoms.items():
                here = bottom(inputs[name].batch(rows))
                read = here if name == holder else rounded(here, self._params.wire_type)
                joined.append(torch.zeros_like(here) if name in away else read)
            return self._objective.scores(self._top(torch.cat(joined, dim=1)))

    def _train_batch(self, epoch: int, batch: int, rows: Rows) -> float:
        holder, *others = self._parties
        sitting_out = [it for it in others if not self._schedule.takes_part(epoch, batch, it.name)]
        taking = [party for party in self._parties if party not in sitting_out]
        for party in taking:
            self._optimisers[party.name].clear()
            for model in self._models[party.name].values():
                model.train()
        # A party with defences of its own goes on by itself from the gradient that returns: its graph is cut there.
        joined, returned = [], dict[str, torch.Tensor]()
        apart = dict[str, tuple[torch.Tensor, torch.Tensor]]()  # inputs and embeddings of parties with own defences
        for party in self._parties:
            if party in sitting_out:
                joined.append(torch.zeros(len(rows), self._widths[party.name]))
            elif party.inputs is not None:
                x = party.inputs.batch(rows).requires_grad_(party.defences.sensitivity > 0)
                embeddings = self._bottoms[party.name](x)
                if party.defences != FeatureDefences():
                    apart[party.name] = x, embeddings
                    embeddings = embeddings.detach().requires_grad_()
                cut = self._cut(party.name, embeddings, rows, epoch, batch, returned)
                joined.append(embeddings if party is holder else cut)
        loss = self._objective.loss(self._top(torch.cat(joined, dim=1)), self._labels[rows])
        torch.autograd.backward(loss)
        for party in taking:
            if party.name in apart:
                model, back = self._bottoms[party.name], returned[party.name]
                own_gradients(model, *apart[party.name], back, party.defences, party.draws, party.name, epoch, batch)
            self._optimisers[party.name].step(self._schedule.rate(epoch, batch))
        return float(loss.detach())

    def _cut(
        self, party: str, embeddings: torch.Tensor, rows: Rows, epoch: int, batch: int, kept: dict[str, torch.Tensor]
    ) -> torch.Tensor:
        draws, labels = self._parties[0].draws, self._labels[rows]
        read = rounded(embeddings.detach(), self._params.wire_type)

        def returned(gradient: torch.Tensor) -> torch.Tensor:
            if party in self._dimip:
                gradient = gradient + self._dimip[party].gradient(read, labels, epoch, batch)
            if self._defences.gradient is not None:
                gradient = applied(self._defences.gradient, gradient, draws, "gradient", party, epoch, batch)
            kept[party] = rounded(gradient, self._params.wire_type)
            return kept[party]

        cut: Any = _Cut
        received: torch.Tensor = cut.apply(embeddings, self._params.wire_type, returned)
        return received

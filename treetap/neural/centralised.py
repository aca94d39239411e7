"""The same training in one graph on joined columns: the model that a federation must find, bit by bit.

Every party's own model, the top and the loss are one graph. Where the cut between parties is, numbers are rounded as on
the wire, and the gradient that passes backwards is changed as the label holder's defences change it; a party that
defends its columns goes on from there by itself.

Class probabilities of records by other records' labels and one party's columns: its own model of a network, alone.

The bottom of the job's parameters with a top of its own is trained for the job's epochs on the known records; see
`treetap.protocols.own_priors` for its use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from treetap.arrays import Array, Floats, Ints, Rows
from treetap.errors import DataError
from treetap.neural.architectures import bottom_model
from treetap.neural.defences import FeatureDefences, LabelDefences
from treetap.neural.draws import Draws
from treetap.neural.gradient_defences import applied, dimip_terms
from treetap.neural.inputs import Inputs, InputScaler, has_inputs
from treetap.neural.numbers import pin, rounded
from treetap.neural.objective import Objective
from treetap.neural.optimiser import Optimiser, load_weights, weights_of
from treetap.neural.own_step import own_gradients
from treetap.neural.params import SplitnnParams
from treetap.neural.schedule import Schedule
from treetap.neural.sides import BOTTOM, PIECE, TOP, embedded, models_of
from treetap.tables.reading import Table
from treetap.trees.loss import outcome_of

#: Called after each epoch with its number and the model.
After = Callable[[int, "CentralNetwork"], None]
#: Called with feature party, epoch, places of the records (n,) and their embeddings (n, width) as they are read, or
#: the gradients (n, width) that return to the party.
Seen = Callable[[str, int, Rows, torch.Tensor], None]


@dataclass(frozen=True)
class Party:
    """One party of a centralised training: its inputs (None of a label holder without columns) and its draws."""

    name: str
    inputs: Inputs | None
    draws: Draws
    amplified: bool = False
    defences: FeatureDefences = field(default_factory=FeatureDefences)


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


class CentralNetwork:
    """All parties' models in one process; the label holder's is the first party."""

    def __init__(
        self,
        params: SplitnnParams,
        parties: list[Party],
        labels: Array,
        classes: int,
        defences: LabelDefences | None = None,
        *,
        taken: Seen | None = None,
        returned: Seen | None = None,
    ) -> None:
        """`labels`: (N,) class numbers or targets of the aligned records. Raises DataError: see `Schedule`.

        `taken`: called with the embeddings of each batch, and of the records set aside; `returned`: with gradients.
        """
        self.params, self.parties, self._labels = params, parties, labels
        self._log_taken, self._log_returned = taken, returned
        self._defences = defences or LabelDefences()
        self.schedule = Schedule.of(params, len(labels))
        self.objective = Objective.of(params, classes, labels[self.schedule.training])
        holder, *others = parties
        names = [party.name for party in others]
        self.models = {
            holder.name: models_of(params, holder.name, names, holder.inputs, self.objective, holder.draws),
            **{
                party.name: {
                    BOTTOM: bottom_model(
                        params.bottom_of(party.name), _inputs(party).shape, party.draws, "bottom", party.name
                    )
                }
                for party in others
            },
        }
        self._optimisers = {
            party.name: Optimiser(self.models[party.name], params, amplified=party.amplified) for party in parties
        }
        widths = {name: params.bottom_of(name).width for name in names}
        self._dimip = dimip_terms(self._defences, widths, classes, holder.draws)
        self.stopping = params.watch()

    def train(self, after: After | None = None) -> CentralNetwork:
        """Train to the last epoch, or until early stopping; then the weights are those of the best epoch."""
        pin(self.params.threads)
        kept: dict[str, dict[str, Array]] = {}
        for epoch in range(self.params.epochs):
            self.train_epoch(epoch)
            if after is not None:
                after(epoch, self)
            if self.stopping.rounds is None:
                continue
            rows = self.schedule.validation
            if self.stopping.take(epoch, self.objective.watched(self._validation_scores(epoch), self._labels[rows])):
                kept = self.weights()
            if self.stopping.stopped:
                break
        for name, arrays in kept.items():
            load_weights(self.models[name], arrays)
        return self

    def train_epoch(self, epoch: int) -> float:
        """One epoch; returns the mean loss of its batches."""
        pin(self.params.threads)
        losses = [self._train_batch(epoch, batch, rows) for batch, rows in enumerate(self.schedule.epoch(epoch))]
        return float(np.mean(losses))

    def scores(self, inputs: Mapping[str, Inputs], rows: Rows, away: frozenset[str] = frozenset()) -> Floats:
        """Scores (n, K) of records; the embeddings of parties that are away are 0."""
        pin(self.params.threads)
        pieces = np.split(rows, range(PIECE, len(rows), PIECE))
        return np.concatenate([self._scores(inputs, piece, away, None) for piece in pieces])

    def weights(self) -> dict[str, dict[str, Array]]:
        """Party → its weights by name."""
        return {name: weights_of(models) for name, models in self.models.items()}

    def _train_batch(self, epoch: int, batch: int, rows: Rows) -> float:
        holder, *others = self.parties
        taking = [party for party in others if self.schedule.takes_part(epoch, batch, party.name)]
        labels = self._labels[rows]
        for party in (holder, *taking):
            self._optimisers[party.name].clear()
            for model in self.models[party.name].values():
                model.train()
        # A party with defences of its own goes on by itself from the gradient that returns: its graph is cut there.
        joined, returned = [], dict[str, torch.Tensor]()
        apart = dict[str, tuple[torch.Tensor, torch.Tensor]]()  # inputs and embeddings of parties with own defences
        if holder.inputs is not None:
            joined.append(self.models[holder.name][BOTTOM](holder.inputs.batch(rows)))
        for party in others:
            if party not in taking:
                joined.append(torch.zeros(len(rows), self.params.bottom_of(party.name).width))
                continue
            x = _inputs(party).batch(rows).requires_grad_(party.defences.sensitivity > 0)
            embeddings = self.models[party.name][BOTTOM](x)
            if party.defences != FeatureDefences():
                apart[party.name] = x, embeddings
                embeddings = embeddings.detach().requires_grad_()
            joined.append(self._cut(party.name, embeddings, rows, epoch, batch, returned))
        loss = self.objective.loss(self.models[holder.name][TOP](torch.cat(joined, dim=1)), labels)
        if not bool(torch.isfinite(loss)):
            raise DataError(f"the loss of epoch {epoch}, batch {batch} is not finite")
        torch.autograd.backward(loss)
        for party in taking:
            if party.name in apart:
                model, back = self.models[party.name][BOTTOM], returned[party.name]
                own_gradients(model, *apart[party.name], back, party.defences, party.draws, party.name, epoch, batch)
        for party in (holder, *taking):
            self._optimisers[party.name].step(self.schedule.rate(epoch, batch))
        return float(loss.detach())

    def _cut(
        self,
        party: str,
        embeddings: torch.Tensor,
        rows: Rows,
        epoch: int,
        batch: int,
        kept: dict[str, torch.Tensor],
    ) -> torch.Tensor:
        draws, labels = self.parties[0].draws, self._labels[rows]
        read = rounded(embeddings.detach(), self.params.wire_type)
        if self._log_taken is not None:
            self._log_taken(party, epoch, rows, read)

        def returned(gradient: torch.Tensor) -> torch.Tensor:
            if party in self._dimip:
                gradient = gradient + self._dimip[party].gradient(read, labels, epoch, batch)
            if self._defences.gradient is not None:
                gradient = applied(self._defences.gradient, gradient, draws, "gradient", party, epoch, batch)
            gradient = rounded(gradient, self.params.wire_type)
            if self._log_returned is not None:
                self._log_returned(party, epoch, rows, gradient)
            kept[party] = gradient
            return gradient

        cut: Any = _Cut
        received: torch.Tensor = cut.apply(embeddings, self.params.wire_type, returned)
        return received

    def _validation_scores(self, epoch: int) -> Floats:
        own = {party.name: party.inputs for party in self.parties if party.inputs is not None}
        batches = self.schedule.validation_batches()
        return np.concatenate([self._scores(own, rows, frozenset(), epoch) for rows in batches])

    def _scores(self, inputs: Mapping[str, Inputs], rows: Rows, away: frozenset[str], epoch: int | None) -> Floats:
        """Scores (n, K); `epoch`: the one after which they are computed in training."""
        holder, *others = self.parties
        joined = []
        with torch.no_grad():
            for models in self.models.values():
                for model in models.values():
                    model.eval()
            if holder.inputs is not None:
                joined.append(self.models[holder.name][BOTTOM](inputs[holder.name].batch(rows)))
            for party in others:
                if party.name in away:
                    joined.append(torch.zeros(len(rows), self.params.bottom_of(party.name).width))
                else:
                    model = self.models[party.name][BOTTOM]
                    joined.append(embedded(model, inputs[party.name], rows, self.params.wire_type))
                    if self._log_taken is not None and epoch is not None:
                        self._log_taken(party.name, epoch, rows, joined[-1])
            return self.objective.scores(self.models[holder.name][TOP](torch.cat(joined, dim=1)))


def central_network(
    tables: Sequence[tuple[str, Table]],
    labels: Array,
    classes: int,
    params: SplitnnParams,
    defences: LabelDefences | None = None,
    of_columns: Mapping[str, FeatureDefences] | None = None,
    taken: Seen | None = None,
) -> tuple[CentralNetwork, dict[str, InputScaler]]:
    """The network on aligned tables, the label holder's first, with the draws of a reproducible job; and the scalers.

    `defences`: the label holder's; `of_columns`: those of feature parties, by name.

    Raises:
        DataError: see `Schedule` and `bottom_model`.
    """
    schedule = Schedule.of(params, len(labels))
    holder = tables[0][0]
    scalers = {
        name: InputScaler.fit(table, schedule.training) for name, table in tables if name != holder or has_inputs(table)
    }
    parties = [
        Party(
            name,
            scalers[name].apply(table) if name in scalers else None,
            Draws.reproducible(params.seed, name),
            defences=(of_columns or {}).get(name, FeatureDefences()),
        )
        for name, table in tables
    ]
    return CentralNetwork(params, parties, labels, classes, defences, taken=taken), scalers


def _inputs(party: Party) -> Inputs:
    assert party.inputs is not None  # a feature party has inputs, of no column if its table has none
    return party.inputs


#: The name of the model; raised with any change of the probabilities that is no change of the parameters.
MODEL = "network/1"


class OwnNetwork:
    """Probabilities (n, C) of the classes by the columns of one party's table.

    Args:
        table: its records; scalers are fitted on all of them.
        classes: C.
        party: its name, to whose bottom the parameters have the settings.
        params: the job's. A batch is no larger than the known records, and no record is set aside.
        draws: of the initial weights.
    """

    def __init__(self, table: Table, classes: int, party: str, params: SplitnnParams, draws: Draws) -> None:
        self._table, self._classes, self._party, self._draws = table, classes, party, draws
        self._params = params.of_one_party()
        self._scaler = InputScaler.fit(table, np.arange(len(table.ids), dtype=np.int64))

    def of(self, records: Ints, known: Ints, labels: Ints) -> Floats:
        """Those of the `records` (n,), learned from `labels` (m,) of the records `known` (m,).

        Raises:
            DataError: the loss is not finite.
        """
        if len(np.unique(labels)) < 2:  # nothing to learn: one class, and the others less likely
            counts = np.bincount(labels, minlength=self._classes) + 1.0
            return np.tile(counts / counts.sum(), (len(records), 1))
        params = replace(self._params, batch_size=min(self._params.batch_size, len(known)))
        learned = Party(self._party, self._scaler.apply(self._table.take(known)), self._draws)
        network = CentralNetwork(params, [learned], labels, self._classes).train()
        asked = {self._party: self._scaler.apply(self._table.take(records))}
        scores = network.scores(asked, np.arange(len(records), dtype=np.int64))
        outcome = outcome_of(params.objective, self._classes, scores)  # of two classes P(label = 1) alone
        return np.asarray(
            outcome if outcome.ndim == 2 else np.stack([1.0 - outcome, outcome], axis=1), dtype=np.float64
        )

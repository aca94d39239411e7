"""The same training on joined columns, in one process: the model that a federation must find, bit by bit.

All parties' sides (`treetap.neural.sides`) meet without a wire. `tests/library/neural/one_graph.py` trains the same
network as one graph.

Class probabilities of records by other records' labels and one party's columns: its own model of a network, alone.

The bottom of the job's parameters with a top of its own is trained for the job's epochs on the known records; see
`treetap.protocols.own_priors` for its use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from treetap.arrays import Array, Floats, Ints, Rows
from treetap.neural.defences import FeatureDefences, LabelDefences
from treetap.neural.draws import Draws
from treetap.neural.inputs import Inputs, InputScaler, has_inputs
from treetap.neural.numbers import pin
from treetap.neural.optimiser import load_weights, weights_of
from treetap.neural.params import SplitnnParams
from treetap.neural.schedule import Schedule
from treetap.neural.sides import BOTTOM, PIECE, FeatureSide, LabelSide, Objective, embedded
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
        self.schedule = Schedule.of(params, len(labels))
        self.objective = Objective.of(params, classes, labels[self.schedule.training])
        holder, *others = parties
        names, own, applied = [party.name for party in others], holder.inputs, defences or LabelDefences()
        self._holder = LabelSide(params, holder.name, names, own, labels, self.objective, holder.draws, applied)
        self._others = {
            party.name: FeatureSide(
                params, party.name, _inputs(party), party.draws, amplified=party.amplified, defences=party.defences
            )
            for party in others
        }
        self.models = {holder.name: self._holder.models, **{name: it.models for name, it in self._others.items()}}
        self.stopping = params.watch()

    def train(self, after: After | None = None) -> CentralNetwork:
        """Train to the last epoch, or until early stopping; then the weights are those of the best epoch."""
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
        losses = [self._train_batch(epoch, batch, rows) for batch, rows in enumerate(self.schedule.epoch(epoch))]
        return float(np.mean(losses))

    def scores(self, inputs: Mapping[str, Inputs], rows: Rows, away: frozenset[str] = frozenset()) -> Floats:
        """Scores (n, K) of records; the embeddings of parties that are away are 0."""
        parts = np.split(rows, range(PIECE, len(rows), PIECE))
        return np.concatenate([self._scores(inputs, part, away, None) for part in parts])

    def weights(self) -> dict[str, dict[str, Array]]:
        """Party → its weights by name."""
        return {name: weights_of(models) for name, models in self.models.items()}

    def _train_batch(self, epoch: int, batch: int, rows: Rows) -> float:
        rate = self.schedule.rate(epoch, batch)
        taking = [name for name in self._others if self.schedule.takes_part(epoch, batch, name)]
        embeddings = {name: self._others[name].forward(rows) for name in taking}
        self._log(self._log_taken, epoch, rows, embeddings)
        trained = self._holder.train(rows, embeddings, epoch, batch, rate)
        self._log(self._log_returned, epoch, rows, trained.gradients)
        for name, gradient in trained.gradients.items():
            self._others[name].backward(gradient, rate, epoch, batch)
        return trained.loss

    def _log(self, seen: Seen | None, epoch: int, rows: Rows, numbers: Mapping[str, torch.Tensor]) -> None:
        if seen is not None:
            for party, of_party in numbers.items():
                seen(party, epoch, rows, of_party)

    def _validation_scores(self, epoch: int) -> Floats:
        own = {party.name: party.inputs for party in self.parties if party.inputs is not None}
        batches = self.schedule.validation_batches()
        return np.concatenate([self._scores(own, rows, frozenset(), epoch) for rows in batches])

    def _scores(self, inputs: Mapping[str, Inputs], rows: Rows, away: frozenset[str], epoch: int | None) -> Floats:
        """Scores (n, K); `epoch`: the one after which they are computed in training."""
        pin(self.params.threads)
        embeddings = {
            name: embedded(side.models[BOTTOM], inputs[name], rows, self.params.wire_type)
            for name, side in self._others.items()
            if name not in away
        }
        if epoch is not None:
            self._log(self._log_taken, epoch, rows, embeddings)
        return self._holder.scores(rows, embeddings, inputs.get(self.parties[0].name))


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

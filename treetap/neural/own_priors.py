"""Class probabilities of records by other records' labels and one party's columns: its own model of a network, alone.

The bottom of the job's parameters with a top of its own is trained for the job's epochs on the known records; see
`treetap.protocols.own_priors` for its use.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from treetap.arrays import Floats, Ints
from treetap.neural.centralised import CentralNetwork, Party
from treetap.neural.draws import Draws
from treetap.neural.inputs import InputScaler
from treetap.neural.params import SplitnnParams
from treetap.tables.reading import Table
from treetap.trees.loss import outcome_of

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

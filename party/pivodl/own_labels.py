"""The labels that this party holds, and the scores of their records: no other party sees either."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from party.growth.label_state import SCORES
from party.runtime.context import required
from party.runtime.job_store import JobStore
from treetap.errors import DataError, OutOfOrder
from treetap.trees.shared_label_loss import SharedLabelLoss

Rows = np.ndarray[tuple[int], np.dtype[np.int64]]
Ints = np.ndarray[tuple[int, ...], np.dtype[np.int64]]
Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


class OwnLabels:
    """Records that this party labels, of N common ones.

    Attributes:
        rows: (m,) their positions in the common order, ascending.
        values: (m,) class numbers, or targets in the unit of their table.
        records: N.
        trees: the number of trees that the scores include.
        metrics: those of the last tree, where this party was its aggregation party.
    """

    def __init__(self, rows: Rows, values: np.ndarray[tuple[int], np.dtype[Any]], records: int) -> None:
        self.rows, self.values, self.records = rows, values, records
        self.trees = 0
        self.metrics: dict[str, float] = {}
        self._place = np.full(records, -1, dtype=np.int64)
        self._place[rows] = np.arange(len(rows))
        self._scaled = values
        self._scores: Floats = np.zeros((len(rows), 1))
        self._before = self._scores  # those before the last tree
        self._derivatives: Ints | None = None
        self._loss: SharedLabelLoss | None = None

    def __reduce__(self) -> NoReturn:
        raise TypeError("a party's labels do not leave its process")

    def __repr__(self) -> str:
        return f"<OwnLabels of {len(self.rows)} records>"

    def places(self, rows: Rows) -> Rows:
        """The places, 0..m-1, of those of some records that this party labels."""
        places = self._place[rows]
        return places[places >= 0]

    def begin(self, loss: SharedLabelLoss, store: JobStore) -> None:
        """Scale the labels, and set the scores to those after the last stored tree."""
        self._loss = loss
        self._scaled = loss.scaled(self.values)
        self._scores = np.tile(loss.base, (len(self.rows), 1))
        self._before = self._scores.copy()
        arrays = store.load_arrays(SCORES)
        if arrays is None:
            return
        if arrays["scores"].shape != self._scores.shape:
            raise DataError(
                f"the table has labels of {len(self.rows)} records, the interrupted job had {len(arrays['scores'])}: "
                "restore that table, or cancel the job and train again"
            )
        self.trees, self._scores, self._before = int(arrays["trees"]), arrays["scores"], arrays["before"]
        names, values = arrays["metric_names"].tolist(), arrays["metric_values"].tolist()
        self.metrics = dict(zip(names, values, strict=True))

    def open_tree(self, t: int) -> None:
        """Begin tree `t`, the next one or the last stored one again: the party that stores last may lack it.

        Raises:
            OutOfOrder: the scores are those after another tree.
        """
        if t == self.trees - 1:
            self.trees, self._scores = t, self._before
        if t != self.trees:
            raise OutOfOrder(f"tree {t} cannot be grown on the scores after {self.trees} trees")
        self._before = self._scores.copy()
        self._derivatives = None

    @property
    def rounds(self) -> range:
        """The trees that may be grown next: see `open_tree`."""
        return range(max(self.trees - 1, 0), self.trees + 1)

    @property
    def loss(self) -> SharedLabelLoss:
        """The loss of these labels, once `begin` has brought it."""
        return required(self._loss)

    @property
    def derivatives(self) -> Ints:
        """(m, 2K) fixed-point g and h at the present scores."""
        if self._derivatives is None:
            self._derivatives = self.loss.gradients(self._scores, self._scaled)
        return self._derivatives

    def add(self, places: Rows, weight: Floats) -> None:
        """Add a leaf's weight (K,) to the scores of its records."""
        self._scores[places] += weight

    def figures(self) -> tuple[float, float]:
        """Sums over the own records of their loss and of correct classes: `SharedLabelLoss.figures`."""
        return self.loss.figures(self._scores, self._scaled)

    def save(self, store: JobStore, trees: int) -> None:
        """Store the scores, which include the first `trees` trees, atomically."""
        self.trees = trees
        store.save_arrays(
            SCORES,
            {
                "trees": np.array(trees),
                "scores": self._scores,
                "before": self._before,
                "metric_names": np.array(list(self.metrics), dtype=np.str_),
                "metric_values": np.array(list(self.metrics.values()), dtype=np.float64),
            },
        )

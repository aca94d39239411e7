"""The labels of a job's eval table at the label holder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from party.defences.clean_labels import LabelRules, Use, read_evaluated
from party.runtime.messages import Rows
from treetap.errors import DataError
from treetap.tables.labels import Labels, label_column
from treetap.tables.reading import Table


class Measured(NamedTuple):
    """The records of an eval table: class numbers or targets (M,), and sample weights (M,), if it has some."""

    values: np.ndarray[tuple[int], np.dtype[Any]]
    weights: np.ndarray[tuple[int], np.dtype[np.float64]] | None


@dataclass(frozen=True)
class EvaluatedLabels:
    """`labels`: of the records of an eval table; by its own classes, until `numbered` gives them the training's.

    `where`: the column, for messages. `weights` (M,): their sample weights, if the eval table has some; they weight
    metrics, as in XGBoost.
    """

    labels: Labels
    where: str
    weights: np.ndarray[tuple[int], np.dtype[np.float64]] | None = None

    @classmethod
    def read(cls, table: Table, column: str, objective: str, rules: LabelRules) -> EvaluatedLabels:
        """The labels of an eval table; `DataError` where they do not fit the objective, of one class only they do."""
        read = read_evaluated(table, column, objective, rules).for_use(Use.EVAL_TABLE)
        return cls(read, label_column(table, column), table.weights)

    def take(self, records: Rows) -> EvaluatedLabels:
        """The labels of the records at these places, in this order, and the classes that they have.

        Raises:
            DataError: all of them have weight 0.
        """
        weights = None if self.weights is None else self.weights[records]
        if weights is not None and not weights.any():
            raise DataError(f"{self.where}: all common records of the eval table have sample weight 0")
        return replace(self, labels=self.labels.take(records), weights=weights)

    def numbered(self, classes: list[str]) -> EvaluatedLabels:
        """The same labels by the numbers of the training's classes.

        Raises:
            DataError: a label is none of these.
        """
        if not classes:
            return self
        number = {name: place for place, name in enumerate(classes)}
        if strangers := sum(name not in number for name in self.labels.classes):
            raise DataError(
                f"{self.where}: holds {strangers} class{'es' if strangers > 1 else ''} that no common record of the "
                "training has; an eval table has the classes of the training"
            )
        places = np.array([number[name] for name in self.labels.classes], dtype=np.int64)
        return replace(self, labels=Labels(places[self.labels.values], classes, self.labels.kind))

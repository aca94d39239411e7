"""The records of a training with those of an eval table behind them, of one party.

Both go through the trees; those of the eval table are drawn for none. They are aligned in one run: the ids of each
table have a mark before them, so that a record is common only to parties that have it in the same table, and every
party knows from its own ids which of the common records are of which.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from treetap.tables.features import joined
from treetap.tables.reading import Table
from treetap.tables.record_ids import Ids

Rows = npt.NDArray[np.int64]
#: Marks before ids of a job with an eval table. In their order the marked ids of both tables are sorted.
_TRAINING, _EVALUATED = "t:", "v:"


def unmarked(marked: str) -> str:
    """An id without the mark before it."""
    return marked[len(_TRAINING) :]


@dataclass(frozen=True)
class JobRecords:
    """`table`: the records of the training, then those of the eval table. `training`: the number of the first ones.

    `marked`: the job has an eval table.
    """

    table: Table
    training: int
    marked: bool = False

    @classmethod
    def of(cls, table: Table, evaluated: Table | None) -> JobRecords:
        """The tables of a job; both have the same features. `evaluated`: the eval table, where the job has one."""
        if evaluated is None:
            return cls(table, len(table.ids))
        both = replace(
            table,
            ids=table.ids + evaluated.ids,
            values=joined(table.values, len(table.ids), evaluated.values),
            label=None,
            weights=None,
            rows=np.concatenate([table.rows, evaluated.rows]),
            tensors={name: np.concatenate([cells, evaluated.tensors[name]]) for name, cells in table.tensors.items()},
        )
        return cls(both, len(table.ids), marked=True)

    @property
    def ids(self) -> Ids:
        """The ids as they are aligned: with a mark of their table where the job has an eval table."""
        if not self.marked:
            return self.table.ids
        own = self.table.ids
        return own[: self.training].marked(_TRAINING) + own[self.training :].marked(_EVALUATED)

    def take(self, records: Rows) -> JobRecords:
        """The records at these places, in this order; those of the eval table are the last ones."""
        return replace(self, table=self.table.take(records), training=int((records < self.training).sum()))

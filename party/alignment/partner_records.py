"""Which of a job's records a feature party has, at the label holder, and in which order (docs/alignment.md)."""

from __future__ import annotations

import numpy as np

from treetap.arrays import Bools
from treetap.party.runtime.context import Rows


class PartnerRecords:
    """Those of a job's records that a feature party has, at the label holder.

    Attributes:
        places: of each, in the party's order, the place in the job's (n,).
        lacks: the records of the job (N,) that the party lacks; None: it has all, in the job's order.
        apart: True if the party's records are others than the job's, or in another order.
    """

    def __init__(self, total: int, places: Rows | None = None, ways: int = 1) -> None:
        """`ways`: of each record, see `treetap.party.prediction.reasons`; rows and places are then those of blocks."""
        self._ways = ways
        self.places, self.apart = np.arange(total, dtype=np.int64), places is not None
        self.lacks: Bools | None = None
        if places is not None:
            self.places, self._own = places, np.full(total, -1, dtype=np.int64)
            self._own[places] = np.arange(len(places))
            self.lacks = self._own < 0

    def __len__(self) -> int:
        return len(self.places) * self._ways

    def below(self, count: int) -> Rows:
        """The places of those among the first `count` records of the job, which are the party's first ones too."""
        return self.places[self.places < count]

    def among(self, rows: Rows) -> Rows:
        """Those of some records of the job that the party has."""
        return rows if self.lacks is None else rows[~self.lacks[rows // self._ways]]

    def placed(self, rows: Rows) -> tuple[Rows, Rows]:
        """The places in the party's order of those of some records that it has, ascending; and their places in `rows`.

        `rows`: ascending.
        """
        if self.lacks is None:
            return rows, np.arange(len(rows))
        own = self._own[rows // self._ways]
        order = np.argsort(own, kind="stable")[int((own < 0).sum()) :]
        return own[order] * self._ways + rows[order] % self._ways, order

    def of(self, rows: Rows) -> Rows:
        """The same without their places."""
        return self.placed(rows)[0]

    def left_of(self, node: Rows, left: Rows, *, missing_left: bool) -> Rows:
        """The records that go left at a split of the party.

        `node`: the node's; `left`: of these, by their places in the party's order, those that it sends left;
        `missing_left`: those that it lacks go left too.
        """
        if self.lacks is None:
            return left
        lacked = node[self.lacks[node]]
        return np.concatenate([self.places[left], lacked if missing_left else lacked[:0]])

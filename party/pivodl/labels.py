"""Labels at several parties: those that this party holds, their scores, and which party labels which record.

No other party sees the own labels and scores. Which party labels which records every party learns of all, and checks
that it is a partition.
"""

from __future__ import annotations

import logging
from typing import Any, NoReturn

import numpy as np

from treetap.arrays import Floats, Ints, Rows
from treetap.errors import BadInput, DataError, OutOfOrder
from treetap.party.growth.stored_trees import SCORES
from treetap.party.pivodl.participant import Participant
from treetap.party.runtime.context import as_chunk, counted_bodies, counted_items
from treetap.party.runtime.job_store import JobStore
from treetap.trees.pivodl_params import PivodlParams
from treetap.trees.pivodl_rules import SharedLabelLoss, stopped_by
from treetap.wire.records import rows_of
from treetap.wire.v2 import pivodl_pb2

log = logging.getLogger(__name__)
#: Fewest labelled records with which a party adds a share to the training's metrics.
LEAST_MEASURED = 10


class OwnLabels:
    """Records that this party labels, of N common ones.

    Attributes:
        rows: (m,) their positions in the common order, ascending.
        values: (m,) class numbers, or targets in the unit of their table.
        records: N.
        trees: the number of trees that the scores include.
        metrics: those of the last tree, where this party was its aggregation party.
    """

    #: The loss of these labels, once `begin` has brought it.
    loss: SharedLabelLoss

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
        self.loss = loss
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
    def derivatives(self) -> Ints:
        """(m, 2K) g and h at the present scores."""
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


class Ownership:
    """The records that each party labels, of N common ones.

    Attributes:
        rows: party → the positions of its labelled records, in the order of the job.
        records: N.
        owners: the parties that label some.
        measured: those with labels enough for a share of the training's metrics; none if there is only one.
    """

    def __init__(self, rows: dict[str, Rows], records: int) -> None:
        self.rows, self.records = rows, records
        self.owners = [party for party, labelled in rows.items() if len(labelled)]
        measured = [party for party, labelled in rows.items() if len(labelled) >= LEAST_MEASURED]
        self.measured = measured if len(measured) > 1 else []

    def labelled_by(self, party: str, rows: Rows) -> Rows:
        return np.intersect1d(rows, self.rows[party], assume_unique=True)

    def counts(self, rows: Rows) -> dict[str, int]:
        """The number of records among these that each party with labels labels."""
        inside = np.zeros(self.records, dtype=bool)
        inside[rows] = True
        return {party: int(inside[self.rows[party]].sum()) for party in self.owners}


async def share_ownership(me: Participant, own: OwnLabels) -> Ownership:
    """Send every party the records that this one labels, and receive theirs.

    Raises:
        DataError: two parties label a record, or none does.
        BadInput: the thresholds permit no split of the root.
    """
    items = counted_items(as_chunk, own.rows, own.records)
    bodies = counted_bodies(lambda chunks: pivodl_pb2.LabelledRecords(chunks=chunks), items)
    await me.broadcast("labelled_records", bodies)
    labelled = {me.name: own.rows}
    for party in me.others:
        chunks = [chunk async for part in me.received(party, "labelled_records") for chunk in part.chunks]
        labelled[party] = rows_of(chunks, own.records)
    ownership = Ownership({party: labelled[party] for party in me.parties}, own.records)
    _check_partition(ownership)
    _check_root(ownership, me.params)
    if len(ownership.owners) < 3:
        log.warning(
            "job %s: %d parties have labels; with fewer than three, a sum over them less the own share is another "
            "party's alone",
            me.context.job,
            len(ownership.owners),
        )
    return ownership


def _check_partition(ownership: Ownership) -> None:
    """`DataError` unless each record is labelled by one party."""
    times = np.zeros(ownership.records, dtype=np.int64)
    for rows in ownership.rows.values():
        times[rows] += 1
    twice = np.flatnonzero(times > 1)
    if len(twice):
        both = [party for party, rows in ownership.rows.items() if np.isin(rows, twice).any()]
        raise DataError(
            f"{len(twice)} of {ownership.records} records are labelled by more than one party ({', '.join(both)}): "
            "empty the label cells of all but one of them"
        )
    if without := int((times == 0).sum()):
        raise DataError(
            f"{without} of {ownership.records} records are labelled by no party: add their labels to one party's "
            "table, or leave these records out of a table, so that they are not common"
        )


def _check_root(ownership: Ownership, params: PivodlParams) -> None:
    """`BadInput` if no split of the root can pass the thresholds."""
    counts = ownership.counts(np.arange(ownership.records))
    if ownership.records < params.min_samples:
        raise BadInput(
            f"min_samples = {params.min_samples} is larger than every node: there are {ownership.records} records"
        )
    if params.as_published:
        least = params.instance_threshold
        short = [party for party, count in counts.items() if count < least]
        # A source's own threshold does not hold for its candidates: one party may be short, as the source.
        stopped = short if all(set(short) - {source} for source in ownership.rows) else []
    else:
        least = 2 * params.instance_threshold
        stopped = stopped_by(counts, params.instance_threshold)
    if stopped:
        raise BadInput(
            f"instance_threshold = {params.instance_threshold} stops every node: {', '.join(stopped)} label fewer "
            f"than {least} records; use a lower threshold, or give their labels to another party's table"
        )

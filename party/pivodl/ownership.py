"""Which party labels which records: every party learns it of all, and checks that it is a partition."""

from __future__ import annotations

import logging

import numpy as np

from party.pivodl.own_labels import OwnLabels
from party.pivodl.participant import Participant
from party.runtime.messages import as_chunk, counted_bodies, counted_items
from treetap.errors import BadInput, DataError
from treetap.trees.pivodl_params import PivodlParams
from treetap.trees.pivodl_rules import stopped_by
from treetap.wire.records import rows_of
from treetap.wire.v2 import pivodl_pb2

Rows = np.ndarray[tuple[int], np.dtype[np.int64]]
log = logging.getLogger(__name__)
#: Fewest labelled records with which a party adds a share to the training's metrics.
LEAST_MEASURED = 10


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
        """Those of some records that a party labels."""
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

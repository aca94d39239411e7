"""Which party labels which records: every party learns it of all, and checks that it is a partition."""

from __future__ import annotations

import logging

import numpy as np

from party.pivodl.own_labels import OwnLabels
from party.pivodl.setting import Rows, Setting
from party.runtime.messages import as_chunk, counted_bodies, counted_items
from treetap.errors import BadInput, DataError
from treetap.trees.label_thresholds import stopped_by
from treetap.wire.records import rows_of
from treetap.wire.v2 import pivodl_pb2

log = logging.getLogger(__name__)


async def share_ownership(setting: Setting, own: OwnLabels) -> None:
    """Send every party the records that this one labels, and receive theirs.

    Raises:
        DataError: two parties label a record, or none does.
        BadInput: the thresholds permit no split of the root.
    """
    total = setting.records
    items = counted_items(as_chunk, own.rows, total)
    bodies = counted_bodies(lambda chunks: pivodl_pb2.LabelledRecords(chunks=chunks), items)
    await setting.broadcast("labelled_records", bodies)
    ownership = {setting.me: own.rows}
    for party in setting.others:
        chunks = [chunk async for part in setting.received(party, "labelled_records") for chunk in part.chunks]
        ownership[party] = rows_of(chunks, total)
    setting.ownership = {party: ownership[party] for party in setting.parties}
    _check_partition(setting)
    _check_root(setting)
    if len(setting.owners) < 3 and not setting.params.centralised_labels:
        log.warning(
            "job %s: %d parties have labels; with fewer than three, a sum over them less the own share is another "
            "party's alone",
            setting.context.job,
            len(setting.owners),
        )


def _check_partition(setting: Setting) -> None:
    """`DataError` unless each record is labelled by one party."""
    times = np.zeros(setting.records, dtype=np.int64)
    for rows in setting.ownership.values():
        times[rows] += 1
    twice = np.flatnonzero(times > 1)
    if len(twice):
        both = [party for party, rows in setting.ownership.items() if np.isin(rows, twice).any()]
        raise DataError(
            f"{len(twice)} of {setting.records} records are labelled by more than one party ({', '.join(both)}): empty "
            "the label cells of all but one of them"
        )
    if without := int((times == 0).sum()):
        raise DataError(
            f"{without} of {setting.records} records are labelled by no party: add their labels to one party's table, "
            "or leave these records out of a table, so that they are not common"
        )
    if setting.params.centralised_labels and len(setting.owners) > 1:
        raise DataError(
            f"centralised_labels: {' and '.join(setting.owners)} have labels, and one party must have them all; "
            "leave that parameter out"
        )


def _check_root(setting: Setting) -> None:
    """`BadInput` if no split of the root can pass the thresholds."""
    params, counts = setting.params, labelled_of(setting, np.arange(setting.records))
    if setting.records < params.min_samples:
        raise BadInput(
            f"min_samples = {params.min_samples} is larger than every node: there are {setting.records} records"
        )
    if params.centralised_labels:
        return
    if params.instance_check == "paper":
        least = params.instance_threshold
        if all(any(counts[party] < least for party in counts if party != source) for source in setting.parties):
            short = [party for party in counts if counts[party] < least]
            raise BadInput(_too_large(setting, short, least))
    elif stopped := stopped_by(counts, params.instance_threshold):
        raise BadInput(_too_large(setting, stopped, 2 * params.instance_threshold))


def _too_large(setting: Setting, parties: list[str], least: int) -> str:
    return (
        f"instance_threshold = {setting.params.instance_threshold} stops every node: {', '.join(parties)} label fewer "
        f"than {least} records; use a lower threshold, or give their labels to another party's table"
    )


def labelled_of(setting: Setting, rows: Rows) -> dict[str, int]:
    """The number of records among these that each party with labels labels."""
    inside = np.zeros(setting.records, dtype=bool)
    inside[rows] = True
    return {party: int(inside[setting.ownership[party]].sum()) for party in setting.owners}

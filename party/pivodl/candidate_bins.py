"""Bins of the records that a party labels, by source: from them it sums its gradients left of every candidate.

Each source sends the bins once per job (`RecordBins`). As published it sends, for each candidate of each open node, the
list of records that go left (Algorithm 2, line 22).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from treetap.arrays import Ints, Rows
from treetap.errors import Malformed
from treetap.party.growth.split_table import TreeColumns
from treetap.party.pivodl.participant import Participant
from treetap.party.runtime.messages import MESSAGE_BYTES, batches
from treetap.protocols.growth import MOST_COLUMNS
from treetap.protocols.pivodl import CODE_BYTES
from treetap.trees.candidates import CandidateList, Shape
from treetap.wire.v2 import pivodl_pb2

#: Bins in one message.
_PART = MESSAGE_BYTES // 2 // CODE_BYTES
#: Positions of a list in one set: at most four bytes each.
_LISTED = MESSAGE_BYTES // 8
#: Columns of at most so many bins have bins of one byte.
_ONE_BYTE = 256


@dataclass(frozen=True)
class SourceBins:
    """A source's columns for some records: codes (m, columns), and the candidates in canonical order."""

    codes: npt.NDArray[np.integer[Any]]
    candidates: CandidateList


def own_bins(columns: TreeColumns, rows: Rows) -> SourceBins:
    """This party's own columns for some records."""
    return SourceBins(columns.codes[rows], columns.candidates)


async def send_bins(me: Participant, columns: TreeColumns, to: str, rows: Rows) -> None:
    """Send another party the bins of these records, column by column, in parts of bounded size."""
    codes = columns.codes[rows]
    await me.context.outbox.send(to, "record_bins", _parts(codes, columns.candidates.shapes))


def _code_type(bins: int, missing: bool) -> np.dtype[Any]:
    """The type of a column's bins in a message."""
    return np.dtype("u1" if bins + missing <= _ONE_BYTE else "<u2")


def _parts(
    codes: npt.NDArray[np.integer[Any]], shapes: Sequence[tuple[int, bool] | Shape]
) -> Iterator[pivodl_pb2.RecordBins]:
    columns = (
        pivodl_pb2.ColumnBins(
            column=column,
            bins=bins,
            has_missing=missing,
            first=first,
            codes=codes[first : first + _PART, column].astype(_code_type(bins, missing)).tobytes(),
        )
        for column, (bins, missing) in enumerate(shape[:2] for shape in shapes)
        for first in range(0, max(len(codes), 1), _PART)
    )
    for batch in batches(columns):
        yield pivodl_pb2.RecordBins(columns=batch)


async def receive_bins(me: Participant, source: str, records: int) -> SourceBins:
    """A source's bins of `records` records.

    Raises:
        Malformed: bins are missing, outside their columns' range, or out of place.
    """
    shapes: list[tuple[int, bool]] = []
    codes: list[list[npt.NDArray[np.integer[Any]]]] = []
    async for message in me.received(source, "record_bins"):
        for part in message.columns:
            # columns come one after the other, so that the first part of the next one ends the last
            if part.column == len(shapes) and part.first == 0:
                _check_shape(source, part, len(shapes), me.params.max_bin)
                shapes.append((part.bins, part.has_missing))
                codes.append([])
            if not shapes or part.column != len(shapes) - 1 or part.first != sum(map(len, codes[-1])):
                raise Malformed(f"{source} sent bins out of place")
            bins, missing = shapes[-1]
            kind = _code_type(bins, missing)
            if len(part.codes) % kind.itemsize:
                raise Malformed(f"{source} sent a part of a bin")
            numbers = np.frombuffer(part.codes, dtype=kind)
            if len(numbers) and int(numbers.max()) >= bins + missing:
                raise Malformed(f"{source} sent a bin outside column {part.column}'s {bins} bins")
            codes[-1].append(numbers)
    if not shapes:
        raise Malformed(f"{source} sent bins of no column, and every party has some")
    whole = [np.concatenate(parts) for parts in codes]
    if any(len(column) != records for column in whole):
        raise Malformed(f"{source} sent bins of another number of records than {records}")
    return SourceBins(np.stack(whole, axis=1), CandidateList(shapes))


def _check_shape(source: str, part: pivodl_pb2.ColumnBins, column: int, max_bin: int) -> None:
    if not 1 <= part.bins <= max_bin or column >= MOST_COLUMNS:
        raise Malformed(f"{source} sent column {column} of {part.bins} bins; the job has max_bin = {max_bin}")


# ---- as published


def candidate_sets(bins: SourceBins, nodes: Sequence[tuple[int, Rows]]) -> Iterator[pivodl_pb2.CandidateRecords]:
    """For every candidate of every node the records that go left; `nodes`: places in `bins` are those of the records.

    Positions are those among the receiver's labelled records. A long list comes in several sets of its candidate.
    """

    def sets() -> Iterator[pivodl_pb2.CandidateSet]:
        for node, places in nodes:
            for number in range(len(bins.candidates)):
                left = places[bins.candidates.goes_left(bins.codes[places], bins.candidates.at(number))]
                for first in range(0, max(len(left), 1), _LISTED):
                    records = left[first : first + _LISTED].tolist()
                    yield pivodl_pb2.CandidateSet(node=node, candidate=number, records=records)

    for batch in batches(sets()):
        yield pivodl_pb2.CandidateRecords(sets=batch)


async def left_sums_of_sets(
    contents: AsyncIterator[Any], source: str, values: Ints, nodes: Sequence[tuple[int, Rows]]
) -> list[Ints]:
    """Sums of values (m, S) over the lists of each candidate, (candidates, S), node by node.

    Raises:
        Malformed: lists out of order, or of records that are not in the node.
    """
    inside = {node: np.isin(np.arange(len(values)), places) for node, places in nodes}
    by_node: defaultdict[int, list[Ints]] = defaultdict(list)
    last = -1  # position in the list that may go on
    async for message in contents:
        for listed in message.sets:
            records = np.array(listed.records, dtype=np.int64)
            sums = by_node[listed.node]
            goes_on = bool(sums) and listed.candidate == len(sums) - 1
            if listed.node not in inside or not (goes_on or listed.candidate == len(sums)):
                raise Malformed(f"{source} sent a list of records out of order")
            if len(records) and (
                int(records.max()) >= len(values)
                or not inside[listed.node][records].all()
                or (np.diff(records, prepend=last if goes_on else -1) <= 0).any()
            ):
                raise Malformed(f"{source} sent a list with records that are not in node {listed.node}")
            last = int(records[-1]) if len(records) else len(values)
            part = values[records].sum(axis=0)
            if goes_on:
                sums[-1] = sums[-1] + part
            else:
                sums.append(part)
    slots = values.shape[1]
    return [np.array(by_node[node], dtype=np.int64).reshape(-1, slots) for node, _ in nodes]

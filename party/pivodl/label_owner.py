"""A party as owner of labels: sums of its gradients by the candidates of every source, under split parties' keys.

It sees bins of the records that it labels, and no sum of another party.

Bins of the records that a party labels, by source: from them it sums its gradients left of every candidate.

Each source sends the bins once per job (`RecordBins`). As published it sends, for each candidate of each open node, the
list of records that go left (Algorithm 2, line 22).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from treetap.additive.paillier.shared_sums import SharedSums
from treetap.arrays import Ints, Rows
from treetap.errors import Malformed
from treetap.party.growth.split_table import TreeColumns
from treetap.party.pivodl.growing_tree import GrowingTree
from treetap.party.pivodl.participant import Ownership, OwnLabels, Participant, PartyKeys
from treetap.party.runtime.context import MESSAGE_BYTES, batches
from treetap.protocols.growth import MOST_COLUMNS
from treetap.protocols.pivodl import CODE_BYTES
from treetap.trees.candidates import CandidateList, Shape
from treetap.trees.pivodl_rules import permits
from treetap.trees.tree_bins import left_sums
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
                if not 1 <= part.bins <= (most := me.params.max_bin) or len(shapes) >= MOST_COLUMNS:
                    raise Malformed(
                        f"{source} sent column {len(shapes)} of {part.bins} bins; the job has max_bin = {most}"
                    )
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


#: Bytes of ciphertexts in one message.
SHARE_BYTES = 1024 * 1024


@dataclass(frozen=True)
class OwnSums:
    """This party's part of a source's candidates at a node.

    Attributes:
        left: (candidates, 2K) sums of g and h left of each.
        counts: (candidates,) labelled records left of each.
        total: labelled records in the node.
    """

    left: Ints
    counts: Ints
    total: int


async def share_bins(
    me: Participant, ownership: Ownership, own: OwnLabels, columns: TreeColumns
) -> dict[str, SourceBins]:
    """Exchange bins: as source send each party with labels those of its records, as owner receive them, by source.

    As published nothing is sent now, and a party has its own bins alone.
    """
    bins = {me.name: own_bins(columns, own.rows)}
    if me.params.as_published:
        return bins
    owners, shapes = [party for party in ownership.owners if party != me.name], columns.candidates.shapes
    parts = {party: _parts(columns.codes[ownership.rows[party]], shapes) for party in owners}
    await me.context.outbox.send_each("record_bins", parts)
    if len(own.rows):
        for source in me.others:
            bins[source] = await receive_bins(me, source, len(own.rows))
    return bins


class LabelOwner:
    """Sums over the records that this party labels.

    Args:
        bins: those of its records by source, see `share_bins`.
    """

    def __init__(
        self, me: Participant, keys: PartyKeys, sums: SharedSums, own: OwnLabels, bins: Mapping[str, SourceBins]
    ) -> None:
        self._me, self._keys, self._sums, self._own, self._bins = me, keys, sums, own, bins

    async def own_sums(self, tree: GrowingTree, source: str, level: int) -> dict[int, OwnSums]:
        """The sums by a source's candidates, by node, of the open nodes where some party opens them."""
        me, own = self._me, self._own
        nodes = [
            (node, own.places(tree.rows[node])) for node in tree.open if tree.split_party(node, source) is not None
        ]
        if not nodes:
            return {}  # the source has sent nothing either
        values = np.concatenate([own.derivatives, np.ones((len(own.rows), 1), dtype=np.int64)], axis=1)
        if source != me.name and me.params.as_published:
            lists = me.received(source, "candidate_records", tree.index, level)
            lefts = await left_sums_of_sets(lists, source, values, nodes)
        else:
            bins = self._bins[source]
            lefts = list(left_sums(bins.codes, bins.candidates, values, [places for _, places in nodes]))
        return {
            node: OwnSums(left[:, :-1], left[:, -1], len(places))
            for (node, places), left in zip(nodes, lefts, strict=True)
        }

    async def send_shares(self, tree: GrowingTree, level: int) -> None:
        """Send every other source this party's sums of each open node, a ciphertext for each permitted candidate."""
        for source in self._me.others:
            await self._send_to(tree, source, level)

    async def _send_to(self, tree: GrowingTree, source: str, level: int) -> None:
        me = self._me
        by_node = await self.own_sums(tree, source, level)
        if not by_node:
            return
        series = me.context.outbox.open(source, "candidate_shares", tree.index, level)
        for node, sums in by_node.items():
            to = str(tree.split_party(node, source))
            # only candidates that this party's threshold permits
            params = me.params
            mask = permits(sums.counts, sums.total, params.instance_threshold, as_published=params.as_published)
            columns = [np.ascontiguousarray(sums.left[mask, slot]) for slot in range(sums.left.shape[1])]
            key = self._keys.of(to)
            if to == me.name:  # encrypts faster with the secret key
                blocks = [block async for _, block in self._keys.holder.encrypt_blocks(columns)]
                ciphertexts = b"".join(blocks)
                me.context.costs.operations["encryptions"] += len(columns[0])
            else:
                ciphertexts = await self._sums.encrypt(key, self._keys.slots.encode(columns))
            me.context.costs.ciphertexts["candidate_shares"] += len(columns[0])
            step = SHARE_BYTES // key.ciphertext_bytes * key.ciphertext_bytes
            for start in range(0, max(len(ciphertexts), 1), step):
                part = ciphertexts[start : start + step]
                await series.put(pivodl_pb2.CandidateShares(node=node, ciphertexts=part))
        await series.close()

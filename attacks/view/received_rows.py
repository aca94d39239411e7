"""Numbers of feature parties' embeddings in a log, by record and epoch: the embeddings, or their gradients.

A feature party's log has the gradients that it was sent, and a label holder's the embeddings of each feature party. The
order of the records in each batch follows from the seed of the job, which every party has, and which batches a party
sat out does too.

One tree in a transcript as it was grown in one attempt: its messages in order, and the view that they give.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np

from treetap.arrays import Ints, Singles
from treetap.attacks.view.kept_messages import EMBEDDINGS, MemoryBudget, NetworkMessages, Numbers, Series
from treetap.attacks.view.known_trees import OwnSplit, TreeView, WholeCut, known_nodes
from treetap.attacks.view.opened_sums import OpenedEntries, Place
from treetap.errors import BadInput, DataError, Malformed
from treetap.neural.draws import Draws
from treetap.neural.params import SplitnnParams
from treetap.neural.schedule import Schedule
from treetap.wire.frame import content_of
from treetap.wire.records import rows_of
from treetap.wire.v2 import exchange_pb2, transcript_pb2, types_pb2

Rows = Singles
#: Most numbers of the rows that several epochs give together.
_MOST_NUMBERS = 1 << 27


@dataclass(frozen=True)
class EpochRows:
    """Embeddings of one feature party, or their gradients.

    Attributes:
        epoch: its number, from 0; None: several epochs together, or a prediction.
        records: (n,) places of the records, ascending; a record of a batch that the party sat out has no row.
        values: (n, width) the numbers.
    """

    epoch: int | None
    records: Ints = field(repr=False)
    values: Rows = field(repr=False)

    def of(self, records: Ints) -> EpochRows:
        """The rows of those of these records, ascending, that have one."""
        kept = np.isin(self.records, records)
        return EpochRows(self.epoch, self.records[kept], self.values[kept])

    @property
    def directions(self) -> Rows:
        """The rows at unit length; a row of zeros stays one."""
        wide = self.values.astype(np.float64)
        length = np.linalg.norm(wide, axis=1, keepdims=True)
        return np.asarray(wide / np.where(length > 0, length, 1.0), dtype=np.float32)


def together(epochs: Sequence[EpochRows]) -> EpochRows | None:
    """The directions of all epochs side by side, of the records with a row in each; None of fewer than two epochs.

    None too where no record has a row in each, or the numbers would be more than `_MOST_NUMBERS`.
    """
    if len(epochs) < 2:
        return None
    shared = epochs[0].records
    for rows in epochs[1:]:
        shared = np.intersect1d(shared, rows.records, assume_unique=True)
    if not len(shared) or len(shared) * sum(rows.values.shape[1] for rows in epochs) > _MOST_NUMBERS:
        return None
    return EpochRows(None, shared, np.hstack([rows.of(shared).directions for rows in epochs]))


def attack_draws(seed: int) -> Draws:
    """Draws of the attacks with a seed, apart from those of any job and the same at each repetition."""
    return Draws(f"attack {int(seed)}".encode())


def some_of(records: Ints, most: int, draws: Draws, *path: str | int) -> Ints:
    """At most `most` of the records, drawn without replacement, ascending."""
    if len(records) <= most:
        return np.sort(records)
    return np.sort(records[np.argpartition(draws.keys(len(records), *path), most)[:most]])


@dataclass(frozen=True)
class ReceivedRows:
    """The messages about one feature party's embeddings in one log.

    `party`: the feature party. `sender`: the party that sent them. `records`: N, the records common to all parties.
    `batches`: epoch → its batches of which the log has all numbers. Embeddings of the validation records, which early
    stopping sets aside, are one batch more, after the others; a party sends them whether it sits out batches or not.
    """

    party: str
    sender: str
    params: SplitnnParams
    records: int
    batches: dict[int, list[int]] = field(repr=False)
    messages: NetworkMessages = field(repr=False)

    @classmethod
    def of(cls, party: str, sender: str, params: SplitnnParams, records: int, messages: NetworkMessages) -> Self:
        """The rows by the messages of a log. Raises Malformed for an epoch that the job does not have."""
        batches = messages.places(sender)
        if batches and max(batches) >= params.epochs:
            raise Malformed(f"{messages.kind} of epoch {max(batches)}: the job has {params.epochs}")
        return cls(party, sender, params, records, batches, messages)

    @cached_property
    def schedule(self) -> Schedule:
        """Records of every batch. Raises Malformed where the job cannot have these records."""
        try:
            return Schedule.of(self.params, self.records)
        except DataError as fault:
            raise Malformed(f"{self.records} records: {fault}") from None

    @property
    def width(self) -> int:
        """Numbers of the party's embedding, hence of a gradient."""
        return self.params.bottom_of(self.party).width

    @property
    def epochs(self) -> list[int]:
        """The epochs of which the log has numbers, ascending."""
        return list(self.batches)

    def taken_part(self, epoch: int) -> list[int]:
        """The batches of an epoch of which there are numbers: those that the party did not sit out."""
        every, aside = range(self.schedule.batches), [self.schedule.batches] if self._validated else []
        if not self.params.absence(self.party):
            return [*every, *aside]
        return [batch for batch in every if self.schedule.takes_part(epoch, batch, self.party)] + aside

    def takes_part_in(self, epoch: int) -> bool:
        """True if the party does not sit out every batch of an epoch."""
        every = range(self.schedule.batches)
        return self._validated or any(self.schedule.takes_part(epoch, batch, self.party) for batch in every)

    def whole(self, epoch: int) -> bool:
        """True if the log has the numbers of every batch that the party did not sit out, one at least."""
        taken = self.taken_part(epoch)
        return bool(taken) and set(taken) <= set(self.batches.get(epoch, ()))

    def rows(self, epoch: int) -> EpochRows:
        """The numbers of an epoch.

        Raises:
            Malformed: a message does not fit its batch, or is of a batch that the party sat out.
        """
        # the validation records come after the batches
        order = [*self.schedule.epoch(epoch), *([self.schedule.validation] if self._validated else [])]
        batches, taken = self.batches.get(epoch, []), set(self.taken_part(epoch))
        for batch in batches:
            if batch not in taken:
                raise Malformed(f"{self._where(epoch, batch)}: {self.party} sat out this batch, or there is none")
        places = np.concatenate([np.zeros(0, dtype=np.int64), *(order[batch] for batch in batches)])
        values: Rows = np.empty((len(places), self.width), dtype=np.float32)
        done = 0
        for batch in batches:
            where, parts, rows = self._where(epoch, batch), self.messages.parts(self.sender, epoch, batch), order[batch]
            values[done : done + len(rows)] = decoded(parts, len(rows), self.width, self.params.wire_type, where)
            done += len(rows)
        ascending = np.argsort(places)
        return EpochRows(epoch, places[ascending], values[ascending])

    @property
    def _validated(self) -> bool:
        return self.messages.kind == EMBEDDINGS and len(self.schedule.validation) > 0

    def _where(self, epoch: int, batch: int) -> str:
        return f"{self.sender}: {self.messages.kind} of epoch {epoch}, batch {batch}"


def lost_batches(view: ReceivedRows) -> list[str]:
    """Sentences on numbers that are not there although the party took part, of the epochs up to the last one."""
    gaps, what = [], "embeddings" if view.messages.kind == EMBEDDINGS else "gradients"
    before = [epoch for epoch in range(max(view.epochs, default=0)) if epoch not in view.batches]
    if absent := [epoch for epoch in before if view.takes_part_in(epoch)]:
        gaps.append(f"{len(absent)} epochs before the last one have no {what} in the transcript")
    for epoch, batches in view.batches.items():
        if lost := len(set(view.taken_part(epoch)) - set(batches)):
            gaps.append(f"epoch {epoch}: the {what} of {lost} batches are not in the transcript")
    return gaps


def decoded(parts: Sequence[Numbers], records: int, width: int, wire_type: str, where: str) -> Rows:
    """The rows (records, width) of a batch. Raises Malformed, which names `where`, if a message is of another form."""
    from treetap.neural.numbers import from_bytes  # a view of a network without its numbers needs no PyTorch

    if (rows := sum(part.rows for part in parts)) != records:
        raise Malformed(f"{where}: {rows} rows for {records} records")
    if wrong := [part for part in parts if (part.width, part.wire_type) != (width, wire_type)]:
        said = f"{wrong[0].width} numbers of {wrong[0].wire_type!r} a record"
        raise Malformed(f"{where}: {said}, where the job has {width} of {wire_type!r}")
    try:
        return np.concatenate([from_bytes(it.values, it.rows, it.width, it.wire_type).numpy() for it in parts])
    except ValueError as fault:
        raise Malformed(f"{where}: {fault}") from None


@dataclass(frozen=True)
class EmbeddingsView:
    """The embeddings in the log of one label holder.

    `records`: N, the records common to all parties. `submission`: the nonce of the job's submission. `received`:
    feature party → its messages.
    """

    holder: str
    params: SplitnnParams
    records: int
    submission: str
    received: dict[str, ReceivedRows] = field(repr=False)

    @property
    def parties(self) -> tuple[str, ...]:
        """The feature parties of the job."""
        return tuple(self.received)

    @property
    def epochs(self) -> list[int]:
        """The epochs, from 0, of which embeddings are held, ascending."""
        return sorted({epoch for rows in self.received.values() for epoch in rows.messages.held(rows.sender)})

    @property
    def seen(self) -> int:
        """Number of epochs of which the log has embeddings, held or not."""
        return len({epoch for rows in self.received.values() for epoch in rows.epochs})

    def last_whole(self, party: str) -> int | None:
        """The last epoch held of which the log has every batch that the party did not sit out; None: there is none."""
        rows = self._of(party)
        return max((epoch for epoch in rows.messages.held(party) if rows.whole(epoch)), default=None)

    def of(self, party: str, epoch: int | None = None) -> EpochRows:
        """The embeddings that a feature party sent in an epoch, from 0; None: in the last whole one.

        Raises:
            BadInput: there is no such party, or no embeddings of the epoch are held.
            Malformed: a message does not fit its batch, or is of a batch that the party sat out.
        """
        rows = self._of(party)
        held = [number for number in rows.messages.held(party) if number in rows.batches]
        chosen = self.last_whole(party) if epoch is None else epoch
        if chosen is None:
            raise BadInput(
                f"{party}: the transcript has no epoch with all its embeddings; choose one of {_numbers(held)}"
                if held
                else f"{party}: the transcript has no embeddings of it"
            )
        if chosen not in held:
            raise BadInput(f"{party}: no embeddings of epoch {chosen + 1} are held, only of {_numbers(held)}")
        return rows.rows(chosen)

    def faults(self) -> list[str]:
        """Sentences on embeddings that are not in the transcript."""
        return [f"{party}: {gap}" for party, rows in self.received.items() for gap in lost_batches(rows)]

    def _of(self, party: str) -> ReceivedRows:
        if party not in self.received:
            raise BadInput(f"{party}: is no feature party of the job; they are {', '.join(self.parties)}")
        return self.received[party]


def _numbers(epochs: list[int]) -> str:
    return f"epochs {', '.join(str(epoch + 1) for epoch in epochs)} (from 1)" if epochs else "no epoch"


#: The messages of one kind from one sender for one stage.
Messages = Series[exchange_pb2.PeerMessage]
#: A set of records as it was sent: chunks, in the order of the messages.
Chunks = list[types_pb2.RecordChunk]


def contents(series: Messages, kind: str) -> Iterator[Any]:
    """What a series' messages carry, in order."""
    return (content_of(message, kind) for message in series.in_order())


@dataclass
class TreeReplay:
    """One tree as it was grown in one attempt. `stored`: this party was asked to store it on disk.

    `opened_bits`: of a label holder, the left sets that it made of left bits, by node.
    """

    index: int
    attempt: int
    series: dict[tuple[str, str, int], Messages] = field(default_factory=dict)
    sent: dict[tuple[str, str, int], Messages] = field(default_factory=dict)
    own: dict[int, transcript_pb2.OwnSplit] = field(default_factory=dict)
    opened: OpenedEntries = field(default_factory=OpenedEntries)
    opened_bits: dict[int, Chunks] = field(default_factory=dict)
    stored: bool = False

    def totals(self) -> set[int]:
        """The numbers of records N according to the sets of this tree, the end of each set's last chunk, and others."""
        sets = [chunks for _, chunks in self._sets()]
        for split in self.own.values():
            sets += [list(split.left), list(split.right)]
        return {chunks[-1].start + chunks[-1].span for chunks in sets if chunks} | self.opened.records

    def of(self, step: str, *, sent: bool = False) -> list[tuple[str, int, Messages]]:
        """Peer, stage and messages of each complete series of one step."""
        series = self.sent if sent else self.series
        of_step = [(peer, stage, line) for (peer, name, stage), line in sorted(series.items()) if name == step]
        return [line for line in of_step if line[2].whole]

    def spaces(self, step: str) -> Iterator[tuple[int, Chunks]]:
        """(node, chunks) of the complete series of one step."""
        for _, _, series in self.of(step):
            by_node: defaultdict[int, Chunks] = defaultdict(list)
            for content in contents(series, step):
                for space in content.spaces:
                    by_node[space.node].append(space.records)
            yield from by_node.items()

    def children(self) -> dict[Place, dict[int, Chunks]]:
        """What went left at feature parties' splits, as their label holder knows it: by party and stage, by node."""
        children: dict[Place, dict[int, Chunks]] = {}
        for peer, stage, series in self.of("children"):
            by_node = children.setdefault((peer, stage), {})
            for message in series.in_order():
                for child in message.growth.children.children:
                    if child.HasField("left"):
                        by_node.setdefault(child.node, []).append(child.left)
                    elif child.node in self.opened_bits:
                        by_node[child.node] = self.opened_bits[child.node]
        return children

    def view(self, everybody: Ints, budget: MemoryBudget, *, whole: bool = False) -> TreeView:
        """The party's view of this tree among all records, which `everybody` holds.

        `whole`: own splits are of all records, as a feature party's are from which instance spaces are withheld.

        Raises Malformed if the tree contradicts itself, and BadInput if it does not fit the memory budget.
        """
        total = len(everybody)
        try:
            parts = [*self.series.items()] if self.stored else []
            if lost := [where for where, series in parts if not series.whole]:
                peer, step, stage = lost[0]
                raise Malformed(f"messages of the {step} that {peer} sent for stage {stage} are missing")
            drawn: Ints | None = None
            received: dict[int, Ints] = {}
            for node, chunks in self._sets():
                if node is None:
                    if drawn is None:
                        drawn = np.zeros(total, dtype=np.int64)
                        budget.take(drawn.nbytes)
                    drawn[rows_of(chunks, total)] += 1
                else:
                    rows = rows_of(chunks, total)
                    budget.take(rows.nbytes)
                    if not np.array_equal(received.setdefault(node, rows), rows):
                        raise Malformed(f"node {node} is said to hold different records")
            own = [
                (
                    OwnSplit(
                        *(it.node, it.handle, it.feature, it.feature_name, it.bin, it.threshold, it.missing_left),
                        tuple(it.categories),
                    ),
                    rows_of(it.left, total),
                    rows_of(it.right, total),
                )
                for it in self.own.values()
            ]
            for _, left, right in own:
                budget.take(left.nbytes + right.nbytes)
            cuts = [_whole(it, total) for it in own] if whole else []
            nodes = known_nodes(everybody, received, [] if whole else own, budget, cuts)
        except Malformed as fault:
            raise Malformed(f"tree {self.index}, attempt {self.attempt}: {fault}") from None
        by_node = sorted(cuts, key=lambda cut: cut.node)
        return TreeView(self.index, self.attempt, self.stored, total, nodes, drawn, tuple(by_node))

    def _sets(self) -> Iterator[tuple[int | None, Chunks]]:
        """(node, chunks) of the received spaces; node None: the sample. Incomplete series are left out.

        A sample with replacement comes as several sets: the records drawn at least once, at least twice, and so on.
        """
        if sum(step == "sampled_records" for _, step, _ in self.series) > 1:
            raise Malformed("the sample was sent twice")
        for _, _, series in self.of("sampled_records"):
            sets: list[Chunks] = []
            sampled = (message.growth.sampled_records for message in series.in_order())
            for chunk in (chunk for part in sampled for chunk in part.chunks):
                if chunk.start == 0 or not sets:  # every set begins with the first record
                    sets.append([])
                sets[-1].append(chunk)
            yield from ((None, chunks) for chunks in sets)
        yield from self.spaces("instance_spaces")
        for sent_left in self.children().values():
            yield from ((2 * node, chunks) for node, chunks in sent_left.items())
        may_be_split = self._may_be_split()
        yield from ((node, chunks) for node, chunks in self.spaces("node_records") if node in may_be_split)

    def _may_be_split(self) -> set[int]:
        """Children of PIVODL's splits whose records all parties are told; of leaves each is told its own."""
        of_stages = (contents(series, "divided_nodes") for _, _, series in self.of("divided_nodes"))
        splits = [split for of_stage in of_stages for content in of_stage for split in content.nodes]
        return {2 * it.node for it in splits if it.left_open} | {2 * it.node + 1 for it in splits if it.right_open}


def _whole(own: tuple[OwnSplit, Ints, Ints], total: int) -> WholeCut:
    """The cut of an own split. Malformed if it does not place every record once."""
    split, left, right = own
    sides = np.zeros(total, dtype=np.int64)
    sides[left] += 1
    sides[right] += 1
    if not (sides == 1).all():
        raise Malformed(f"the split of node {split.node} does not send each of the {total} records to one side")
    return WholeCut(split.node, left, split)

"""The candidates that feature parties offer for one tree: their sums, opened, and what the parties say of them.

At the root a party says which of its candidates are of columns with monotone constraints (marks), and which are sums
over categories (groups). Only the label holder opens the sums. Candidates that win go back to their owner by place.

A label holder's own entries in its transcript: what it summed, the sums that it opened, and the splits made.

They are the input of attacks on the feature parties' columns, and are recorded if the party's policy says
`record_sums`. Sums come here as the key's holder has opened them; nothing here has access to a key.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import numpy as np
from google.protobuf.message import Message

from treetap.arrays import Ints
from treetap.errors import Malformed
from treetap.models.own_split import OwnSplit
from treetap.models.store import CELLS
from treetap.party.defences.checks import refuse_classes
from treetap.party.growth.messages import partition_messages, won_messages
from treetap.party.growth.split_table import TreeColumns
from treetap.party.runtime.context import SUM_US, StepContext
from treetap.process.together import together
from treetap.protocols.exclusions import Feature
from treetap.protocols.growth import TreeSizes
from treetap.trees.candidates import MARKS
from treetap.trees.growing_tree import Choice, GrowingTree
from treetap.wire.v2 import exchange_pb2, growth_pb2, transcript_pb2

if TYPE_CHECKING:
    from treetap.party.growth.shared_choice import LabelHolderChoice

#: Fields of the first message of a series alone.
SAID_ONCE = ("nodes", "marks", "partitioned", "min_cell_records", "missing_left")
#: Most numbers in one record of the transcript, of 8 bytes each.
NUMBERS_PER_RECORD = 65_536


class RecordedSums:
    """Writes the entries of one job's trees; does nothing under a policy without `record_sums`.

    Of a job whose sums nobody has `opened` only the own splits.
    """

    def __init__(self, context: StepContext, *, opened: bool = True) -> None:
        self._context, self._on = context, context.policy.people.record_sums
        self._opened = self._on and opened

    def values(self, t: int, values: Ints) -> None:
        """Record the values (N, S) int64 that tree `t` sums."""
        records, slots = values.shape
        own = transcript_pb2.OwnValues
        entries = (own(records=records, slots=slots, first=first, values=part) for first, part in _parts(values))
        self._own(t, 0, entries if self._opened else ())

    def offered(
        self, t: int, stage: int, party: str, nodes: Sequence[int], sums: Ints, categories: Sequence[int]
    ) -> None:
        """Record a feature party's, or in PIVODL a source's, opened sums of a stage: (nodes, candidates, S) int64.

        `categories`: the numbers of categories of the columns whose categories are the last candidates.
        """
        entries = (
            transcript_pb2.OwnSums(
                party=party,
                nodes=nodes,
                candidates=sums.shape[1],
                slots=sums.shape[2],
                categories=categories,
                first=first,
                sums=part,
            )
            for first, part in _parts(sums)
        )
        self._own(t, stage, entries if self._opened else ())

    def won(self, t: int, stage: int, won: Mapping[str, Sequence[Choice]]) -> None:
        """Record the winners of a stage that are feature parties', with all tied places of each."""
        places = {party: {choice.node: choice.candidates for choice in choices} for party, choices in won.items()}
        bodies = (body for party, own in places.items() if own for body in won_messages(party, own))
        self._own(t, stage, (body.body for body in bodies) if self._opened else ())

    def own_split(self, t: int, stage: int, split: OwnSplit, columns: TreeColumns, growing: GrowingTree) -> None:
        """Record a split of the label holder's own, which `growing` has carried out."""
        if self._on:
            left, right = growing.rows[2 * split.node], growing.rows[2 * split.node + 1]
            self._own(t, stage, [columns.own_record(split, left, right, len(growing.values))])

    def _own(self, t: int, stage: int, entries: Iterable[Message]) -> None:
        """Write the entries; they are made only if they are wanted."""
        for entry in entries if self._on else ():
            self._context.recorder.own(t, stage, self._context.attempt, entry)


def _parts(numbers: Ints) -> Iterator[tuple[int, bytes]]:
    """The numbers in order, in bounded parts: the place of each part's first one, and its bytes; at least one part."""
    flat = numbers.reshape(-1)
    for first in range(0, max(len(flat), 1), NUMBERS_PER_RECORD):
        yield first, flat[first : first + NUMBERS_PER_RECORD].astype("<i8").tobytes()


@dataclass(frozen=True)
class Offer:
    """Candidate sums of one feature party at a stage, as they came.

    Attributes:
        party: their sender.
        tree: its number.
        stage: of the tree.
        nodes: whose sums they are, in this order.
        candidates: of each node.
        ciphertexts: of the sums.
        halves: of a lattice in their place: first and second halves as they come, some at a time.
    """

    party: str
    tree: int
    stage: int
    nodes: Sequence[int]
    candidates: int
    ciphertexts: bytes
    halves: AsyncIterator[tuple[bytes, bytes]] | None = None

    @property
    def sums(self) -> int:
        """The number of sums, a group of slots each."""
        return len(self.nodes) * self.candidates


#: Opens sums: an offer → the criterion's slots (sums, S).
OpenSums = Callable[[Offer], Awaitable[Ints]]


async def _halves(
    first: growth_pb2.CandidateSums, series: AsyncIterator[exchange_pb2.PeerMessage]
) -> AsyncIterator[tuple[bytes, bytes]]:
    """Ciphertexts or first halves, and second halves, of a message and of those that follow it."""
    yield first.ciphertexts, first.second_halves
    async for message in series:
        body = message.growth.candidate_sums
        if body.candidates != first.candidates or any(getattr(body, once) for once in SAID_ONCE):
            raise Malformed("its number of candidates has changed, or what is said once comes again")
        yield body.ciphertexts, body.second_halves


class OfferedCandidates:
    """The offers of all feature parties in the tree under construction.

    Attributes:
        marks: by party with constraints, those of its candidates.
        cells: by party that merges its bins, the fewest drawn records in a cell that it sums.
    """

    def __init__(
        self,
        context: StepContext,
        sizes: TreeSizes,
        open_sums: OpenSums,
        growing: GrowingTree,
        choice: LabelHolderChoice | None,
    ) -> None:
        """`choice`: where sums are shared; what is opened of one is a share of it."""
        self._context, self._sizes, self._open_sums, self._growing = context, sizes, open_sums, growing
        self._choice = choice
        self.groups: defaultdict[str, list[range]] = defaultdict(list)
        self.marks: dict[str, Ints] = {}
        self.cells: dict[str, int] = {}
        self._missing_left: dict[str, slice] = {}

    async def take(self, party: str, t: int, stage: int) -> Ints:
        """The decrypted candidate sums of one feature party at a stage: (nodes, candidates, slots) int64.

        Where they are masked the words of shares, of all nodes that were asked for.
        """
        build = self._growing.asked
        series = self._context.mailbox.series(party, "candidate_sums", t, stage)
        first = (await anext(series)).growth.candidate_sums
        nodes, candidates = list(first.nodes), first.candidates
        if nodes != build:
            raise Malformed(f"{party} sent candidates of nodes {nodes}, expected {build}")
        if first.min_cell_records:
            self._take_cells(party, t, stage, first.min_cell_records)
        if first.marks:
            marks = list(first.marks)  # which come once, at the root
            if stage or party in self.marks or len(marks) != candidates or not set(marks) <= set(MARKS):
                raise Malformed(f"{party} has sent marks that are not those of its {candidates} candidates in tree {t}")
            self.marks[party] = np.array(marks, dtype=np.int64)
        if not stage and self._sizes.words and (party in self.cells) != (party in self._sizes.merging):
            raise Malformed(f"{party} does not say of tree {t} what it said with the key, whether it merges its bins")
        # the mailbox bounds the party's next messages by this number
        self._sizes.offered[party] = t, candidates
        if first.partitioned:
            self._take_groups(party, t, stage, list(first.partitioned), candidates)
        if not stage:
            last = candidates - sum(first.partitioned)
            if first.missing_left > last:
                raise Malformed(f"{party} says that {first.missing_left} candidates of {last} have missing values left")
            self._missing_left[party] = slice(last - first.missing_left, last)
        halves = _halves(first, series)
        try:
            if self._sizes.words:
                offer = Offer(party, t, stage, nodes, candidates, b"", halves)
            else:
                packed = b"".join([part async for part, _ in halves])
                offer = Offer(party, t, stage, nodes, candidates, packed)
            sums = await self._open_sums(offer)
            offered = sums.reshape(len(nodes), candidates, sums.shape[1])
            number = 1 + self._sizes.members.feature_parties.index(party)
            if self._choice is not None:
                return self._choice.with_lacked(party, offered, self._growing, number, self._missing_left[party])
            await self._context.offload(lambda: self._growing.check_offered(offered, number), us=SUM_US * offered.size)
        except Malformed as failure:
            raise Malformed(f"{party} has offered what is no sum over its columns: {failure}") from None
        return self._growing.with_lacked(self._growing.take_asked(offered), number, self._missing_left[party])

    def kept(self) -> dict[str, dict[str, int]]:
        """What the parties say of the tree's sums, as it is stored beside the tree."""
        return {CELLS: self.cells} if self.cells else {}

    async def send_won(self, party: str, t: int, stage: int, won: Sequence[Choice]) -> None:
        """Send a party the candidates of its nodes of a stage that won, and partitions if it has sums over categories.

        `won`: the choices of its candidates.
        """
        send = self._context.outbox.send
        places = won_messages(party, {choice.node: choice.candidates for choice in won})
        sending = [send(party, "won_splits", places, round=t, stage=stage)]
        if sizes := [*map(len, self.groups[party])]:
            bodies = partition_messages({choice.node: choice.partitions for choice in won}, sizes)
            sending.append(send(party, "chosen_partitions", bodies, round=t, stage=stage))
        await together(*sending)

    def _take_groups(self, party: str, t: int, stage: int, sizes: Sequence[int], candidates: int) -> None:
        """Note which places of a feature party's candidates are sums over categories: the last ones.

        Raises:
            Malformed: there are not as many places, or it is not the root.
            Refused: the policy lets no party know how the labels put its categories in order.
        """
        first = candidates - sum(sizes)
        if stage or first < 0 or min(sizes) < 1:
            raise Malformed(f"{party} says that sums over {sum(sizes)} categories are among {candidates} of tree {t}")
        deed = f"partition the categories of {party}, which would learn in what order the labels put them"
        self._context.policy.check(self._context.party, "category_partitions", True, deed=deed, instead="")
        self.groups[party] = [range(*ends) for ends in pairwise(accumulate(sizes, initial=first))]

    def _take_cells(self, party: str, t: int, stage: int, least: int) -> None:
        """Note that a party merges its bins, so that its sums of a node do not follow from those of its sibling."""
        if stage or party in self.cells:
            raise Malformed(f"{party} says in the middle of tree {t} that it merges its bins")
        if self._growing.limited:
            refuse_classes(self._context.party, Feature.MIN_CELL_RECORDS)
        self.cells[party] = least
        self._growing.sum_both()

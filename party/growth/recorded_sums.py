"""A label holder's own entries in its transcript: what it summed, the sums that it opened, and the splits made.

They are the input of attacks on the feature parties' columns, and are recorded if the party's policy says
`record_sums`. Sums come here as the key's holder has opened them; nothing here has access to a key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from google.protobuf.message import Message

from treetap.arrays import Ints
from treetap.models.own_split import OwnSplit
from treetap.party.growth.messages import won_messages
from treetap.party.growth.split_table import TreeColumns
from treetap.party.runtime.context import StepContext
from treetap.trees.growing_tree import Choice, GrowingTree
from treetap.wire.v2 import transcript_pb2

#: Most numbers in one record of the transcript, of 8 bytes each.
NUMBERS_PER_RECORD = 65_536


class RecordedSums:
    """Writes the entries of one job's trees; does nothing under a policy without `record_sums`."""

    def __init__(self, context: StepContext) -> None:
        self._context, self._on = context, context.policy.people.record_sums

    def values(self, t: int, values: Ints) -> None:
        """Record the values (N, S) int64 that tree `t` sums."""
        if not self._on:
            return
        records, slots = values.shape
        for first, part in _parts(values):
            self._own(t, 0, transcript_pb2.OwnValues(records=records, slots=slots, first=first, values=part))

    def offered(
        self, t: int, stage: int, party: str, nodes: Sequence[int], sums: Ints, categories: Sequence[int]
    ) -> None:
        """Record a feature party's, or in PIVODL a source's, opened sums of a stage: (nodes, candidates, S) int64.

        `categories`: the numbers of categories of the columns whose categories are the last candidates.
        """
        if not self._on:
            return
        for first, part in _parts(sums):
            entry = transcript_pb2.OwnSums(
                party=party,
                nodes=nodes,
                candidates=sums.shape[1],
                slots=sums.shape[2],
                categories=categories,
                first=first,
                sums=part,
            )
            self._own(t, stage, entry)

    def won(self, t: int, stage: int, won: Mapping[str, Sequence[Choice]]) -> None:
        """Record which nodes of a stage each feature party won, and by which places among its candidates."""
        if not self._on:
            return
        for party, choices in won.items():
            if choices:
                for body in won_messages(party, {choice.node: choice.candidates for choice in choices}):
                    self._own(t, stage, body.body)

    def own_split(self, t: int, stage: int, split: OwnSplit, columns: TreeColumns, growing: GrowingTree) -> None:
        """Record a split of the label holder's own, which `growing` has carried out."""
        if not self._on:
            return
        left, right = growing.rows[2 * split.node], growing.rows[2 * split.node + 1]
        self._own(t, stage, columns.own_record(split, left, right, len(growing.values)))

    def _own(self, t: int, stage: int, entry: Message) -> None:
        self._context.recorder.own(t, stage, self._context.attempt, entry)


def _parts(numbers: Ints) -> Iterator[tuple[int, bytes]]:
    """The numbers in order, in bounded parts: the place of each part's first one, and its bytes; at least one part."""
    flat = numbers.reshape(-1)
    for first in range(0, max(len(flat), 1), NUMBERS_PER_RECORD):
        yield first, flat[first : first + NUMBERS_PER_RECORD].astype("<i8").tobytes()

"""Messages that an attempt at a job can receive: a role declares them, and the mailbox takes no others.

Sizes follow from the job: from the number of records, the limits of its trees and the length of its key. They are
bounds, not forecasts: what a peer sends in good order is smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from treetap.errors import Refused
from treetap.protocols.messages import JobSizes, MessageRow, Series

#: Rounds of a prediction, which are its blocks: as many as records are asked for.
BLOCKS = range(1 << 62)
#: Bytes of a message beside its content, in memory: its place in a series and its digest.
OVERHEAD = 256
#: Bytes beside the declared ones that any series may have: its messages' own fields.
ALLOWANCE = 65_536
#: Series of one kind and sender of which unread messages may wait: the one that is read, and the next.
SERIES_AT_ONCE = 2
#: Bytes of a range of records beside its positions, with the node that it belongs to.
_RANGE = 64
#: Records in a range at most.
_SPAN = 1 << 21


@dataclass(frozen=True)
class Expected:
    """Messages of one kind.

    Attributes:
        senders: the parties that send it.
        size: most bytes of a series; called when a message comes, since the number of records becomes known with time.
        rounds: of the series.
        stages: of the series of a round; by sender where they differ.
        of_series: most bytes of one series, by sender, round and stage, where that may be less than `size`.
    """

    senders: Collection[str]
    size: Callable[[], int]
    rounds: range = range(1)
    stages: Collection[int] | Mapping[str, Collection[int]] = range(1)
    of_series: Callable[[str, int, int], int] | None = None

    def check(self, sender: str, kind: str, round: int, stage: int) -> None:
        """`Refused` unless such a series can come."""
        stages = self.stages.get(sender, ()) if isinstance(self.stages, Mapping) else self.stages
        if sender not in self.senders:
            senders = ", ".join(self.senders) or "no party"
            raise Refused(f"{kind} of {sender}: this party receives it from {senders} only")
        if round not in self.rounds or stage not in stages:
            raise Refused(f"{kind} of {sender}: this job has no round {round}, stage {stage} of it")

    def most(self, sender: str, round: int, stage: int) -> int:
        """Most bytes of a series, with those of its messages' own fields."""
        size = self.size() if self.of_series is None else min(self.size(), self.of_series(sender, round, stage))
        return size * 5 // 4 + ALLOWANCE


#: Kind of message → what can come of it.
Receives = Mapping[str, Expected]


def record_set(total: int) -> int:
    """Bytes of a set of `total` records."""
    return total // 8 + _RANGE * (1 + total // _SPAN)


def record_sets(total: int, sets: int) -> int:
    """Bytes of `sets` sets that have at most `total` records together."""
    return 5 * total + _RANGE * sets * (1 + total // _SPAN)


def public_key_size(bits: int) -> int:
    """Bytes of a public key with the layout of a plaintext, of one slot per bit at most."""
    return bits // 8 + bits


def expected_of(rows: Iterable[MessageRow], receiver: str, sizes: JobSizes) -> Receives:
    """Messages that go to a party by the rows of its job; the sizes are read when a message comes."""
    found: dict[str, Expected] = {}
    for row in rows:
        senders = [sender for sender, to in row.route(sizes.members) if to == receiver]
        if row.times is None or row.bound is None or not senders:
            continue
        times = {sender: row.times(sizes, sender, receiver) for sender in senders}
        rounds, _ = times[senders[0]]

        def bound(sender: str, round: int, stage: int, row: MessageRow = row) -> int:
            assert row.bound is not None
            return row.bound(sizes, Series(sender, receiver, round, stage))

        stages = {sender: stages for sender, (_, stages) in times.items()}
        found[row.content] = Expected(senders, lambda: 1 << 62, rounds, stages, bound)
    return found
